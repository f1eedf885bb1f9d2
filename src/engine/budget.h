/* Sums of memory: what a layout takes of each device, what is left, whether it fits, and the memory
 * table. */
#ifndef ENGINE_BUDGET_H
#define ENGINE_BUDGET_H

#include "engine/layout.h"

/* What `taken` leaves of the memory. */
uint64_t budget_left(uint64_t available, uint64_t taken);

/* Of host memory, besides what the weights are mapped from: rows of logits and what the runner's
 * user needs. */
uint64_t budget_host_rest(const struct layout *y);

/* That have to be available on a target. */
uint64_t budget_needed(const struct layout *y, int32_t site);
bool budget_fits(const struct layout *y, int32_t site);
bool budget_all_fits(const struct layout *y);

/* Decides where the weights of all targets go when `others[site]` bytes are taken by all else. */
void budget_place(struct layout *y, const uint64_t *others);

/* CARAT_EMEMORY says need and have. */
int budget_check(const struct layout *y, struct carat_error *err);

/* y->memory, from y->setup and the rest. */
void budget_fill_table(struct layout *y);

#endif
