/* Where the time of a step goes on a CPU. The last worker, which also gets single rows, notes when
 * each step of a program begins, after the barrier before it. Waiting there for the others counts
 * as part of the step before. */
#ifndef BACKEND_CPU_PROFILE_H
#define BACKEND_CPU_PROFILE_H

#include "backend/cpu/program.h"
#include "backend/time_table.h"

/* Adds up the times of the steps of a run that ended at `end`. */
void cpu_profile_add(struct time_tables *tables, const struct program *p, double end);

void cpu_profile_print(struct device *device, struct buf *out);

#endif
