/* Which recorded step serves a step. Needs neither GPU nor toolkit.
 *
 * What a step computes may not depend on whether it is replayed. So the rows that launches are made
 * for follow from the step alone, and a step that is launched anew takes the same number. */
#ifndef CUDA_RECORDING_H
#define CUDA_RECORDING_H

#include "plan/plan.h"

/* Most runs of a class (types.h) in a step that is replayed. Attention launches a superfluous block
 * for each missing run. */
enum { RUNS_RECORDED = 64 };

/* Which of the plan's usual steps this one is launched as; -1: as it is. `is_apart`: prompts have
 * an arithmetic of their own, however few rows there are. */
int recording_for(const struct plan *plan, const struct step *step, bool is_apart);

#endif
