/* The prompt rows of the next step: in the scheduler's order, and as many as the pace allows. */
#ifndef ENGINE_ROWS_H
#define ENGINE_ROWS_H

#include "engine/pace.h"
#include "engine/schedule.h"

/* Shares out at most `rows_max` rows: fills in `rows` of each prompt in items[n], and the prompt
 * rows of `step`, whose decode rows are given. `order` is room for n numbers, which list the items
 * afterwards, the first one first. */
void rows_choose(const struct pace *pace, struct pace_step *step, struct schedule_item *items,
                 int32_t n, int32_t rows_max, int32_t *order);

#endif
