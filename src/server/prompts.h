/* The token ids that a request stands for: the same conversation has the same ids in every API, and
 * <bos> comes exactly once. Any thread. */
#ifndef SERVER_PROMPTS_H
#define SERVER_PROMPTS_H

#include "api/ask.h"

struct prompt {
    int32_t *ids; /* owned: carat_free */
    size_t n;
};

struct prompts {
    struct prompt *items; /* [n]; owned */
    size_t n;
};

/* One for a chat, else one for each of the ask's prompts. CARAT_ECONTEXT: one has more than
 * n_ctx - 1 tokens, and *n_prompt says how many, or 0 if that was clear without counting them. */
int prompts_make(struct prompts *out, const carat_model *model, const struct ask *ask,
                 int32_t n_ctx, int32_t *n_prompt, struct carat_error *err);
void prompts_deinit(struct prompts *p);

#endif
