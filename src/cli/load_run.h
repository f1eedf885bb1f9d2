/* Runs a load on an engine, in this thread, and notes when what happened.
 *
 * A request arrives when it is due, not when the engine has time to take it: what it waits for a
 * step to end or for a place counts as its time in the queue. All events of a step have the time at
 * which the step returned. */
#ifndef CLI_LOAD_RUN_H
#define CLI_LOAD_RUN_H

#include "carat.h"
#include "cli/load_plan.h"

enum load_outcome {
    LOAD_WAITING,
    LOAD_RUNNING,
    LOAD_COMPLETED,
    LOAD_CANCELLED,
    LOAD_EXPIRED /* by its deadline */,
    LOAD_FAILED
};

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
    struct carat_stats before, after; /* the engine's, when the clock starts and at the end */
    float *step_seconds;              /* of the first LOAD_STEPS_KEPT steps */
    int64_t n_steps;
    double all_step_seconds, longest_step;
    uint64_t prompts, answers; /* digests: equal where all new tokens, all answers are equal */
    char failure[256];         /* of the first request that failed; "" */
};
enum { LOAD_STEPS_KEPT = 1 << 20 };

/* Fails when the engine does; requests that fail alone are results. Then requests may still be
 * running. `grammars` are those of the groups, or NULL. Owned: load_run_deinit, after a failure
 * too. */
int load_run_do(struct load_run *run, const struct load_plan *plan, const carat_model *model,
                carat_engine *engine, carat_grammar *const *grammars, struct carat_error *err);
void load_run_deinit(struct load_run *run);

#endif
