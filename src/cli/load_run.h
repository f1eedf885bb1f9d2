/* Runs a load on a target, in this thread, and notes when what happened.
 *
 * A request arrives when it is due, not when the target has time to take it: waiting for a step to
 * end, or for a place, counts as time in the queue. */
#ifndef CLI_LOAD_RUN_H
#define CLI_LOAD_RUN_H

#include "cli/load_plan.h"
#include "cli/load_target.h"

struct load_result { /* of a request; seconds of the run's clock */
    enum load_outcome outcome;
    double arrival, end;
    double queue_seconds; /* until its first row was computed */
    int32_t n_prompt, n_cached, n_reusable, n_out, n_preempted;
    size_t times; /* its tokens' times: n_out in load_run.times from here on */
};

struct load_run {
    struct load_result *results; /* of the plan's requests */
    double *times;
    struct carat_stats before, after; /* the target's, when the clock starts and at the end */
    float *step_seconds;              /* of the first LOAD_STEPS_KEPT steps */
    int64_t n_steps;
    double all_step_seconds, longest_step;
    uint64_t prompts, answers; /* digests: equal where all new tokens, all answers are equal */
    char failure[256];         /* of the first request that failed; "" */
};
enum { LOAD_STEPS_KEPT = 1 << 20 };

/* Fails when the target does; requests that fail alone are results. Then requests may still be
 * running. `grammars`: of each group with a schema; NULL: the target has its own. Owned:
 * load_run_deinit, after a failure too. */
int load_run_do(struct load_run *run, const struct load_plan *plan, struct load_target *target,
                carat_grammar *const *grammars, struct carat_error *err);
void load_run_deinit(struct load_run *run);

#endif
