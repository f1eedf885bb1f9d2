/* The host side of the CUDA backend: a device, the weights on it, programs. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/row_table.h"
#include "backend/cuda/windows.h"

struct cublas;  /* cublas.h */
struct profile; /* profile.h */

/* Rows of a step at most: the pinned copy of a step has room for so many. */
enum {
    STEP_ROWS_MAX = 16384,
    BEST_BYTES = MATVEC_ROWS_MAX * TOP_K * sizeof(struct logit_pair),
    ARRIVED_BYTES = 256
};

/* A step as the device sees it: four numbers, then arrays (program.c) of so many rows each. */
#define STEP_COPY_BYTES(rows) ((4 + 5 * (size_t)(rows)) * sizeof(int32_t))
#define STEP_BYTES STEP_COPY_BYTES(STEP_ROWS_MAX)

/* What products with a weight want of their rows. */
struct precision {
    bool is_fine;     /* more than 8 bits (plan/op.h) */
    bool is_half;     /* of many rows: fp16 at least, also where others take 8 bits */
    bool is_for_outs; /* they are rows whose logits are wanted, all of them */
};

/* What a device remembers of a weight (weight->device_data). */
struct cuda_loaded {
    struct cuda_weight view; /* quants NULL: not on the device yet */
    const struct weight *source;
    struct precision precision;
    bool is_pinned;         /* a table in pinned host memory */
    struct row_table *rows; /* a table in the mapped file: quants is its cache; else NULL */
};

/* Device memory that lives as long as the device: planes, mirrors. */
struct slab {
    struct slab *next;
    void *memory;
    bool is_pinned;
};

struct device {
    int index;
    char name[96];
    struct queue queue;
    struct device_options options;
    enum act_kind many;          /* what products of many rows read: ACT_INT8, ACT_HALF */
    double half_rate, int8_rate; /* operations a second that decided it; 0: not measured */
    struct slab *slabs;
    size_t mirror_bytes;          /* that mirrors have taken */
    struct cublas *cublas;        /* NULL: not installed, or not wanted */
    const void *cublas_workspace; /* that it has now: of the program launched last */
    struct profile *profile;      /* NULL unless asked for */
    struct device_limits limits;  /* 0: not measured yet */
    uint32_t *arrived;            /* of launch_router: ARRIVED_BYTES of 0; NULL until needed */
    const struct row_table *rows; /* of the weight that has one, for the profile; or NULL */
    int32_t *step_host;           /* pinned, STEP_BYTES */
    struct logit_pair *best_host; /* pinned, BEST_BYTES: [MATVEC_ROWS_MAX][TOP_K] */
    bool is_running;              /* something was run since the last fence */
    double run_begin;             /* of the last run, for the profile */
    bool is_decode;               /* it had few rows */
    const struct op *failed_op;   /* whose launch was the first to fail */
    cudaError_t failure;          /* of a launch or copy since the last fence */
};

/* CARAT_EMEMORY or CARAT_EDEVICE with CUDA's own words. */
int cuda_fail(struct carat_error *err, cudaError_t status, const char *what);

/* Whether windows of ops are done together. */
static inline bool cuda_fuses(const struct device *d)
{
    return !d->options.is_exact && !d->options.is_unfused;
}

/* Parts of a piece of memory begin at multiples of this many bytes. */
static inline size_t aligned(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

/* Columns of activations and mirrors: whole tiles. */
static inline size_t padded_cols(int64_t cols)
{
    return (size_t)(cols + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
}

/* Memory that lives as long as the device; NULL when there is none. */
void *slab_take(struct device *d, size_t bytes, bool is_pinned);

/* ---- limits.c, choose.c ----------------------------------------------------------------- */

/* What the device itself needs for `launch`, in seconds; 0 when that failed. */
double cuda_seconds(struct device *d, void (*launch)(const struct queue *q, void *user),
                    void *user);

/* See backend.h. Takes up to 2.3 GB for a moment. */
void cuda_measure_limits(struct device *d, size_t room, struct device_limits *out);

/* What products of many rows read: as asked, else the faster way, which is measured. Takes 86 MB
 * for a moment; notes the rates in d. */
enum act_kind cuda_choose_many(struct device *d);

/* ---- weights.c -------------------------------------------------------------------------- */

struct cuda_loaded *loaded_of(const struct weight *w);

/* See backend.h. Mirrors are made of what products of many rows read: as many, in the order of the
 * plan, as there is room for. */
void cuda_place_weights(const struct device *d, const struct plan *plan, const struct room *room,
                        struct placement *out);

/* The table whose rows are copied to the device as the plan's steps need them. NULL: none. */
struct row_table *row_table_of(const struct plan *plan);

/* Puts those there that are not yet: read, copied and repacked at once. `staging`: device memory,
 * upload_staging_bytes (upload.h), free again when it returns. */
int weights_upload(struct device *d, const struct plan *plan, const struct placement *placement,
                   char *staging, struct carat_error *err);

/* The same for the fp16 mirrors that were decided on. */
int mirrors_make(struct device *d, const struct plan *plan, const struct placement *placement,
                 struct carat_error *err);
size_t mirror_bytes_of(const struct weight *w);

/* Whether a product of many rows goes through fp16 (else: 8 bits, or exact). */
bool wants_mirror(const struct device *d, const struct plan *plan, const struct weight *w);

/* Whether products take the kernels of few rows for any number of them: fine ones of rows whose
 * logits are wanted. More than MATVEC_ROWS_MAX of those are rare, and a head's mirror is large. */
bool is_always_few(struct precision precision, enum format format);

/* Whether a product of many rows stays in fp32: what decides between near-equal values. */
bool is_multiplied_exactly(const struct weight *w);

/* ---- program.c, stages.c ---------------------------------------------------------------- */

enum { ACT_SLOTS = 4 };

/* Where things lie in a program's scratch memory; sizes for the plan's most rows. While weights are
 * loaded nothing runs, and their staging lies over all of it. */
struct scratch_layout {
    size_t step, slot, slot_bytes, inner, wide, mirror, experts, attention, topk, cublas;
    size_t cublas_bytes; /* 0: no product goes there */
    size_t total;
};

struct program {
    struct device *device;
    const struct plan *plan;
    char *memory, *scratch;
    struct scratch_layout at;
    struct window *windows;
    int32_t n_windows;
    uint8_t *needs; /* by buffer: NEEDS_* */
    struct step_view step;
    struct row_table *rows;     /* a table in the mapped file, or NULL */
    int32_t *row_slots;         /* where the step's rows of it are: in the place of their ids */
    int32_t rows_max;           /* of both classes: the stride of the step's arrays */
    int32_t n[ROW_CLASS_COUNT]; /* rows of the launches being made */
    int32_t n_decode;           /* of the token rows, those that are single new tokens */
    struct {
        buf_id id;
        struct act act;
    } slots[ACT_SLOTS];
    int next_slot;
    buf_id half_id; /* the buffer whose rows are fp16 at the moment, times half_scale */
    const float *half_scale;
    cudaGraphExec_t recorded[PLAN_USUAL_MAX]; /* of the plan's usual steps; NULL: launched */
};

enum { NEEDS_FLOATS = 1, NEEDS_ACT = 2 };

struct scratch_layout scratch_layout_of(const struct device *d, const struct plan *plan);

/* Launches a window for p->n rows. */
void stage_run(struct program *p, const struct window *w);

#endif
