#include "engine/sequence.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/status.h"

static void fill(struct sequence *s, const struct carat_request *r,
                 const struct sequence_start *start)
{
    s->state = SEQUENCE_QUEUED;
    s->request = start->id;
    s->slot = -1;
    s->stop_id = -1;
    s->user = r->user;
    s->max_thinking = r->max_thinking > 0 ? r->max_thinking : 0;
    s->thought = thought_begin(start->vocab, s->ids, (size_t)s->n_prompt);
    s->ignore_stop = r->ignore_stop;
    s->want_logprob = r->want_logprob || r->n_top_logprobs > 0;
    s->n_top = r->n_top_logprobs;
    s->on_logits = r->on_logits;
    s->on_logits_user = r->on_logits_user;
    s->priority = r->priority;
    s->since = start->since;
    s->has_cache = start->has_cache;
    s->salt = r->cache_salt;
    s->submitted = os_seconds();
    s->deadline = r->deadline_seconds > 0 ? s->submitted + r->deadline_seconds : 0;
    s->out_row = -1;
    marks_init(&s->marks, s->ids, s->n_prompt, start->turn_id, start->page);
    for (size_t i = 0; i < r->n_anchors; i++) marks_add(&s->marks, r->anchors[i] / start->page);
}

int sequence_open(struct sequence *s, const struct carat_request *request,
                  const struct sequence_start *start, const struct sampler_options *sampler,
                  struct carat_error *err)
{
    int32_t n_prompt = (int32_t)request->n_prompt;
    int32_t room = start->n_ctx - n_prompt;
    int32_t max_tokens =
        request->max_tokens > 0 && request->max_tokens < room ? request->max_tokens : room;
    size_t n_ids = request->n_prompt + (size_t)max_tokens;
    int32_t *ids = mem_alloc(n_ids, sizeof *ids);
    if (!ids) return err_no_memory(err, "tokens", n_ids * sizeof *ids);
    struct sampler *opened = NULL;
    int status = sample_open(&opened, sampler, err);
    struct constraint *constraint = NULL;
    if (!status)
        status = constrain_open(&constraint, request->grammar, request->prompt, request->n_prompt,
                                sampler->n_vocab, err);
    if (status) {
        sample_close(opened);
        mem_free(ids);
        return status;
    }
    memcpy(ids, request->prompt, request->n_prompt * sizeof *ids);
    for (int32_t i = 0; i < n_prompt; i++) sample_accept(opened, ids[i]);
    *s = (struct sequence){.sampler = opened,
                           .constraint = constraint,
                           .ids = ids,
                           .n_prompt = n_prompt,
                           .max_tokens = max_tokens};
    draft_init(&s->draft, start->chances);
    fill(s, request, start);
    return CARAT_OK;
}

void sequence_add(struct sequence *s, const struct vocab *v, int32_t id)
{
    sample_accept(s->sampler, id);
    constrain_accept(s->constraint, id);
    thought_add(&s->thought, v, id);
    s->ids[s->n_prompt + s->n_generated++] = id;
}

struct carat_event sequence_end(struct sequence *s, enum carat_finish finish, double now)
{
    bool has_token = s->first_token > 0, has_started = s->started > 0;
    struct carat_event event = {
        .request = s->request,
        .user = s->user,
        .kind = CARAT_EVENT_DONE,
        .finish = finish,
        .stop_id = finish == CARAT_FINISH_STOP ? s->stop_id : -1,
        .message = "",
        .n_prompt = s->n_prompt,
        .n_generated = s->n_generated,
        .prefill_seconds = has_started ? (has_token ? s->first_token : now) - s->started : 0,
        .decode_seconds = has_token ? now - s->first_token : 0,
        .queue_seconds = (has_started ? s->started : now) - s->submitted,
        .n_cached = s->n_reused,
        .n_preempted = s->n_preempted,
        .n_thinking = s->thought.n_tokens,
        .n_drafted = s->n_drafted,
        .n_accepted = s->n_accepted,
    };
    constrain_close(s->constraint);
    sample_close(s->sampler);
    mem_free(s->ids);
    *s = (struct sequence){.state = SEQUENCE_FREE};
    return event;
}
