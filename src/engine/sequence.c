#include "engine/sequence.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"

int sequence_start(struct sequence *s, const struct carat_request *request, carat_request_id id,
                   const struct sampler_options *sampler, int32_t n_ctx, struct carat_error *err)
{
    int32_t n_prompt = (int32_t)request->n_prompt;
    int32_t room = n_ctx - n_prompt;
    int32_t max_tokens =
        request->max_tokens > 0 && request->max_tokens < room ? request->max_tokens : room;
    size_t n_ids = request->n_prompt + (size_t)max_tokens;
    int32_t *ids = mem_alloc(n_ids, sizeof *ids);
    if (!ids) return err_no_memory(err, "tokens", n_ids * sizeof *ids);
    struct sampler *opened = NULL;
    int status = sample_open(&opened, sampler, err);
    if (status) {
        mem_free(ids);
        return status;
    }
    memcpy(ids, request->prompt, request->n_prompt * sizeof *ids);
    for (int32_t i = 0; i < n_prompt; i++) sample_accept(opened, ids[i]);
    *s = (struct sequence){
        .state = SEQUENCE_PREFILL,
        .request = id,
        .sampler = opened,
        .ids = ids,
        .n_prompt = n_prompt,
        .max_tokens = max_tokens,
        .ignore_stop = request->ignore_stop,
        .want_logprob = request->want_logprob || request->n_top_logprobs > 0,
        .n_top = request->n_top_logprobs,
        .on_logits = request->on_logits,
        .on_logits_user = request->on_logits_user,
    };
    return CARAT_OK;
}

void sequence_add(struct sequence *s, int32_t id)
{
    sample_accept(s->sampler, id);
    s->ids[s->n_prompt + s->n_generated++] = id;
}

struct carat_event sequence_end(struct sequence *s, enum carat_finish finish, double now)
{
    bool has_token = s->first_token > 0;
    struct carat_event event = {
        .request = s->request,
        .kind = CARAT_EVENT_DONE,
        .finish = finish,
        .stop_id = finish == CARAT_FINISH_STOP ? s->last_id : -1,
        .message = "",
        .n_prompt = s->n_prompt,
        .n_generated = s->n_generated,
        .prefill_seconds = s->started > 0 ? (has_token ? s->first_token : now) - s->started : 0,
        .decode_seconds = has_token ? now - s->first_token : 0,
    };
    sample_close(s->sampler);
    mem_free(s->ids);
    *s = (struct sequence){.state = SEQUENCE_FREE};
    return event;
}
