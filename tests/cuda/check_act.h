/* Activations for products (types.h: struct act), compared bit for bit with what the host makes
 * of the same floats. */
#ifndef TESTS_CUDA_CHECK_ACT_H
#define TESTS_CUDA_CHECK_ACT_H

#include "backend/cuda/act.h"
#include "cuda/check.h"

struct act check_act_new(enum act_kind kind, int32_t rows, int32_t cols);

/* Frees it; false when a guard was overwritten. */
bool check_act_free(struct act *act);

/* Whether the first `live` of `rows` rows are x rounded, padding included, while the other rows
 * still hold poison. x: [live][cols]. */
bool check_act_is(const struct act *act, const float *x, int32_t rows, int32_t live, int32_t cols);

/* Values of ACT_CORES, in the order of ACT_HALF: [rows padded to CORE_ROWS][stride], in place. */
void check_act_order(uint16_t *values, int32_t rows, int32_t stride);

/* Bytes of a row. */
size_t check_act_row_bytes(enum act_kind kind, int32_t cols);

#endif
