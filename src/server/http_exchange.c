/* Requests and replies: the callbacks of libmicrohttpd, and the functions of http.h that take a
 * request. */
#include "server/http.h"

#ifdef CARAT_HAVE_HTTP
#include "server/http_internal.h"

#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "base/os.h"
#include "server/http_entry.h"
#include "server/http_framing.h"
#include "server/http_refusal.h"

enum {
    DRAINED_BODY = 1 << 16, /* bytes; a longer one is not read when the reply stands before it */
    FIELD_BYTES = 64,       /* that the library keeps for each header */
    LONG_REPLY = 1 << 16,   /* bytes; longer ones are sent piece by piece, which shows progress */
    STREAM_BLOCK = 1 << 14, /* bytes that the library asks for at a time */
    SMALL_BODY = 1 << 16,   /* bytes */
    BODY_RATE = 1 << 14,    /* bytes a second, the least for those that are longer */
    BODY_PATIENCE = 20      /* times body_seconds, the most for small ones */
};

static struct connection *of_request(struct http_request *q)
{
    return (struct connection *)((char *)q - offsetof(struct connection, request));
}

static const struct connection *of_const_request(const struct http_request *q)
{
    return (const struct connection *)((const char *)q - offsetof(struct connection, request));
}

static struct connection *of_mhd(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* --- what a request says --- */

struct nth {
    const char *name;
    int left;
    const char *found;
};

static enum MHD_Result look_for(void *user, enum MHD_ValueKind kind, const char *name,
                                const char *value)
{
    struct nth *n = user;
    (void)kind;
    if (strcasecmp(name, n->name) != 0 || n->left-- > 0) return MHD_YES;
    n->found = value ? value : "";
    return MHD_NO;
}

const char *http_header(const struct http_request *q, const char *name, int n)
{
    struct nth want = {.name = name, .left = n};
    (void)MHD_get_connection_values(of_const_request(q)->mhd, MHD_HEADER_KIND, look_for, &want);
    return want.found;
}

const char *http_query(const struct http_request *q, const char *key)
{
    return http_target_query(&of_const_request(q)->target, key);
}

/* --- replies --- */

/* The connection goes on in MHD, if it waits. */
static void resume(struct connection *c)
{
    if (!c->is_suspended) return;
    c->is_suspended = false;
    MHD_resume_connection(c->mhd);
}

/* Waits for http_reply, http_add or http_end. Whoever has left is not waited for. Returns whether
 * it waits. */
static bool suspend(struct connection *c)
{
    watch_begin(&c->server->watch, &c->watched, DEADLINE_NONE);
    c->is_gone |= c->has_left;
    if (c->is_gone) return false;
    c->is_suspended = true;
    MHD_suspend_connection(c->mhd);
    return true;
}

void exchange_cut(struct connection *c)
{
    if (c->is_gone) return;
    c->is_gone = true;
    (void)shutdown(c->watched.fd, SHUT_RDWR);
    watch_begin(&c->server->watch, &c->watched, DEADLINE_NONE);
    resume(c);
}

static size_t unsent(const struct connection *c)
{
    return c->unsent.length - c->sent;
}

size_t http_unsent(const struct http_request *q)
{
    return unsent(of_const_request(q));
}

/* MHD takes the next bytes of a stream or a long reply. */
static ssize_t read_unsent(void *user, uint64_t position, char *out, size_t room)
{
    struct connection *c = user;
    (void)position;
    const size_t before = unsent(c), low = c->server->options.low_bytes;
    if (c->is_gone) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (before == 0) {
        if (c->is_ended && c->is_whole) return MHD_CONTENT_READER_END_OF_STREAM;
        if (c->is_ended) return MHD_CONTENT_READER_END_WITH_ERROR;
        return suspend(c) ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t n = before < room ? before : room;
    memcpy(out, c->unsent.data + c->sent, n);
    c->sent += n;
    if (c->sent == c->unsent.length) {
        buf_clear(&c->unsent);
        c->sent = 0;
    }
    watch_begin(&c->server->watch, &c->watched, DEADLINE_WRITE);
    if (c->is_stream && c->is_known && !c->is_ended && before > low && unsent(c) <= low)
        c->server->events.on_room(c->server->events.user, &c->request);
    return (ssize_t)n;
}

static void add_fields(struct connection *c, const struct http_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)MHD_add_response_header(c->response, fields[i].name, fields[i].value);
}

/* Without memory for a reply the connection is cut: the client sees that something failed. */
static void hand_over(struct connection *c, int status)
{
    c->status = (unsigned)status;
    if (!c->response || c->unsent.failed) {
        exchange_cut(c);
    } else {
        resume(c);
    }
}

void http_reply(struct http_request *q, int status, const struct http_field *fields, size_t n,
                const char *body, size_t length)
{
    struct connection *c = of_request(q);
    if (c->response || c->is_queued || c->is_gone) return;
    if (length > LONG_REPLY) {
        buf_add(&c->unsent, body, length);
        c->is_ended = c->is_whole = true;
        c->response = MHD_create_response_from_callback(length, STREAM_BLOCK, read_unsent, c, NULL);
    } else { /* the library copies it, so it does not write to it */
        c->response =
            MHD_create_response_from_buffer(length, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    }
    if (c->response) add_fields(c, fields, n);
    hand_over(c, status);
}

void http_stream(struct http_request *q, int status, const struct http_field *fields, size_t n)
{
    struct connection *c = of_request(q);
    if (c->response || c->is_queued || c->is_gone) return;
    c->is_stream = true;
    /* To HEAD the library would send the last chunk of a body that is not there. */
    c->response = q->is_head ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
                             : MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK,
                                                                 read_unsent, c, NULL);
    if (c->response) add_fields(c, fields, n);
    hand_over(c, status);
}

void http_add(struct http_request *q, const char *bytes, size_t length)
{
    struct connection *c = of_request(q);
    if (c->is_gone || c->is_ended || q->is_head || length == 0) return;
    if (c->sent > c->unsent.length / 2) { /* bytes move at most once each */
        memmove(c->unsent.data, c->unsent.data + c->sent, unsent(c));
        c->unsent.length = unsent(c);
        c->sent = 0;
    }
    buf_add(&c->unsent, bytes, length);
    if (c->unsent.failed) {
        exchange_cut(c);
    } else {
        resume(c);
    }
}

void http_end(struct http_request *q, bool is_whole)
{
    struct connection *c = of_request(q);
    if (c->is_gone || c->is_ended) return;
    c->is_ended = true;
    c->is_whole = is_whole;
    resume(c);
}

/* A reply of this file's own: the request is not fit to be shown to the caller. */
static void refuse(struct connection *c, int status, const char *why)
{
    struct http_refusal_reply reply = {0};
    struct http_field fields[4] = {{"Content-Type", "application/json"}};
    size_t n = 1;
    refusal_write(c, status, why, http_header(&c->request, "x-request-id", 0), &reply);
    for (size_t i = 0; i < reply.n_fields; i++) fields[n++] = reply.fields[i];
    if (status == 405) fields[n++] = (struct http_field){"Allow", "GET, HEAD, POST, OPTIONS"};
    if (status == 415) fields[n++] = (struct http_field){"Accept-Encoding", "identity"};
    if (status == 503) fields[n++] = (struct http_field){"Retry-After", "5"};
    c->must_close = true;
    if (reply.body.failed) {
        exchange_cut(c);
    } else {
        http_reply(&c->request, status, fields, n, buf_text(&reply.body), reply.body.length);
    }
    buf_deinit(&reply.body);
}

/* --- a request's way --- */

/* Waits for bytes of the client. One that has left sends no more than what is there. */
static void await(struct connection *c, enum deadline deadline)
{
    watch_begin(&c->server->watch, &c->watched, c->has_left ? DEADLINE_LEFT : deadline);
}

static enum MHD_Result queue_reply(struct connection *c)
{
    struct MHD_Response *response = c->response;
    c->response = NULL;
    c->is_queued = true;
    if (c->must_close || atomic_load(&c->server->is_stopping))
        (void)MHD_add_response_header(response, "Connection", "close");
    watch_begin(&c->server->watch, &c->watched, DEADLINE_WRITE);
    const enum MHD_Result result = MHD_queue_response(c->mhd, c->status, response);
    MHD_destroy_response(response);
    return result;
}

struct collected {
    struct framing_field *fields;
    size_t n, room;
    bool failed;
};

static enum MHD_Result collect(void *user, enum MHD_ValueKind kind, const char *name,
                               size_t name_length, const char *value, size_t value_length)
{
    struct collected *all = user;
    (void)kind;
    if (all->n == all->room) {
        const size_t room = all->room * 2 + 32;
        struct framing_field *grown = mem_resize(all->fields, room, sizeof *grown);
        if (!grown) {
            all->failed = true;
            return MHD_NO;
        }
        all->fields = grown;
        all->room = room;
    }
    all->fields[all->n++] = (struct framing_field){.name = name,
                                                   .name_length = name_length,
                                                   .value = value ? value : "",
                                                   .value_length = value ? value_length : 0};
    return MHD_YES;
}

/* Room for this many bytes of this body. */
static bool reserve(struct connection *c, size_t bytes)
{
    struct http *h = c->server;
    const size_t all = h->options.bodies_bytes_max, more = bytes - c->reserved;
    const size_t most = bytes > SMALL_BODY ? all - all / 4 : all;
    if (h->bodies_bytes + more > most) return false;
    h->bodies_bytes += more;
    c->reserved = bytes;
    return true;
}

static void release(struct connection *c)
{
    c->server->bodies_bytes -= c->reserved;
    c->reserved = 0;
}

static const char no_room[] = "the bodies that are being read take all memory there is for them";

static void check_size(struct connection *c, const struct framing_verdict *verdict)
{
    const size_t most = c->server->options.body_bytes_max;
    if (!verdict->has_body || c->is_chunked) return;
    if (verdict->body_bytes > most) {
        refuse(c, 413, "the body is longer than this server takes (--max-body)");
    } else if (!reserve(c, (size_t)verdict->body_bytes)) {
        refuse(c, 503, no_room);
    }
}

/* Replies at once when the framing is wrong. */
static void check(struct connection *c, const char *method, const char *version,
                  struct framing_verdict *verdict)
{
    struct collected all = {0};
    (void)MHD_get_connection_values_n(c->mhd, MHD_HEADER_KIND, collect, &all);
    const struct framing f = {.method = method,
                              .version = version,
                              .target = &c->target,
                              .fields = all.fields,
                              .n = all.n,
                              .header_bytes = header_bytes(c),
                              .is_in_place = c->server->sees_lines};
    framing_check(&f, verdict);
    c->has_body = verdict->has_body;
    c->is_chunked = verdict->body_bytes == UINT64_MAX;
    if (all.failed || (c->refused && !*c->refused)) {
        refuse(c, 503, "the server has no memory for this request");
    } else if (verdict->status == 405 || verdict->status == 501) { /* their targets differ, too */
        refuse(c, verdict->status, verdict->why);
    } else if (c->refused) {
        refuse(c, 400, c->refused);
    } else if (f.header_bytes + all.n * FIELD_BYTES > c->server->options.header_bytes_max) {
        refuse(c, 431, "the headers are longer than this server takes");
    } else if (verdict->status) {
        refuse(c, verdict->status, verdict->why);
    }
    if (!c->response) check_size(c, verdict);
    mem_free(all.fields);
}

static enum MHD_Result begin(struct connection *c, const char *method, const char *version)
{
    struct http *h = c->server;
    c->request.method = method;
    c->request.path = c->target.path ? c->target.path : "";
    c->request.is_head = strcmp(method, "HEAD") == 0;
    struct framing_verdict verdict;
    check(c, method, version, &verdict);
    if (!c->response && !c->is_gone) {
        c->is_known = true;
        h->events.on_headers(h->events.user, &c->request);
    }
    if (c->response) release(c); /* what comes is dropped */
    if (c->has_body) {
        await(c, DEADLINE_BODY);
        c->body_began = os_seconds();
    } else {
        watch_begin(&h->watch, &c->watched, DEADLINE_NONE);
    }
    if (c->is_gone) return MHD_NO;
    if (!c->response) return MHD_YES;
    /* A short body that is on its way is dropped, so that the connection can go on. Otherwise the
     * library closes it after the reply. */
    const bool is_dropped = verdict.body_bytes <= DRAINED_BODY && !c->must_close;
    if (!verdict.wants_continue && (!c->has_body || is_dropped))
        return MHD_YES; /* the reply follows in one more call */
    c->is_early = c->has_body;
    return queue_reply(c);
}

/* Whoever sends a byte now and then does not keep the room for ever. */
static bool is_too_slow(const struct connection *c)
{
    const double seconds = os_seconds() - c->body_began, patience = c->server->options.body_seconds;
    const double bytes = (double)c->request.body.length;
    if (c->reserved <= SMALL_BODY) return seconds > BODY_PATIENCE * patience;
    return seconds > patience + bytes / BODY_RATE;
}

/* A body in chunks takes its room block by block. */
static bool reserve_more(struct connection *c, size_t bytes)
{
    const size_t most = c->server->options.body_bytes_max, block = SMALL_BODY;
    const size_t rounded = (bytes + block - 1) / block * block;
    return reserve(c, rounded < most ? rounded : most);
}

/* A refusal in the middle of a body. */
static enum MHD_Result refuse_body(struct connection *c, int status, const char *why)
{
    refusal_say(c, status, why);
    return MHD_NO;
}

static enum MHD_Result take_body(struct connection *c, const char *bytes, size_t *length)
{
    struct buf *body = &c->request.body;
    const size_t n = *length;
    *length = 0;
    if (c->is_gone) return MHD_NO;
    if (c->is_queued || c->response) return MHD_YES; /* replied already: what comes is dropped */
    if (n > c->server->options.body_bytes_max - body->length)
        return refuse_body(c, 413, "the body is longer than this server takes (--max-body)");
    if (body->length + n > c->reserved && !reserve_more(c, body->length + n))
        return refuse_body(c, 503, no_room);
    buf_add(body, bytes, n);
    if (body->failed) return refuse_body(c, 503, "the server has no memory for this request");
    if (is_too_slow(c)) return refuse_body(c, 408, "the body comes too slowly");
    await(c, DEADLINE_BODY);
    return MHD_YES;
}

/* The whole request is there, or a reply after a wait. */
static enum MHD_Result go_on(struct connection *c)
{
    struct http *h = c->server;
    if (c->is_queued) return MHD_YES;
    if (!c->is_asked && !c->response && !c->is_gone) {
        c->is_asked = true;
        c->is_chunked = false; /* it has come */
        release(c);
        watch_begin(&h->watch, &c->watched, DEADLINE_NONE);
        h->events.on_request(h->events.user, &c->request);
    }
    if (c->is_gone) return MHD_NO;
    if (c->response) return queue_reply(c);
    return suspend(c) ? MHD_YES : MHD_NO;
}

enum MHD_Result exchange_access(void *user, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_bytes, void **own)
{
    struct connection *c = of_mhd(mhd);
    (void)user;
    (void)url;
    if (!c || c->is_gone) return MHD_NO;
    if (!*own) {
        *own = c;
        return begin(c, method, version);
    }
    return *upload_bytes > 0 ? take_body(c, upload, upload_bytes) : go_on(c);
}

/* How many arguments the query has. The library keeps all of them, and just waits if they do not
 * fit into its memory. */
static size_t fields_of_query(const char *raw)
{
    size_t n = 0;
    for (const char *at = strchr(raw, '?'); at; at = strchr(at + 1, '&')) n++;
    return n;
}

void *exchange_target(void *user, const char *raw, struct MHD_Connection *mhd)
{
    const struct http *h = user;
    struct connection *c = of_mhd(mhd);
    if (!c || c->is_gone) return NULL;
    http_target_free(&c->target);
    c->refused = http_target_read(&c->target, raw);
    c->has_target = true;
    /* The bytes of a request may have come with those of the one before it. */
    if (c->watched.deadline == DEADLINE_IDLE || c->watched.deadline == DEADLINE_NONE)
        watch_begin(&c->server->watch, &c->watched, DEADLINE_HEADERS);
    if (fields_of_query(raw) * FIELD_BYTES + c->target.raw_length > h->options.header_bytes_max)
        refusal_say(c, 431, "the query has more arguments than this server takes");
    return NULL;
}

static void forget_request(struct connection *c)
{
    if (c->response) MHD_destroy_response(c->response);
    release(c);
    http_target_free(&c->target);
    buf_deinit(&c->request.body);
    buf_deinit(&c->unsent);
    const struct connection old = *c;
    *c = (struct connection){
        .watched = old.watched,
        .server = old.server,
        .mhd = old.mhd,
        .before = old.before,
        .after = old.after,
        .identity = old.identity,
        .is_open = old.is_open,
        .is_refused = old.is_refused,
        .may_repeat = old.may_repeat,
        .has_left = old.has_left,
        .is_gone = old.is_gone,
        .request = {.connection = old.request.connection, .is_tls = old.request.is_tls}};
    memcpy(c->request.client, old.request.client, sizeof c->request.client);
}

void exchange_completed(void *user, struct MHD_Connection *mhd, void **own,
                        enum MHD_RequestTerminationCode how)
{
    struct connection *c = of_mhd(mhd);
    struct http *h = user;
    if (!c) return;
    const bool is_sent = how == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    c->is_suspended = false;
    if (c->is_known) h->events.on_closed(h->events.user, &c->request, is_sent);
    if (c->is_early && is_sent) linger_begin(&h->linger, &h->watch, c->watched.fd);
    forget_request(c);
    *own = NULL;
    await(c, DEADLINE_IDLE);
}

/* --- connections --- */

static void start_tls(struct connection *c)
{
    if (!c->server->identity) return;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    c->identity = tls_identity_hold(c->server->identity);
    if (info && info->tls_session) tls_identity_use(c->identity, info->tls_session, &c->is_open);
}

/* A handshake that failed. Who only connects never gets this far (http_entry.h). */
static void note_handshake(const struct connection *c)
{
    if (c->identity && !c->is_open && !c->is_refused && !atomic_load(&c->server->is_over))
        refusal_note(c->server, c->request.client, "the TLS handshake failed");
}

void exchange_connection(void *user, struct MHD_Connection *mhd, void **context,
                         enum MHD_ConnectionNotificationCode what)
{
    struct http *h = user;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct connection *c = entry_taken(h, mhd);
        *context = c;
        if (c) start_tls(c);
        return;
    }
    struct connection *c = *context;
    if (!c) return;
    *context = NULL;
    note_handshake(c);
    forget_request(c);
    entry_leave(c);
}

/* Whether a whole reply is with the library: it only has to be sent. Of a long one or a stream the
 * library asks for more. */
static bool is_on_its_way(const struct connection *c)
{
    return c->is_queued && !c->is_stream && !c->is_ended;
}

void exchange_noticed(struct connection *c, uint32_t events)
{
    struct watch *w = &c->server->watch;
    const bool is_between = !c->request.method; /* or its headers are not complete */
    if (c->is_gone) return;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        c->has_left = true;
        if (is_between) {
            watch_begin(w, &c->watched, DEADLINE_LEFT);
        } else if (!is_on_its_way(c)) {
            exchange_cut(c);
        }
    } else if (is_between && c->watched.deadline != DEADLINE_HEADERS) {
        watch_begin(w, &c->watched, DEADLINE_HEADERS);
    }
}

/* What came in time, while this process could not run. The library reads it in its next run. */
static bool has_unread(const struct connection *c)
{
    int n = 0;
    return ioctl(c->watched.fd, FIONREAD, &n) == 0 && n > 0;
}

void exchange_expired(struct connection *c, enum deadline deadline)
{
    /* Until there is a target the bytes may be those of a handshake. */
    const bool is_asking = c->has_target || !c->request.is_tls;
    const bool is_reading =
        deadline == DEADLINE_HEADERS || deadline == DEADLINE_BODY || deadline == DEADLINE_LEFT;
    if (is_reading && !c->is_gone && !c->watched.was_asked && has_unread(c)) {
        watch_begin(&c->server->watch, &c->watched, deadline);
        c->watched.was_asked = true; /* once, unless it goes on */
    } else if (c->is_gone) {         /* refused, but the library waits for more */
        (void)shutdown(c->watched.fd, SHUT_RDWR);
    } else if (deadline == DEADLINE_HEADERS && is_asking) {
        refusal_say(c, 408, "the headers took too long");
    } else if (deadline == DEADLINE_BODY) {
        refusal_say(c, 408, "the body took too long");
    } else {
        exchange_cut(c);
    }
}
#else

/* Without the library nobody has a request to call these with. */
const char *http_header(const struct http_request *q, const char *name, int n)
{
    (void)q;
    (void)name;
    (void)n;
    return NULL;
}

const char *http_query(const struct http_request *q, const char *key)
{
    return http_header(q, key, 0);
}

void http_reply(struct http_request *q, int status, const struct http_field *fields, size_t n,
                const char *body, size_t length)
{
    (void)q;
    (void)status;
    (void)fields;
    (void)n;
    (void)body;
    (void)length;
}

void http_stream(struct http_request *q, int status, const struct http_field *fields, size_t n)
{
    http_reply(q, status, fields, n, NULL, 0);
}

void http_add(struct http_request *q, const char *bytes, size_t length)
{
    (void)q;
    (void)bytes;
    (void)length;
}

size_t http_unsent(const struct http_request *q)
{
    (void)q;
    return 0;
}

void http_end(struct http_request *q, bool is_whole)
{
    (void)q;
    (void)is_whole;
}
#endif
