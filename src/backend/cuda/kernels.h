/* What the kernels offer to the host side of the backend: one launcher for each kernel family. All
 * launchers are asynchronous on a queue and none fails (the fence reports a lost device). Buffers
 * named `float *` are contiguous rows of plan buffers. Every launcher may be captured in a graph:
 * it puts nothing but kernels on the queue.
 *
 * Which kernel does what. Files are in kernels/; a launcher is in the .cu file of its row.
 *
 *   product               rows    weights       launcher              file, kernel
 *   one matrix, q k v,    1..4    LAYOUT_TILES  launch_matvec         matvec.cu, matvec_ring.cuh
 *   gate and up           5..64   LAYOUT_TILES  launch_matvec         matvec.cu, matvec_stream.cuh
 *                         1..64   LAYOUT_ROWS   launch_matvec         matvec.cu, matvec_rows.cuh
 *                         more    LAYOUT_TILES  launch_gemm_i8        gemm_i8.cu, gemm_i8.cuh
 *                         more    mirror        launch_gemm_f16       gemm_f16.cu (or cublas.c)
 *                         more    mirror        launch_gemm_wgmma     sm90/gemm_wgmma.cu, on Hopper
 *   the same, on Hopper   1..256  LAYOUT_TILES  launch_half           sm90/half.cu
 *   small, with its norm  1       LAYOUT_TILES  launch_matvec_normed  sm90/matvec_normed.cu
 *   chosen experts, in    1..4    LAYOUT_TILES  launch_experts_in     experts.cu, matvec_ring.cuh
 *                         5..64   LAYOUT_TILES  launch_experts_in     experts.cu, matvec_stream.cuh
 *                         1..64   LAYOUT_ROWS   launch_experts_in     matvec.cu, matvec_rows.cuh
 *                  out    1..64   LAYOUT_TILES  launch_experts_out    experts.cu
 *                         1..64   LAYOUT_ROWS   launch_experts_out    exact.cu
 *                  both   more    LAYOUT_TILES  launch_grouped_i8     moe.cu sorts, gemm_i8.cu
 *                         more    mirror        launch_grouped_f16    moe.cu sorts, gemm_f16.cu
 *              on Hopper  more    LAYOUT_TILES  launch_grouped_half   sm90/half_experts.cu
 *   router with choice    1..64   LAYOUT_ROWS   launch_router         route.cu, matvec_rows.cuh
 *   with its norm, Hopper 1..8    LAYOUT_ROWS   launch_router_normed  sm90/router_normed.cu
 *   router                more    LAYOUT_ROWS   launch_router_parts   router_many.cu, then route.cu
 *   in fp32, --precision  any     any           launch_matmul_exact   exact.cu
 *
 *   attention            cache                launcher                  file, kernel
 *   rows on their own    F16, heads 256, 512  launch_attention_decode   attention_decode_mma.cuh
 *     one, on Hopper     F16, 256, a window   launch_attention_own      attention_decode_own.cuh
 *     several, on Hopper F16, heads of 512    launch_attention_decode   attention_decode_walk.cuh
 *     the same           F16, 256, a window   launch_attention_decode   sm90/attention_window.cu
 *   (decode)             Q8_0, the same       launch_attention_decode   attention_decode_q8.cuh
 *                        all others           launch_attention_decode   attention_decode_any.cuh
 *     then, for all                                                     .._combine.cuh
 *   tiles of rows        all formats          launch_attention_prefill  attention_prefill.cu,
 *   (a prompt's chunk)                                                  .._steps.cuh, .._rows.cuh
 *     on Hopper          F16, heads 256, 512  launch_attention_prefill  sm90/attention_prompts.cu
 *
 * On Hopper launch_matvec takes 5..8 rows by sm90/matvec_eight.cu, and launch_experts_in and _out
 * take them as up to four; weights of two formats share a launch (sm90/matvec_mixed.cu,
 * sm90/beside_mixed.cu). Float weights may be read as mirrors there for a few rows too
 * (lowering.c). Rows whose activations do not fit in shared memory take matvec_stream.cuh
 * (matvec_launch.cuh: launch_form). All files share instructions.cuh (PTX), round.cuh (rounding,
 * NaN), form.cuh (tiles of weights), block.cuh (rows, sums) and launch.cuh. Kernels that use what
 * only Hopper has go to kernels/sm90/, which CMake compiles for 90a alone. */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/cuda/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* What the driver said when a kernel was launched first with this much shared memory: asking it
 * again takes about as long as the launch. */
struct residence {
    const void *kernel;
    size_t asked_bytes; /* shared memory of a block */
    int32_t wanted;     /* blocks that a multiprocessor is to hold at a time */
    int32_t blocks;     /* that it does hold, at most `wanted` */
    size_t bytes;       /* shared memory to launch with, so that it holds no more */
};

enum { RESIDENCES = 1024 };

struct queue {
    struct CUstream_st *stream;
    int32_t n_sm;              /* multiprocessors */
    int32_t capability;        /* 80, 86, 89, 90, 100, 120 */
    bool has_dependent_launch; /* programmatic dependent launch */
    struct residence
        *residences; /* [RESIDENCES], host memory; NULL: the driver is asked each time */
    bool loads_only; /* kernels are loaded and not started (launch.cuh) */
};

/* status.cu: whether this build has code for the device (cudaError_t). */
int kernels_status(void);

/* ---- repack.cu: from rows of a file to what products read ------------------------------------ */

/* Bytes of each plane of a matrix laid out as LAYOUT_TILES; 0: the format has no such plane. */
struct tile_bytes {
    size_t quants, high, scale, minus;
};
struct tile_bytes tile_bytes_of(enum format format, int64_t rows, int64_t cols, int32_t n_expert);

/* `file`: n_rows rows as in the file (row_bytes apart, device memory), rows first_row ... of matrix
 * `expert` of w, whose planes (or rows, floats) are allocated. first_row is a multiple of 8. */
void launch_repack(const struct queue *q, const struct cuda_weight *w, int32_t expert,
                   int32_t first_row, int32_t n_rows, const void *file, int64_t row_bytes);

/* ---- matvec.cu: products of up to MATVEC_ROWS_MAX rows, weights read once -------------------- *
 * More rows are right too, but a matrix product is faster. */

/* y[k][t] = w[k] x[t] for up to three weights of the same columns (q, k, v), or with an epilogue.
 * A row's result has the same bits whatever the other rows and rows.max are. */
enum matvec_epilogue {
    MATVEC_STORE,    /* y[k][t][r] = w[k] x[t], or capped */
    MATVEC_GELU_MUL, /* n_w = 2: out[t][r] = gelu(w[0] x[t]) * (w[1] x[t]) */
    MATVEC_GELU_BY   /* n_w = 1: out[t][r] = gelu(w[0] x[t]) * by[t][second_col + r] */
};

struct matvec_args {
    struct step_view step;
    struct rows rows;
    int32_t n_w;
    struct cuda_weight w[3];
    float *y[3];           /* [rows][w.rows] */
    struct act x;          /* ACT_INT8 or ACT_FINE, for LAYOUT_TILES */
    const float *x_floats; /* [rows][cols], for LAYOUT_ROWS */
    enum matvec_epilogue epilogue;
    float cap;       /* MATVEC_STORE: cap * tanh(y / cap) as launch_softcap has it; 0: y */
    const float *by; /* [rows][by_cols] */
    int32_t by_cols, second_col;
    float *out;     /* the epilogue's result in fp32, [rows][w.rows]; NULL: not wanted */
    struct act act; /* the same as activations for the next product; ACT_NONE: not wanted */
};
void launch_matvec(const struct queue *q, const struct matvec_args *args);

/* Products with the experts that each row chose, for up to MATVEC_ROWS_MAX rows: the weights of an
 * expert are read once for every four or eight rows that chose it. ids [rows][n_used] (int32 in a
 * plan buffer), shares [rows][n_used]. Expert ids are checked against n_expert: an invalid one
 * gives NaN, never a wild read. */
struct expert_args {
    struct step_view step;
    struct rows rows;
    int32_t n_used;
    const int32_t *ids;
    const float *shares;     /* down only */
    struct cuda_weight w[2]; /* in: gate and up (n_w = 1 or 2); out: down */
    int32_t n_w;
    struct act x;          /* in: [rows]; out: [rows * n_used] */
    const float *x_floats; /* for LAYOUT_ROWS */
    float *y[2];           /* in, n_w = 1 or unfused: [rows][n_used * w.rows] each */
    /* in, n_w = 2: gelu(gate) * up to `act` ([rows * n_used]) and `out` */
    bool is_gelu_mul;
    float *out; /* in: [rows][n_used * w.rows] or NULL; out: [rows][w.rows] */
    struct act act;
};
void launch_experts_in(const struct queue *q, const struct expert_args *args);
void launch_experts_out(const struct queue *q, const struct expert_args *args);

/* fp32 activations times dequantised weights, fp32 sums: slow and exact; any layout, any number of
 * rows. y[t] = w x[t]. With ids: EXPERT_IN (shares NULL) or EXPERT_OUT as plan/op_list.h has it. */
struct exact_args {
    struct step_view step;
    struct rows rows;
    struct cuda_weight w;
    const float *x;
    float *y;
    int32_t n_used;
    const int32_t *ids;
    const float *shares;
};
void launch_matmul_exact(const struct queue *q, const struct exact_args *args);

/* ---- gemm_i8.cu, gemm_f16.cu, cublas.c: products of many rows */

/* y[t] = w x[t]; up to three weights with the same input go in one launch where the kernel can.
 * `n_rows` is what the host launches for. A graph may be replayed with fewer live rows: rows past
 * step.counts may be computed, and their results are ignored. */
struct gemm_args {
    int32_t n_rows;
    int32_t n_w;
    struct cuda_weight w[3]; /* int8: LAYOUT_TILES; fp16: with a mirror */
    struct act x;            /* ACT_INT8, ACT_HALF; or ACT_CORES */
    float *y[3];             /* [n_rows][w.rows], fp32; NULL: `half` is wanted */
    bool is_unscaled;        /* fp16: y / x.scale[row] is wanted in y */
    uint16_t *half;          /* fp16 [n_rows][half_cols]: w[0]'s columns, then w[1]'s, w[2]'s, of
                                values y / x.scale[row] */
    int32_t half_cols;
    float cap; /* launch_half: y is cap * tanh(y / cap) as launch_softcap has it; 0: y */
    /* Instead of y and half: rows of the next product. n_w = 2 (launch_gemm_wgmma: ACT_HALF;
     * launch_half: ACT_CORES, half_gates): gelu(w[0] x) * (w[1] x), all with scale hidden_scale, a
     * power of two; they are at most 2^15 times as large (bounds.h). n_w = 1 (launch_half): rows of
     * gelu(w[0] x) * by, each with a scale of its own. ACT_NONE: not wanted. */
    struct act hidden;
    float hidden_scale;
    const float *by; /* [n_rows][by_cols] */
    int32_t by_cols;
};
void launch_gemm_i8(const struct queue *q, const struct gemm_args *args);
void launch_gemm_f16(const struct queue *q, const struct gemm_args *args);

/* ---- sm90/gemm_wgmma.cu: the same as launch_gemm_f16, on Hopper (capability 90) alone. Sums have
 * the same bits for any number of rows: those of launch_gemm_f16 for each slice of the columns
 * (slices.h), added up in order. Slice i of n begins with column 64 (steps * i / n).
 *
 * One weight, or several that lie side by side for results in `half`. TMA reads matrices by maps
 * that the driver makes: of x for the n_rows in args (a launch may have fewer), and of the mirrors
 * for each shape of tiles. gemm_maps_make gives false where the product has to be
 * launch_gemm_f16: rows of a weight that are no multiple of 8, unaligned results, an old driver. It
 * starts nothing on the device. */
enum { GEMM_TILES = 35 };
struct tensor_map {
    uint64_t words[16];
};
struct gemm_maps {
    struct tensor_map x, x_few, w; /* as a tile's first operand; x_few: a few rows */
    struct tensor_map other[GEMM_TILES];
};
bool gemm_maps_make(const struct gemm_args *args, struct gemm_maps *out);
void launch_gemm_wgmma(const struct queue *q, const struct gemm_args *args,
                       const struct gemm_maps *maps);
/* The same with tile `tile` of GEMM_TILES, whether or not it is fast. False: it does not make such
 * a product. And the name of a tile, "256 x 192, sliced, turned", until the next call. */
bool launch_gemm_tile(const struct queue *q, const struct gemm_args *args,
                      const struct gemm_maps *maps, int tile);
const char *gemm_tile_name(int tile);
/* The one that launch_gemm_wgmma takes. */
int gemm_tile_for(const struct queue *q, const struct gemm_args *args);

/* sm90/half.cu: up to CROWD_ROWS_MAX rows on Hopper (half_takes), weights in tiles, x in ACT_CORES.
 * Weights are rounded to fp16 (beyond 65504: infinite) and read once for 64 rows or 128. A row's
 * result has the same bits whatever the other rows and n_rows are, as long as the weights of the
 * call are the same. */
bool half_takes(const struct queue *q, const struct gemm_args *args);
/* Whether launch_half can make `hidden` of these, too: two weights of one form and size, or one of
 * at most 256 rows. */
bool half_gates(const struct queue *q, const struct gemm_args *args);
void launch_half(const struct queue *q, const struct gemm_args *args);

/* y[row][c] *= scale[row]: what a product by cuBLAS lacks (cublas.h). */
void launch_row_scale(const struct queue *q, float *y, const float *scale, int32_t n_rows,
                      int32_t cols);

/* w->mirror from w's planes or rows: `n` rows of matrix `expert` from first_row. */
void launch_mirror(const struct queue *q, const struct cuda_weight *w, int32_t expert,
                   int32_t first_row, int32_t n);

/* ---- bound.cu: how large products can be ----------------------------------------------------- */

/* For each row of each matrix of w, [n_expert][rows]: the norm of w[row] * by, or the sum of
 * |w[row] * by|, times `times`. */
struct row_size_args {
    struct cuda_weight w;
    const float *by;    /* [w.cols]; NULL: all ones */
    bool is_by_expert;  /* by is [n_expert][w.cols] */
    bool is_norm;       /* else the sum */
    const float *times; /* [n_expert][rows]; NULL: all ones */
    float *out;         /* [n_expert][rows], may be `times`; NULL: not wanted */
    uint32_t *most;     /* gets the bits of the largest, if that is more than it holds; NULL */
};
void launch_row_sizes(const struct queue *q, const struct row_size_args *args);

/* ---- moe.cu, with gemm_*: experts for many rows ---------------------------------------------- */

/* Pairs (row, place among the chosen) sorted by expert. All arrays are on the device. A tile is up
 * to EXPERT_TILE neighbouring pairs of one expert; tiles are numbered in the order of `pair`, each
 * expert's filled before the next begins. */
enum { EXPERT_TILE = 128, HALF_TILE = 160, HALF_WIDTH = 16 };
struct expert_tile {
    int32_t expert, first, n; /* places first .. first + n - 1 of `pair` */
    int32_t step;             /* places from one tile of the expert to the next, at least n */
};
struct expert_plan {
    int32_t *first;           /* [n_expert + 1]: of each expert's pairs in `pair` */
    int32_t *pair;            /* [n_rows * n_used]: row * n_used + place, rising within an expert */
    struct expert_tile *tile; /* [tiles_max], from a multiple of 16 bytes on */
    int32_t *n_tile;          /* [1] */
    bool is_even; /* tiles for launch_grouped_half: of up to HALF_TILE pairs, those of an expert
                        about as large as each other, and numbered from wide to narrow */
};
size_t expert_plan_bytes(int32_t n_rows, int32_t n_used, int32_t n_expert);
/* Cuts `memory` (expert_plan_bytes) into the arrays. */
struct expert_plan expert_plan_at(void *memory, int32_t n_rows, int32_t n_used, int32_t n_expert);
void launch_expert_sort(const struct queue *q, const struct expert_plan *plan, const int32_t *ids,
                        int32_t n_rows, int32_t n_used, int32_t n_expert);

/* One grouped product over all pairs. In: x has a row per token, pair p reads row p / n_used. Out:
 * x has a row per pair. y: [n_rows * n_used][w.rows] fp32, a row per pair, or `half` as in
 * gemm_args. */
struct grouped_args {
    int32_t n_rows, n_used;
    struct expert_plan plan;
    int32_t n_w;
    struct cuda_weight w[2];
    struct act x;
    bool is_row_a_pair;
    float *y[2];
    uint16_t *half; /* as in gemm_args; x.scale of the row read */
    int32_t half_cols;
};
void launch_grouped_i8(const struct queue *q, const struct grouped_args *args);
void launch_grouped_f16(const struct queue *q, const struct grouped_args *args);

/* sm90/half_experts.cu, on Hopper: the same from LAYOUT_TILES, x in ACT_STEPS, results in `half`
 * alone, plan.is_even. The bits are those of launch_grouped_f16 on mirrors, except that what is
 * beyond 65504 is infinite and forms with a minimum are rounded only once. */
void launch_grouped_half(const struct queue *q, const struct grouped_args *args);

/* y[t] = sum over s of shares[t][s] * x[t][s], s rising; x in fp32, or in fp16 times the scale of
 * its row. */
struct expert_sum_args {
    const float *x;       /* [n_rows * n_used][cols]; NULL: */
    const uint16_t *half; /* the same */
    const float *scale;   /* [n_rows * n_used], of `half` */
    const float *shares;  /* [n_rows][n_used] */
    float *y;             /* [n_rows][cols] */
    int32_t n_used, cols;
};
void launch_expert_sum(const struct queue *q, const struct expert_sum_args *args, int32_t n_rows);

/* ---- norm.cu: everything between products of whole rows */

/* With r(v) = v / sqrt(mean(v^2) + eps):
 *   s = a                          when w_a is NULL and `is_normed` is false
 *   s = r(a) * w_a                 otherwise (w_a NULL: all ones)
 *   s = s + r(b) * w_b             when b
 *   s = r(s) * w_s                 when w_s
 *   x' = (residual + s) * scale    (residual NULL: s * scale)
 * x_out gets x' (may be NULL); then for each out k: h = is_normed ? r(x') * w : x', to `y` in fp32
 * (may be NULL) and to `act` (kind ACT_NONE: not wanted). One block per row; a row's bits depend on
 * nothing but the row. */
enum { NORM_OUTS = 4 };
struct norm_args {
    struct step_view step;
    struct rows rows;
    int32_t cols;
    float eps;
    const float *a, *w_a;
    const uint16_t *a_half; /* instead of a: fp16 rows times a_scale[row]; cols % 4 == 0 */
    const float *a_scale;
    bool is_normed;
    const float *b, *w_b, *w_s;
    const float *residual;
    float scale;
    float *x_out;
    bool is_for_next; /* outs are read by the next window alone */
    int32_t n_outs;
    struct norm_out {
        bool is_normed;
        const float *w;
        float *y;
        struct act act;
    } out[NORM_OUTS];
};
void launch_norm(const struct queue *q, const struct norm_args *args);

/* sm90/matvec_normed.cu: launch_norm of one row, then launch_matvec of the row that it gives, in
 * one launch with the same bits. False: nothing was launched, because these do not belong together,
 * what the norm reads lies where either of them writes, or there is no such kernel. */
bool launch_matvec_normed(const struct queue *q, const struct norm_args *norm,
                          const struct matvec_args *args);

/* ---- rows.cu: one row at a time */

/* y[r] = scale * table[id[token of r]][first_col .. first_col + cols]. A table of any layout;
 * `table` may lie in pinned host memory (LAYOUT_FILE). */
struct embed_args {
    struct step_view step;
    struct rows rows;
    struct cuda_weight table;
    float scale;
    int32_t first_col, cols;
    float *y;
};
void launch_embed(const struct queue *q, const struct embed_args *args);

/* RMSNORM of each `group` values on their own. */
void launch_group_norm(const struct queue *q, struct step_view step, struct rows rows,
                       const float *x, const float *w, float *y, int32_t cols, int32_t group,
                       float eps);
/* Turns heads by position + ahead. */
void launch_rope(const struct queue *q, struct step_view step, struct rows rows, const float *x,
                 const float *inv_freq, float *y, int32_t cols, int32_t head_dim, int32_t ahead);
void launch_kv_write(const struct queue *q, struct step_view step, struct rows rows, const float *k,
                     const float *v, struct kv_cache cache);

/* Head norms, RoPE and the write of keys and values, in one: q_out = rope(norm(q) * w_q);
 * cache <- (rope(norm(k) * w_k), norm(v)). Without has_q or has_k these are left out. is_k_eq_v: v
 * is k (the raw projection). Inputs are fp32, or fp16 rows of `half_cols` columns times
 * half_scale[row] if `half` is not NULL (q, k, v then are its columns q_col, k_col, v_col). The row
 * class is the same for all. What is written equals launch_group_norm, launch_rope and
 * launch_kv_write one after another, bit for bit. */
struct heads_args {
    struct step_view step;
    struct rows rows;
    const float *q, *k, *v;
    const uint16_t *half;
    const float *half_scale;
    int32_t half_cols, q_col, k_col, v_col;
    bool has_q, has_k, is_k_eq_v;
    const float *w_q, *w_k, *inv_freq;
    float eps;
    int32_t n_heads;       /* of q */
    int32_t ahead;         /* added to positions for RoPE */
    float *q_out;          /* [rows][n_heads * head_dim] */
    struct kv_cache cache; /* head_dim is also q's; k, v NULL when !has_k */
};
void launch_heads(const struct queue *q, const struct heads_args *args);

void launch_add(const struct queue *q, struct step_view step, struct rows rows, const float *a,
                const float *b, float *y, int32_t cols);
void launch_scale(const struct queue *q, struct step_view step, struct rows rows, const float *x,
                  float value, float *y, int32_t cols);
/* y[t][j] = cap * tanh(x[t][j] / cap); y may be x. */
void launch_softcap(const struct queue *q, struct step_view step, struct rows rows, const float *x,
                    float cap, float *y, int32_t cols);
void launch_gather_rows(const struct queue *q, struct step_view step, const float *x, float *y,
                        int32_t cols, int32_t rows_max);

/* y[t] = (a[t], b[t]); y has `cols` columns, b has b_cols of them. */
struct concat_args {
    struct step_view step;
    struct rows rows;
    const float *a, *b;
    int32_t cols, b_cols;
    float *y;
};
void launch_concat(const struct queue *q, const struct concat_args *args);

/* gelu(a[t][j]) * b[t][second_col + j], to y (fp32, may be NULL) and act. a, b fp32, or fp16 halves
 * of `half` [rows][2 * cols] (gate, then up) times half_scale[row]. */
struct gelu_mul_args {
    struct step_view step;
    struct rows rows; /* max: half_div for each row of the step; above 1 all must be live */
    bool is_all_live;
    const float *a, *b;
    const float *a_scale; /* [rows]: of a's rows; NULL: all ones */
    const uint16_t *half;
    const float *half_scale; /* [rows]; of row r / half_div */
    int32_t half_div;
    int32_t cols, b_cols, second_col;
    float *y;
    struct act act;
};
void launch_gelu_mul(const struct queue *q, const struct gelu_mul_args *args);

/* Activations from fp32 rows. */
void launch_act(const struct queue *q, struct step_view step, struct rows rows, const float *x,
                int32_t cols, struct act act, bool is_all_live);

/* Per-layer embeddings: y[t] = (norm_g(in_scale * a[t] * a_scale[t]) * w + e_scale *
 * table[id[t]][first_col ..]) * out_scale, norm over each group. In one launch. */
struct ple_args {
    struct step_view step;
    struct rows rows;
    const float *a, *w;
    const float *a_scale; /* [rows], powers of two; NULL: all ones */
    float in_scale, eps, e_scale, out_scale;
    struct cuda_weight table;
    int32_t first_col, cols, group;
    float *y;
};
void launch_ple(const struct queue *q, const struct ple_args *args);

/* ---- route.cu: the choice of experts */

/* ids, shares = the n_used largest c of softmax(z[t]), c / sum(c) * scale[id]; ties to the lower
 * id; the sums in the reference's order. n_expert <= 1024. z [n_parts][rows.max][n_expert], whose
 * parts are added up in order. */
void launch_route(const struct queue *q, struct step_view step, struct rows rows, const float *z,
                  int32_t n_parts, const float *scale, int32_t *ids, float *shares,
                  int32_t n_expert, int32_t n_used);

/* The same for z[t] = w x[t], product and choice in one launch, with the bits of launch_matvec and
 * launch_route: for the routers of decode steps. */
enum { ROUTER_EXPERTS_MAX = 128, ROUTER_COUNTERS = 8 };
struct router_args {
    struct step_view step;
    struct rows rows;     /* up to MATVEC_ROWS_MAX */
    struct cuda_weight w; /* F32, LAYOUT_ROWS, up to ROUTER_EXPERTS_MAX rows, one matrix */
    const float *x;       /* [rows][w.cols] */
    float *z;             /* [rows][w.rows]: the logits; private to the launch, unless is_late */
    const float *scale;   /* [w.rows]; NULL: all ones */
    int32_t n_used;
    int32_t *ids;      /* [rows][n_used] */
    float *shares;     /* [rows][n_used] */
    uint32_t *arrived; /* [ROUTER_COUNTERS], 0 before and after; launches of a queue may share it */
    bool is_late;      /* z alone where choice_is_late: its reader makes the choice */
};
void launch_router(const struct queue *q, const struct router_args *args);

/* Whether the launches that multiply by experts also choose them (beside.h), for a few rows: logits
 * are there sooner than a choice. */
bool choice_is_late(const struct queue *q, int32_t rows, int32_t n_used);

/* sm90/router_normed.cu: launch_norm of up to eight rows, then launch_router of an `out` of it, in
 * one launch with the same bits; the choice is made late. False: nothing was launched, because
 * these do not belong together, what the norm reads lies where something is written, or there is no
 * such kernel. */
bool launch_router_normed(const struct queue *q, const struct norm_args *norm,
                          const struct router_args *args);

/* ---- router_many.cu: the product alone, for many rows, within the error of fp32 */

/* z[.][t]: parts whose sum is w x[t], one for each slice of the columns. router_n_parts says how
 * many there are, at most ROUTER_PARTS_MAX. */
enum { ROUTER_PARTS_MAX = 8 };
struct router_parts_args {
    struct step_view step;
    struct rows rows;
    struct cuda_weight w; /* as for launch_router, w.cols a multiple of 4 */
    const float *x;       /* [rows][w.cols] */
    float *z;             /* [parts][rows.max][w.rows] */
};
int32_t router_n_parts(int32_t cols);
void launch_router_parts(const struct queue *q, const struct router_parts_args *args);

/* ---- topk.cu */

/* For each live row of ROWS_OUT: its TOP_K largest logits, falling, ties to the lower id; pairs
 * {id, logit} to out [rows][TOP_K] (device or pinned host memory), NaN counting as the largest.
 * `scratch`: topk_scratch_bytes(rows). */
enum { TOP_K = 128 };
size_t topk_scratch_bytes(int32_t rows);
void launch_topk(const struct queue *q, struct step_view step, struct rows rows,
                 const float *logits, int32_t n_vocab, struct logit_pair *out, void *scratch);

/* The same for some rows, which are all live, and for those of their ids whose bits are set. The
 * others are left out, unless their logits are NaN or +infinity. Row row[i] has mask i of `masks`
 * (device memory, [n][(n_vocab + 63) / 64]). Pairs beyond the last id are {-1, -infinity}. logits
 * and out are [rows] as above; topk_scratch_bytes(n). */
enum { MASKED_ROWS_MAX = 64 };
struct masked_rows {
    int32_t n, row[MASKED_ROWS_MAX];
};
void launch_topk_masked(const struct queue *q, const struct masked_rows *rows,
                        const uint64_t *masks, const float *logits, int32_t n_vocab,
                        struct logit_pair *out, void *scratch);

/* ---- attention_decode.cu, attention_prefill.cu */

/* y[r, h] = sum_s softmax_s(q[r, h] . k[s, g(h)]) v[s, g(h)] over the keys of the row's sequence at
 * positions max(0, p - window + 1) .. p (window 0: from 0), scale 1. */
struct attention_args {
    struct step_view step;
    struct rows rows;
    const float *q; /* [rows][n_heads * head_dim], after norm and RoPE */
    struct kv_cache cache;
    int32_t n_heads, window;
    float *y;       /* fp32; NULL: not wanted */
    struct act act; /* the same for the next product; ACT_NONE: not wanted */
    void *scratch;  /* attention_decode_scratch_bytes */
    bool is_exact;  /* fp32 throughout */
    /* Row 0 is this row of the step. If step.is_packed is not NULL, rows of packs are read
     * together: only without a window, and output row r is token r for all decode rows. */
    int32_t first_row;
};

enum { HEAD_DIM_MAX = 512 };

/* Split over keys. Rows are independent: their bits depend on nothing but the row, its position and
 * its cache. Any format, any number of rows; heads of up to HEAD_DIM_MAX values, a multiple of
 * 8. */
size_t attention_decode_scratch_bytes(int32_t rows, int32_t n_heads, const struct kv_cache *cache);
void launch_attention_decode(const struct queue *q, const struct attention_args *args);

/* Tiles of rows against tiles of keys on tensor cores, for the rows that are in runs (types.h:
 * struct step_view): at most rows.max rows in at most n_runs runs. A row's bits depend on nothing
 * but the row, its position and its cache. Heads of 64, 128, 256 or 512 values.
 * attention_prefill_takes says whether it takes this shape; the split kernel takes the others. */
bool attention_prefill_takes(const struct attention_args *args);
void launch_attention_prefill(const struct queue *q, const struct attention_args *args,
                              int32_t n_runs);

/* sm90/attention_prompts.cu: what launch_attention_prefill passes on to wgmma. Gives false, and
 * nothing is launched, when the device is no Hopper, the cache is not fp16, heads are neither of
 * 256 nor of 512 without a window, or the driver cannot describe the cache to TMA. */
bool launch_attention_prompts(const struct queue *q, const struct attention_args *args,
                              int32_t n_runs);

/* ---- limits.cu */

/* Reads `bytes` once. Multiplies 8-bit or fp16 numbers (fp32 sums) in registers with mma.sync;
 * returns the operations of the launch. */
void launch_read_limit(const struct queue *q, const void *memory, size_t bytes, void *out);
double launch_int8_limit(const struct queue *q, void *out);
double launch_half_limit(const struct queue *q, void *out);

#ifdef __cplusplus
}
#endif

#endif
