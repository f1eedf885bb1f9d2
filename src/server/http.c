#include "server/http.h"

#ifdef CARAT_HAVE_HTTP
#include "server/http_internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "server/http_entry.h"
#include "server/http_listener.h"
#include "server/http_refusal.h"

enum {
    DESCRIPTORS_KEPT = 48, /* besides LINGER_MAX: for files, for what else the program opens */
    EVENTS_AT_ONCE = 256,
    IDLE_AT_LEAST = 1, /* seconds, before somebody else gets the place */
    LINGER_SECONDS = 2,
    /* Of a connection's memory: for the head of a reply, besides header_bytes_max. The library
     * clears all of it after each reply, so it stands in memory while the connection is idle. */
    REPLY_BYTES = 2048
};

/* Descriptors are not to run out: the program needs some, and a refused accept() is a busy loop. */
static void share_descriptors(struct http *h)
{
    struct rlimit files;
    const rlim_t kept = DESCRIPTORS_KEPT + LINGER_MAX, wanted = (rlim_t)h->options.connections_max;
    h->connections_max = (size_t)wanted;
    h->linger.places = LINGER_MAX;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted + kept) return;
    const bool are_many = files.rlim_cur > 2 * kept;
    const rlim_t possible = are_many ? files.rlim_cur - kept : files.rlim_cur / 2;
    if (possible < wanted) h->connections_max = (size_t)possible;
    if (!are_many) h->linger.places = (int)(files.rlim_cur / 8);
}

static int start_daemon(struct http *h, struct carat_error *err)
{
    const struct http_options *o = &h->options;
    const unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
                           MHD_USE_ERROR_LOG | (h->identity ? MHD_USE_TLS : 0);
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, tls_no_certificate()},
        {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem *no_tls = &tls[2];
    h->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, exchange_access, h,                              /**/
        MHD_OPTION_EXTERNAL_LOGGER, refusal_of_library, (void *)h,             /**/
        MHD_OPTION_NOTIFY_COMPLETED, exchange_completed, h,                    /**/
        MHD_OPTION_NOTIFY_CONNECTION, exchange_connection, h,                  /**/
        MHD_OPTION_URI_LOG_CALLBACK, exchange_target, h,                       /**/
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->header_bytes_max + REPLY_BYTES, /**/
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)REPLY_BYTES,           /**/
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->connections_max,             /**/
        MHD_OPTION_ARRAY, h->identity ? tls : no_tls, MHD_OPTION_CONNECTION_TIMEOUT, 0U,
        MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_END);
    /* Later versions parse strictly themselves, and may keep headers elsewhere. */
    h->sees_lines = strcmp(MHD_get_version(), "0.9.75") == 0;
    if (!h->daemon) return err_set(err, CARAT_EINTERNAL, "server: the library does not start");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info) return err_set(err, CARAT_EINTERNAL, "server: the library has no epoll");
    return watch_also(&h->watch, info->epoll_fd, h, err);
}

static int open_listener(struct http *h, struct carat_error *err)
{
    const struct http_options *o = &h->options;
    if (o->listen_fd >= 0) {
        TRY(listen_given(o->listen_fd, err));
        h->listen_fd = o->listen_fd;
    } else if (o->unix_path) {
        TRY(listen_unix(o->unix_path, &h->listen_fd, err));
        h->owns_path = true;
    } else {
        TRY(listen_tcp(o->host, o->port, &h->listen_fd, err));
    }
    h->port = listen_port(h->listen_fd);
    h->is_listening = true;
    return CARAT_OK;
}

static int start(struct http *h, struct carat_error *err)
{
    const struct http_options *o = &h->options;
    h->watch.seconds[DEADLINE_IDLE] = o->idle_seconds;
    h->watch.seconds[DEADLINE_HEADERS] = o->header_seconds;
    h->watch.seconds[DEADLINE_BODY] = o->body_seconds;
    h->watch.seconds[DEADLINE_WRITE] = o->write_seconds;
    h->watch.seconds[DEADLINE_LINGER] = LINGER_SECONDS;
    h->watch.seconds[DEADLINE_LEFT] = 0.05; /* the library reads what is there in its next run */
    TRY(watch_open(&h->watch, err));
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->wake_fd < 0) return err_set(err, CARAT_EIO, "server: eventfd: %s", strerror(errno));
    TRY(watch_also(&h->watch, h->wake_fd, &h->wake_fd, err));
    if (o->certificate || o->private_key) {
        if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
            return err_set(err, CARAT_EUNSUPPORTED, "server: libmicrohttpd was built without TLS");
        TRY(tls_identity_open(&h->identity, o->certificate, o->private_key, err));
    }
    h->first_bytes = mem_alloc(o->header_bytes_max + 1, 1);
    if (!h->first_bytes) return err_no_memory(err, "server", o->header_bytes_max + 1);
    TRY(open_listener(h, err));
    share_descriptors(h);
    return start_daemon(h, err);
}

static int copy_texts(struct http *h, struct carat_error *err)
{
    struct http_options *o = &h->options;
    const char **const places[4] = {&o->host, &o->unix_path, &o->certificate, &o->private_key};
    for (int i = 0; i < 4; i++) {
        if (!*places[i]) continue;
        h->texts[i] = mem_copy_text(*places[i], strlen(*places[i]));
        if (!h->texts[i]) return err_no_memory(err, "server", strlen(*places[i]));
        *places[i] = h->texts[i];
    }
    return CARAT_OK;
}

int http_open(struct http **out, const struct http_options *options,
              const struct http_events *events, struct carat_error *err)
{
    *out = NULL;
    struct http *h = mem_alloc(1, sizeof *h);
    if (!h) return err_no_memory(err, "server", sizeof *h);
    h->options = *options;
    const size_t one = options->body_bytes_max + options->body_bytes_max / 2;
    if (h->options.bodies_bytes_max < one) h->options.bodies_bytes_max = one;
    h->events = *events;
    h->wake_fd = h->listen_fd = h->watch.epoll = -1;
    h->next_tick = os_seconds() + events->tick_seconds;
    int status = copy_texts(h, err);
    if (status == CARAT_OK) status = start(h, err);
    if (status == CARAT_OK) {
        *out = h;
    } else {
        http_close(h);
    }
    return status;
}

uint16_t http_port(const struct http *h)
{
    return h->port;
}

struct http_counts http_count(const struct http *h)
{
    const size_t *n = h->watch.n;
    struct http_counts counts = {.idle = n[DEADLINE_IDLE],
                                 .reading = n[DEADLINE_HEADERS] + n[DEADLINE_BODY],
                                 .writing = n[DEADLINE_WRITE]};
    const size_t others = counts.idle + counts.reading + counts.writing + n[DEADLINE_LEFT];
    counts.waiting = h->n_connections - others;
    return counts;
}

void http_wake(struct http *h)
{
    if (atomic_exchange(&h->is_woken, true)) return;
    const int saved = errno;
    const uint64_t one = 1;
    (void)!write(h->wake_fd, &one, sizeof one);
    errno = saved;
}

void http_stop(struct http *h, bool is_over)
{
    atomic_store(&h->is_stopping, true);
    if (is_over) atomic_store(&h->is_over, true);
    http_wake(h);
}

int http_reload(struct http *h, struct carat_error *err)
{
    struct tls_identity *fresh;
    if (!h->identity) return CARAT_OK;
    TRY(tls_identity_open(&fresh, h->options.certificate, h->options.private_key, err));
    tls_identity_release(h->identity); /* connections hold the old one as long as they need it */
    h->identity = fresh;
    return CARAT_OK;
}

static void take_wake(struct http *h)
{
    uint64_t count;
    (void)!read(h->wake_fd, &count, sizeof count);
    /* Before the callback: a wake during it is not lost. */
    atomic_store(&h->is_woken, false);
    h->events.on_wake(h->events.user);
}

static void stop_listening(struct http *h)
{
    h->is_listening = false;
    entry_listen(h, false);
    /* Removed here and not at the end: from now on another server may take the name, and its
     * socket must stay. */
    if (h->owns_path) (void)unlink(h->options.unix_path);
    h->owns_path = false;
    (void)close(h->listen_fd);
    h->listen_fd = -1;
}

static void cut(struct connection *c)
{
    if (entry_has(c)) {
        entry_close(c);
    } else {
        exchange_cut(c);
    }
}

/* Connections that are between requests. */
static void cut_idle(struct http *h)
{
    struct watched *p;
    while ((p = h->watch.first[DEADLINE_IDLE])) {
        watch_begin(&h->watch, p, DEADLINE_NONE);
        cut((struct connection *)p);
    }
}

/* All places are taken and a client connects: the connection that was idle for longest makes
 * room. */
static void make_room(struct http *h)
{
    struct watched *p = h->watch.first[DEADLINE_IDLE];
    struct pollfd listener = {.fd = h->listen_fd, .events = POLLIN};
    if (h->n_connections < h->connections_max || !p || !h->is_listening) return;
    if (os_seconds() - p->since < IDLE_AT_LEAST || poll(&listener, 1, 0) <= 0) return;
    cut((struct connection *)p);
}

static void cut_all(struct http *h)
{
    for (struct connection *c = h->connections, *after; c; c = after) {
        after = c->after; /* it may be freed */
        cut(c);
    }
}

/* Seconds that the loop may sleep. */
static double patience(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES && ms == 0) return 0;
    const double to_tick = h->next_tick - os_seconds();
    return watch_next(&h->watch, to_tick > 0 ? to_tick : 0);
}

static void look_at_clock(struct http *h)
{
    enum deadline which;
    struct watched *late;
    while ((late = watch_expired(&h->watch, &which))) {
        if (late->is_lingering) {
            linger_end(&h->watch, late);
        } else if (entry_has((struct connection *)late)) {
            entry_expired((struct connection *)late, which);
        } else {
            exchange_expired((struct connection *)late, which);
        }
    }
    const double now = os_seconds();
    if (now < h->next_tick) return;
    h->next_tick = now + h->events.tick_seconds;
    h->is_short = false;
    h->events.on_tick(h->events.user);
}

static void take_event(struct http *h, const struct epoll_event *event)
{
    void *tag = event->data.ptr;
    if (tag == h) return; /* the library's: it runs after all of them */
    if (tag == &h->wake_fd) {
        take_wake(h);
    } else if (tag == &h->listen_fd) {
        entry_accept(h);
    } else if (((struct watched *)tag)->is_lingering) {
        linger_read(&h->watch, tag);
    } else if (entry_has(tag)) {
        entry_noticed(tag, event->events);
    } else {
        exchange_noticed(tag, event->events);
    }
}

int http_run(struct http *h, struct carat_error *err)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    for (;;) {
        if (h->is_listening && atomic_load(&h->is_stopping)) stop_listening(h);
        if (!h->is_listening) cut_idle(h);
        if (atomic_load(&h->is_over)) cut_all(h);
        if (atomic_load(&h->is_stopping) && h->n_connections == 0) return CARAT_OK;
        entry_listen(h, h->is_listening && !h->is_short && h->n_connections < h->connections_max);
        const double seconds = patience(h);
        const int n = epoll_wait(h->watch.epoll, events, EVENTS_AT_ONCE,
                                 seconds > 0 ? (int)(seconds * 1000) + 1 : 0);
        if (n < 0 && errno != EINTR)
            return err_set(err, CARAT_EIO, "server: epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) take_event(h, &events[i]);
        look_at_clock(h);
        make_room(h);
        if (MHD_run(h->daemon) != MHD_YES)
            return err_set(err, CARAT_EINTERNAL, "server: the library does not go on");
    }
}

void http_close(struct http *h)
{
    if (!h) return;
    if (h->daemon) {
        if (h->is_listening) stop_listening(h);
        cut_all(h);
        (void)MHD_run(h->daemon);
        MHD_stop_daemon(h->daemon);
    }
    if (h->listen_fd >= 0) (void)close(h->listen_fd);
    if (h->owns_path) (void)unlink(h->options.unix_path);
    if (h->wake_fd >= 0) (void)close(h->wake_fd);
    linger_end_all(&h->linger, &h->watch);
    tls_identity_release(h->identity);
    watch_close(&h->watch);
    for (int i = 0; i < 4; i++) mem_free(h->texts[i]);
    mem_free(h->first_bytes);
    mem_free(h);
}
#else

#include "base/status.h"

int http_open(struct http **out, const struct http_options *options,
              const struct http_events *events, struct carat_error *err)
{
    (void)options;
    (void)events;
    *out = NULL;
    (void)err_set(err, CARAT_EUNSUPPORTED, "server: carat was built without libmicrohttpd");
    err_hint(err, "install libmicrohttpd-dev and build again");
    return CARAT_EUNSUPPORTED;
}

/* Nobody has a server to call these with. */
uint16_t http_port(const struct http *h)
{
    return h ? 1 : 0;
}

struct http_counts http_count(const struct http *h)
{
    return (struct http_counts){.idle = http_port(h)};
}

int http_run(struct http *h, struct carat_error *err)
{
    (void)h;
    return err_set(err, CARAT_EUNSUPPORTED, "server: carat was built without libmicrohttpd");
}

void http_stop(struct http *h, bool is_over)
{
    (void)h;
    (void)is_over;
}

int http_reload(struct http *h, struct carat_error *err)
{
    return http_run(h, err);
}

void http_close(struct http *h)
{
    (void)h;
}

void http_wake(struct http *h)
{
    (void)h;
}
#endif
