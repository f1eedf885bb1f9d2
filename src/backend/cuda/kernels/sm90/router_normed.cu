/* The logits of a router together with the norm that makes its row, for a few rows: one launch less
 * that everything waits for. The bits are those of norm.cu and route.cu.
 *
 * Block y = 0 of a row is launch_norm, for all who read its outs. The others make four logits each,
 * and for that the norm again: a warp has 256 columns, a lane eight neighbouring ones of them, as
 * in matvec_rows.cuh, so that nothing but two sums goes through shared memory. Router weights and
 * those of the norms are read before the wait.
 *
 * Bound: latency, of one read from L2 and three barriers. */
#include "backend/cuda/beside.h"
#include "backend/cuda/kernels/matvec_rows.cuh"
#include "backend/cuda/kernels/norm_row.cuh"

namespace {

enum { WARPS_MAX = 16, LANE_QUADS = 2, OUTS = QUAD };

struct router_row {
    struct cuda_weight w;
    float *z;
    const float *w_norm; /* of the norm's out that is the router's row */
};

/* A row's sum, of eight columns a lane: quads in the order of row_sums. */
__device__ __forceinline__ float sum_of_row(const float4 (&x)[LANE_QUADS], float (&shared)[WARP])
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n = blockDim.x / WARP * 2;
    float first = quad_squares(x[0]), second = quad_squares(x[1]);
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) { /* of the quads of half a warp */
        first = __fadd_rn(first, __shfl_xor_sync(~0u, first, mask));
        second = __fadd_rn(second, __shfl_xor_sync(~0u, second, mask));
    }
    if (lane % 16 == 0) shared[warp * 2 + lane / 16] = __fadd_rn(first, second);
    __syncthreads();
    return warp_sum(lane < n ? shared[lane] : 0.0f);
}

__device__ __forceinline__ void load_lane(const float *row, int col, int cols,
                                          float4 (&x)[LANE_QUADS])
{
#pragma unroll
    for (int v = 0; v < LANE_QUADS; v++)
        x[v] = row ? load_quad(row, col + 4 * v, cols) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

struct lane_weights {
    float4 a[LANE_QUADS], out[LANE_QUADS];
    packed8<float> rows[OUTS];
};

__device__ __forceinline__ struct lane_weights load_lane_weights(const struct norm_args &p,
                                                                 const struct router_row &r,
                                                                 int col, int first_out)
{
    struct lane_weights w;
    struct l2_policy policy = policy_of(gridDim.x == 1);
#pragma unroll
    for (int i = 0; i < OUTS; i++) {
        int64_t at = min(first_out + i, r.w.rows - 1);
        w.rows[i] = load_row8<float>(policy, r.w.quants + at * r.w.row_bytes, col, p.cols);
    }
#pragma unroll
    for (int v = 0; v < LANE_QUADS; v++) {
        w.a[v] = load_factors(p.w_a, col + 4 * v, p.cols);
        w.out[v] = load_factors(r.w_norm, col + 4 * v, p.cols);
    }
    return w;
}

/* The lane's columns of the normed row. */
__device__ __forceinline__ void norm_lane(const struct norm_args &p, const struct lane_weights &w,
                                          float4 (&s)[LANE_QUADS], float4 (&x)[LANE_QUADS])
{
    __shared__ float a_sums[WARP], x_sums[WARP];
    if (p.is_normed || p.w_a) {
        const float r = norm_factor(sum_of_row(s, a_sums), p);
#pragma unroll
        for (int v = 0; v < LANE_QUADS; v++) s[v] = quad_normed(s[v], r, w.a[v]);
    }
#pragma unroll
    for (int v = 0; v < LANE_QUADS; v++)
        x[v] = quad_normed(quad_add(x[v], s[v]), p.scale, make_float4(1.0f, 1.0f, 1.0f, 1.0f));
    const float r = norm_factor(sum_of_row(x, x_sums), p);
#pragma unroll
    for (int v = 0; v < LANE_QUADS; v++) x[v] = quad_normed(x[v], r, w.out[v]);
}

/* Adds up the lanes, and then the warps in rising order. */
__device__ __forceinline__ void store_logits(const struct router_row &r, int64_t row, int first_out,
                                             float (&acc)[OUTS])
{
    __shared__ float sums[OUTS][WARPS_MAX];
    const int n_warps = blockDim.x / WARP;
#pragma unroll
    for (int i = 0; i < OUTS; i++) {
        for (int d = 16; d > 0; d /= 2) acc[i] += __shfl_xor_sync(~0u, acc[i], d);
        if (threadIdx.x % WARP == 0) sums[i][threadIdx.x / WARP] = acc[i];
    }
    __syncthreads();
    int out = first_out + threadIdx.x;
    if (threadIdx.x >= OUTS || out >= r.w.rows) return;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < WARPS_MAX; k++) sum += k < n_warps ? sums[threadIdx.x][k] : 0.0f;
    r.z[row * r.w.rows + out] = sum;
}

__global__ void __launch_bounds__(WARPS_MAX *WARP)
    router_normed(const __grid_constant__ struct norm_args p,
                  const __grid_constant__ struct router_row r)
{
    if (blockIdx.y == 0) {
        norm_row<LANE_QUADS, false, NORM_OUTS>(p);
        return;
    }
    const int col = (int)threadIdx.x * 8, first_out = ((int)blockIdx.y - 1) * OUTS;
    const int64_t row = blockIdx.x, at = row * p.cols;
    struct lane_weights w = load_lane_weights(p, r, col, first_out);
    grid_wait();
    grid_release();
    float4 s[LANE_QUADS], x[LANE_QUADS];
    load_lane(p.a + at, col, p.cols, s);
    load_lane(p.residual ? p.residual + at : nullptr, col, p.cols, x);
    if (row >= rows_live(p.rows, p.step)) return;
    norm_lane(p, w, s, x);
    float acc[OUTS] = {};
#pragma unroll
    for (int i = 0; i < OUTS; i++) {
        float v[8];
        unpack8<float>(w.rows[i], v);
#pragma unroll
        for (int j = 0; j < LANE_QUADS; j++) {
            acc[i] = __fmaf_rn(v[4 * j], x[j].x, acc[i]);
            acc[i] = __fmaf_rn(v[4 * j + 1], x[j].y, acc[i]);
            acc[i] = __fmaf_rn(v[4 * j + 2], x[j].z, acc[i]);
            acc[i] = __fmaf_rn(v[4 * j + 3], x[j].w, acc[i]);
        }
    }
    store_logits(r, row, first_out, acc);
}

/* ---- Whether ------------------------------------------------------------------------------- */

/* All blocks read these rows, some of them while others write. */
bool is_only_read(const float *rows, const struct norm_args &n, const struct router_args &r)
{
    size_t n_rows = (size_t)n.rows.max, bytes = n_rows * (size_t)n.cols * sizeof(float);
    size_t z_bytes = n_rows * (size_t)r.w.rows * sizeof(float);
    bool is_right = are_apart(rows, bytes, n.x_out, bytes) && are_apart(rows, bytes, r.z, z_bytes);
    for (int32_t k = 0; k < n.n_outs; k++) {
        const struct act &act = n.out[k].act;
        size_t act_bytes = n_rows * (size_t)act.stride;
        is_right = is_right && are_apart(rows, bytes, n.out[k].y, bytes) &&
                   are_apart(rows, bytes, act.values, act_bytes * 2) &&
                   are_apart(rows, bytes, act.low, act_bytes) &&
                   are_apart(rows, bytes, act.scale, act_bytes / 4);
    }
    return is_right;
}

/* The norm's out that is the router's row; -1: none. */
int out_of(const struct norm_args &n, const float *x)
{
    for (int32_t k = 0; k < n.n_outs; k++)
        if (n.out[k].y == x && n.out[k].is_normed) return k;
    return -1;
}

bool takes(const struct queue *q, const struct norm_args &n, const struct router_args &r)
{
    bool is_plain = !n.a_half && !n.b && !n.w_s && n.cols % 8 == 0 && n.cols <= WARPS_MAX * STEP;
    return is_plain && r.is_late && n.rows.max > 0 && n.rows.max == r.rows.max &&
           r.w.cols == n.cols && choice_is_late(q, r.rows.max, r.n_used) &&
           is_only_read(n.a, n, r) && is_only_read(n.residual, n, r);
}

} // namespace

bool launch_router_normed(const struct queue *q, const struct norm_args *norm,
                          const struct router_args *args)
{
    int k = out_of(*norm, args->x);
    if (k < 0 || !takes(q, *norm, *args)) return false;
    struct router_row r = {args->w, args->z, norm->out[k].w};
    unsigned warps = (unsigned)(norm->cols + STEP - 1) / STEP;
    dim3 grid((unsigned)norm->rows.max, 1 + (unsigned)(args->w.rows + OUTS - 1) / OUTS);
    launch(q, router_normed, grid, warps * WARP, 0, *norm, r);
    return true;
}
