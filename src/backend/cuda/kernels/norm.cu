/* Norms of whole rows with all that lies between two products: kernels.h, struct norm_args.
 *
 * One block a row; a thread holds QUADS quads of it (block.cuh) in registers, so that every input
 * is read once. A stage needs one sum over the row (a and b share theirs): one barrier each.
 *
 * For a few rows QUADS is 1, or 2 for more than 4096 columns: what counts is latency, and the
 * weight vectors are read before the wait for the previous kernel. For many rows QUADS is larger
 * and several rows are resident on a multiprocessor, one storing while another waits for its sum.
 * There norm_whole takes what models have. norm_kernel takes the rest, at half the speed: its
 * questions about each quad cost instructions and registers, which spill.
 *
 * Bound: bytes of a, b, residual read and of x_out and the outs written; one row: latency of one
 * read from L2 and two or three barriers. */
#include "backend/cuda/kernels/norm_row.cuh"

namespace {

template <int QUADS, int THREADS, int BLOCKS, bool HAS_B, int OUTS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    norm_kernel(const __grid_constant__ struct norm_args p)
{
    norm_row<QUADS, HAS_B, OUTS>(p);
}

template <int QUADS, int THREADS, int BLOCKS, int BLOCKS_WITH_B>
void norm_launch(const struct queue *q, const struct norm_args *args, int n_quads)
{
    unsigned threads = (unsigned)(((n_quads + QUADS - 1) / QUADS + WARP - 1) / WARP * WARP);
    dim3 grid((unsigned)args->rows.max);
    bool is_more = reads_early(QUADS) && args->n_outs > 1;
    constexpr int OUTS = reads_early(QUADS) ? (int)NORM_OUTS : 1;
    if (args->b)
        launch(q, norm_kernel<QUADS, THREADS, BLOCKS_WITH_B, true, 1>, grid, threads, 0, *args);
    else if (is_more)
        launch(q, norm_kernel<QUADS, THREADS, BLOCKS, false, OUTS>, grid, threads, 0, *args);
    else
        launch(q, norm_kernel<QUADS, THREADS, BLOCKS, false, 1>, grid, threads, 0, *args);
}

/* ---- Many whole rows ------------------------------------------------------------------------- */

/* The norms of prompts: columns are QUADS quads of each thread, all vectors are aligned and there,
 * outs are in fp32 or fp16. So a row's inputs are asked for at once and without questions, in
 * registers enough for many rows on a multiprocessor. The sums are those of norm_kernel. */
bool is_whole(const struct norm_args *p)
{
    bool is_right = p->w_a && p->residual && p->x_out && p->n_outs > 0 && (!p->b || p->w_b);
    for (int32_t k = 0; k < p->n_outs; k++) {
        const struct act &act = p->out[k].act;
        is_right = is_right && (act.kind == ACT_NONE || is_in_halves(act)) &&
                   (act.kind == ACT_NONE || act.stride == p->cols);
    }
    const void *const at[] = {p->a,        p->a_half,   p->w_a,      p->b,
                              p->w_b,      p->w_s,      p->residual, p->x_out,
                              p->out[0].w, p->out[0].y, p->out[1].w, p->out[1].y,
                              p->out[2].w, p->out[2].y, p->out[3].w, p->out[3].y};
    for (const void *vector : at)
        is_right = is_right && reinterpret_cast<uintptr_t>(vector) % 16 == 0;
    return is_right;
}

__device__ __forceinline__ float4 quad_at(const float *row, int v)
{
    return *reinterpret_cast<const float4 *>(row + col_of(v));
}

/* Turns s = a into the sum of the branches, with b and w_s if they are given. */
template <int QUADS>
__device__ __forceinline__ void whole_branches(const struct norm_args &p, float4 (&s)[QUADS],
                                               float (*shared)[QUADS * WARP])
{
    const int64_t at = (int64_t)blockIdx.x * p.cols;
    float part[QUADS][2], sum[2];
    float4 b[QUADS];
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        b[v] = p.b ? quad_at(p.b + at, v) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        part[v][0] = quad_squares(s[v]);
        part[v][1] = quad_squares(b[v]);
    }
    row_sums<QUADS, 2>(part, sum, shared);
    const float r_a = norm_factor(sum[0], p), r_b = norm_factor(sum[1], p);
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        s[v] = quad_normed(s[v], r_a, quad_at(p.w_a, v));
        if (p.b) s[v] = quad_add(s[v], quad_normed(b[v], r_b, quad_at(p.w_b, v)));
    }
    if (!p.w_s) return;
    const float r = norm_factor(row_squares<QUADS>(s, shared + 2), p);
#pragma unroll
    for (int v = 0; v < QUADS; v++) s[v] = quad_normed(s[v], r, quad_at(p.w_s, v));
}

/* Writes out k of x; x is then h. */
template <int QUADS>
__device__ __forceinline__ void whole_out(const struct norm_args &p, int k, bool is_live,
                                          float4 (&x)[QUADS], float r, uint32_t *shared)
{
    const struct norm_args::norm_out &out = p.out[k];
    const int64_t row = blockIdx.x;
    uint32_t most = 0;
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        if (out.is_normed)
            x[v] = quad_normed(x[v], r, out.w ? quad_at(out.w, v) : make_float4(1, 1, 1, 1));
        if (out.y && is_live) *reinterpret_cast<float4 *>(out.y + row * p.cols + col_of(v)) = x[v];
        most = max(most, quad_most(x[v]));
    }
    if (out.act.kind == ACT_NONE) return;
    float inverse, scale = act_half_scale(block_max(most, shared), &inverse);
    if (!is_live) return;
#pragma unroll
    for (int v = 0; v < QUADS; v++) act_store_half(out.act, row, col_of(v) / 4, x[v], inverse);
    if (threadIdx.x == 0) out.act.scale[row] = scale;
}

/* IS_USUAL: a is in fp16 and there is one out. */
template <int QUADS, int THREADS, int BLOCKS, bool IS_USUAL>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    norm_whole(const __grid_constant__ struct norm_args p)
{
    __shared__ float sums[4][QUADS * WARP];
    __shared__ uint32_t most[NORM_OUTS][WARP];
    grid_wait();
    grid_release();
    const bool is_live = (int)blockIdx.x < rows_live(p.rows, p.step);
    const int64_t at = (int64_t)blockIdx.x * p.cols;
    uint2 a[QUADS]; /* the usual s is made of it twice: fewer registers */
    float4 s[QUADS], x[QUADS];
    float a_scale = IS_USUAL || p.a_half ? p.a_scale[blockIdx.x] : 1.0f, r;
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        if (IS_USUAL || p.a_half)
            a[v] = *reinterpret_cast<const uint2 *>(p.a_half + at + col_of(v));
        else
            s[v] = quad_at(p.a + at, v);
#pragma unroll
    for (int v = 0; v < QUADS; v++) x[v] = quad_at(p.residual + at, v);
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        if (IS_USUAL || p.a_half) s[v] = half_quad(a[v], a_scale);
    if (IS_USUAL)
        r = norm_factor(row_squares<QUADS>(s, sums), p);
    else
        whole_branches<QUADS>(p, s, sums);
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        if (IS_USUAL) s[v] = quad_normed(half_quad(a[v], a_scale), r, quad_at(p.w_a, v));
        x[v] = quad_normed(quad_add(x[v], s[v]), p.scale, make_float4(1.0f, 1.0f, 1.0f, 1.0f));
        if (is_live) *reinterpret_cast<float4 *>(p.x_out + at + col_of(v)) = x[v];
    }
    bool is_normed = p.out[0].is_normed;
    for (int k = 1; !IS_USUAL && k < p.n_outs; k++) is_normed = is_normed || p.out[k].is_normed;
    r = is_normed ? norm_factor(row_squares<QUADS>(x, sums + 3), p) : 1.0f;
    for (int k = 0; k < (IS_USUAL ? 1 : p.n_outs); k++) {
#pragma unroll
        for (int v = 0; v < QUADS; v++) s[v] = x[v];
        whole_out<QUADS>(p, k, is_live, s, r, most[k]);
    }
}

/* Whether rows are QUADS quads of each of at most THREADS threads; launched then. BLOCKS_MORE:
 * blocks of a multiprocessor where there is more than usual. */
template <int QUADS, int THREADS, int BLOCKS, int BLOCKS_MORE>
bool launch_whole(const struct queue *q, const struct norm_args *args)
{
    unsigned threads = (unsigned)(args->cols / 4 / QUADS);
    dim3 grid((unsigned)args->rows.max);
    if (args->cols % (4 * QUADS * WARP) != 0 || threads > THREADS) return false;
    if (args->a_half && args->n_outs == 1 && !args->b && !args->w_s)
        launch(q, norm_whole<QUADS, THREADS, BLOCKS, true>, grid, threads, 0, *args);
    else
        launch(q, norm_whole<QUADS, THREADS, BLOCKS_MORE, false>, grid, threads, 0, *args);
    return true;
}

} // namespace

extern "C" void launch_norm(const struct queue *q, const struct norm_args *args)
{
    if (args->rows.max <= 0) return;
    int n_quads = (args->cols + TILE_COLS - 1) / TILE_COLS * (TILE_COLS / 4);
    bool is_few = args->rows.max <= q->n_sm;
    if (is_few && n_quads <= 1024)
        norm_launch<1, 1024, 1, 1>(q, args, n_quads);
    else if (is_few && n_quads <= 1536)
        norm_launch<2, 768, 1, 1>(q, args, n_quads);
    else if (is_whole(args) &&
             (launch_whole<4, 320, 4, 2>(q, args) || launch_whole<3, 448, 2, 2>(q, args) ||
              launch_whole<2, 384, 4, 3>(q, args)))
        return;
    else if (n_quads <= 1536)
        norm_launch<4, 384, 3, 2>(q, args, n_quads);
    else
        norm_launch<16, 1024, 1, 1>(q, args, n_quads);
}
