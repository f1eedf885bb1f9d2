#include "server/call_span.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/os.h"

void call_span_begin(const struct service *s, struct call *c)
{
    if (!s->traces || !c->route || !route_is_computed(c->route)) return;
    const bool is_double = http_header(c->q, "traceparent", 1) != NULL;
    trace_context_begin(&c->trace, is_double ? NULL : http_header(c->q, "traceparent", 0));
}

static int64_t now_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static const char *operation_of(const struct route *route)
{
    if (route->kind != ROUTE_ANSWER) return NULL;
    const bool is_text = route->part == API_COMPLETIONS || route->part == API_OLLAMA_GENERATE;
    return is_text ? "text_completion" : "chat";
}

/* Sums over all answers; times are those of the first. A prompt counts once. */
static void add_answers(struct span *span, const struct call *c)
{
    const struct generation *first = &c->answers[0];
    const struct carat_sampling *sampling = &first->job.request.sampling;
    for (int32_t i = 0; i < c->n_answers; i++) {
        const struct generation *g = &c->answers[i];
        const struct reply_usage usage = generation_usage(g);
        if (i % c->ask.n == 0) {
            span->n_prompt += usage.n_prompt;
            span->n_cached += usage.n_cached;
        }
        span->n_generated += usage.n_generated;
        if (g->is_done && span->n_finishes < SPAN_FINISHES_MAX)
            span->finishes[span->n_finishes++] = generation_finish_name(g);
    }
    if (span->n_finishes == 0 && c->finish[0]) span->finishes[span->n_finishes++] = c->finish;
    const struct reply_usage usage = generation_usage(first);
    span->n_answers = c->n_answers;
    span->max_tokens = first->job.request.max_tokens;
    span->temperature = (double)sampling->temperature;
    span->top_p = (double)sampling->top_p;
    span->queue = usage.queue_seconds;
    span->prefill = usage.prefill_seconds;
    span->decode = usage.decode_seconds;
    if (first->first_seconds > 0) span->first_token = first->first_seconds - c->received;
}

void call_span_end(const struct service *s, const struct call *c, int status)
{
    if (!s->traces || !c->trace.span[0]) return;
    const double now = os_seconds();
    struct span span = {
        .context = c->trace,
        .end_ns = now_ns(),
        .method = c->route->method,
        .route = c->route->path,
        .scheme = s->options->http.certificate ? "https" : "http",
        .operation = operation_of(c->route),
        .status = status,
        .whole = now - c->received,
    };
    span.begin_ns = span.end_ns - (int64_t)((now - c->began) * 1e9);
    memcpy(span.id, c->id, sizeof span.id);
    if (c->stage != CALL_AT_WORKER) { /* else a worker may be writing what is read here */
        if (c->ask.model) snprintf(span.model, sizeof span.model, "%s", c->ask.model);
        if (c->n_answers > 0) add_answers(&span, c);
        if (status < 400 && c->has_failed) span.failure = c->finish;
    }
    traces_add(s->traces, &span);
}
