#include "engine/results.h"

#include "base/os.h"
#include "engine/logprob.h"
#include "engine/request.h"

/* The id that ends a thought which has used up its tokens, or -1. It is not forced where a grammar
 * does not allow it. */
static int32_t forced_id(const carat_engine *e, const struct sequence *s)
{
    int32_t end = vocab_special(e->model->vocab, VOCAB_CHANNEL_END);
    bool is_spent = s->max_thinking > 0 && thought_is_open(&s->thought) &&
                    s->thought.n_tokens >= s->max_thinking;
    return is_spent && constrain_allows(s->constraint, end) ? end : -1;
}

static void add_logprobs(carat_engine *e, const struct sequence *s, struct carat_event *event,
                         const float *row)
{
    int32_t n_vocab = e->model->config.n_vocab;
    struct carat_logprob *top = events_top(&e->events);
    event->n_top = s->n_top < n_vocab ? s->n_top : n_vocab;
    event->top = event->n_top ? top : NULL;
    event->logprob = logprob_compute(row, n_vocab, event->id, top, event->n_top);
}

/* Puts `id` into the event in place of a sampled one, with its log-probabilities. */
static int put(carat_engine *e, const struct sequence *s, int32_t out, int32_t id,
               struct carat_event *event, struct carat_error *err)
{
    const float *row;
    event->id = id;
    if (!s->want_logprob) return CARAT_OK;
    TRY(runner_logits(e->runner, &e->step, out, &row, err));
    add_logprobs(e, s, event, row);
    return CARAT_OK;
}

/* Puts the token after row `out` of logits, or -1, and its log-probabilities into the event. Uses
 * the device's best pairs if they are enough, else the row. */
static int pick(carat_engine *e, const struct sequence *s, int32_t out, struct carat_event *event,
                struct carat_error *err)
{
    int32_t n_vocab = e->model->config.n_vocab;
    const struct logit_pair *best = NULL;
    const float *row;
    int32_t forced = forced_id(e, s);
    if (forced >= 0) return put(e, s, out, forced, event, err);
    int n = s->want_logprob ? 0 : runner_best(e->runner, &e->step, out, &best);
    event->id = CONSTRAIN_NEEDS_ROW;
    if (n > 0 && s->is_masked && out == s->out_row)
        event->id = constrain_pick_masked(s->constraint, s->sampler, best, n);
    else if (sample_takes_best(s->sampler, n))
        event->id = constrain_pick_best(s->constraint, s->sampler, best, n);
    if (event->id != CONSTRAIN_NEEDS_ROW) return CARAT_OK;
    TRY(runner_logits(e->runner, &e->step, out, &row, err));
    float *changed = s->on_logits ? sample_copy(s->sampler, row) : NULL;
    if (changed)
        s->on_logits(s->on_logits_user, s->ids, (size_t)sequence_known(s), changed, n_vocab);
    event->id = constrain_pick(s->constraint, s->sampler, changed, row);
    if (event->id < 0 || !s->want_logprob) return CARAT_OK;
    add_logprobs(e, s, event, row);
    return CARAT_OK;
}

static void add_progress(carat_engine *e, struct sequence *s)
{
    int32_t done = s->n_cached < s->n_prompt ? s->n_cached : s->n_prompt;
    if (done <= s->n_reported) return;
    s->n_reported = done;
    events_add(&e->events, (struct carat_event){.request = s->request,
                                                .user = s->user,
                                                .kind = CARAT_EVENT_PROGRESS,
                                                .done = done,
                                                .total = s->n_prompt});
}

/* If prompts are apart, the keys and values of an answer differ from those that reading it as a
 * prompt would give. So only those of prompts are published. */
static void publish(carat_engine *e, const struct sequence *s)
{
    int32_t n = s->n_cached, n_read = sequence_read_end(s, e->is_apart);
    if (s->has_cache)
        paging_publish(&e->paging, s->slot, s->ids, n < n_read ? n : n_read, &s->marks);
    paging_slide(&e->paging, s->slot, n);
}

static void take_token(carat_engine *e, struct sequence *s, const struct carat_event *event)
{
    if (s->first_token <= 0) s->first_token = os_seconds();
    s->state = SEQUENCE_DECODE;
    if (!s->ignore_stop && vocab_is_stop(e->model->vocab, event->id)) {
        s->stop_id = event->id;
        request_end(e, s, CARAT_FINISH_STOP, NULL);
        return;
    }
    sequence_add(s, e->model->vocab, event->id);
    events_add(&e->events, *event);
    if (s->n_generated >= s->max_tokens || s->n_cached >= e->runner->layout.n_ctx)
        request_end(e, s, CARAT_FINISH_LENGTH, NULL);
}

/* Nothing is published of a sequence whose logits are not numbers. */
static void end_by_bad_logits(carat_engine *e, struct sequence *s)
{
    const char *problem = s->on_logits
                              ? "no token can be sampled: the model or on_logits gave NaN or "
                                "+infinity, or on_logits has banned all ids"
                              : "the model produced non-finite logits";
    if (s->first_token <= 0) s->first_token = os_seconds();
    request_end(e, s, CARAT_FINISH_ERROR, constrain_problem(s->constraint, problem));
}

static int take_row(carat_engine *e, struct sequence *s, int32_t out, struct carat_error *err)
{
    struct carat_event event = {.request = s->request, .user = s->user, .kind = CARAT_EVENT_TOKEN};
    TRY(pick(e, s, out, &event, err));
    if (event.id < 0) {
        end_by_bad_logits(e, s);
        return CARAT_OK;
    }
    publish(e, s);
    take_token(e, s, &event);
    return CARAT_OK;
}

/* Takes a token from each row, as long as the guess that the next row was made from is right. The
 * keys and values of wrong guesses are overwritten. The token of the last row shows whether a guess
 * was right that was found and not taken. */
static int take_rows(carat_engine *e, struct sequence *s, struct carat_error *err)
{
    int32_t row = 0, n = s->draft.n;
    bool is_right = true;
    s->n_drafted += n;
    e->stats.drafted += (uint64_t)n;
    for (;; row++) {
        int32_t place = sequence_known(s), guess = row < s->draft.found ? s->ids[place] : -1;
        TRY(take_row(e, s, s->out_row + row, err));
        if (s->state == SEQUENCE_FREE) return CARAT_OK;
        is_right = s->ids[place] == guess;
        if (!is_right || row == n) break;
        s->n_cached++;
        s->n_accepted++;
        e->stats.accepted++;
    }
    draft_note(&s->draft, &e->chances, row + is_right);
    s->hidden_row = s->out_row + row;
    s->hidden_run = e->runner->n_runs;
    return CARAT_OK;
}

int results_take(carat_engine *e, struct sequence *s, struct carat_error *err)
{
    s->n_cached += s->n_rows - s->draft.n;
    if (s->state == SEQUENCE_PREFILL) add_progress(e, s);
    if (s->out_row >= 0) return take_rows(e, s, err);
    publish(e, s);
    if (s->n_cached >= sequence_read_end(s, e->is_apart)) s->state = SEQUENCE_DECODE;
    return CARAT_OK;
}
