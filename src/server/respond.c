#include "server/respond.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"

enum { FIELDS_MAX = 24 };

struct fields {
    struct http_field items[FIELDS_MAX];
    size_t n;
    char timing[TIMING_MAX], ignored[16];
};

static void add(struct fields *f, const char *name, const char *value)
{
    if (f->n < FIELDS_MAX) f->items[f->n++] = (struct http_field){name, value};
}

void respond_timing(const struct call *c, char out[TIMING_MAX])
{
    double elapsed = os_seconds() - c->received;
    const struct job_event *done = &c->answers[0].done;
    if (c->answers[0].is_done)
        snprintf(out, TIMING_MAX,
                 "queue;dur=%.1f, prefill;dur=%.1f, decode;dur=%.1f, total;dur=%.1f",
                 done->queue_seconds * 1e3, done->prefill_seconds * 1e3, done->decode_seconds * 1e3,
                 elapsed * 1e3);
    else
        snprintf(out, TIMING_MAX, "prepare;dur=%.1f", elapsed * 1e3);
}

static void add_all(struct fields *f, const struct call *c, const char *type)
{
    f->n = 0;
    if (type) add(f, "Content-Type", type);
    add(f, "x-request-id", c->id);
    if (c->family == FAMILY_ANTHROPIC) add(f, "request-id", c->id); /* its client's name for it */
    add(f, "X-Content-Type-Options", "nosniff");
    for (size_t i = 0; i < c->pass.n_fields; i++)
        add(f, c->pass.fields[i].name, c->pass.fields[i].value);
    if (c->n_answers > 0) {
        respond_timing(c, f->timing);
        add(f, "Server-Timing", f->timing);
    }
    if (c->ask.n_ignored_tools == 0) return;
    snprintf(f->ignored, sizeof f->ignored, "%d", c->ask.n_ignored_tools);
    add(f, "x-carat-ignored-tools", f->ignored);
}

void respond_fields(struct call *c, int status, const char *type, const struct http_field *more,
                    size_t n_more, const char *body, size_t length)
{
    struct fields f;
    c->stage = CALL_ENDING;
    if (!c->q) return;
    c->status = status;
    c->bytes_out = length;
    add_all(&f, c, type);
    for (size_t i = 0; i < n_more; i++) add(&f, more[i].name, more[i].value);
    http_reply(c->q, status, f.items, f.n, body, length);
}

void respond_bytes(struct call *c, int status, const char *type, const char *body, size_t length)
{
    respond_fields(c, status, type, NULL, 0, body, length);
}

/* Its text is a constant, since there is no memory to write one. */
static void respond_no_memory(struct call *c)
{
    static const char *const bodies[] = {
        [FAMILY_OPENAI] = "{\"error\":{\"message\":\"not enough memory for this request now\","
                          "\"type\":\"unavailable_error\",\"param\":null,"
                          "\"code\":\"out_of_memory\"}}\n",
        [FAMILY_ANTHROPIC] = ("{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
                              "\"message\":\"not enough memory for this request now\"}}\n"),
        [FAMILY_OLLAMA] = "{\"error\":\"not enough memory for this request now\"}\n",
    };
    const struct http_field retry = {"Retry-After", "1"};
    const char *body = bodies[c->family];
    respond_fields(c, 503, "application/json", &retry, 1, body, strlen(body));
}

void respond_buf(struct call *c, int status, const char *type, const struct http_field *more,
                 size_t n_more, const struct buf *body)
{
    if (body->failed)
        respond_no_memory(c);
    else
        respond_fields(c, status, type, more, n_more, buf_text(body), body->length);
}

void respond_json(struct call *c, int status, const struct buf *body)
{
    respond_buf(c, status, "application/json", NULL, 0, body);
}

void respond_error(struct call *c, const struct api_error *error)
{
    struct buf body = {0};
    char seconds[16];
    const struct http_field retry = {"Retry-After", seconds};
    api_error_body(error, c->family, c->id, &body);
    snprintf(seconds, sizeof seconds, "%d", error->retry_after);
    respond_buf(c, error->status, "application/json", &retry, error->retry_after > 0, &body);
    buf_deinit(&body);
}

void respond_stream(struct call *c, const char *type)
{
    struct fields f;
    if (!c->q) return;
    c->status = 200;
    c->is_stream = true;
    add_all(&f, c, type);
    add(&f, "Cache-Control", "no-cache");
    add(&f, "X-Accel-Buffering", "no");
    http_stream(c->q, 200, f.items, f.n);
}
