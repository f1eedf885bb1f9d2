/* The functions that records start, and their arguments. Apart from the masked search (program.c),
 * no other code of a step calls a launcher. A chip's own kernel is one more function here, chosen
 * where the record is made.
 *
 * Each takes the arguments that stand next to it; `rows.max`, `n_rows` and the like in them are
 * replaced by the step's rows. */
#ifndef CUDA_START_H
#define CUDA_START_H

#include "backend/cuda/beside.h"
#include "backend/cuda/record.h"

struct cublas; /* cublas.h */

/* ---- Products ---- */

start_fn start_matvec;       /* struct matvec_args */
start_fn start_matmul_exact; /* struct exact_args */
start_fn start_gemm_i8;      /* struct gemm_args */
start_fn start_gemm_f16;     /* struct gemm_args */
start_fn start_gemm_wgmma;   /* struct gemm_wgmma_args */
start_fn start_gemm_gelu;    /* struct gemm_gelu_args */
start_fn start_half;         /* struct gemm_args */
start_fn start_half_inputs;  /* struct half_inputs_args */
start_fn start_cublas;       /* struct cublas_args */
start_fn start_mirror;       /* struct cuda_weight: all of its one matrix */

struct cublas_args {
    struct cublas *cublas;
    struct gemm_args gemm;
};

struct gemm_wgmma_args {
    struct gemm_args gemm;
    bool is_mapped; /* else launch_gemm_f16 does it */
    struct gemm_maps maps;
};

/* Gate, up and gelu: one launch where launch_gemm_wgmma takes the product, else two with fp16 in
 * between. */
struct gemm_gelu_args {
    struct gemm_wgmma_args product; /* with `hidden`, and with `half` for the other case */
    struct gelu_mul_args gelu;
};

/* A norm and the product that reads its row, in one launch; false: not these, nothing was
 * started. */
bool start_normed(const struct queue *q, const struct norm_args *norm,
                  const struct matvec_args *product, struct launch_rows rows);

/* The same with the router that reads an `out` of it. */
bool start_router_normed(const struct queue *q, const struct norm_args *norm,
                         const struct router_args *router, struct launch_rows rows);

/* ---- Experts ---- */

start_fn start_experts_in;     /* struct expert_args */
start_fn start_experts_out;    /* struct expert_args */
start_fn start_route;          /* struct route_args */
start_fn start_router;         /* struct router_args */
start_fn start_router_parts;   /* struct router_parts_args */
start_fn start_gate_up_beside; /* struct beside_args */
start_fn start_down_beside;    /* struct beside_args */
start_fn start_expert_sort;    /* struct expert_sort_args */
start_fn start_grouped_i8;     /* struct grouped_args */
start_fn start_grouped_f16;    /* struct grouped_args */
start_fn start_grouped_half;   /* struct grouped_args */
start_fn start_expert_sum;     /* struct expert_sum_args */

struct route_args {
    struct step_view step;
    struct rows rows;
    const float *z, *scale;
    int32_t n_parts;
    int32_t *ids;
    float *shares;
    int32_t n_expert, n_used;
};

struct expert_sort_args {
    struct expert_plan plan;
    const int32_t *ids;
    int32_t n_used, n_expert;
};

/* ---- Attention ---- */

/* struct attention_args, whose scratch is for MATVEC_ROWS_MAX rows. */
start_fn start_attention_split; /* split over keys, this many rows at a time */
start_fn start_attention_tiles; /* chunks by tiles, single new tokens as above */

/* Heads of one row and its attention by the split kernel; false: not these, nothing was started. */
bool start_attention_own(const struct queue *q, const struct heads_args *heads,
                         const struct attention_args *attention, struct launch_rows rows);

/* ---- Rows ---- */

start_fn start_norm;     /* struct norm_args */
start_fn start_heads;    /* struct heads_args */
start_fn start_embed;    /* struct embed_args */
start_fn start_ple;      /* struct ple_args */
start_fn start_concat;   /* struct concat_args */
start_fn start_gelu_mul; /* struct gelu_mul_args: half_div rows for each row of the step */
start_fn start_act;      /* struct act_args */
start_fn start_kv_write; /* struct kv_write_args */
start_fn start_topk;     /* struct topk_args */

struct act_args {
    struct step_view step;
    struct rows rows;
    const float *x;
    int32_t cols;
    struct act act;
    int32_t n_used; /* rows of x for each row of the step */
    bool is_all_live;
};

struct kv_write_args {
    struct step_view step;
    struct rows rows;
    const float *k, *v;
    struct kv_cache cache;
};

/* For the first BEST_ROWS_MAX rows. */
struct topk_args {
    struct step_view step;
    const float *logits;
    int32_t n_vocab;
    struct logit_pair *out;
    void *scratch;
};

/* Ops on one row at a time: struct row_args. */
start_fn start_group_norm, start_rope, start_add, start_scale, start_softcap, start_gather_rows;

struct row_args {
    struct step_view step;
    struct rows rows;
    const float *a, *b;
    const float *vector; /* weights of a norm, frequencies of a rotation */
    float *y;
    int32_t cols;
    int32_t group; /* values normed together, or of a head */
    float value;   /* epsilon, factor or cap */
    int32_t ahead; /* of a rotation */
};

#endif
