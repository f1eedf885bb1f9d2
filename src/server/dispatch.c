#include "server/dispatch.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "server/answering.h"
#include "server/call_span.h"
#include "server/inquiries.h"
#include "server/log.h"
#include "server/problems.h"
#include "server/respond.h"

/* ---- Which calls there are ---------------------------------------------------------------- */

static void link_call(struct service *s, struct call *c)
{
    c->next = s->calls;
    if (c->next) c->next->previous = c;
    s->calls = c;
    s->n_calls++;
}

static void unlink_call(struct service *s, struct call *c)
{
    if (c->previous)
        c->previous->next = c->next;
    else
        s->calls = c->next;
    if (c->next) c->next->previous = c->previous;
    s->n_calls--;
}

/* Frees a call that nobody has any more. */
static void release(struct service *s, struct call *c)
{
    if (c->q || c->stage == CALL_AT_WORKER || !answering_is_over(c)) return;
    atomic_fetch_sub(&s->held, c->held);
    if (c->is_counted) guard_leave(s->guard, &c->pass);
    inbox_remove(&s->inbox, &c->news);
    unlink_call(s, c);
    call_close(c, s->grammars);
}

static void fail(struct call *c, int status, const char *code, const char *why)
{
    struct api_error error = api_error_make(status, code, "%s", why);
    if (status == 503) error.retry_after = 5;
    respond_error(c, &error);
}

/* ---- Headers ------------------------------------------------------------------------------ */

static void refuse_path(struct call *c, int status, const char *allow)
{
    struct api_error error =
        status == 405 ? api_error_make(405, NULL, "%.40s: this method is not for this path; %s is",
                                       c->method, allow)
                      : api_error_make(404, NULL, "there is nothing at this path");
    const struct http_field field = {"Allow", allow};
    struct buf body = {0};
    api_error_body(&error, c->family, c->id, &body);
    respond_buf(c, status, "application/json", &field, status == 405, &body);
    buf_deinit(&body);
}

static bool is_open(const struct service *s, const struct route *route)
{
    if (!route) return false;
    bool has_open_metrics = s->options->is_metrics_open || s->options->guard.is_local;
    return route->is_open || (route->kind == ROUTE_METRICS && has_open_metrics);
}

/* Bodies are JSON, whatever a client calls them; but some kinds never are. */
static bool has_readable_body(const struct http_request *q)
{
    const char *encoding = http_header(q, "Content-Encoding", 0);
    const char *type = http_header(q, "Content-Type", 0);
    if (encoding && strcmp(encoding, "identity") != 0) return false;
    return !type || strncmp(type, "multipart/", 10) != 0;
}

static void refuse_state(const struct service *s, struct call *c)
{
    if (s->state == SERVICE_LOADING)
        fail(c, 503, "loading", "the model is being loaded");
    else
        fail(c, 503, "draining", "the server takes no new requests: it is about to end");
}

/* Replies if something is wrong with the headers already. */
static void check_headers(struct service *s, struct call *c)
{
    char allow[ROUTES_ALLOW_MAX];
    int status;
    c->route = routes_find(c->method, c->q->path, &status, allow);
    call_span_begin(s, c);
    if (!guard_check(s->guard, c->q, is_open(s, c->route), &c->pass)) {
        if (c->pass.error.status == 0)
            respond_bytes(c, 204, NULL, "", 0); /* a browser asks what it may do */
        else
            respond_error(c, &c->pass.error);
    } else if (!c->route) {
        refuse_path(c, status, allow);
    } else if (c->route->kind == ROUTE_ABSENT) {
        struct api_error error = api_error_make(501, "not_supported",
                                                "carat does not do %s: it only "
                                                "answers text with text",
                                                c->route->name);
        respond_error(c, &error);
    } else if (route_is_computed(c->route) && s->state != SERVICE_READY) {
        refuse_state(s, c);
    } else if (!has_readable_body(c->q)) {
        fail(c, 415, NULL, "the body has to be JSON, as it is: neither packed nor a form");
    }
}

void dispatch_headers(struct service *s, struct http_request *q)
{
    static const char full[] = "{\"error\":{\"message\":\"out of memory\",\"type\":"
                               "\"server_error\",\"code\":null,\"param\":null}}\n";
    struct call *c = call_open(q);
    q->user = c;
    if (!c) {
        char id[REQUEST_ID_MADE];
        const struct http_field fields[] = {{"Content-Type", "application/json"},
                                            {"x-request-id", id}};
        request_id_make(id);
        http_reply(q, 503, fields, 2, full, sizeof full - 1);
        return;
    }
    link_call(s, c);
    check_headers(s, c);
}

/* ---- The whole request -------------------------------------------------------------------- */

enum { LARGE_BYTES = 256 * 1024 }; /* of a body: some 20 ms of work and more */

static void to_workers(struct service *s, struct call *c)
{
    c->held = c->bytes_in;
    if (atomic_fetch_add(&s->held, c->held) + c->held > HELD_MAX) {
        struct api_error error = problem_no_room();
        respond_error(c, &error);
        return;
    }
    c->is_counted = guard_enter(s->guard, &c->pass);
    if (!c->is_counted) {
        respond_error(c, &c->pass.error);
        return;
    }
    c->stage = CALL_AT_WORKER;
    c->work.is_large = c->bytes_in > LARGE_BYTES;
    if (workers_add(s->workers, &c->work)) return;
    c->stage = CALL_READING;
    metrics_add(s->metrics, METRICS_QUEUE_REJECTED, 1);
    struct api_error error = problem_queue_full(s->options);
    respond_error(c, &error);
}

/* Without keys only a client on this machine may drain the server, and no proxy for others. */
static bool may_drain(const struct service *s, const struct call *c)
{
    bool is_passed_on = http_header(c->q, "X-Forwarded-For", 0) ||
                        http_header(c->q, "Forwarded", 0) || http_header(c->q, "Via", 0);
    bool is_here = strcmp(c->client, "unix") == 0 || strcmp(c->client, "::1") == 0 ||
                   strncmp(c->client, "127.", 4) == 0;
    return (is_here && !is_passed_on) || guard_has_keys(s->guard);
}

static void drain(struct service *s, struct call *c)
{
    static const char body[] = "{\"status\":\"draining\"}\n";
    if (!may_drain(s, c)) {
        fail(c, 403, NULL, "draining from another machine needs a key, and there are none");
        return;
    }
    if (s->state == SERVICE_READY) s->state = SERVICE_DRAINING;
    log_event(LOG_INFO, "draining", NULL, 0);
    respond_bytes(c, 200, "application/json", body, sizeof body - 1);
}

/* From the header by which load balancers in front of several servers choose one, too. */
static uint64_t session_of(const struct service *s, const struct http_request *q)
{
    const char *name = http_header(q, "x-session-id", 0);
    return name && *name ? hash_bytes(s->secret, name, strlen(name)) : 0;
}

void dispatch_request(struct service *s, struct http_request *q)
{
    struct call *c = q->user;
    if (!c || c->stage != CALL_READING) return;
    c->received = os_seconds();
    c->bytes_in = q->body.length;
    c->body = q->body;
    c->session = session_of(s, q);
    q->body = (struct buf){0};
    if (c->route->kind == ROUTE_DRAIN)
        drain(s, c);
    else if (!route_is_computed(c->route))
        inquiries_answer(s, c);
    else if (s->state != SERVICE_READY)
        refuse_state(s, c);
    else
        to_workers(s, c);
}

static void back_from_worker(struct service *s, struct call *c)
{
    c->stage = CALL_ENDING;
    if (!c->q) return;
    if (c->has_failed)
        respond_error(c, &c->error);
    else if (c->route->kind == ROUTE_TEXT)
        respond_json(c, 200, &c->body);
    else
        answering_begin(s, c);
}

void dispatch_news(struct service *s, struct call *c)
{
    if (c->stage == CALL_AT_WORKER)
        back_from_worker(s, c);
    else
        answering_pump(s, c);
    release(s, c);
}

void dispatch_room(struct service *s, struct http_request *q)
{
    struct call *c = q->user;
    if (c && c->is_blocked) answering_pump(s, c);
}

/* ---- The end ------------------------------------------------------------------------------ */

/* Milliseconds, to a hundredth. */
static double ms(double seconds)
{
    return round(seconds * 1e5) / 100;
}

static void log_call(struct service *s, const struct call *c, int status)
{
    const bool is_ours = c->stage != CALL_AT_WORKER; /* else a worker may be writing its answers */
    const struct generation *g = is_ours && c->n_answers > 0 ? &c->answers[0] : NULL;
    const char *route = c->route ? c->route->path : "other";
    struct reply_usage usage = {0};
    if (g) usage = generation_usage(g);
    const struct log_field fields[] = {
        LOG_TEXT_FIELD("trace", c->trace.trace),
        LOG_TEXT_FIELD("id", c->id),
        LOG_TEXT_FIELD("client", c->client),
        LOG_TEXT_FIELD("method", c->method),
        LOG_TEXT_FIELD("route", route),
        LOG_NUMBER("status", status),
        LOG_NUMBER("ms", ms(os_seconds() - c->began)),
        LOG_NUMBER("bytes_in", c->bytes_in),
        LOG_NUMBER("bytes_out", c->bytes_out),
        LOG_TEXT_FIELD("finish", c->finish),
        LOG_NUMBER("n_prompt", usage.n_prompt),
        LOG_NUMBER("n_cached", usage.n_cached),
        LOG_NUMBER("n_generated", usage.n_generated),
        LOG_NUMBER("queue_ms", ms(usage.queue_seconds)),
        LOG_NUMBER("prefill_ms", ms(usage.prefill_seconds)),
        LOG_NUMBER("decode_ms", ms(usage.decode_seconds)),
    };
    enum { ALL = sizeof fields / sizeof *fields, ALWAYS = 9 };
    const int skipped = c->trace.trace[0] ? 0 : 1;
    bool is_quiet = c->route && c->route->is_open && status < 400;
    metrics_reply(s->metrics, route, status);
    log_event(is_quiet ? LOG_DEBUG : LOG_INFO, "request", fields + skipped,
              (g ? ALL : ALWAYS) - skipped);
}

/* A request that has a call already keeps its id. */
static void write_refusal(const struct http_refusal *r, struct http_refusal_reply *reply)
{
    const struct call *c = r->known ? r->known->user : NULL;
    const enum api_family family = routes_family(r->path);
    struct api_error error = api_error_make(r->status, NULL, "%s", r->why);
    char own[REQUEST_ID_MADE];
    request_id_make(own);
    request_id_choose(reply->id, c ? c->id : r->id, own);
    reply->fields[reply->n_fields++] = (struct http_field){"x-request-id", reply->id};
    if (family == FAMILY_ANTHROPIC)
        reply->fields[reply->n_fields++] = (struct http_field){"request-id", reply->id};
    api_error_body(&error, family, reply->id, &reply->body);
}

void dispatch_refused(struct service *s, const struct http_refusal *r,
                      struct http_refusal_reply *reply)
{
    if (reply) write_refusal(r, reply);
    if (r->known) return; /* the call is logged when it is closed */
    const struct log_field fields[] = {
        LOG_TEXT_FIELD("id", reply ? reply->id : ""),
        LOG_TEXT_FIELD("client", r->client),
        LOG_NUMBER("status", r->status),
        LOG_TEXT_FIELD("why", r->why),
    };
    if (r->status)
        metrics_reply(s->metrics, "refused", r->status);
    else
        metrics_add(s->metrics, METRICS_FAILED, 1);
    const int skipped = reply ? 0 : 1; /* without a reply of ours there is no id */
    log_event(LOG_INFO, r->status ? "refused" : "connection_failed", fields + skipped,
              (int)(sizeof fields / sizeof *fields) - skipped);
}

void dispatch_closed(struct service *s, struct http_request *q, bool is_sent)
{
    enum { CLIENT_LEFT = 499 }; /* as nginx has it */
    struct call *c = q->user;
    if (!c) return;
    q->user = NULL;
    c->q = NULL;
    atomic_store(&c->is_gone, true);
    if (c->is_stream) s->n_streams--;
    if (c->stage == CALL_AT_WORKER) {
        metrics_add(s->metrics, METRICS_CANCELLED_QUEUE, 1);
        if (workers_withdraw(s->workers, &c->work)) c->stage = CALL_ENDING;
    }
    if (c->stage == CALL_RUNNING) answering_cancel(s, c);
    int status = c->status && (is_sent || c->is_stream) ? c->status : CLIENT_LEFT;
    if (q->refused) status = q->refused;
    log_call(s, c, status);
    call_span_end(s, c, status);
    if (c->stage == CALL_READING) c->stage = CALL_ENDING;
    release(s, c);
}

void dispatch_tick(struct service *s, double now)
{
    for (struct call *c = s->calls; c; c = c->next) answering_tick(s, c, now);
}

void dispatch_end_all(struct service *s, const struct api_error *error)
{
    for (struct call *c = s->calls; c; c = c->next) {
        if (c->stage == CALL_RUNNING) answering_fail(s, c, error);
        if (c->stage == CALL_READING && c->route && c->q) respond_error(c, error);
    }
}

void dispatch_abandon(struct service *s)
{
    for (struct call *c = s->calls, *next; c; c = next) {
        next = c->next;
        c->stage = CALL_ENDING;
        answering_pump(s, c);
        release(s, c);
    }
}
