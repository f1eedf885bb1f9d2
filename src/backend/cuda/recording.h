/* Recorded steps of a program (a CUDA graph each): made at bind, replayed from then on.
 *
 * What a step computes may not depend on whether it is replayed. So the rows that launches are made
 * for follow from the step alone, and a step that is launched anew takes the same number. */
#ifndef CUDA_RECORDING_H
#define CUDA_RECORDING_H

#include "backend/cuda/device.h"

struct program; /* program.h */

/* Which of the plan's usual steps this one is launched as; -1: as what it is. */
int recording_for(const struct plan *plan, const struct step *step);

/* Records every usual step of the plan, after a warm-up. CARAT_EDEVICE. */
int recordings_make(struct program *p, struct carat_error *err);
void recordings_drop(struct program *p);

#endif
