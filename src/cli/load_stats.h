/* What a load's results say: distributions of times, rates, shares. Only completed requests give
 * times and tokens, as in vLLM's benchmark. Those that were cancelled or failed are counted, and
 * are part of the duration, of preemptions and of the most requests at once. */
#ifndef CLI_LOAD_STATS_H
#define CLI_LOAD_STATS_H

#include "cli/load_run.h"
#include "cli/distribution.h"

struct load_stats {
    int32_t requests, completed, cancelled, expired, failed;
    int32_t good;    /* of the completed: those within all goals of their group */
    double duration; /* seconds from the first arrival to the last end */
    int64_t input_tokens, output_tokens;
    int64_t cancelled_tokens;               /* of answers that did not end by themselves */
    int64_t preempted;                      /* how often requests were stopped, and went on later */
    int64_t cached_tokens, reusable_tokens; /* of input_tokens */
    /* Milliseconds: to the first token, and the same in later turns; a token after the first one,
     * as a request's mean; between two tokens; in the queue; from arrival to end. */
    struct distribution ttft, ttft_next, tpot, itl, queue, e2el;
    struct distribution step; /* of the whole run */
    int32_t most_at_once;     /* requests between arrival and end */
    double most_tokens;       /* in one of the seconds since the first arrival */
};

/* Seconds from a completed request's arrival to its first token; without tokens to its end. */
double load_first_seconds(const struct load_run *run, const struct load_result *result);

/* Of one group, or of all (-1). CARAT_EMEMORY. */
int load_stats_take(struct load_stats *out, const struct load_plan *plan,
                    const struct load_run *run, int32_t group, struct carat_error *err);

#endif
