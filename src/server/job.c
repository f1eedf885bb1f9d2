#include "server/job.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/status.h"

int job_init(struct job *job, struct carat_error *err)
{
    const struct carat_request *r = &job->request;
    int32_t most = r->max_tokens, n_top = r->n_top_logprobs;
    if (n_top < 0 || n_top > CARAT_TOP_LOGPROBS_MAX) n_top = 0; /* carat_submit will refuse it */
    struct job_state *s = job->state = mem_alloc(1, sizeof *s);
    if (!s) return err_no_memory(err, "request", sizeof *s);
    s->size = most > 0 && most < JOB_RING ? most : JOB_RING;
    s->n_top = n_top;
    s->ring = mem_alloc((size_t)s->size, sizeof *s->ring);
    if (n_top) s->tops = mem_alloc((size_t)(s->size * n_top), sizeof *s->tops);
    if (!s->ring || (n_top && !s->tops)) {
        err_no_memory(err, "tokens of an answer", (size_t)s->size * sizeof *s->ring);
        job_deinit(job);
        return CARAT_EMEMORY;
    }
    s->submitted = os_seconds();
    s->deadline = r->deadline_seconds > 0 ? s->submitted + r->deadline_seconds : 0;
    return CARAT_OK;
}

void job_deinit(struct job *job)
{
    if (!job->state) return;
    mem_free(job->state->ring);
    mem_free(job->state->tops);
    mem_free(job->state);
    job->state = NULL;
}

/* ---- In --------------------------------------------------------------------------------- */

void job_put_progress(struct job_state *s, int32_t done, int32_t total, double seconds)
{
    s->has_progress = true;
    s->progress =
        (struct job_event){.kind = JOB_PROGRESS, .done = done, .total = total, .seconds = seconds};
}

void job_put_token(struct job_state *s, const struct carat_event *event, double seconds)
{
    carat_assert(s->count < s->size);
    int32_t place = (s->first + s->count++) % s->size;
    int32_t n_top = event->n_top < s->n_top ? event->n_top : s->n_top;
    s->ring[place] = (struct job_token){
        .seconds = seconds, .id = event->id, .n_top = n_top, .logprob = event->logprob};
    if (n_top)
        memcpy(s->tops + (size_t)place * (size_t)s->n_top, event->top,
               (size_t)n_top * sizeof *s->tops);
}

void job_put_done(struct job_state *s, const struct carat_event *event,
                  const struct carat_error *error, double seconds)
{
    if (error) s->error = *error;
    s->has_done = true;
    s->done = (struct job_event){
        .kind = JOB_DONE,
        .seconds = seconds,
        .finish = event->finish,
        .stop_id = event->stop_id,
        .n_prompt = event->n_prompt,
        .n_generated = event->n_generated,
        .n_cached = event->n_cached,
        .n_preempted = event->n_preempted,
        .n_thinking = event->n_thinking,
        .n_drafted = event->n_drafted,
        .n_accepted = event->n_accepted,
        .queue_seconds = event->queue_seconds,
        .prefill_seconds = event->prefill_seconds,
        .decode_seconds = event->decode_seconds,
        .error = error ? &s->error : NULL,
    };
}

bool job_is_full(const struct job_state *s)
{
    return s->size == JOB_RING && s->count >= JOB_RING - JOB_SPARE;
}

/* ---- Out -------------------------------------------------------------------------------- */

static void take_token(struct job_state *s, struct job_event *out)
{
    const struct job_token *t = &s->ring[s->first];
    out->kind = JOB_TOKEN;
    out->id = t->id;
    out->logprob = t->logprob;
    out->seconds = t->seconds;
    out->n_top = t->n_top;
    if (t->n_top)
        memcpy(out->top, s->tops + (size_t)s->first * (size_t)s->n_top,
               (size_t)t->n_top * sizeof *out->top);
    s->first = (s->first + 1) % s->size;
    s->count--;
}

size_t job_take(struct job_state *s, struct job_event *out, size_t room)
{
    size_t n = 0;
    if (s->has_progress && n < room) {
        out[n++] = s->progress;
        s->has_progress = false;
    }
    while (s->count > 0 && n < room) take_token(s, &out[n++]);
    if (s->count == 0 && s->has_done && n < room) {
        out[n++] = s->done;
        s->has_done = false;
    }
    return n;
}

bool job_is_low(const struct job_state *s)
{
    return s->count <= JOB_RING / 2;
}
