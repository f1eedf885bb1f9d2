/* A text in chunks, as `carat perplexity` and `carat imatrix` read it: each from an empty context,
 * with <bos> in place of its first token. */
#ifndef CLI_TEXT_CHUNKS_H
#define CLI_TEXT_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

#include "carat.h"
#include "cli/options.h"

struct text_chunks {
    int32_t *ids; /* n_chunks times n_ctx; freed by carat_free */
    size_t n_chunks;
    uint32_t n_ctx;
};

/* What --file has, in whole chunks of --ctx-size tokens, --chunks at most. */
int text_chunks_read(struct text_chunks *out, const struct options *o, const carat_model *model,
                     struct carat_error *err);

/* The logarithm of the sum of e^x: what turns logits into log-probabilities. */
double log_sum_exp(const float *x, int32_t n);

#endif
