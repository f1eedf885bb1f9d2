#include "server/server.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "json/json_memory.h"
#include "server/dispatch.h"
#include "server/kv_events.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/prepare.h"
#include "server/problems.h"
#include "server/replicas.h"
#include "server/warmup.h"

enum { WORKERS_LEAST = 2, WORKERS_MOST = 8 };
enum { LAST_WORDS = 2 }; /* seconds that error events have to reach their clients */

/* ---- Signals: flags, and a wake-up -------------------------------------------------------- */

static volatile sig_atomic_t n_ends, end_signal, n_hangups, is_loading;
static struct http *volatile woken;

static void on_end(int number)
{
    n_ends++;
    end_signal = number;
    if (n_ends > 1 && is_loading) _exit(128 + number); /* opening an engine cannot be ended */
    if (woken) http_wake(woken);
}

static void on_hangup(int number)
{
    (void)number;
    n_hangups++;
    if (woken) http_wake(woken);
}

static void take_signals(struct http *h)
{
    struct sigaction action = {.sa_flags = SA_RESTART};
    woken = h;
    action.sa_handler = on_end;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = on_hangup;
    sigaction(SIGHUP, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

/* ---- The server, seen from its own thread -------------------------------------------------- */

struct server {
    struct service service;
    pthread_t loader;
    bool has_loader;
    atomic_bool is_loaded; /* the loader is through, by `status` */
    int status;
    struct carat_error err;
    struct replicas *loaded;
    struct kv_events *kv_events; /* NULL: none */
    int ends_seen, hangups_seen;
    bool had_terminal; /* at the start */
    double ends_at;    /* os_seconds(); 0: not yet */
    double next_alive;
    bool has_told_last_words;
    bool has_served; /* was ready once: what its engines hold is worth keeping */
};

/* In an engine's thread. */
static void on_news(void *user, struct job *const *jobs, size_t n)
{
    struct server *server = user;
    struct service *s = &server->service;
    bool is_first = false;
    for (size_t i = 0; i < n; i++) {
        struct call *c = jobs[i]->user;
        if (!c) continue; /* of the warm-up */
        is_first = inbox_add(&s->inbox, &c->news) || is_first;
    }
    if (is_first) http_wake(s->http);
}

/* In a worker. */
static void on_work(void *user, void *owner)
{
    struct service *s = user;
    struct call *c = owner;
    prepare_call(s, c);
    if (inbox_add(&s->inbox, &c->news)) http_wake(s->http);
}

/* All engines begin with what the first one had. */
static int on_open(void *user, size_t i, carat_engine *engine, struct carat_error *err)
{
    const struct server *server = user;
    const struct service *s = &server->service;
    (void)i;
    return prefixes_load(&s->options->prefixes, engine, err);
}

static void on_end_of_engine(void *user, size_t i, carat_engine *engine)
{
    const struct server *server = user;
    const struct service *s = &server->service;
    if (i > 0 || !server->has_served || n_ends > 1) return;
    notify_status("keeps prompts");
    prefixes_save(&s->options->prefixes, s->salt_secret, engine);
}

static void *load(void *user)
{
    struct server *server = user;
    struct service *s = &server->service;
    const struct replicas_options options = {
        .engines = s->options->engines,
        .n = s->options->n_engines,
        .n_waiting_max = s->options->queue_max,
        .kv_events = server->kv_events,
    };
    const struct replicas_events events = {
        .user = server, .on_news = on_news, .on_open = on_open, .on_end = on_end_of_engine};
    server->status =
        replicas_open(&server->loaded, s->options->model, &options, &events, &server->err);
    if (server->status == CARAT_OK)
        server->status = warmup_run(server->loaded, s->options->model, options.n, &server->err);
    atomic_store(&server->is_loaded, true);
    http_wake(s->http);
    return NULL;
}

static void take_loaded(struct server *server)
{
    struct service *s = &server->service;
    if (s->state != SERVICE_LOADING || !atomic_load(&server->is_loaded)) return;
    is_loading = 0;
    if (server->status != CARAT_OK) {
        http_stop(s->http, true);
        return;
    }
    struct replicas_now now;
    s->replicas = server->loaded;
    replicas_look(s->replicas, &now);
    s->n_ctx = now.n_ctx;
    s->before = now.stats;
    s->state = SERVICE_READY;
    server->has_served = true;
    notify_ready("answers requests");
    s->options->on_ready(s->options->user, http_port(s->http), replicas_setup(s->replicas, 0));
}

/* ---- The end ------------------------------------------------------------------------------ */

static void begin_end(struct server *server)
{
    struct service *s = &server->service;
    if (server->ends_at > 0) {
        http_stop(s->http, true);
        return;
    }
    server->ends_at = os_seconds() + s->options->shutdown_seconds;
    if (s->state != SERVICE_LOADING) s->state = SERVICE_ENDING;
    notify_stopping("finishes what runs");
    log_event(LOG_INFO, "stopping", (struct log_field[]){LOG_NUMBER("calls", s->n_calls)}, 1);
    http_stop(s->http, s->n_calls == 0);
}

static void go_on_ending(struct server *server, double now)
{
    struct service *s = &server->service;
    if (server->ends_at == 0) return;
    if (s->n_calls == 0 || now > server->ends_at + LAST_WORDS) {
        http_stop(s->http, true);
        return;
    }
    if (now < server->ends_at || server->has_told_last_words) return;
    struct api_error error = problem_shutdown();
    server->has_told_last_words = true;
    dispatch_end_all(s, &error);
}

/* Before the server is ready, and once it takes nothing new, the service manager hears nothing of
 * it: READY would not be true. */
static void reload(struct server *server)
{
    struct service *s = &server->service;
    struct carat_error err = {0};
    const bool is_ready = s->state == SERVICE_READY;
    if (is_ready) notify_reloading();
    int status = guard_reload(s->guard, &err);
    if (status == CARAT_OK) status = http_reload(s->http, &err);
    if (status == CARAT_OK)
        log_event(LOG_INFO, "reloaded", NULL, 0);
    else
        log_event(LOG_ERROR, "reload_failed",
                  (struct log_field[]){LOG_TEXT_FIELD("why", err.message)}, 1);
    if (is_ready) notify_ready("answers requests");
}

static bool has_terminal(void)
{
    return isatty(STDIN_FILENO) || isatty(STDERR_FILENO);
}

/* SIGHUP of a window that was closed: nobody could see or end this server any more, and it would
 * keep its port. */
static bool is_abandoned(const struct server *server)
{
    return server->had_terminal && !has_terminal();
}

static void take_flags(struct server *server)
{
    if (server->hangups_seen != n_hangups) {
        server->hangups_seen = n_hangups;
        if (is_abandoned(server))
            begin_end(server);
        else
            reload(server);
    }
    while (server->ends_seen < n_ends) {
        server->ends_seen++;
        begin_end(server);
    }
}

/* ---- Events of http.h ---------------------------------------------------------------------- */

static void on_refused(void *user, const struct http_refusal *refusal,
                       struct http_refusal_reply *reply)
{
    struct server *server = user;
    dispatch_refused(&server->service, refusal, reply);
}

static void on_headers(void *user, struct http_request *q)
{
    struct server *server = user;
    dispatch_headers(&server->service, q);
}

static void on_request(void *user, struct http_request *q)
{
    struct server *server = user;
    dispatch_request(&server->service, q);
}

static void on_room(void *user, struct http_request *q)
{
    struct server *server = user;
    dispatch_room(&server->service, q);
}

static void on_closed(void *user, struct http_request *q, bool is_sent)
{
    struct server *server = user;
    dispatch_closed(&server->service, q, is_sent);
}

static void on_wake(void *user)
{
    struct server *server = user;
    struct call *c;
    take_loaded(server);
    while ((c = inbox_take(&server->service.inbox))) dispatch_news(&server->service, c);
    take_flags(server);
    go_on_ending(server, os_seconds());
}

static void on_tick(void *user)
{
    struct server *server = user;
    double now = os_seconds(), alive = notify_alive_seconds();
    dispatch_tick(&server->service, now);
    if (alive > 0 && now >= server->next_alive) {
        notify_alive();
        server->next_alive = now + alive;
    }
    go_on_ending(server, now);
}

/* ---- From beginning to end ------------------------------------------------------------------ */

static int open_parts(struct server *server, struct carat_error *err)
{
    struct service *s = &server->service;
    const struct server_options *o = s->options;
    const struct http_events events = {
        .user = server,
        .on_refused = on_refused,
        .on_headers = on_headers,
        .on_request = on_request,
        .on_room = on_room,
        .on_closed = on_closed,
        .on_wake = on_wake,
        .on_tick = on_tick,
        .tick_seconds = 0.25,
    };
    json_memory_watch();
    inbox_init(&s->inbox);
    TRY(metrics_open(&s->metrics, o->alias, err));
    TRY(grammars_open(&s->grammars, o->model, err));
    struct guard_options guard = o->guard;
    guard.salt_secret = &s->salt_secret;
    TRY(guard_open(&s->guard, &guard, err));
    TRY(guard_allows_start(&o->http, guard_has_keys(s->guard), o->is_insecure, err));
    TRY(http_open(&s->http, &o->http, &events, err));
    int n_workers = os_processors() / 4;
    if (n_workers < WORKERS_LEAST) n_workers = WORKERS_LEAST;
    if (n_workers > WORKERS_MOST) n_workers = WORKERS_MOST;
    return workers_open(&s->workers, n_workers, o->queue_max, on_work, s, err);
}

static int open_kv_events(struct server *server, struct carat_error *err)
{
    const struct server_options *o = server->service.options;
    const struct kv_events_options options = {.endpoint = o->kv_events,
                                              .replay = o->kv_events_replay,
                                              .topic = o->kv_events_topic,
                                              .is_insecure = o->is_insecure,
                                              .n_engines = o->n_engines};
    if (!o->kv_events[0] && o->kv_events_replay[0])
        return err_set(err, CARAT_EUSAGE, "--kv-events-replay: goes with --kv-events");
    if (!o->kv_events[0]) return CARAT_OK;
    TRY(kv_events_open(&server->kv_events, &options, err));
    log_event(
        LOG_INFO, "kv_events",
        (struct log_field[]){LOG_TEXT_FIELD("endpoint", kv_events_endpoint(server->kv_events)),
                             LOG_TEXT_FIELD("topic", o->kv_events_topic)},
        2);
    return CARAT_OK;
}

static int open_traces(struct service *s, struct carat_error *err)
{
    if (!s->options->traces.collector.url[0]) return CARAT_OK;
    TRY(traces_open(&s->traces, &s->options->traces, s->metrics, err));
    log_event(LOG_INFO, "traces",
              (struct log_field[]){LOG_TEXT_FIELD("url", traces_url(s->traces))}, 1);
    return CARAT_OK;
}

static int serve(struct server *server, struct carat_error *err)
{
    struct service *s = &server->service;
    TRY(open_kv_events(server, err));
    TRY(open_traces(s, err));
    is_loading = 1;
    take_signals(s->http);
    notify_status("loads the model");
    if (pthread_create(&server->loader, NULL, load, server) != 0)
        return err_set(err, CARAT_EMEMORY, "serve: no thread could be started");
    server->has_loader = true;
    return http_run(s->http, err);
}

/* Whoever wakes the thread of the server ends before http_close. */
static void close_parts(struct server *server)
{
    struct service *s = &server->service;
    if (server->has_loader) pthread_join(server->loader, NULL);
    workers_close(s->workers);
    if (server->loaded) replicas_stop(server->loaded);
    woken = NULL; /* from here on signals only count */
    dispatch_abandon(s);
    http_close(s->http);
    replicas_close(server->loaded);
    kv_events_close(server->kv_events);
    traces_close(s->traces);
    guard_close(s->guard);
    grammars_close(s->grammars);
    metrics_close(s->metrics);
    buf_deinit(&s->out);
    inbox_deinit(&s->inbox);
}

int server_run(const struct server_options *options, int *signal_number, struct carat_error *err)
{
    struct server server = {.service = {.options = options, .since = time(NULL)},
                            .had_terminal = has_terminal()};
    server.service.secret = hash_key_random();
    server.service.salt_secret = prefixes_secret(&options->prefixes);
    n_ends = n_hangups = 0;
    int status = open_parts(&server, err);
    if (status == CARAT_OK) status = serve(&server, err);
    close_parts(&server);
    if (status == CARAT_OK && server.status != CARAT_OK) {
        *err = server.err;
        status = server.status;
    }
    *signal_number = n_ends > 1 ? end_signal : 0;
    return status;
}
