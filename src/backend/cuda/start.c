#include "backend/cuda/start.h"

#include "backend/cuda/act.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention_own.h"
#include "backend/cuda/kernels/sm90/half_inputs.h"

/* The usual case: arguments with a field `rows`, and a launcher that takes them. */
#define START_ROWS(START, LAUNCH, TYPE)                                                            \
    void START(const struct queue *q, const void *args, struct launch_rows rows)                   \
    {                                                                                              \
        struct TYPE a = *(const struct TYPE *)args;                                                \
        a.rows.max = rows.n;                                                                       \
        LAUNCH(q, &a);                                                                             \
    }

START_ROWS(start_matvec, launch_matvec, matvec_args)
START_ROWS(start_matmul_exact, launch_matmul_exact, exact_args)
START_ROWS(start_experts_in, launch_experts_in, expert_args)
START_ROWS(start_experts_out, launch_experts_out, expert_args)
START_ROWS(start_router, launch_router, router_args)
START_ROWS(start_gate_up_beside, launch_gate_up_beside, beside_args)
START_ROWS(start_down_beside, launch_down_beside, beside_args)
START_ROWS(start_router_parts, launch_router_parts, router_parts_args)
START_ROWS(start_norm, launch_norm, norm_args)
START_ROWS(start_heads, launch_heads, heads_args)
START_ROWS(start_embed, launch_embed, embed_args)
START_ROWS(start_ple, launch_ple, ple_args)
START_ROWS(start_concat, launch_concat, concat_args)

bool start_normed(const struct queue *q, const struct norm_args *norm,
                  const struct matvec_args *product, struct launch_rows rows)
{
    struct norm_args n = *norm;
    struct matvec_args m = *product;
    n.rows.max = m.rows.max = rows.n;
    return launch_matvec_normed(q, &n, &m);
}

bool start_router_normed(const struct queue *q, const struct norm_args *norm,
                         const struct router_args *router, struct launch_rows rows)
{
    struct norm_args n = *norm;
    struct router_args r = *router;
    n.rows.max = r.rows.max = rows.n;
    return launch_router_normed(q, &n, &r);
}

/* The same with a field `n_rows`. */
#define START_N_ROWS(START, LAUNCH, TYPE)                                                          \
    void START(const struct queue *q, const void *args, struct launch_rows rows)                   \
    {                                                                                              \
        struct TYPE a = *(const struct TYPE *)args;                                                \
        a.n_rows = rows.n;                                                                         \
        LAUNCH(q, &a);                                                                             \
    }

START_N_ROWS(start_gemm_i8, launch_gemm_i8, gemm_args)
START_N_ROWS(start_gemm_f16, launch_gemm_f16, gemm_args)
START_N_ROWS(start_half, launch_half, gemm_args)
START_N_ROWS(start_half_inputs, launch_half_inputs, half_inputs_args)
START_N_ROWS(start_grouped_i8, launch_grouped_i8, grouped_args)
START_N_ROWS(start_grouped_f16, launch_grouped_f16, grouped_args)
START_N_ROWS(start_grouped_half, launch_grouped_half, grouped_args)

/* ---- Products and experts --------------------------------------------------------------- */

void start_cublas(const struct queue *q, const void *args, struct launch_rows rows)
{
    struct cublas_args a = *(const struct cublas_args *)args;
    a.gemm.n_rows = rows.n;
    cublas_multiply(a.cublas, q, &a.gemm);
}

void start_gemm_wgmma(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct gemm_wgmma_args *a = args;
    struct gemm_args gemm = a->gemm;
    gemm.n_rows = rows.n;
    if (a->is_mapped)
        launch_gemm_wgmma(q, &gemm, &a->maps);
    else
        launch_gemm_f16(q, &gemm);
}

void start_gemm_gelu(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct gemm_gelu_args *a = args;
    start_gemm_wgmma(q, &a->product, rows);
    if (!a->product.is_mapped) start_gelu_mul(q, &a->gelu, rows);
}

void start_mirror(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct cuda_weight *w = args;
    (void)rows;
    launch_mirror(q, w, 0, 0, w->rows);
}

void start_route(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct route_args *a = args;
    launch_route(q, a->step, (struct rows){rows.n, a->rows.is_out}, a->z, a->n_parts, a->scale,
                 a->ids, a->shares, a->n_expert, a->n_used);
}

void start_expert_sort(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct expert_sort_args *a = args;
    launch_expert_sort(q, &a->plan, a->ids, rows.n, a->n_used, a->n_expert);
}

void start_expert_sum(const struct queue *q, const void *args, struct launch_rows rows)
{
    launch_expert_sum(q, args, rows.n);
}

/* ---- Attention -------------------------------------------------------------------------- */

/* Rows from `first` on. */
static struct attention_args attention_from(const struct attention_args *args, int32_t first)
{
    struct attention_args a = *args;
    a.first_row = first;
    size_t rows = (size_t)first, cols = (size_t)a.n_heads * (size_t)a.cache.head_dim;
    size_t stride = (size_t)a.act.stride;
    a.q += rows * cols;
    if (a.y) a.y += rows * cols;
    if (a.act.kind == ACT_INT8) {
        a.act.values = (int8_t *)a.act.values + rows * stride;
        a.act.scale += rows * (stride / ACT_BLOCK * 2);
    } else if (act_is_half(a.act.kind)) {
        a.act.values = (uint16_t *)a.act.values + rows * stride;
        a.act.scale += rows;
    }
    if (a.rows.is_out) {
        a.step.out_row += rows;
    } else {
        a.step.position += rows;
        a.step.sequence += rows;
    }
    return a;
}

bool start_attention_own(const struct queue *q, const struct heads_args *heads,
                         const struct attention_args *attention, struct launch_rows rows)
{
    struct heads_args h = *heads;
    struct attention_args a = *attention;
    h.rows.max = a.rows.max = rows.n;
    return launch_attention_own(q, &h, &a);
}

/* The first n rows by the split kernel, whose scratch is for a few. */
static void attend_split(const struct queue *q, const struct attention_args *args, int32_t n)
{
    for (int32_t first = 0; first < n; first += MATVEC_ROWS_MAX) {
        struct attention_args a = attention_from(args, first);
        a.rows.max = n - first < MATVEC_ROWS_MAX ? n - first : MATVEC_ROWS_MAX;
        launch_attention_decode(q, &a);
    }
}

void start_attention_split(const struct queue *q, const void *args, struct launch_rows rows)
{
    attend_split(q, args, rows.n);
}

void start_attention_tiles(const struct queue *q, const void *args, struct launch_rows rows)
{
    struct attention_args a = *(const struct attention_args *)args;
    int32_t n = rows.n - rows.n_decode;
    if (a.rows.is_out && rows.n_runs >= n) { /* last rows of prompts, too */
        attend_split(q, &a, rows.n);
        return;
    }
    attend_split(q, &a, rows.n_decode);
    a.rows.max = n;
    if (rows.n_runs > 0) launch_attention_prefill(q, &a, rows.n_runs);
}

/* ---- Rows ------------------------------------------------------------------------------- */

void start_gelu_mul(const struct queue *q, const void *args, struct launch_rows rows)
{
    struct gelu_mul_args a = *(const struct gelu_mul_args *)args;
    a.rows.max = rows.n * a.half_div;
    launch_gelu_mul(q, &a);
}

void start_act(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct act_args *a = args;
    launch_act(q, a->step, (struct rows){rows.n * a->n_used, a->rows.is_out}, a->x, a->cols, a->act,
               a->is_all_live);
}

void start_kv_write(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct kv_write_args *a = args;
    launch_kv_write(q, a->step, (struct rows){rows.n, a->rows.is_out}, a->k, a->v, a->cache);
}

void start_topk(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct topk_args *a = args;
    int32_t n = rows.n < BEST_ROWS_MAX ? rows.n : BEST_ROWS_MAX;
    launch_topk(q, a->step, (struct rows){n, 1}, a->logits, a->n_vocab, a->out, a->scratch);
}

void start_group_norm(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct row_args *a = args;
    launch_group_norm(q, a->step, (struct rows){rows.n, a->rows.is_out}, a->a, a->vector, a->y,
                      a->cols, a->group, a->value);
}

void start_rope(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct row_args *a = args;
    launch_rope(q, a->step, (struct rows){rows.n, a->rows.is_out}, a->a, a->vector, a->y, a->cols,
                a->group, a->ahead);
}

void start_add(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct row_args *a = args;
    launch_add(q, a->step, (struct rows){rows.n, a->rows.is_out}, a->a, a->b, a->y, a->cols);
}

void start_scale(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct row_args *a = args;
    launch_scale(q, a->step, (struct rows){rows.n, a->rows.is_out}, a->a, a->value, a->y, a->cols);
}

void start_softcap(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct row_args *a = args;
    launch_softcap(q, a->step, (struct rows){rows.n, a->rows.is_out}, a->a, a->value, a->y,
                   a->cols);
}

void start_gather_rows(const struct queue *q, const void *args, struct launch_rows rows)
{
    const struct row_args *a = args;
    launch_gather_rows(q, a->step, a->a, a->y, a->cols, rows.n);
}
