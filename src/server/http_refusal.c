#include "server/http_refusal.h"

#ifdef CARAT_HAVE_HTTP

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

void refusal_write(struct connection *c, int status, const char *why, const char *id,
                   struct http_refusal_reply *reply)
{
    struct http *h = c->server;
    const char *path = c->request.path && *c->request.path ? c->request.path : c->target.path;
    const struct http_refusal r = {.client = c->request.client,
                                   .path = path ? path : "",
                                   .status = status,
                                   .why = why,
                                   .id = id,
                                   .known = c->is_known ? &c->request : NULL};
    c->request.refused = status;
    h->events.on_refused(h->events.user, &r, reply);
}

void refusal_note(struct http *h, const char *client, const char *why)
{
    const struct http_refusal r = {.client = client, .path = "", .why = why};
    h->events.on_refused(h->events.user, &r, NULL);
}

static void write_head(int status, const struct http_refusal_reply *reply, struct buf *out)
{
    char date[64];
    struct tm parts;
    const time_t now = time(NULL);
    (void)gmtime_r(&now, &parts);
    (void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    buf_printf(out,
               "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\n"
               "Content-Type: application/json\r\n",
               status, MHD_get_reason_phrase_for((unsigned)status), date);
    for (size_t i = 0; i < reply->n_fields; i++)
        buf_printf(out, "%s: %s\r\n", reply->fields[i].name, reply->fields[i].value);
    buf_printf(out, "%sContent-Length: %zu\r\n\r\n", status == 503 ? "Retry-After: 5\r\n" : "",
               reply->body.length);
}

static void *session_of(const struct connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info ? info->tls_session : NULL;
}

static void say(struct connection *c, int status, const char *why, bool is_encrypted)
{
    struct http_refusal_reply reply = {0};
    struct buf out = {0};
    refusal_write(c, status, why, NULL, &reply);
    write_head(status, &reply, &out);
    if (!c->request.is_head) buf_add(&out, reply.body.data, reply.body.length);
    void *session = is_encrypted ? session_of(c) : NULL;
    if (reply.body.failed || out.failed) {
        /* Nothing is better than half of it. */
    } else if (session) {
        tls_say(session, out.data, out.length);
    } else if (!is_encrypted) {
        (void)send(c->watched.fd, out.data, out.length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    buf_deinit(&reply.body);
    buf_deinit(&out);
    c->is_gone = c->is_refused = c->may_repeat = true;
    c->server->n_repeats++;
    (void)shutdown(c->watched.fd, SHUT_WR);
    linger_begin(&c->server->linger, &c->server->watch, c->watched.fd);
    watch_begin(&c->server->watch, &c->watched, DEADLINE_LEFT);
}

void refusal_say(struct connection *c, int status, const char *why)
{
    say(c, status, why, c->request.is_tls);
}

void refusal_say_plainly(struct connection *c, int status, const char *why)
{
    say(c, status, why, false);
}

/* --- refusals of the library --- */

static const char *reason(unsigned status, const char *message)
{
    const bool is_length = strstr(message, "Content-Length") != NULL;
    if (status == 413)
        return is_length ? "the body is longer than this server takes (--max-body)"
                         : "a chunk of the body is longer than this server takes (--max-body)";
    if (status == 414) return "the target of the request is longer than this server takes";
    if (status == 431) return "the headers are longer than this server takes";
    if (status == 505) return "only HTTP/1.1 and HTTP/1.0 are understood";
    if (is_length) return "the length is not a number";
    if (strstr(message, "chunk")) return "the chunks of the body are not well formed";
    return "the request is not well formed";
}

/* The library does not say whose request it refuses. Wrong chunks are those of a connection that
 * sends chunks now. 431 is for a head whose target is known, or for trailers. Usually only one
 * connection is in such a state, and then it is that one. A wrong length is certain: it is the only
 * connection whose head has ended before on_headers was called. */
static struct connection *find_refused(struct http *h, unsigned status, const char *message)
{
    static const enum deadline kinds[] = {DEADLINE_HEADERS, DEADLINE_BODY, DEADLINE_LEFT};
    const bool is_length = strstr(message, "Content-Length"), is_chunk = strstr(message, "chunk");
    struct connection *found = NULL;
    size_t n = 0;
    if (!is_length && !is_chunk && status != 431) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (struct watched *p = h->watch.first[kinds[i]]; p; p = p->after) {
            struct connection *c = (struct connection *)p;
            const bool is_head = c->has_target && !c->request.method;
            const bool may_be = is_length  ? is_head && header_bytes(c) > 0
                                : is_chunk ? c->is_chunked
                                           : is_head || c->is_chunked;
            if (!may_be || c->is_gone) continue;
            found = c;
            n++;
        }
    }
    /* With n_repeats it may be one that has been refused already. */
    return n == 1 && (is_length || h->n_repeats == 0) ? found : NULL;
}

void refusal_forget(struct connection *c)
{
    if (c->may_repeat) c->server->n_repeats--;
    c->may_repeat = false;
}

/* A head that was refused here: the library reads on, and may refuse it once more. */
static bool is_repeated(struct http *h)
{
    for (struct watched *p = h->watch.first[DEADLINE_LEFT]; p; p = p->after) {
        struct connection *c = (struct connection *)p;
        if (!c->may_repeat) continue;
        refusal_forget(c);
        return true;
    }
    return false;
}

void refusal_of_library(void *user, const char *form, va_list arguments)
{
    static const char refuses[] = "Error processing request (HTTP response code is %u ('%s'))";
    struct http *h = user;
    if (strncmp(form, refuses, sizeof refuses - 1) != 0) return;
    const unsigned status = va_arg(arguments, unsigned);
    const char *message = va_arg(arguments, const char *), *why = reason(status, message);
    struct connection *c = find_refused(h, status, message);
    if (c) {
        refusal_say(c, (int)status, why); /* what the library sends now goes nowhere */
        refusal_forget(c);
    } else if (!is_repeated(h)) {
        const struct http_refusal r = {.client = "", .path = "", .status = (int)status, .why = why};
        h->events.on_refused(h->events.user, &r, NULL);
    }
}
#endif
