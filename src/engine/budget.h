/* Sums of memory: what a layout takes of each device, what is left, whether it fits, and the memory
 * table. */
#ifndef ENGINE_BUDGET_H
#define ENGINE_BUDGET_H

#include "engine/layout.h"

/* Host memory besides the mapped weights: a row of logits, and what the runner's user needs. */
uint64_t budget_host_rest(const struct layout *y);

/* Bytes that have to be available on a target. */
uint64_t budget_needed(const struct layout *y, int32_t site);
bool budget_fits(const struct layout *y, int32_t site);
bool budget_all_fits(const struct layout *y);

/* Decides where the weights of all targets go. `others[site]`: bytes that everything else takes
 * there. */
void budget_place(struct layout *y, const uint64_t *others);

/* CARAT_EMEMORY says how much is needed and how much there is. */
int budget_check(const struct layout *y, struct carat_error *err);

/* Fills in y->memory. y->setup has to be filled in before. */
void budget_fill_table(struct layout *y);

#endif
