#include "server/answering.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "server/problems.h"
#include "server/respond.h"

/* ---- Bytes of a stream ------------------------------------------------------------------- */

/* A part that did not fit into memory is not sent at all. */
static void send_out(struct service *s, struct call *c)
{
    if (s->out.length == 0 || s->out.failed || !c->q) return;
    http_add(c->q, s->out.data, s->out.length);
    c->bytes_out += s->out.length;
    c->last_sent = os_seconds();
    buf_clear(&s->out);
}

static void begin_stream(struct service *s, struct call *c)
{
    respond_stream(c, reply_content_type(c->reply));
    s->n_streams++;
    c->last_sent = os_seconds();
    send_out(s, c);
}

/* ---- Ends -------------------------------------------------------------------------------- */

bool answering_is_over(const struct call *c)
{
    for (int32_t i = 0; i < c->n_answers; i++)
        if (c->answers[i].is_submitted && !c->answers[i].is_done) return false;
    return true;
}

static void cancel_job(struct service *s, struct generation *g)
{
    if (!g->is_submitted || g->is_done || g->is_cancelled) return;
    g->is_cancelled = true;
    replicas_cancel(s->replicas, &g->job);
}

/* Events that were taken do not come again: the end must not be lost with those before it. */
static void note_done(struct generation *g, const struct job_event *events, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (g->is_done || events[i].kind != JOB_DONE) continue;
        g->done = events[i];
        g->is_done = true;
    }
}

/* Takes and forgets. */
static void take_rest(struct service *s, struct generation *g)
{
    struct job_event events[4];
    size_t n;
    while (!g->is_done && (n = replicas_take(s->replicas, &g->job, events, 4)) > 0)
        note_done(g, events, n);
}

/* No more news come of a job that has ended already, so what it left is taken now. */
static void cancel_jobs(struct service *s, struct call *c)
{
    for (int32_t i = 0; i < c->n_answers; i++) {
        cancel_job(s, &c->answers[i]);
        if (c->answers[i].is_submitted) take_rest(s, &c->answers[i]);
    }
}

static void count_cancel(struct service *s, const struct call *c)
{
    enum metrics_count what = METRICS_CANCELLED_QUEUE;
    for (int32_t i = 0; i < c->n_answers; i++) {
        if (c->answers[i].phase == GENERATION_PROMPT && what == METRICS_CANCELLED_QUEUE)
            what = METRICS_CANCELLED_PROMPT;
        if (c->answers[i].phase == GENERATION_DECODE) what = METRICS_CANCELLED_DECODE;
    }
    metrics_add(s->metrics, c->is_blocked ? METRICS_CANCELLED_WRITE : what, 1);
}

void answering_cancel(struct service *s, struct call *c)
{
    if (c->stage == CALL_RUNNING) {
        count_cancel(s, c);
        c->finish = "cancelled";
        c->stage = CALL_ENDING;
    }
    cancel_jobs(s, c);
}

void answering_fail(struct service *s, struct call *c, const struct api_error *error)
{
    cancel_jobs(s, c);
    c->finish = c->finish[0] ? c->finish : "error";
    c->has_failed = true;
    if (!c->is_stream) {
        respond_error(c, error);
        return;
    }
    c->stage = CALL_ENDING;
    if (!c->q) return;
    buf_clear(&s->out);
    reply_fail(c->reply, error, &s->out);
    bool is_told = !s->out.failed;
    send_out(s, c);
    /* The event says what happened. If the connection were cut as well, clients would throw away
     * what they have not read yet, the event with it. */
    http_end(c->q, is_told);
}

/* The reply, or a part of it, does not fit into memory. */
static void fail_by_memory(struct service *s, struct call *c)
{
    struct carat_error err = {0};
    err_no_memory(&err, "reply", s->out.length);
    struct api_error error = api_error_from(&err);
    answering_fail(s, c, &error);
}

/* An answer that an engine gave up. */
static void fail_by_job(struct service *s, struct call *c, const struct generation *g)
{
    const struct carat_error *err = g->done.error;
    struct api_error error;
    c->finish = generation_finish_name(g);
    if (g->done.finish == CARAT_FINISH_DEADLINE) {
        error = problem_timeout(s->options);
    } else if (g->done.finish == CARAT_FINISH_CANCELLED) {
        error = problem_shutdown();
    } else {
        error = err ? api_error_from(err)
                    : api_error_make(500, NULL, "the engine gave this request up");
    }
    answering_fail(s, c, &error);
}

static void tell_answer(struct service *s, struct call *c, const struct generation *g)
{
    const struct reply_usage usage = generation_usage(g);
    double now = os_seconds();
    if (c->finish[0] == '\0') c->finish = generation_finish_name(g);
    const struct metrics_answer answer = {
        .finish = generation_finish_name(g),
        .n_prompt = usage.n_prompt,
        .n_cached = usage.n_cached,
        .n_generated = usage.n_generated,
        .queue = usage.queue_seconds,
        .prefill = usage.prefill_seconds,
        .decode = usage.decode_seconds,
        .first_token = g->first_seconds > 0 ? g->first_seconds - c->received : 0,
        .whole = now - c->received,
    };
    metrics_answer(s->metrics, &answer);
}

/* The whole reply, or the end of the stream. */
static void finish(struct service *s, struct call *c)
{
    char timing[TIMING_MAX], comment[TIMING_MAX + 16];
    respond_timing(c, timing);
    snprintf(comment, sizeof comment, "server-timing %s", timing);
    reply_comment(c->reply, comment, &s->out);
    reply_finish(c->reply, &s->out);
    if (s->out.failed) {
        fail_by_memory(s, c);
        return;
    }
    c->stage = CALL_ENDING;
    if (!c->is_stream) {
        respond_bytes(c, 200, reply_content_type(c->reply), buf_text(&s->out), s->out.length);
        return;
    }
    send_out(s, c);
    http_end(c->q, true);
}

/* ---- Events ------------------------------------------------------------------------------ */

static bool has_room(const struct service *s, const struct call *c)
{
    return !c->is_stream || http_unsent(c->q) + s->out.length < UNSENT_MAX;
}

static int take_event(struct service *s, struct call *c, struct generation *g,
                      const struct job_event *event, struct carat_error *err)
{
    double last = g->last_seconds;
    TRY(generation_push(g, event, c->reply, &s->out, err));
    if (event->kind == JOB_TOKEN && last > 0) metrics_token_gap(s->metrics, event->seconds - last);
    if (g->is_over) cancel_job(s, g);
    return CARAT_OK;
}

/* Takes all events that there are, or as many as the client keeps up with. */
static int take_events(struct service *s, struct call *c, struct generation *g,
                       struct carat_error *err)
{
    enum { AT_ONCE = 8 };
    struct job_event events[AT_ONCE];
    size_t n = AT_ONCE;
    while (!g->is_done && n == AT_ONCE) {
        c->is_blocked = !has_room(s, c);
        if (c->is_blocked) break;
        n = replicas_take(s->replicas, &g->job, events, AT_ONCE);
        for (size_t i = 0; i < n; i++) {
            int status = take_event(s, c, g, &events[i], err);
            if (status == CARAT_OK) continue;
            note_done(g, events + i, n - i);
            return status;
        }
    }
    return CARAT_OK;
}

static int end_answer(struct service *s, struct call *c, struct generation *g,
                      struct carat_error *err)
{
    c->n_done++;
    tell_answer(s, c, g);
    if (generation_has_failed(g)) {
        fail_by_job(s, c, g);
        return CARAT_OK;
    }
    return generation_end(g, c->reply, &s->out, err);
}

void answering_pump(struct service *s, struct call *c)
{
    struct carat_error err = {0};
    int status = CARAT_OK;
    buf_clear(&s->out);
    for (int32_t i = 0; i < c->n_answers; i++) {
        struct generation *g = &c->answers[i];
        if (!g->is_submitted || g->is_done) continue;
        if (c->stage != CALL_RUNNING) {
            take_rest(s, g);
            continue;
        }
        status = take_events(s, c, g, &err);
        if (status == CARAT_OK && g->is_done) status = end_answer(s, c, g, &err);
        if (status == CARAT_OK && s->out.failed)
            status = err_no_memory(&err, "reply", s->out.length);
        if (status != CARAT_OK) {
            struct api_error error = api_error_from(&err);
            answering_fail(s, c, &error);
        }
    }
    if (c->stage != CALL_RUNNING) return;
    if (c->n_done == c->n_answers)
        finish(s, c);
    else
        send_out(s, c);
}

/* ---- Beginning ---------------------------------------------------------------------------- */

static int submit_jobs(struct service *s, struct call *c, struct carat_error *err)
{
    struct job *jobs[REPLICAS_AT_ONCE];
    for (int32_t i = 0; i < c->n_answers; i++) jobs[i] = &c->answers[i].job;
    TRY(replicas_submit(s->replicas, jobs, (size_t)c->n_answers, err));
    for (int32_t i = 0; i < c->n_answers; i++) c->answers[i].is_submitted = true;
    return CARAT_OK;
}

/* ollama: an answer without a question. */
static void reply_nothing(struct service *s, struct call *c)
{
    buf_clear(&s->out);
    reply_begin(c->reply, &s->out);
    reply_finish(c->reply, &s->out);
    respond_buf(c, 200, reply_content_type(c->reply), NULL, 0, &s->out);
}

void answering_begin(struct service *s, struct call *c)
{
    struct carat_error err = {0};
    if (c->ask.has_billing_line) metrics_add(s->metrics, METRICS_BILLING_LINES, 1);
    if (c->n_answers == 0) {
        reply_nothing(s, c);
        return;
    }
    int status = submit_jobs(s, c, &err);
    if (status != CARAT_OK) {
        struct api_error error = api_error_from(&err);
        if (status == CARAT_EBUSY) {
            metrics_add(s->metrics, METRICS_QUEUE_REJECTED, 1);
            error = problem_queue_full(s->options);
        }
        answering_fail(s, c, &error);
        return;
    }
    c->stage = CALL_RUNNING;
    buf_clear(&s->out);
    reply_begin(c->reply, &s->out);
    if (s->out.failed)
        fail_by_memory(s, c);
    else if (c->ask.is_stream)
        begin_stream(s, c);
}

void answering_tick(struct service *s, struct call *c, double now)
{
    enum { PATIENCE = 5 }; /* seconds that the engine has to end it by itself */
    double limit = s->options->request_seconds, ping = s->options->ping_seconds;
    if (c->stage != CALL_RUNNING) return;
    if (limit > 0 && now - c->received > limit + PATIENCE) {
        struct api_error error = problem_timeout(s->options);
        c->finish = "deadline";
        answering_fail(s, c, &error);
        return;
    }
    if (!c->is_stream || ping <= 0 || now - c->last_sent < ping) return;
    buf_clear(&s->out);
    reply_ping(c->reply, &s->out);
    send_out(s, c);
}
