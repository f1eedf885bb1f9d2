#include "api/reply_common.h"

#include <stdio.h>

const char *reply_item_id(const struct reply *r, const char *prefix, int32_t answer, int32_t item,
                          char out[REPLY_ID_MAX])
{
    snprintf(out, REPLY_ID_MAX, "%s%.64s_%d_%d", prefix, r->facts.id, answer, item);
    return out;
}

struct reply_usage reply_usage_sum(const struct reply *r)
{
    struct reply_usage sum = {0};
    for (int32_t i = 0; i < r->n_answers; i++) {
        const struct reply_usage *one = &r->answers[i].done.usage;
        bool is_first = i % r->ask->n == 0;
        sum.n_prompt += is_first ? one->n_prompt : 0;
        sum.n_cached += is_first ? one->n_cached : 0;
        sum.n_generated += one->n_generated;
        sum.n_thinking += one->n_thinking;
    }
    return sum;
}

bool reply_is_cut(const struct reply_answer *answer)
{
    return answer->done.end == REPLY_LENGTH || answer->has_cut_call;
}
