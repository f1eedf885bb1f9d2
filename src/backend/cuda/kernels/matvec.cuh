/* What the products of few rows share (matvec.cu, experts.cu): a warp's sum over its part of the
 * columns, and what happens to finished sums.
 *
 * A warp takes two groups of 8 weight rows and a slice of the columns. Weights are the A operand of
 * mma.sync m16n8k32 and go straight from device memory to registers, DEPTH tiles of columns ahead;
 * activations are the B operand, 8 * NT rows, and come by cp.async through shared memory, KC tiles
 * of columns of every slice at a time, or the whole slices where they fit. With NC = 1 a product
 * has four rows at most, which take every other column of B: a lane then has one column of sums
 * instead of two. For every 32 columns (Q6_K: 16)
 *     acc = fma(d_w, d_x * (float)dot, acc), then fma(minus, d_x * sum of codes, acc)
 * in rising order; slices are added in rising order behind. Nothing of this depends on the other
 * rows or their number, so neither do a row's bits.
 *
 * FINE (types.h: ACT_FINE): dot = FINE_STEPS * (dot with the values) + (dot with their low plane),
 * which is exact in 32 bits. With NC = 1 the low plane takes the columns of B that are free and
 * costs no product; with NC = 2 it takes one of its own. */
#ifndef CUDA_MATVEC_CUH
#define CUDA_MATVEC_CUH

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/form.cuh"
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

enum { RG = 2, WARPS = 8 }; /* groups of a warp; warps of a block */

static inline int round_up(int n, int step)
{
    return (n + step - 1) / step * step;
}

/* Tiles of columns that a warp has under way, and tiles of columns in a stage of activations where
 * the whole slices do not fit, a multiple of the depth. */
__host__ __device__ constexpr int depth_of(int nt)
{
    return nt > 2 ? 2 : 4;
}
__host__ __device__ constexpr int stage_tiles(int nt)
{
    return nt > 2 ? 2 : 4;
}
/* From a row to the next in a stage: eight rows' 32 bytes, and their scales' 16, lie on banks of
 * their own. */
__host__ __device__ constexpr int value_step(int kc)
{
    return kc * 64 + 32;
}
__host__ __device__ constexpr int scale_step(int kc)
{
    return (kc | 1) * 16;
}

/* From the values of a slice in shared memory to their low plane, behind the scales, where rows of
 * both planes that are read at once lie on banks of their own. */
__host__ __device__ constexpr int low_step(int rows, int kc)
{
    return (rows * (value_step(kc) + scale_step(kc)) + 64 + 127) / 128 * 128 - 64;
}

/* Where a lane's share of a slice's first tile lies; tiles of a slice follow each other. As rows of
 * A a lane's values all belong to weight row lane / 4, whose scales lie beside its neighbour's. */
template <enum form F> struct tile_cursor {
    const uint8_t *quants, *high, *scale, *minus;
};

template <enum form F>
__device__ __forceinline__ tile_cursor<F> cursor_at(const struct cuda_weight &w, int64_t tile)
{
    int lane = threadIdx.x % 32;
    tile_cursor<F> c;
    c.quants = w.quants + tile * form_quant_bytes(F) + lane * (form_quant_bytes(F) / 32);
    c.scale = reinterpret_cast<const uint8_t *>(w.scale) + tile * form_scale_bytes(F) +
              lane / 8 * (form_scale_bytes(F) / 4);
    c.high = c.minus = nullptr;
    if (form_high_bits(F))
        c.high = w.high + tile * form_high_bytes(F) + lane * (form_high_bytes(F) / 32);
    if (form_has_minus(F))
        c.minus = reinterpret_cast<const uint8_t *>(w.minus) + tile * 32 + lane / 8 * 8;
    return c;
}

template <enum form F>
__device__ __forceinline__ void load_share(tile_share<F> &s, const tile_cursor<F> &c, int k)
{
    if constexpr (F == FORM_S8) {
        uint4 v = load_once4(c.quants + k * 512);
        s.q[0] = v.x, s.q[1] = v.y, s.q[2] = v.z, s.q[3] = v.w;
    } else {
        uint2 v = load_once2(c.quants + k * 256);
        s.q[0] = v.x, s.q[1] = v.y;
    }
    if constexpr (form_high_bits(F) == 1)
        s.high = __ldg(reinterpret_cast<const uint16_t *>(c.high + k * 64));
    if constexpr (form_high_bits(F) == 2)
        s.high = __ldg(reinterpret_cast<const uint32_t *>(c.high + k * 128));
    if constexpr (F == FORM_S6) {
        uint4 v = load_once4(c.scale + k * 64);
        s.scale[0] = v.x, s.scale[1] = v.y, s.scale[2] = v.z, s.scale[3] = v.w;
    } else {
        uint2 v = load_once2(c.scale + k * 32);
        s.scale[0] = v.x, s.scale[1] = v.y;
    }
    if constexpr (form_has_minus(F)) {
        uint2 v = load_once2(c.minus + k * 32);
        s.minus[0] = v.x, s.minus[1] = v.y;
    }
}

/* The half of a pair of scales that is this lane's. */
__device__ __forceinline__ float own_half(uint32_t pair)
{
    return __half2float(__ushort_as_half((uint16_t)(pair >> (threadIdx.x & 4) * 4)));
}

/* The dots of a block of 32 columns, or with FORM_S6 a half of it, of both groups: those of group g
 * at 2 g and 2 g + 1; or, IS_ONTO, on top of what is there. */
template <enum form F, bool IS_ONTO>
__device__ __forceinline__ void multiply_block(int dots[4], const uint32_t (&b)[RG][2][2],
                                               int block, int half, uint2 x)
{
    if constexpr (F == FORM_S6) {
        uint32_t x_half = half ? x.y : x.x;
        if (IS_ONTO)
            mma_i8_k16_add(dots, b[0][block][half], b[1][block][half], x_half);
        else
            mma_i8_k16_apart(dots, b[0][block][half], b[1][block][half], x_half);
    } else {
        uint32_t a[4] = {b[0][block][0], b[1][block][0], b[0][block][1], b[1][block][1]};
        if (IS_ONTO)
            mma_i8_k32_add(dots, a, x.x, x.y);
        else
            mma_i8_k32_apart(dots, a, x.x, x.y);
    }
}

/* What a lane reads of a stage: `values` at the row that it gives to B (FINE, NC = 1: odd columns
 * of B at that row's low plane), `scales` at its first row of sums, with {d, d sum, d, d sum} of
 * both blocks, `scales` + `next_scale` at its second; FINE, NC = 2: the low plane is `to_low`
 * behind `values`. */
struct operands {
    const uint8_t *values, *scales;
    int next_scale, to_low;

    __device__ __forceinline__ operands at(int n_tiles) const
    {
        return {values + n_tiles * 64, scales + n_tiles * 16, next_scale, to_low};
    }
};

/* One tile of columns. acc[n][g * NC + c] is a lane's sum for weight row lane / 4 of group g and
 * row 8 n + 2 t + c (NC = 1: row t). Beyond two n only those below n_n are wanted. */
template <enum form F, int NT, int NC, bool IS_FINE>
__device__ __forceinline__ void multiply(float (&acc)[NT][RG * NC],
                                         const tile_share<F> (&share)[RG], operands from, int n_n)
{
    constexpr int V = 8 * value_step(stage_tiles(NT)), D = 8 * scale_step(stage_tiles(NT));
    constexpr int HALVES = F == FORM_S6 ? 2 : 1;
    uint32_t b[RG][2][2];
#pragma unroll
    for (int g = 0; g < RG; g++) form_fragments<F>(share[g].q, share[g].high, b[g]);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        if (n == 2 && n >= n_n) break;
        float4 d[NC];
#pragma unroll
        for (int c = 0; c < NC; c++)
            d[c] = *reinterpret_cast<const float4 *>(from.scales + n * D + c * from.next_scale);
#pragma unroll
        for (int block = 0; block < 2; block++) {
            const uint8_t *values = from.values + n * V + block * 32;
            uint2 x = *reinterpret_cast<const uint2 *>(values), low = {};
            if (IS_FINE && NC == 2) low = *reinterpret_cast<const uint2 *>(values + from.to_low);
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                int dots[4];
                multiply_block<F, false>(dots, b, block, half, x);
                if (IS_FINE && NC == 2) {
#pragma unroll
                    for (int i = 0; i < 4; i++) dots[i] *= FINE_STEPS;
                    multiply_block<F, true>(dots, b, block, half, low);
                }
#pragma unroll
                for (int g = 0; g < RG; g++) {
                    float s = own_half(share[g].scale[block * HALVES + half]);
#pragma unroll
                    for (int c = 0; c < NC; c++) {
                        float dx = block ? d[c].z : d[c].x;
                        int dot = dots[g * 2 + c];
                        if (IS_FINE && NC == 1) dot = dot * FINE_STEPS + dots[g * 2 + 1];
                        acc[n][g * NC + c] =
                            __fmaf_rn(s, __fmul_rn(dx, (float)dot), acc[n][g * NC + c]);
                    }
                }
            }
            if constexpr (form_has_minus(F)) {
#pragma unroll
                for (int g = 0; g < RG; g++) {
                    float minus = own_half(share[g].minus[block]);
#pragma unroll
                    for (int c = 0; c < NC; c++)
                        acc[n][g * NC + c] =
                            __fmaf_rn(minus, block ? d[c].w : d[c].y, acc[n][g * NC + c]);
                }
            }
        }
    }
}

/* A warp's slice for one job: where its tiles lie, and how many there are. */
template <enum form F> struct slice {
    tile_cursor<F> at[RG];
    int length;
};

/* The first tiles of a slice, to be under way before they are needed. */
template <enum form F, int DEPTH>
__device__ __forceinline__ void start_slice(tile_share<F> (&share)[DEPTH][RG], const slice<F> &s)
{
#pragma unroll
    for (int j = 0; j < DEPTH; j++)
#pragma unroll
        for (int g = 0; g < RG; g++)
            if (j < s.length) load_share<F>(share[j][g], s.at[g], j);
}

template <enum form F> __device__ __forceinline__ void advance(slice<F> &s, int n)
{
#pragma unroll
    for (int g = 0; g < RG; g++) {
        s.at[g].quants += n * form_quant_bytes(F);
        s.at[g].scale += n * form_scale_bytes(F);
        if (form_high_bits(F)) s.at[g].high += n * form_high_bytes(F);
        if (form_has_minus(F)) s.at[g].minus += n * form_minus_bytes(F);
    }
    s.length -= n;
}

/* The next n tiles of a slice (a multiple of DEPTH, or all that are left), whose activations lie in
 * a stage; the slice advances. Where its tiles end those of the next are asked for; locate(&next)
 * is called only there, since holding two slices' addresses throughout takes too many registers. */
template <enum form F, int NT, int NC, bool IS_FINE, int DEPTH, typename Locate>
__device__ __forceinline__ void multiply_stage(float (&acc)[NT][RG * NC],
                                               tile_share<F> (&share)[DEPTH][RG], slice<F> &from,
                                               int n, operands x, int n_n, Locate locate)
{
    int i = 0;
    for (; i + DEPTH <= n && from.length >= 2 * DEPTH; i += DEPTH) {
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            multiply<F, NT, NC, IS_FINE>(acc, share[j], x.at(j), n_n);
#pragma unroll
            for (int g = 0; g < RG; g++) load_share<F>(share[j][g], from.at[g], DEPTH + j);
        }
        x = x.at(DEPTH);
        advance<F>(from, DEPTH);
    }
#pragma unroll 1
    for (; i < n && from.length > 0; i += DEPTH) {
        slice<F> next;
        locate(&next);
#pragma unroll
        for (int j = 0; j < DEPTH; j++) {
            if (j >= from.length) break;
            multiply<F, NT, NC, IS_FINE>(acc, share[j], x.at(j), n_n);
#pragma unroll
            for (int g = 0; g < RG; g++) {
                if (DEPTH + j < from.length)
                    load_share<F>(share[j][g], from.at[g], DEPTH + j);
                else if (j < next.length)
                    load_share<F>(share[j][g], next.at[g], j);
            }
        }
        x = x.at(DEPTH);
        advance<F>(from, DEPTH);
    }
}

/* ---- Finished sums ------------------------------------------------------------------------ */

__device__ __forceinline__ float gelu(float a)
{
    return 0.5f * a * (1.0f + tanhf(0.79788456080286536f * (a + 0.044715f * a * a * a)));
}

/* Partial sums of a block, by slice, output and row: eight outputs lie together, and the padding
 * behind the rows keeps neighbouring groups on other banks. */
struct partial_sums {
    float *at;
    int n_slices, slots, rows; /* slots: groups of eight outputs */

    __device__ __forceinline__ float *slot(int slice, int group) const
    {
        return at + (slice * slots + group) * (rows * 8 + 8);
    }
    __device__ __forceinline__ float total(int group, int j, int row) const
    {
        float sum = 0;
        for (int s = 0; s < n_slices; s++) sum += slot(s, group)[row * 8 + j];
        return sum;
    }
};
__host__ __device__ constexpr size_t partial_bytes(int n_slices, int slots, int rows)
{
    return (size_t)n_slices * (size_t)slots * (size_t)(rows * 8 + 8) * 4;
}

template <enum form F, int NT, int NC>
__device__ __forceinline__ void put_partial(const partial_sums &p, int slice, int group,
                                            const float (&acc)[NT][RG * NC])
{
    int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < RG * NC; i++) {
            int row = NC == 1 ? t : n * 8 + 2 * t + i % NC;
            if (row < p.rows)
                p.slot(slice, group + i / NC)[row * 8 + lane / 4] = acc[n][i] * form_unit(F);
        }
}

/* What the epilogues with GELU make of a block's sums: 32 columns of a row a warp. Local row r goes
 * to row_of(r); with `has_two` slots alternate between gate and up. */
struct gelu_epilogue {
    enum matvec_epilogue kind;
    const float *by;
    int32_t by_cols, second_col, cols;
    float *out;
    struct act act;
};

template <typename RowOf>
__device__ __forceinline__ void finish_gelu(const gelu_epilogue &e, const partial_sums &p,
                                            int first_col, int n_rows, RowOf row_of)
{
    bool has_two = e.kind == MATVEC_GELU_MUL;
    int blocks = p.slots * 8 / (has_two ? 64 : 32), lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < blocks * n_rows; i += blockDim.x / 32) {
        int row = i / blocks, o = i % blocks * 32 + lane, col = first_col + o;
        int64_t to = row_of(row);
        float v = 0;
        if (col < e.cols) {
            float a = p.total(has_two ? o / 8 * 2 : o / 8, o % 8, row);
            float b = has_two ? p.total(o / 8 * 2 + 1, o % 8, row)
                              : e.by[to * e.by_cols + e.second_col + col];
            v = gelu(a) * b;
            if (e.out) e.out[to * e.cols + col] = v;
        }
        if (is_in_blocks(e.act) && col - lane < e.act.stride) act_store_block(e.act, to, col, v);
    }
}

#endif
