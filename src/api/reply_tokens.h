/* Log-probabilities of tokens that were not yet reported, as OpenAI's two APIs write them. */
#ifndef API_REPLY_TOKENS_H
#define API_REPLY_TOKENS_H

#include "api/reply.h"
#include "base/json_writer.h"

struct reply_tokens { /* zeroed: empty */
    struct buf bytes; /* of all tokens, one after another */
    struct reply_row {
        size_t first, length; /* in `bytes` */
        float logprob;
        int32_t n_top; /* rows that follow and belong to this one */
    } * rows;
    size_t n_rows, capacity;
    size_t n_characters; /* of the text so far, reported ones too */
    bool failed;
};

void reply_tokens_add(struct reply_tokens *t, const struct reply_token *token);
void reply_tokens_clear(struct reply_tokens *t); /* n_characters stays */
void reply_tokens_deinit(struct reply_tokens *t);

/* [...]: entries with their likeliest alternatives. */
void reply_tokens_write_list(const struct reply_tokens *t, struct json *j);
/* ... of the tokens added while n_rows went from `first` to `end`. */
void reply_tokens_write_rows(const struct reply_tokens *t, size_t first, size_t end,
                             struct json *j);
/* {"content": [...]}; null when there is nothing. */
void reply_tokens_write_chat(const struct reply_tokens *t, struct json *j);
/* {"tokens": ...}; null when there is nothing. Counts characters on. */
void reply_tokens_write_completion(struct reply_tokens *t, struct json *j);

#endif
