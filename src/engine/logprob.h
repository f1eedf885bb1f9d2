/* Log-probabilities of a row of logits: ln of the softmax over all of it. */
#ifndef ENGINE_LOGPROB_H
#define ENGINE_LOGPROB_H

#include <stdint.h>

#include "carat.h"

/* Returns the log-probability of `id`. Also fills in the `n_top` likeliest ids, likeliest first,
 * equal ones by rising id. The row has no NaN and no +infinity; n_top is at most n. */
float logprob_compute(const float *row, int32_t n, int32_t id, struct carat_logprob *top,
                      int32_t n_top);

#endif
