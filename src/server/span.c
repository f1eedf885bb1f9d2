#include "server/span.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "server/pairs.h"

/* ---- Attributes -------------------------------------------------------------------------- */

static void begin_value(struct json *j, const char *kind)
{
    json_begin_object(j);
    json_key(j, kind);
}

static void begin_attribute(struct json *j, const char *key)
{
    json_begin_object(j);
    json_key_string(j, "key", key);
    json_key(j, "value");
}

static void put_text(struct json *j, const char *key, const char *text)
{
    begin_attribute(j, key);
    begin_value(j, "stringValue");
    json_put_string(j, text);
    json_end_object(j);
    json_end_object(j);
}

/* A number of 64 bits is a text, as JavaScript's numbers have 53. */
static void put_digits(struct json *j, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    json_put_string(j, text);
}

static void put_int(struct json *j, const char *key, int64_t value)
{
    begin_attribute(j, key);
    begin_value(j, "intValue");
    put_digits(j, value);
    json_end_object(j);
    json_end_object(j);
}

static void put_real(struct json *j, const char *key, double value)
{
    if (!isfinite(value)) return;
    begin_attribute(j, key);
    begin_value(j, "doubleValue");
    json_double(j, value);
    json_end_object(j);
    json_end_object(j);
}

static void put_texts(struct json *j, const char *key, const char *const *texts, size_t n)
{
    begin_attribute(j, key);
    begin_value(j, "arrayValue");
    begin_value(j, "values");
    json_begin_array(j);
    for (size_t i = 0; i < n; i++) {
        begin_value(j, "stringValue");
        json_put_string(j, texts[i]);
        json_end_object(j);
    }
    json_end_array(j);
    json_end_object(j);
    json_end_object(j);
    json_end_object(j);
}

/* ---- A span ------------------------------------------------------------------------------ */

static void put_usage(struct json *j, const struct span *s)
{
    put_int(j, "gen_ai.request.choice.count", s->n_answers);
    if (s->max_tokens > 0) put_int(j, "gen_ai.request.max_tokens", s->max_tokens);
    put_real(j, "gen_ai.request.temperature", s->temperature);
    if (s->top_p > 0) put_real(j, "gen_ai.request.top_p", s->top_p);
    if (s->n_finishes > 0)
        put_texts(j, "gen_ai.response.finish_reasons", s->finishes, s->n_finishes);
    put_int(j, "gen_ai.usage.input_tokens", s->n_prompt);
    put_int(j, "gen_ai.usage.cache_read.input_tokens", s->n_cached);
    put_int(j, "gen_ai.usage.output_tokens", s->n_generated);
    if (s->first_token > 0) put_real(j, "gen_ai.latency.time_to_first_token", s->first_token);
    put_real(j, "gen_ai.latency.time_in_queue", s->queue);
    put_real(j, "gen_ai.latency.time_in_model_prefill", s->prefill);
    put_real(j, "gen_ai.latency.time_in_model_decode", s->decode);
    put_real(j, "gen_ai.latency.e2e", s->whole);
}

static void put_attributes(struct json *j, const struct span *s, const char *served)
{
    char status[16];
    snprintf(status, sizeof status, "%d", s->status);
    put_text(j, "http.request.method", s->method);
    put_text(j, "http.route", s->route);
    put_text(j, "url.path", s->route);
    put_text(j, "url.scheme", s->scheme);
    put_int(j, "http.response.status_code", s->status);
    if (s->failure || s->status >= 400) put_text(j, "error.type", s->failure ? s->failure : status);
    put_text(j, "gen_ai.request.id", s->id);
    if (!s->operation) return;
    put_text(j, "gen_ai.operation.name", s->operation);
    put_text(j, "gen_ai.provider.name", "carat");
    if (s->model[0]) put_text(j, "gen_ai.request.model", s->model);
    put_text(j, "gen_ai.response.model", served);
    if (s->n_answers > 0) put_usage(j, s);
}

/* What the request itself is to blame for is no error of the server. */
static void put_status(struct json *j, const struct span *s)
{
    enum { STATUS_ERROR = 2 };
    json_key_object(j, "status");
    if (s->status >= 500 || s->failure) {
        json_key_int(j, "code", STATUS_ERROR);
    }
    json_end_object(j);
}

static void put_span(struct json *j, const struct span *s, const char *served)
{
    enum { KIND_SERVER = 2 };
    enum { SAMPLED = 1, KNOWS_WHERE_FROM = 0x100, IS_FROM_ELSEWHERE = 0x200 }; /* the parent */
    const bool has_parent = s->context.parent[0];
    char name[96];
    snprintf(name, sizeof name, "%s %s", s->method, s->route);
    json_begin_object(j);
    json_key_string(j, "traceId", s->context.trace);
    json_key_string(j, "spanId", s->context.span);
    if (has_parent) {
        json_key_string(j, "parentSpanId", s->context.parent);
    }
    json_key_int(j, "flags", SAMPLED | KNOWS_WHERE_FROM | (has_parent ? IS_FROM_ELSEWHERE : 0));
    json_key_string(j, "name", name);
    json_key_int(j, "kind", KIND_SERVER);
    json_key(j, "startTimeUnixNano");
    put_digits(j, s->begin_ns);
    json_key(j, "endTimeUnixNano");
    put_digits(j, s->end_ns);
    json_key_array(j, "attributes");
    put_attributes(j, s, served);
    json_end_array(j);
    put_status(j, s);
    json_end_object(j);
}

/* ---- All of them ------------------------------------------------------------------------- */

static void put_resource(struct json *j, const struct span_source *source)
{
    const char *at = source->attributes;
    struct pair more;
    json_key_object(j, "resource");
    json_key_array(j, "attributes");
    put_text(j, "service.name", source->service);
    put_text(j, "service.version", source->version);
    while (pairs_next(&at, &more) > 0)
        if (strcmp(more.name, "service.name") != 0 && strcmp(more.name, "service.version") != 0)
            put_text(j, more.name, more.value);
    json_end_array(j);
    json_end_object(j);
}

static void put_scope(struct json *j, const struct span_source *source)
{
    json_key_object(j, "scope");
    json_key_string(j, "name", "carat");
    json_key_string(j, "version", source->version);
    json_end_object(j);
}

void spans_write(struct buf *out, const struct span_source *source, const struct span *spans,
                 size_t n)
{
    struct json j = {.out = out};
    json_begin_object(&j);
    json_key_array(&j, "resourceSpans");
    json_begin_object(&j);
    put_resource(&j, source);
    json_key_array(&j, "scopeSpans");
    json_begin_object(&j);
    put_scope(&j, source);
    json_key_array(&j, "spans");
    for (size_t i = 0; i < n; i++) put_span(&j, &spans[i], source->model);
    json_end_array(&j);
    json_end_object(&j);
    json_end_array(&j);
    json_end_object(&j);
    json_end_array(&j);
    json_end_object(&j);
}
