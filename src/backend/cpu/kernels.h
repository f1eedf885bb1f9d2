/* The table of kernels that each instruction set provides. A row's bits never depend on the other
 * rows. Products in 8 bits give the same bits on all sets that have fused multiply-add: integer
 * sums are exact, float sums have one order. */
#ifndef BACKEND_CPU_KERNELS_H
#define BACKEND_CPU_KERNELS_H

#include "backend/cpu/tile.h"

/* 32 activations of a row in 8 bits: q[i] = round(x[i] / scale). They are kept together, so that
 * products of several rows need one pointer a row. */
struct act_block {
    int8_t q[BLOCK_COLS];
    float scale;
    float sum;     /* of the activations */
    int32_t minus; /* minus the sum of q */
    /* The initial value of sums of half a block by 6-bit codes: -32 times the sum of q there; the
     * same in 16 bits for columns 4 i and 4 i + 1 and for the two others. */
    int32_t start6[2];
    int16_t start6_pairs[2][2];
};

/* A fine row has 16 bits for each activation in two rows of blocks, high and low: x = (254 * high +
 * low) * scale of the low block; all codes are within +-127. The high one alone is x in 8 bits. The
 * low one's `sum` is that of x. Other members are those of a block's own codes. */
enum { FINE_BASE = 254, FINE_MOST = 127 * FINE_BASE + FINE_BASE / 2 - 1 };

/* n_tiles adjacent tiles, 16 weight rows each, by n activation rows: out[i * n_tiles * 16 + r] =
 * weight row r . activation row i. */
struct tile_job {
    const struct tile_shape *shape;
    const uint8_t *tile;
    int32_t n_tiles;
    const struct act_block *act; /* shape->n_blocks a row */
    const struct act_block *low; /* fine rows: those of `act` are the high ones; else NULL */
    const int32_t *list;         /* rows are list[i] / divisor; NULL: first, first + 1, ... */
    int32_t first, n, divisor;
    float *out;
};

/* Activations rounded to bf16. A stretch of 16 blocks of columns holds all rows, in groups of 16. A
 * group lies block after block, a block row after row: what is read together lies together. The
 * last stretch may have blocks, and the last group rows, that are not used. */
enum { BF16_ROWS = 16, BF16_BLOCK = BF16_ROWS * BLOCK_COLS, BF16_BLOCKS = 16 };

/* Numbers of a stretch of n rows. */
static inline int64_t bf16_stretch(int64_t n)
{
    return (n + BF16_ROWS - 1) / BF16_ROWS * BF16_BLOCKS * BF16_BLOCK;
}

/* Numbers of n rows of `cols` columns. */
static inline int64_t bf16_size(int64_t n, int64_t cols)
{
    const int64_t stretch_cols = BF16_BLOCKS * BLOCK_COLS;
    return (cols + stretch_cols - 1) / stretch_cols * bf16_stretch(n);
}

/* Where column 0 of row i lies. */
static inline int64_t bf16_row(int64_t i)
{
    return i / BF16_ROWS * BF16_BLOCKS * BF16_BLOCK + i % BF16_ROWS * BLOCK_COLS;
}

/* Rows of values as they lie in memory, `stride` bytes apart: F32, F16, BF16, or Q8_0 of whole
 * blocks. They are decoded when they are read; the bits are the same as if they were decoded first.
 * If `ahead` is not 0, a read of a line prefetches the line `ahead` bytes after it into the
 * second-level cache; that line need not exist. */
struct float_rows {
    enum format format;
    const void *data;
    size_t stride;
    ptrdiff_t ahead;
};

/* The same as tile_job with activations in bf16 and weights rounded to bf16. Sums are fp32, in an
 * order that depends on the number of columns alone. Where `low` is not NULL, an activation is the
 * sum of two numbers, and so is a weight, unless its format is BF16. Weights are tiles, or rows of
 * floats (`shape` is NULL), which always need `low`. */
struct bf16_job {
    const struct tile_shape *shape;
    const uint8_t *tile;
    struct float_rows rows; /* of F16 or BF16 */
    int64_t n_rows;         /* of these; less than 16 n_tiles if the last tile is not full */
    int64_t n_blocks;       /* of 32 columns */
    int32_t n_tiles;
    const uint16_t *act, *low;
    int64_t stretch;  /* of `act` and `low` */
    int32_t first, n; /* rows first (a multiple of 16), first + 1, ... */
    float *out;       /* room for sums, if `y` is not NULL, else the results */
    float *y;         /* results, y_stride values from one row to the next */
    int64_t y_stride;
};

struct cpu_kernels {
    const char *name;
    void (*tile_dot)(const struct tile_job *job);
    /* For rows of prompts; NULL if the set has no such products. bf16_round: a row of n values, a
     * multiple of 32, goes to `high`, and what rounding loses to `low`, if that is not NULL. */
    void (*bf16_dot)(const struct bf16_job *job);
    void (*bf16_round)(const float *x, int64_t n, int64_t stretch, uint16_t *high, uint16_t *low);
    void (*quantize)(const float *x, int64_t n, struct act_block *out);
    void (*quantize_fine)(const float *x, int64_t n, struct act_block *high, struct act_block *low);

    /* out[i * out_stride + j] = a row i . b row j, rows of n values at a + i * a_stride, ... */
    void (*dots)(const float *a, int64_t a_stride, int n_a, struct float_rows b, int n_b, int64_t n,
                 float *out, int64_t out_stride);
    /* y row i = y row i * keep[i] + sum_k p[i * p_stride + k] v row k; n values a row. */
    void (*weigh)(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride,
                  int n_y, struct float_rows v, int n_v, int64_t n);
    void (*exp_shifted)(float *x, int64_t n, float shift); /* x = exp(x - shift) */
    /* Takes scores `from` to `to` of 32, at least one. Raises *top to the largest, turns them into
     * exp(score - *top) and the others into 0, and returns the sum. */
    float (*soften)(float *scores, int from, int to, float *top);

    /* For measuring. One reads n bytes (a multiple of 512) and returns a sum that depends on them;
     * the others do `rounds` register products and return the number of operations. multiply_codes:
     * by codes of up to 6 bits, NULL where these are no faster; multiply_bf16: NULL if the set has
     * no such products; multiply_floats: fused products, each one operation. */
    int32_t (*read_bytes)(const uint8_t *p, size_t n);
    double (*multiply_bytes)(int64_t rounds);
    double (*multiply_codes)(int64_t rounds);
    double (*multiply_bf16)(int64_t rounds);
    double (*multiply_floats)(int64_t rounds);

    void (*decode_f16)(const uint16_t *src, float *dst, int64_t n);
    void (*decode_bf16)(const uint16_t *src, float *dst, int64_t n);
    void (*decode_q8_0)(const void *src, float *dst, int64_t n);
    void (*encode_f16)(const float *src, uint16_t *dst, int64_t n);
    void (*rmsnorm)(const float *x, const float *w, float *y, int64_t n, float eps);
    void (*gelu_mul)(const float *a, const float *b, float *y, int64_t n);
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    void (*scale)(const float *x, float value, float *y, int64_t n);
    void (*rope)(const float *x, const float *cosine, const float *sine, float *y, int64_t half);
    void (*softcap)(const float *x, float cap, float *y, int64_t n);
};

extern const struct cpu_kernels cpu_kernels_plain;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avxvnni, cpu_kernels_avx512;
extern const struct cpu_kernels cpu_kernels_amx;
#elif defined(__aarch64__)
extern const struct cpu_kernels cpu_kernels_i8mm, cpu_kernels_neon, cpu_kernels_asimd;
#endif

/* Names of the sets of kernels that this build knows, by index from 0, best first; NULL after the
 * last one. */
const char *cpu_isa_name(int index);

/* The kernels of a name; NULL or "auto": the best that this machine runs. CARAT_EUSAGE says why it
 * cannot run them, and names those that it runs. */
int cpu_kernels_find(const struct cpu_kernels **out, const char *name, struct carat_error *err);

/* How these kernels read weights of a format fastest on this processor. */
enum read_ahead cpu_read_ahead(const struct cpu_kernels *kernels, enum format format);

#endif
