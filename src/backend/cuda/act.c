#include "backend/cuda/act.h"

#include <assert.h>

#include "backend/cuda/device.h"

/* One byte, two bytes or fp16 per value, then a pair of floats per 32 values or a float per row. */
static size_t act_values_bytes(size_t rows, int64_t cols)
{
    return aligned(rows * (2 * padded_cols(cols) + 64));
}

static_assert(BOX_ROWS % CORE_ROWS == 0, "ACT_CORES are whole pieces");

size_t act_bytes(size_t rows, int64_t cols)
{
    rows = act_rows(rows);
    return act_values_bytes(rows, cols) + aligned(rows * padded_cols(cols) / 4 + 64);
}

struct act act_at(void *base, enum act_kind kind, int32_t rows, int64_t cols)
{
    struct act act = {.kind = kind, .stride = (int32_t)padded_cols(cols)};
    if (kind == ACT_NONE || !base) return act;
    act.values = base;
    if (kind == ACT_FINE) act.low = (int8_t *)base + (size_t)rows * (size_t)act.stride;
    size_t at = act_values_bytes(act_rows((size_t)rows), cols);
    act.scale = (float *)(void *)((char *)base + at);
    return act;
}
