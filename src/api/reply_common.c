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

void reply_write_object(const struct buf *text, struct json *j)
{
    struct json_tree tree;
    struct carat_error err = {0};
    int status = json_tree_read(&tree, buf_text(text), text->length, JSON_OWN, &err);
    if (status == CARAT_OK && tree.root.kind == CARAT_OBJECT) {
        const char *at = buf_text(text), *end = at + text->length;
        for (; at < end; at++) buf_add_char(j->out, *at == '\n' || *at == '\r' ? ' ' : *at);
        j->need_comma = true;
    } else {
        json_begin_object(j);
        json_end_object(j);
    }
    j->out->failed |= status == CARAT_EMEMORY;
    json_tree_free(&tree);
}

void reply_write_error(const struct reply *r, const struct api_error *error, struct buf *out)
{
    struct buf body = {0};
    api_error_body(error, api_family(r->ask->api), r->facts.id, &body);
    buf_add(out, buf_text(&body), body.length ? body.length - 1 : 0);
    out->failed |= body.failed;
    buf_deinit(&body);
}

bool reply_is_cut(const struct reply_answer *answer)
{
    return answer->done.end == REPLY_LENGTH || answer->has_cut_call;
}
