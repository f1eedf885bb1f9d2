#include "engine/logprob.h"

#include <math.h>

/* Finds the logits of the likeliest ids, best first. There are only a few, so the list is kept
 * sorted. */
static void find_top(const float *row, int32_t n, struct carat_logprob *top, int32_t n_top)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (count == n_top && !(row[i] > top[count - 1].logprob)) continue;
        int32_t at = count < n_top ? count++ : count - 1;
        for (; at > 0 && row[i] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (struct carat_logprob){.id = i, .logprob = row[i]};
    }
}

float logprob_compute(const float *row, int32_t n, int32_t id, struct carat_logprob *top,
                      int32_t n_top)
{
    float best = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        if (row[i] > best) best = row[i];
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) sum += (double)expf(row[i] - best);
    double log_sum = log(sum);
    if (n_top > 0) find_top(row, n, top, n_top);
    for (int32_t i = 0; i < n_top; i++)
        top[i].logprob = (float)((double)top[i].logprob - (double)best - log_sum);
    return (float)((double)row[id] - (double)best - log_sum);
}
