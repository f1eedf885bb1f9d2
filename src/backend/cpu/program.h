/* What the op files of this backend share: the running program and one step of it. */
#ifndef BACKEND_CPU_PROGRAM_H
#define BACKEND_CPU_PROGRAM_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

/* With at most this many rows, attention is cut into segments for several workers: decode steps of
 * a few sequences. */
enum { SPLIT_ROWS_MAX = 4 };

/* Tiles of many weights in one piece of memory. Huge pages need pieces larger than most weights,
 * and weights that are used one after the other lie one after the other. */
struct slab {
    struct slab *next;
    uint8_t *memory;
    size_t bytes;
};

struct device {
    char name[96];
    struct pool *pool;
    const struct cpu_kernels *kernels;
    bool is_exact;
    bool has_bf16;     /* rows of prompts are multiplied in bf16 */
    bool is_automatic; /* we choose the number of workers, for each step */
    uint64_t nodes;    /* memory nodes, a bit each, if there are several; else 0 */
    struct slab *slabs;
    struct time_tables *profile; /* NULL unless asked for */
    struct device_limits limits; /* 0: not measured yet */
    product_observer *observe;   /* NULL unless asked for */
    void *observe_user;
};

/* Memory that the steps of a program share, cut from the scratch that it is given. */
struct scratch {
    struct act_block *act; /* the activations rounded last, */
    uint16_t *bf16;        /* those of prompts, if they are multiplied in bf16 */
    char *worker;          /* worker_bytes for each worker */
    size_t worker_bytes;
    float *partial;  /* attention segments: see attention.c */
    int32_t *routed; /* EXPERT_*: rows sorted by expert, see matmul.c */
    float *turns;    /* cosines and sines of the tokens, for each set of frequencies */
};

struct cpu_step;
typedef void (*cpu_step_fn)(const struct cpu_step *s, const struct pool_worker *worker);

enum step_sharing { BY_ROW, BY_ITEM };

struct cpu_step {
    cpu_step_fn run;
    const struct op *op;
    const struct program *program;
    enum step_sharing sharing;
    enum row_class rows; /* of the output; of the input where there is none */
    bool needs_barrier;  /* before it */
    bool is_fine;   /* a product that takes two numbers for each activation, or their rounding */
    bool has_bytes; /* rounding: rows that decode get their 8 bits */
    int32_t x_cols, x1_cols, y_cols;
    const float *x0, *x1, *x2;
    float *y0, *y1;
    struct pool_share *share; /* BY_ITEM: reset before every run */
};

struct program {
    struct device *device;
    const struct plan *plan;
    const struct step *step; /* while running */
    struct scratch scratch;
    struct cpu_step *steps;
    struct pool_share *shares;
    double *begun; /* for the profile: when each step of the last run began; else NULL */
    int32_t n_steps, steps_capacity;
};

static inline int32_t cpu_step_rows(const struct cpu_step *s)
{
    const struct step *step = s->program->step;
    return s->rows == ROWS_TOKEN ? step->n_token : step->n_out;
}

static inline int32_t token_row(const struct cpu_step *s, int64_t r)
{
    return s->rows == ROWS_TOKEN ? (int32_t)r : s->program->step->out_row[r];
}

/* Whether rows of prompts are multiplied in bf16 by a product. */
static inline bool op_may_be_bf16(const struct device *device, const struct op *op)
{
    return device->has_bf16 && op->code == OP_MATMUL;
}

/* How many of the step's rows are multiplied in 8 bits: the first ones. Devices with bf16 use it
 * for prompt rows, up to the last layer that needs all of them, unless the prompt is short. Experts
 * stay in 8 bits, as each gets too few rows. So a row's arithmetic depends on no other row, and on
 * no chunk. */
static inline int32_t cpu_step_byte_rows(const struct cpu_step *s)
{
    const struct step *step = s->program->step;
    int32_t n = cpu_step_rows(s);
    int32_t n_bytes = step->n_short > step->n_decode ? step->n_short : step->n_decode;
    if (!op_may_be_bf16(s->program->device, s->op) || s->rows != ROWS_TOKEN) return n;
    return n_bytes < n ? n_bytes : n;
}

static inline const struct cpu_kernels *cpu_step_kernels(const struct cpu_step *s)
{
    return s->program->device->kernels;
}

/* Whether a product takes two 8-bit numbers for each activation, where others take one. */
static inline bool op_is_fine(const struct op *op)
{
    return op->code == OP_MATMUL && op->p.matmul.is_fine;
}

static inline void *worker_scratch(const struct cpu_step *s, const struct pool_worker *worker)
{
    return s->program->scratch.worker + (size_t)worker->index * s->program->scratch.worker_bytes;
}

/* Decodes n values of a cache or weight row. */
void cpu_decode(const struct cpu_kernels *k, enum format format, const void *src, float *dst,
                int64_t n);

/* Whether a weight is multiplied in bf16 on devices that have it. F32 would lose bits. */
static inline bool weight_takes_bf16(const struct weight *w)
{
    return w->format != FORMAT_F32 && w->cols % BLOCK_COLS == 0;
}

/* Step functions, named after their op. cpu_QUANTIZE comes before products in 8 bits or bf16. */
#define X(NAME, params, meaning, budget)                                                           \
    void cpu_##NAME(const struct cpu_step *s, const struct pool_worker *worker);
OP_LIST(X)
#undef X
void cpu_QUANTIZE(const struct cpu_step *s, const struct pool_worker *worker);
/* Comes before the first ROPE with its frequencies, for all of them: y1 = d / 2 cosines, then as
 * many sines, for each token. A ROPE finds them in x1. */
void cpu_TURNS(const struct cpu_step *s, const struct pool_worker *worker);
/* Tells an observer what the product reads, before it. */
void cpu_OBSERVE(const struct cpu_step *s, const struct pool_worker *worker);
/* EXPERT_*: sorts the rows by expert, before the product. */
void cpu_SORT_ROUTED(const struct cpu_step *s, const struct pool_worker *worker);
/* Attention of a few rows: joins the segments, after cpu_ATTENTION. */
void cpu_JOIN_SEGMENTS(const struct cpu_step *s, const struct pool_worker *worker);

void cpu_measure_limits(struct device *device, size_t room, struct device_limits *out);

/* Scratch that an op needs: bytes for each worker, floats for partial results (attention.c,
 * matmul.c). */
size_t cpu_attention_worker_bytes(const struct plan *plan, const struct op *op);
size_t cpu_attention_partial_floats(const struct plan *plan, const struct op *op);
size_t cpu_matmul_worker_bytes(const struct device *device, const struct op *op);

#endif
