#include "backend/cuda/choose.h"

#include "backend/cuda/act.h"
#include "backend/cuda/timing.h"

/* A chunk of rows with a square matrix of usual width: many tiles for every multiprocessor, a usual
 * case for both ways. 86 MB and some milliseconds. */
enum { ROWS = 2048, SIDE = 4096, ROUNDS = 4 };

/* Eight bits have to be faster by more than a tenth: times of a round differ by a few hundredths
 * from open to open, fp16 is a lower bound, and it rounds less (docs/benchmarks.md). */
#define MARGIN 1.1

static void multiply_half_once(const struct queue *q, void *user)
{
    launch_gemm_f16(q, user);
}

static void multiply_int8_once(const struct queue *q, void *user)
{
    launch_gemm_i8(q, user);
}

/* Where the parts of the trial lie; both ways use the same memory, one after the other. */
struct trial {
    size_t x, w, y, total;
};

static struct trial trial_layout(void)
{
    struct trial t = {.w = aligned(act_bytes(ROWS, SIDE))};
    t.y = t.w + aligned((size_t)SIDE * SIDE * sizeof(uint16_t)); /* more than tiles of 8 bits */
    t.total = t.y + aligned((size_t)ROWS * SIDE * sizeof(float));
    return t;
}

/* The product in one of the two ways, of zeros: both take less power for them than for others. */
static struct gemm_args product_at(char *memory, const struct trial *t, enum act_kind kind)
{
    struct gemm_args args = {.n_rows = ROWS, .n_w = 1, .x = act_at(memory, kind, ROWS, SIDE)};
    args.w[0] = (struct cuda_weight){.format = FORMAT_Q8_0,
                                     .layout = LAYOUT_TILES,
                                     .n_expert = 1,
                                     .rows = SIDE,
                                     .cols = SIDE,
                                     .n_groups = SIDE / TILE_ROWS,
                                     .n_ktiles = SIDE / TILE_COLS,
                                     .mirror_cols = SIDE};
    struct tile_bytes planes = tile_bytes_of(FORMAT_Q8_0, SIDE, SIDE, 1);
    args.w[0].quants = (uint8_t *)memory + t->w;
    args.w[0].scale = (uint16_t *)(void *)(memory + t->w + aligned(planes.quants));
    args.w[0].mirror = (uint16_t *)(void *)(memory + t->w);
    args.y[0] = (float *)(void *)(memory + t->y);
    return args;
}

static void raise_rate(double *rate, double seconds)
{
    double found = seconds > 0 ? 2.0 * ROWS * SIDE * SIDE / seconds : 0;
    if (found > *rate) *rate = found;
}

/* By turns, so that a clock that rises in between helps both alike. */
static void measure_trial(struct device *d, char *memory, const struct trial *t)
{
    struct gemm_args half = product_at(memory, t, ACT_HALF);
    struct gemm_args int8 = product_at(memory, t, ACT_INT8);
    for (int i = 0; i <= ROUNDS; i++) {
        double half_seconds = cuda_seconds(d, multiply_half_once, &half);
        double int8_seconds = cuda_seconds(d, multiply_int8_once, &int8);
        if (i == 0) continue; /* the driver may have been loading the kernels */
        raise_rate(&d->half_rate, half_seconds);
        raise_rate(&d->int8_rate, int8_seconds);
    }
}

/* Eight bits also when something cannot be measured: they need no memory for mirrors. What is wrong
 * with the device itself comes up again with the first step. */
enum act_kind cuda_choose_many(struct device *d)
{
    if (d->options.matmul == MATMUL_INT8) return ACT_INT8;
    if (d->options.matmul == MATMUL_FP16) return ACT_HALF;
    if (d->options.is_exact) return ACT_INT8; /* never used */
    void *memory = NULL;
    struct trial t = trial_layout();
    if (cudaMalloc(&memory, t.total) == cudaSuccess &&
        cudaMemsetAsync(memory, 0, t.total, d->queue.stream) == cudaSuccess)
        measure_trial(d, memory, &t);
    cudaFree(memory);
    cudaGetLastError();
    if (d->half_rate <= 0 || d->int8_rate <= 0) return ACT_INT8;
    return d->int8_rate > MARGIN * d->half_rate ? ACT_INT8 : ACT_HALF;
}

/* Up to this many rows 8 bits are faster, by 1.4 times with one row. With more, fp16 is (H200,
 * docs/benchmarks.md): launch_half reads and unpacks each weight once however many rows there are.
 * Per-layer inputs take a single launch in fp16, so that it is faster from 5 rows on (E4B 2.97
 * instead of 3.25 ms). But up to 4 sequences have 5 rows only where they guess, and guesses have to
 * be computed like single rows. With a drafter the rows of 5 sequences are soon more than 8. */
static int32_t int8_rows(const struct device *d)
{
    const struct device_options *o = &d->options;
    return (o->has_layer_inputs || o->has_drafter) && o->n_seq > 4 ? 4 : 8;
}

static bool has_half(const struct device *d)
{
    struct gemm_args one = {.n_rows = MATVEC_ROWS_MAX,
                            .n_w = 1,
                            .w[0] = {.format = FORMAT_Q8_0, .layout = LAYOUT_TILES, .n_expert = 1},
                            .x = {.kind = ACT_CORES}};
    return !d->options.is_exact && half_takes(&d->queue, &one);
}

/* If all decode steps are to compute alike, one way for all of them: the faster one when all
 * sequences decode. */
static int32_t choose_half_least(const struct device *d)
{
    const struct device_options *o = &d->options;
    enum matmul_kind kind = o->decode_matmul;
    if (kind == MATMUL_AUTO && (o->matmul == MATMUL_INT8 || o->n_seq == 0)) kind = MATMUL_INT8;
    if (kind == MATMUL_AUTO && o->is_steady)
        kind = o->n_seq > int8_rows(d) ? MATMUL_FP16 : MATMUL_INT8;
    if (kind == MATMUL_INT8 || !has_half(d)) return 0;
    return kind == MATMUL_FP16 ? 1 : int8_rows(d) + 1;
}

/* launch_gemm_wgmma reads mirrors, with few rows too: that is slower than tiles, so steps of a few
 * rows take it only if all are to be computed alike. Other chips have nothing as fast. */
void cuda_choose_few(struct device *d)
{
    const struct device_options *o = &d->options;
    d->half_least = choose_half_least(d);
    d->has_alike_prompts = o->is_steady && d->queue.capability == 90 && d->many == ACT_HALF &&
                           !o->is_exact && !o->wants_cublas;
}
