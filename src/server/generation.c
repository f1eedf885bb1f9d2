#include "server/generation.h"

#include <string.h>
#include <sys/random.h>

#include "base/status.h"
#include "json/sampling_fields.h"
#include "server/pieces.h"

static struct carat_sampling sampling_of(const struct ask *ask, int32_t number)
{
    struct carat_sampling p = sampling_literal(ask->request.sampling);
    if (!ask->request.has_seed && getrandom(&p.seed, sizeof p.seed, 0) != sizeof p.seed) p.seed = 1;
    p.seed += (uint64_t)(number % ask->n); /* the same seeds for each prompt */
    return p;
}

static struct carat_request request_of(const struct generation *g, const struct prompt *prompt,
                                       const carat_grammar *grammar)
{
    const struct ask *ask = g->ask;
    const struct chat_request *r = &ask->request;
    return (struct carat_request){
        .size = sizeof(struct carat_request),
        .prompt = prompt->ids,
        .n_prompt = prompt->n,
        .max_tokens = r->max_tokens == 0 ? 1 : r->max_tokens,
        .sampling = sampling_of(ask, g->number),
        .bias = r->bias,
        .n_bias = r->n_bias,
        .ignore_stop = r->ignores_stop,
        .want_logprob = r->want_logprobs,
        .n_top_logprobs = r->n_top_logprobs,
        .no_cache = ask->no_cache,
        .grammar = grammar,
        .max_thinking = r->thinking_max,
    };
}

int generation_open(struct generation *g, const carat_model *model, const struct ask *ask,
                    const struct prompt *prompt, const carat_grammar *grammar, int32_t number,
                    struct carat_error *err)
{
    *g = (struct generation){.number = number, .model = model, .ask = ask};
    const struct carat_answer_options options = {
        .size = sizeof options,
        .stops = ask->request.stops,
        .n_stops = ask->request.n_stops,
        .is_raw = ask->n_prompts > 0,
        .streams_calls = true,
    };
    g->is_dropped = ask->request.max_tokens == 0;
    g->job.request = request_of(g, prompt, grammar);
    return carat_answer_open(&g->parts, model, prompt->ids, prompt->n, &options, err);
}

void generation_close(struct generation *g)
{
    if (g->job.state) job_deinit(&g->job);
    carat_answer_close(g->parts);
    *g = (struct generation){0};
}

/* ---- Tokens ----------------------------------------------------------------------------- */

static void tell_logprobs(const struct generation *g, const struct job_event *event, bool is_text,
                          struct reply *reply, struct buf *out)
{
    char bytes[CARAT_TOP_LOGPROBS_MAX + 1][PIECE_BYTES_MAX];
    struct reply_top top[CARAT_TOP_LOGPROBS_MAX];
    size_t n = (size_t)event->n_top;
    for (size_t i = 0; i < n; i++) {
        size_t length = piece_bytes(g->model, event->top[i].id, bytes[i]);
        top[i] = (struct reply_top){.bytes = bytes[i],
                                    .length = length,
                                    .logprob = event->top[i].logprob,
                                    .id = event->top[i].id};
    }
    char *own = bytes[CARAT_TOP_LOGPROBS_MAX];
    const struct reply_token token = {
        .bytes = own,
        .length = piece_bytes(g->model, event->id, own),
        .logprob = event->logprob,
        .top = top,
        .n_top = n,
        .id = event->id,
        .is_text = is_text,
    };
    reply_token(reply, g->number, &token, out);
}

static void tell_parts(struct generation *g, const struct carat_part *parts, size_t n,
                       struct reply *reply, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (parts[i].kind == CARAT_PART_CALL_BEGIN) g->has_called = g->is_calling = true;
        if (parts[i].kind == CARAT_PART_CALL_END) g->is_calling = false;
        if (parts[i].kind == CARAT_PART_TEXT) g->is_calling = false; /* it was none */
        reply_part(reply, g->number, &parts[i], out);
    }
}

/* A call begins with its mark; its name, which makes it one, comes later. */
static bool begins_call(const struct generation *g, int32_t id)
{
    static const char mark[] = "<|tool_call>";
    size_t length;
    const char *piece = carat_token_piece(g->model, id, &length);
    return length == sizeof mark - 1 && memcmp(piece, mark, length) == 0;
}

/* Whether the token that has just been pushed is of the visible answer. */
static bool is_visible(const struct generation *g, int32_t id, bool was_thinking,
                       const struct carat_part *parts, size_t n)
{
    bool is_mark = carat_token_is_control(g->model, id);
    if (is_mark && g->ask->n_prompts == 0) return false;
    for (size_t i = 0; i < n; i++)
        if (parts[i].kind != CARAT_PART_TEXT) return false;
    return !was_thinking && !g->is_calling && !carat_answer_is_thinking(g->parts);
}

static int take_token(struct generation *g, const struct job_event *event, struct reply *reply,
                      struct buf *out, struct carat_error *err)
{
    const struct carat_part *parts;
    size_t n;
    if (g->n_tokens == 0) g->first_seconds = event->seconds;
    g->last_seconds = event->seconds;
    g->phase = GENERATION_DECODE;
    if (g->is_over || g->is_dropped) return CARAT_OK;
    bool was_thinking = carat_answer_is_thinking(g->parts);
    TRY(carat_answer_push(g->parts, &event->id, 1, &parts, &n, err));
    g->n_tokens++;
    g->n_thinking += was_thinking || carat_answer_is_thinking(g->parts);
    g->is_over = carat_answer_stop(g->parts) != NULL;
    if (g->ask->wants_timings) {
        const struct reply_usage usage = generation_usage(g);
        reply_usage_now(reply, g->number, &usage);
    }
    if (g->ask->request.want_logprobs)
        tell_logprobs(g, event, is_visible(g, event->id, was_thinking, parts, n), reply, out);
    if (g->ask->wants_ids) reply_id(reply, g->number, event->id, out);
    tell_parts(g, parts, n, reply, out);
    if (begins_call(g, event->id)) g->is_calling = true;
    if (g->ask->wants_ids) reply_ids_end(reply, g->number, out);
    return CARAT_OK;
}

int generation_push(struct generation *g, const struct job_event *event, struct reply *reply,
                    struct buf *out, struct carat_error *err)
{
    switch (event->kind) {
    case JOB_TOKEN: return take_token(g, event, reply, out, err);
    case JOB_PROGRESS:
        if (g->phase == GENERATION_QUEUED) {
            g->phase = GENERATION_PROMPT;
            g->n_cached = event->done < event->total ? event->done : 0;
        }
        if (g->ask->wants_progress && g->ask->is_stream)
            reply_progress(reply, g->number, event->done, event->total, g->n_cached, out);
        break;
    case JOB_DONE:
        g->is_done = true;
        g->done = *event;
        break;
    }
    return CARAT_OK;
}

/* ---- The end ---------------------------------------------------------------------------- */

bool generation_has_failed(const struct generation *g)
{
    enum carat_finish finish = g->done.finish;
    if (g->is_over) return false;
    return finish != CARAT_FINISH_STOP && finish != CARAT_FINISH_LENGTH;
}

const char *generation_finish_name(const struct generation *g)
{
    static const char *const names[CARAT_FINISH_COUNT] = {
        [CARAT_FINISH_STOP] = "stop",           [CARAT_FINISH_LENGTH] = "length",
        [CARAT_FINISH_CANCELLED] = "cancelled", [CARAT_FINISH_ERROR] = "error",
        [CARAT_FINISH_DEADLINE] = "deadline",
    };
    bool has_stopped = g->is_over || g->done.finish == CARAT_FINISH_STOP;
    if (has_stopped) return g->has_called ? "tool_calls" : "stop";
    return names[g->done.finish];
}

struct reply_usage generation_usage(const struct generation *g)
{
    const struct job_event *d = &g->done;
    if (!g->is_done)
        return (struct reply_usage){
            .n_prompt = (int32_t)g->job.request.n_prompt,
            .n_cached = g->n_cached,
            .n_generated = g->n_tokens,
            .n_thinking = g->n_thinking,
            .decode_seconds = g->n_tokens > 0 ? g->last_seconds - g->first_seconds : 0,
        };
    return (struct reply_usage){
        .n_prompt = d->n_prompt,
        .n_cached = d->n_cached,
        .n_generated = g->is_over || g->is_dropped ? g->n_tokens : d->n_generated,
        .n_thinking = g->is_over ? g->n_thinking : d->n_thinking,
        .n_drafted = d->n_drafted,
        .n_accepted = d->n_accepted,
        .queue_seconds = d->queue_seconds,
        .prefill_seconds = d->prefill_seconds,
        .decode_seconds = d->decode_seconds,
    };
}

/* The parts that were held back. A call that has not ended by now is cut. With the rest that
 * repairs it, it would look complete, so a client gets no more of its arguments than the model has
 * said. One that would only begin here may have half a name: it is left out, and this is false. */
static bool tell_last_parts(struct generation *g, const struct carat_part *parts, size_t n,
                            struct reply *reply, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        bool is_last_piece = parts[i].kind == CARAT_PART_CALL_ARGUMENTS && i + 1 < n;
        if (parts[i].kind == CARAT_PART_CALL_BEGIN) return false;
        if (is_last_piece && !parts[i + 1].is_complete) continue;
        tell_parts(g, &parts[i], 1, reply, out);
    }
    return true;
}

int generation_end(struct generation *g, struct reply *reply, struct buf *out,
                   struct carat_error *err)
{
    const struct carat_part *parts;
    size_t n;
    bool is_cut = g->done.finish == CARAT_FINISH_LENGTH && !g->is_over;
    struct reply_done done = {.end = is_cut || g->is_dropped ? REPLY_LENGTH : REPLY_STOP};
    done.is_cut_in_thought = is_cut && carat_answer_is_thinking(g->parts);
    TRY(carat_answer_finish(g->parts, &parts, &n, err));
    if (!tell_last_parts(g, parts, n, reply, out)) done.end = REPLY_LENGTH;
    done.stop = carat_answer_stop(g->parts); /* finishing may find one too */
    if (done.stop) done.end = REPLY_STOP_TEXT;
    done.usage = generation_usage(g);
    reply_answer_done(reply, g->number, &done, out);
    return CARAT_OK;
}
