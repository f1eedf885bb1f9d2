/* An opened device: its stream, what was decided when it was opened, the memory that lives as long
 * as it does, and its errors. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"

struct cublas;    /* cublas.h */
struct profile;   /* profile.h */
struct row_table; /* row_table.h */

/* Rows of a step at most, and those of them whose best logits are wanted: page-locked memory has
 * room for this many. An engine wants at most one row of logits for each sequence. */
enum {
    STEP_ROWS_MAX = 16384,
    BEST_ROWS_MAX = 1024,
    BEST_BYTES = BEST_ROWS_MAX * TOP_K * sizeof(struct logit_pair),
    ARRIVED_BYTES = 256
};

struct device {
    int index;
    char name[96];
    struct queue queue;
    struct residence residences[RESIDENCES]; /* of the queue */
    struct device_options options;
    enum act_kind many;           /* what products of many rows read: ACT_INT8, ACT_HALF */
    int32_t half_least;           /* rows from which a few multiply tiles in fp16; 0: none do */
    bool has_alike_prompts;       /* rows of prompts have one arithmetic, of many rows */
    double half_rate, int8_rate;  /* operations a second, which decided `many`; 0: not measured */
    struct slab *slabs;           /* of slab_take */
    size_t mirror_bytes;          /* that mirrors have taken */
    struct cublas *cublas;        /* NULL: not installed, or not wanted */
    const void *cublas_workspace; /* that it has now: of the program launched last */
    struct profile *profile;      /* NULL unless asked for */
    struct device_limits limits;  /* 0: not measured yet */
    uint32_t *arrived;            /* of launch_router: ARRIVED_BYTES of 0; NULL until needed */
    const struct row_table *rows; /* of the weight that has one, for the profile; or NULL */
    int32_t *step_host;           /* page-locked, a step of STEP_ROWS_MAX rows (step_arrays.h) */
    struct logit_pair *best_host; /* page-locked, BEST_BYTES: [BEST_ROWS_MAX][TOP_K] */
    bool is_running;              /* something was run since the last fence */
    double run_begin;             /* of the last run, for the profile */
    bool is_decode;               /* the last run had a few rows only */
    const struct op *failed_op;   /* whose launch was the first to fail */
    cudaError_t failure;          /* of a launch or copy; never reset, as the device is lost */
};

/* CARAT_EMEMORY or CARAT_EDEVICE with CUDA's own words. */
int cuda_fail(struct carat_error *err, cudaError_t status, const char *what);

/* Whether the ops of a window are run together. */
static inline bool cuda_fuses(const struct device *d)
{
    return !d->options.is_exact && !d->options.is_unfused;
}

/* Whether launch_gemm_wgmma is there and taken. */
static inline bool device_has_wgmma(const struct device *d)
{
    return d->queue.capability == 90 && !d->cublas;
}

/* Whether products of many rows with experts read tiles in fp16 (launch_grouped_half). */
static inline bool device_has_half_experts(const struct device *d)
{
    return d->queue.capability == 90 && d->many == ACT_HALF && !d->options.is_exact;
}

/* Parts of a piece of memory begin at multiples of this many bytes. */
static inline size_t aligned(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

/* Memory that lives as long as the device, on it or page-locked; NULL when there is none. */
void *slab_take(struct device *d, size_t bytes, bool is_pinned);
void slabs_free(struct device *d);

#endif
