/* Per-layer inputs with the norms around them in one launch: half_inputs.h.
 *
 * What four launches cost here is not bytes but latency: each starts, reads rows and adds up. Here
 * a cluster of eight blocks has eight rows, a block an eighth of their columns. Before it waits for
 * the launch before, it makes fp16 operands of its share of both matrices, in registers for gate
 * and in shared memory for up; after the wait there are only rows to read.
 *
 * A block norms its columns of x, multiplies them, which are a slice of gate's columns, with all of
 * gate's outputs, and gives each block the sums of that block's 32 outputs. These are added up in
 * rising order. Gelu of them goes to all blocks, each of which makes up's outputs of its columns,
 * adds the residual and norms again. x as an operand has a scale for each row and block. */
#include "backend/cuda/kernels/sm90/half_inputs.h"

#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/sm90/half_inputs.cuh"
#include "backend/cuda/kernels/sm90/half_results.cuh"
#include "backend/cuda/kernels/sm90/tensor.cuh"
#include "backend/cuda/kernels/sm90/wgmma.cuh"

namespace {

/* ---- Norms ----------------------------------------------------------------------------------- */

/* A lane's columns of a row: quads from `quad` on of the block's, every 32nd up to `end`. Two warps
 * have a row. */
struct lane_columns {
    int row, half; /* of the cluster, and which warp of the row it is */
    int quad, end;
    int col; /* the block's first */

    __device__ __forceinline__ lane_columns(int rank, int tiles)
        : row(threadIdx.x / WARP % ROWS), half(threadIdx.x / WARP / ROWS),
          quad(half * tiles * (UNIT / 4 / HALVES) + threadIdx.x % WARP),
          end((half + 1) * tiles * (UNIT / 4 / HALVES)), col(rank * tiles * UNIT)
    {
    }
};

__device__ __forceinline__ int col_at(const lane_columns &c, int v)
{
    return c.col + (c.quad + v * WARP) * 4;
}

/* Columns of a vector; zeros after the lane's last one. */
__device__ __forceinline__ float4 vector_at(const lane_columns &c, int v, const float *w)
{
    if (c.quad + v * WARP >= c.end) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return w ? *reinterpret_cast<const float4 *>(w + col_at(c, v))
             : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
}

/* Sends a warp's part of a value of its row to all blocks. */
__device__ __forceinline__ void tell_part(const lane_columns &c, const row_parts &parts, int rank,
                                          float x)
{
    int lane = threadIdx.x % WARP;
    if (lane < RANKS)
        cluster_store(cluster_address(shared_address(&parts.of[c.row][rank][c.half]), lane), x);
}

__device__ __forceinline__ void tell_squares(const lane_columns &c, const row_parts &parts,
                                             int rank, const float4 (&x)[QUADS])
{
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < QUADS; v++) sum = __fadd_rn(sum, quad_squares(x[v]));
    tell_part(c, parts, rank, warp_sum(sum));
}

/* The factor of a row's norm. */
__device__ __forceinline__ float row_factor(const lane_columns &c, const row_parts &parts,
                                            const struct norm_args &norm)
{
    int lane = threadIdx.x % WARP;
    float sum = warp_sum(lane < RANKS * HALVES ? (&parts.of[c.row][0][0])[lane] : 0.0f);
    return norm_factor(sum, norm);
}

__device__ __forceinline__ void cluster_meet()
{
    cluster_arrive();
    cluster_wait();
}

/* x = (x + r(y) w) scale, as `norm` has it. */
__device__ __forceinline__ void add_normed(const lane_columns &c, const struct norm_args &norm,
                                           const row_parts &squares, int rank,
                                           const float4 (&y)[QUADS], float4 (&x)[QUADS])
{
    float4 w[QUADS];
#pragma unroll
    for (int v = 0; v < QUADS; v++) w[v] = vector_at(c, v, norm.w_a);
    tell_squares(c, squares, rank, y);
    cluster_meet();
    float r = row_factor(c, squares, norm);
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        x[v] = quad_scaled(quad_add(x[v], quad_normed(y[v], r, w[v])), norm.scale);
}

/* The rows that `before` reads: a and the residual. */
__device__ __forceinline__ void read_rows(const lane_columns &c, const struct norm_args &norm,
                                          int row, bool is_row, float4 (&a)[QUADS],
                                          float4 (&x)[QUADS])
{
    float scale = is_row ? norm.a_scale[row] : 0.0f;
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        bool is_there = is_row && c.quad + v * WARP < c.end;
        int64_t at = (int64_t)row * norm.cols + col_at(c, v);
        uint2 bits = make_uint2(0, 0);
        x[v] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (is_there) {
            bits = *reinterpret_cast<const uint2 *>(norm.a_half + at);
            x[v] = *reinterpret_cast<const float4 *>(norm.residual + at);
        }
        a[v] = half_quad(bits, scale);
    }
}

/* x as gate's operand, with a scale of the block. */
__device__ __forceinline__ void put_x(const lane_columns &c, uint8_t *memory, inputs_shared &s,
                                      const float4 (&x)[QUADS])
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t most = 0;
#pragma unroll
    for (int v = 0; v < QUADS; v++) most = max(most, quad_most(x[v]));
    most = warp_max(most);
    if (lane == 0) s.x_most[warp] = most;
    __syncthreads();
    most = max(s.x_most[c.row], s.x_most[c.row + ROWS]);
    float inverse, scale = act_half_scale(most, &inverse);
    if (lane == 0) s.x_scale[c.row] = scale;
#pragma unroll
    for (int v = 0; v < QUADS; v++)
        if (c.quad + v * WARP < c.end)
            put_operand(memory + X_AT, c.row, c.quad + v * WARP, x[v], inverse);
}

/* ---- Products -------------------------------------------------------------------------------- */

/* Gate's sums over the block's columns, each to the block that adds it up. */
__device__ __forceinline__ void multiply_gate(const uint32_t (&a)[TILES][16], uint32_t shared,
                                              const inputs_shared &s, int rank)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint64_t x = core_descriptor(shared + X_AT, CORE_BYTES, EIGHT_BYTES);
    float acc[4] = {};
    wgmma_fence();
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            wgmma<ROWS>::add(acc, a[t] + 4 * i, x + ((t * EIGHT_BYTES + i * STEP_BYTES) >> 4));
    wgmma_commit();
    wgmma_wait<0>();
    int row = lane % 4 * 2, col = warp % 2 * 16 + lane / 4;
    uint32_t to = cluster_address(shared + PARTS_AT, warp * 16 / SHARE_ROWS) +
                  ((rank * ROWS + row) * SHARE_ROWS + col) * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        cluster_store(to + (i % 2 * SHARE_ROWS + i / 2 * TILE_ROWS) * 4,
                      __fmul_rn(acc[i], s.x_scale[row + i % 2]));
}

/* Gelu of the block's outputs of gate, to all blocks. */
__device__ __forceinline__ void tell_gated(const uint8_t *memory, uint32_t shared, int rank,
                                           int gate_rows, float4 by)
{
    int row = threadIdx.x / 8, col = rank * SHARE_ROWS + threadIdx.x % 8 * 4;
    const float4 *parts = reinterpret_cast<const float4 *>(memory + PARTS_AT) + threadIdx.x;
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < RANKS; i++) sum = quad_add(sum, parts[i * (ROWS * SHARE_ROWS / 4)]);
    float4 v = quad_within(quad_gelu_mul(sum, by), gate_rows - col);
    uint32_t to = shared + GATED_AT + (row * GATE_ROWS + col) * 4;
#pragma unroll
    for (int i = 0; i < RANKS; i++) cluster_store4(cluster_address(to, i), v);
}

/* The gated rows as up's operand. */
__device__ __forceinline__ void put_hidden(const lane_columns &c, uint8_t *memory, inputs_shared &s)
{
    int lane = threadIdx.x % WARP;
    const float4 *from =
        reinterpret_cast<const float4 *>(memory + GATED_AT) + c.row * GATE_ROWS / 4;
    float4 v[2] = {from[lane], from[lane + WARP]};
    float inverse,
        scale = act_half_scale(warp_max(max(quad_most(v[0]), quad_most(v[1]))), &inverse);
    put_operand(memory + HIDDEN_AT, c.row, lane + c.half * WARP, c.half ? v[1] : v[0], inverse);
    if (lane == 0) s.hidden_scale[c.row] = scale;
}

/* The block's outputs of up. */
__device__ __forceinline__ void multiply_up(uint8_t *memory, uint32_t shared, int tiles)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint64_t hidden = core_descriptor(shared + HIDDEN_AT, CORE_BYTES, EIGHT_BYTES);
    for (int unit = warp / TEAM_WARPS; unit < tiles; unit += TEAMS) {
        uint64_t w =
            core_descriptor(shared + UP_AT + unit * UP_TILES * UNIT_BYTES, CORE_BYTES, EIGHT_BYTES);
        float acc[4] = {};
        wgmma_fence();
#pragma unroll
        for (int t = 0; t < UP_TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                wgmma_shared<ROWS>::add(acc, w + ((t * UNIT_BYTES + i * STEP_BYTES) >> 4),
                                        hidden + ((t * EIGHT_BYTES + i * STEP_BYTES) >> 4), 1);
        wgmma_commit();
        wgmma_wait<0>();
        float *to = reinterpret_cast<float *>(memory + Y_AT) + lane % 4 * 2 * Y_STEP + unit * UNIT +
                    warp % TEAM_WARPS * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < 4; i++) to[i % 2 * Y_STEP + i / 2 * TILE_ROWS] = acc[i];
    }
}

/* ---- The kernel ------------------------------------------------------------------------------ */

/* Zeros for the tiles of x that the block does not have. */
__device__ __forceinline__ void clear_tiles(uint8_t *memory, int tiles)
{
    uint4 *x = reinterpret_cast<uint4 *>(memory + X_AT);
    for (int i = tiles * (EIGHT_BYTES / 16) + threadIdx.x; i < TILES * EIGHT_BYTES / 16;
         i += WARPS * WARP)
        x[i] = make_uint4(0, 0, 0, 0);
}

/* Up's outputs of the lane's columns. */
__device__ __forceinline__ void take_up(const lane_columns &c, const uint8_t *memory,
                                        const inputs_shared &s, float4 (&y)[QUADS])
{
    const float *from = reinterpret_cast<const float *>(memory + Y_AT) + c.row * Y_STEP;
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        int quad = c.quad + v * WARP;
        y[v] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (quad < c.end)
            y[v] = quad_scaled(*reinterpret_cast<const float4 *>(from + quad * 4),
                               s.hidden_scale[c.row]);
    }
}

/* Writes x and the out made from it. The largest |value| of the out, which only its scale needs, is
 * exchanged before the row's factor is known. */
__device__ __forceinline__ void put_rows(const lane_columns &c, const struct norm_args &norm,
                                         inputs_shared &s, int rank, int row, bool is_row,
                                         const float4 (&x)[QUADS])
{
    const struct norm_args::norm_out &out = norm.out[0];
    int lane = threadIdx.x % WARP;
    float4 w[QUADS];
    uint32_t most = 0;
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        w[v] = vector_at(c, v, out.w);
        most = max(most, quad_most(quad_normed(x[v], 1.0f, w[v])));
        if (is_row && norm.x_out && c.quad + v * WARP < c.end)
            store_quad(norm.x_out + (int64_t)row * norm.cols, col_at(c, v), norm.cols, x[v]);
    }
    tell_squares(c, s.squares[2], rank, x);
    tell_part(c, s.most, rank, __uint_as_float(warp_max(most)));
    cluster_meet();
    float r = row_factor(c, s.squares[2], norm);
    uint32_t part = lane < RANKS * HALVES ? __float_as_uint((&s.most.of[c.row][0][0])[lane]) : 0;
    float inverse, largest = __uint_as_float(warp_max(part)) * r;
    float scale = act_half_scale(__float_as_uint(largest) & 0x7fffffff, &inverse);
    if (!is_row) return;
    if (rank == 0 && c.half == 0 && lane == 0) out.act.scale[row] = scale;
#pragma unroll
    for (int v = 0; v < QUADS; v++) {
        if (c.quad + v * WARP >= c.end) continue;
        float4 h = quad_normed(x[v], r, w[v]);
        act_store_half(out.act, row, col_at(c, v) / 4, h, inverse);
        if (out.y) store_quad(out.y + (int64_t)row * norm.cols, col_at(c, v), norm.cols, h);
    }
}

template <enum form F>
__global__ void __launch_bounds__(WARPS *WARP, 1)
    half_inputs_kernel(const __grid_constant__ struct half_inputs_args p)
{
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ struct inputs_shared s;
    uint32_t shared = shared_address(memory), a[TILES][16];
    int rank = (int)cluster_rank(), tiles = p.gate.n_ktiles / RANKS;
    lane_columns c(rank, tiles);
    int first = blockIdx.x / RANKS * ROWS, row = first + c.row, by_row = first + threadIdx.x / 8;
    float4 y[QUADS], x[QUADS], by = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    cluster_arrive(); /* nobody writes into a block that is not there yet */
    make_up<F>(p.up, memory, rank, tiles);
    make_gate<F>(p.gate, rank, tiles, a);
    clear_tiles(memory, tiles);
    grid_wait();
    grid_release();
    read_rows(c, p.before, row, row < p.n_rows, y, x);
    if (threadIdx.x < ROWS * 8 && by_row < p.n_rows)
        by = load_quad(p.by + (int64_t)by_row * p.by_cols, rank * SHARE_ROWS + threadIdx.x % 8 * 4,
                       p.gate.rows);
    cluster_wait();
    add_normed(c, p.before, s.squares[0], rank, y, x);
    put_x(c, memory, s, x);
    operands_ready();
    multiply_gate(a, shared, s, rank);
    cluster_meet();
    if (threadIdx.x < ROWS * 8) tell_gated(memory, shared, rank, p.gate.rows, by);
    cluster_meet();
    put_hidden(c, memory, s);
    operands_ready();
    multiply_up(memory, shared, tiles);
    __syncthreads();
    take_up(c, memory, s, y);
    add_normed(c, p.after, s.squares[1], rank, y, x);
    put_rows(c, p.after, s, rank, row, row < p.n_rows, x);
}

template <enum form F>
void inputs_launch(const struct queue *q, const struct half_inputs_args *args)
{
    unsigned clusters = (unsigned)((args->n_rows + ROWS - 1) / ROWS);
    launch(q, half_inputs_kernel<F>,
           launch_shape{dim3(clusters * RANKS), WARPS * WARP, BYTES, RANKS}, *args);
}

bool is_of_tiles(const struct cuda_weight &w)
{
    return w.layout == LAYOUT_TILES && w.n_expert == 1;
}

} // namespace

bool half_inputs_takes(const struct queue *q, const struct half_inputs_args *args)
{
    const struct cuda_weight &gate = args->gate, &up = args->up;
    const struct norm_args &before = args->before, &after = args->after;
    int cols = gate.cols;
    bool are_norms = before.is_normed && before.n_outs == 1 && !before.out[0].is_normed &&
                     before.out[0].act.kind == ACT_CORES && after.is_normed && after.n_outs == 1 &&
                     after.out[0].is_normed && after.out[0].act.kind == ACT_CORES;
    return q->capability == 90 && are_norms && is_of_tiles(gate) && is_of_tiles(up) &&
           form_of(gate.format) == form_of(up.format) && args->n_rows > 0 &&
           args->n_rows <= MATVEC_ROWS_MAX && cols % (RANKS * UNIT) == 0 &&
           cols <= RANKS * TILES * UNIT && up.rows == cols && gate.rows <= GATE_ROWS &&
           up.cols == gate.rows;
}

void launch_half_inputs(const struct queue *q, const struct half_inputs_args *args)
{
    switch (form_of(args->gate.format)) {
#define X(F)                                                                                       \
    case F: inputs_launch<F>(q, args); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}
