#include "cuda/check_act.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"

static int32_t stride_of(int32_t cols)
{
    return (cols + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
}

static size_t value_bytes(enum act_kind kind)
{
    return act_is_half(kind) ? 2 : 1;
}

/* ACT_CORES are whole pieces. */
static size_t whole_rows(enum act_kind kind, int32_t rows)
{
    size_t grain = kind == ACT_CORES ? CORE_ROWS : 1;
    return ((size_t)rows + grain - 1) / grain * grain;
}

void check_act_order(uint16_t *values, int32_t rows, int32_t stride)
{
    size_t n = whole_rows(ACT_CORES, rows) * (size_t)stride;
    uint16_t *from = malloc(n * sizeof *from);
    memcpy(from, values, n * sizeof *from);
    for (size_t i = 0; i < n; i++) {
        size_t row = i / (size_t)stride, c = i % (size_t)stride;
        size_t k = c / 16 * 16 + c % 2 * 8 + c % 16 / 4 * 2 + c % 4 / 2;
        size_t piece = row / 64 * ((size_t)stride / 64) + k / 64;
        values[i] = from[((piece * 8 + row % 64 / 8) * 8 + k % 64 / 8) * 64 + row % 8 * 8 + k % 8];
    }
    free(from);
}

/* Floats of `scale` a row. */
static size_t scale_floats(enum act_kind kind, int32_t cols)
{
    return act_is_half(kind) ? 1 : (size_t)stride_of(cols) / ACT_BLOCK * 2;
}

size_t check_act_row_bytes(enum act_kind kind, int32_t cols)
{
    if (kind == ACT_NONE) return 0;
    size_t planes = kind == ACT_FINE ? 2 : 1;
    return planes * (size_t)stride_of(cols) * value_bytes(kind) +
           scale_floats(kind, cols) * sizeof(float);
}

struct act check_act_new(enum act_kind kind, int32_t rows, int32_t cols)
{
    struct act act = {.kind = kind, .stride = stride_of(cols)};
    if (kind == ACT_NONE) return act;
    act.values = check_alloc(NULL, whole_rows(kind, rows) * (size_t)act.stride * value_bytes(kind));
    if (kind == ACT_FINE) act.low = check_alloc(NULL, (size_t)rows * (size_t)act.stride);
    act.scale = check_alloc(NULL, (size_t)rows * scale_floats(kind, cols) * sizeof(float));
    return act;
}

bool check_act_free(struct act *act)
{
    bool is_whole = check_free(act->values);
    if (act->low) is_whole = check_free(act->low) && is_whole;
    return check_free(act->scale) && is_whole;
}

/* low NULL: 8 bits only. */
static void round_blocks(const float *x, int32_t stride, int8_t *q, int8_t *low, float *scale)
{
    for (int32_t first = 0; first < stride; first += ACT_BLOCK) {
        float most = 0;
        for (int j = 0; j < ACT_BLOCK; j++) most = fmaxf(most, fabsf(x[first + j]));
        float inverse = most > 0 ? 127.0f / most : 0, d = most / (low ? 127.0f * 254.0f : 127.0f);
        int sum = 0;
        for (int j = 0; j < ACT_BLOCK; j++) {
            float y = x[first + j] * inverse, value = rintf(y);
            int lane = j % 16 / 4, at = first + 8 * lane + j % 4 + j / 16 * 4;
            q[at] = (int8_t)value;
            if (low) low[at] = (int8_t)rint((double)(y - value) * 254);
            sum += low ? 254 * q[at] + low[at] : q[at];
        }
        scale[first / ACT_BLOCK * 2] = d;
        scale[first / ACT_BLOCK * 2 + 1] = d * (float)sum;
    }
}

static void round_half(const float *x, int32_t stride, uint16_t *half, float *scale)
{
    float most = 0;
    int exponent = 0;
    for (int32_t j = 0; j < stride; j++) most = fmaxf(most, fabsf(x[j]));
    if (most > 0) {
        frexpf(most, &exponent);
        exponent--;
    }
    *scale = ldexpf(1.0f, exponent);
    for (int32_t j = 0; j < stride; j++) half[j] = f32_to_f16(ldexpf(x[j], -exponent));
}

static bool is_poison(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0xff) return false;
    return true;
}

bool check_act_is(const struct act *act, const float *x, int32_t rows, int32_t live, int32_t cols)
{
    size_t stride = (size_t)act->stride, row_bytes = stride * value_bytes(act->kind);
    size_t n_scale = scale_floats(act->kind, cols), scale_bytes = n_scale * sizeof(float);
    bool is_fine = act->kind == ACT_FINE;
    size_t all_bytes = whole_rows(act->kind, rows) * row_bytes;
    unsigned char *values = malloc(all_bytes), *want = malloc(row_bytes);
    unsigned char *low = calloc((size_t)rows, row_bytes), *want_low = calloc(1, row_bytes);
    unsigned char *scale = malloc((size_t)rows * scale_bytes);
    float *want_scale = malloc(scale_bytes), *padded = calloc(stride, sizeof *padded);
    check_download(values, act->values, all_bytes);
    if (act->kind == ACT_CORES) check_act_order((uint16_t *)(void *)values, rows, act->stride);
    check_download(scale, act->scale, (size_t)rows * scale_bytes);
    if (is_fine) check_download(low, act->low, (size_t)rows * row_bytes);
    bool is_right = true;
    for (int32_t r = 0; r < live; r++) {
        memcpy(padded, x + (size_t)r * (size_t)cols, (size_t)cols * sizeof *padded);
        if (act_is_half(act->kind))
            round_half(padded, act->stride, (uint16_t *)(void *)want, want_scale);
        else
            round_blocks(padded, act->stride, (int8_t *)want, is_fine ? (int8_t *)want_low : NULL,
                         want_scale);
        is_right = is_right && memcmp(want, values + (size_t)r * row_bytes, row_bytes) == 0 &&
                   memcmp(want_low, low + (size_t)r * row_bytes, row_bytes) == 0 &&
                   memcmp(want_scale, scale + (size_t)r * scale_bytes, scale_bytes) == 0;
    }
    size_t dead = (size_t)(rows - live);
    is_right = is_right &&
               is_poison(values + (size_t)live * row_bytes, all_bytes - (size_t)live * row_bytes) &&
               is_poison(scale + (size_t)live * scale_bytes, dead * scale_bytes) &&
               (!is_fine || is_poison(low + (size_t)live * row_bytes, dead * row_bytes));
    free(values);
    free(want);
    free(low);
    free(want_low);
    free(scale);
    free(want_scale);
    free(padded);
    return is_right;
}
