/* A tile of y = x w^T with 8-bit activations: 64 rows of x times 128 rows of w, by 128 threads.
 *
 *     y[t][r] = sum over blocks b of 32 columns: dx[t][b] * dw[r][b] * (q_x[t][b] . q_w[r][b])
 *               (+ minus[r][b] * dx[t][b] * sum(q_x[t][b]))
 *
 * Dots are exact in int32 (mma.sync m16n8k32; k16 where a scale covers 16 columns), the sum over
 * blocks is fp32 in rising order: a result depends on its row of x and its row of w only.
 *
 * Layout. Activations are the A operand, tiles of weights (types.h) the B operand; both lie in
 * memory as lanes want them, so that a lane's share is one 8- or 16-byte load from shared memory
 * without ldmatrix. A step covers 64 columns; one or two more are being copied by cp.async. In
 * shared memory the two blocks of a row of activations change places in every other pair of rows,
 * which spreads the 8-byte loads of a half-warp over all banks.
 *
 * Bound. Not the tensor cores but what follows: each mma leaves four sums a lane that cost an I2F,
 * a multiplication (dx * dw) and an FMA each: 12 issue slots, of about 20 an mma in all. On an H200
 * this mix issues in 75 to 78 % of the cycles whether 4 or 6 warps share a scheduler, so what
 * counts is the number of instructions: warps take 32 x 64 each, and with three blocks a
 * multiprocessor 168 registers a thread leave the compiler room not to move operands about (with
 * 128 it added two moves an mma). */
#ifndef CUDA_GEMM_I8_CUH
#define CUDA_GEMM_I8_CUH

#include "backend/cuda/kernels/gemm_i8_copies.cuh"

/* acc += c * dx * dw for rows g, g + 8 (dx) and columns 2t, 2t + 1 (dw). */
__device__ __forceinline__ void scale_add(float acc[4], const int c[4], float dx0, float dx1,
                                          float2 dw)
{
    acc[0] = fmaf((float)c[0], dx0 * dw.x, acc[0]);
    acc[1] = fmaf((float)c[1], dx0 * dw.y, acc[1]);
    acc[2] = fmaf((float)c[2], dx1 * dw.x, acc[2]);
    acc[3] = fmaf((float)c[3], dx1 * dw.y, acc[3]);
}

/* Rows g and g + 8 of 16 as an A operand. An mma wants four neighbouring registers, of which a load
 * gives the first and third or the second and fourth; left alone, the compiler moves them before
 * every mma (four moves each). XOR with a zero that the compiler does not know pins each operand in
 * its register. */
__device__ __forceinline__ void gemm_i8_take_rows(const gemm_product &p, const char *x,
                                                  uint32_t a[4])
{
    uint2 low = *reinterpret_cast<const uint2 *>(x);
    uint2 high = *reinterpret_cast<const uint2 *>(x + 512);
    a[0] = low.x ^ p.zero, a[1] = high.x ^ p.zero;
    a[2] = low.y ^ p.zero, a[3] = high.y ^ p.zero;
}

/* A lane's codes of a tile, and scales and minima of the two weight rows whose sums it has; with
 * factors their words, as in a share of each row (form.cuh). */
template <enum form F> struct gemm_weights {
    uint32_t q[form_words(F)], high;
    float2 scale[form_scales(F)], minus[2];
    uint32_t words[2][2];
};

/* Two halves of each row, as what both rows have of each. */
__device__ __forceinline__ void take_halves(uint32_t first, uint32_t second, float2 of[2])
{
    float2 a = half2_at(first), b = half2_at(second);
    of[0] = make_float2(a.x, b.x), of[1] = make_float2(a.y, b.y);
}

/* What blocks `begin` .. begin + AT_ONCE - 1 need of it; other codes are undefined. */
template <class Shape>
__device__ __forceinline__ void gemm_i8_take_share(const char *stage, int group, int lane,
                                                   int begin, gemm_weights<Shape::FORM> *w)
{
    constexpr enum form F = Shape::FORM;
    const char *quants = stage + Shape::QUANTS_AT + (group * 32 + lane) * (4 * Shape::WORDS);
    if constexpr (Shape::WORDS == 4) {
        uint2 v = *reinterpret_cast<const uint2 *>(quants + begin * 8);
        w->q[2 * begin] = v.x, w->q[2 * begin + 1] = v.y;
    } else if constexpr (Shape::WORDS == 1) {
        w->q[0] = *reinterpret_cast<const uint32_t *>(quants);
    } else {
        uint2 v = *reinterpret_cast<const uint2 *>(quants);
        w->q[0] = v.x, w->q[1] = v.y;
    }
    const char *high = stage + Shape::HIGH_AT + group * form_high_bytes(F);
    w->high = 0;
    if (form_high_bits(F) == 1) w->high = reinterpret_cast<const uint16_t *>(high)[lane];
    if (form_high_bits(F) == 2) w->high = reinterpret_cast<const uint32_t *>(high)[lane];
    const char *scale = stage + Shape::SCALE_AT + group * form_scale_bytes(F);
    if constexpr (form_scales(F) == 4) {
        uint4 v = reinterpret_cast<const uint4 *>(scale)[lane % 4];
        w->words[0][0] = v.x, w->words[0][1] = v.y, w->words[1][0] = v.z, w->words[1][1] = v.w;
        take_halves(v.x, v.z, w->scale);
        take_halves(v.y, v.w, w->scale + 2);
    } else {
        uint2 v = reinterpret_cast<const uint2 *>(scale)[lane % 4];
        take_halves(v.x, v.y, w->scale);
    }
    if constexpr (form_minus_bytes(F) != 0) {
        const char *minus = stage + Shape::MINUS_AT + group * form_minus_bytes(F);
        uint2 v = reinterpret_cast<const uint2 *>(minus)[lane % 4];
        take_halves(v.x, v.y, w->minus);
    }
}

/* What a row of x has for a block: its scale, and this times its sum, or with factors the sums of
 * both halves' codes. */
struct gemm_row {
    float d, sum;
    int halves[2];
};

template <enum form F>
__device__ __forceinline__ void gemm_i8_take_sums(const char *x_scale, const uint32_t a[4],
                                                  gemm_row rows[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 both = *reinterpret_cast<const float2 *>(x_scale + i * 128);
        rows[i].d = both.x, rows[i].sum = both.y;
    }
    if constexpr (form_has_factors(F)) {
#pragma unroll
        for (int half = 0; half < 2; half++) { /* sums are dots by ones */
            int c[4];
            mma_i8_k16(c, a[2 * half], a[2 * half + 1], 0x01010101u);
            rows[0].halves[half] = c[0];
            rows[1].halves[half] = c[2];
        }
    }
}

/* A block with factors: what they multiply is added in integers. */
template <enum form F>
__device__ __forceinline__ void gemm_i8_add_factored(float sum[4], const uint32_t a[4],
                                                     const uint32_t b[2], const gemm_row x[2],
                                                     const gemm_weights<F> &w, int block)
{
    int first[4], second[4], dots[4], sums[4];
    mma_i8_k16(first, a[0], a[1], b[0]);
    mma_i8_k16(second, a[2], a[3], b[1]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t factors = w.words[i % 2][FACTORS];
        dots[i] = factored<true>(factors & 0x0f0f0f0fu, block, first[i], second[i]);
        sums[i] = factored<true>(factors >> 4 & 0x0f0f0f0fu, block, x[i / 2].halves[0],
                                 x[i / 2].halves[1]);
    }
    float2 units[2]; /* d, then -dmin */
    take_halves(w.words[0][UNITS], w.words[1][UNITS], units);
    scale_add(sum, dots, x[0].d, x[1].d, units[0]);
    scale_add(sum, sums, x[0].d, x[1].d, units[1]);
}

template <enum form F>
__device__ __forceinline__ void gemm_i8_add_block(float sum[4], const uint32_t a[4],
                                                  const uint32_t b[2], const gemm_row x[2],
                                                  const gemm_weights<F> &w, int block)
{
    int c[4];
    if constexpr (form_has_factors(F)) {
        gemm_i8_add_factored<F>(sum, a, b, x, w, block);
        return;
    } else if constexpr (form_scales(F) == 4) {
        mma_i8_k16(c, a[0], a[1], b[0]);
        scale_add(sum, c, x[0].d, x[1].d, w.scale[2 * block]);
        mma_i8_k16(c, a[2], a[3], b[1]);
        scale_add(sum, c, x[0].d, x[1].d, w.scale[2 * block + 1]);
    } else {
        mma_i8_k32(c, a, b[0], b[1]);
        scale_add(sum, c, x[0].d, x[1].d, w.scale[block]);
    }
    if constexpr (form_minus_bytes(F) != 0) {
        float2 minus = w.minus[block];
        sum[0] = fmaf(x[0].sum, minus.x, sum[0]);
        sum[1] = fmaf(x[0].sum, minus.y, sum[1]);
        sum[2] = fmaf(x[1].sum, minus.x, sum[2]);
        sum[3] = fmaf(x[1].sum, minus.y, sum[3]);
    }
}

/* 64 columns of all this warp's sums. 8-bit weights, which take most registers, are taken one block
 * of 32 columns after the other. */
template <class Shape>
__device__ __forceinline__ void gemm_i8_step(gemm_i8_tile<Shape> &tile, const char *stage)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int row = warp % Shape::ROW_WARPS * (Shape::ROW_TILES * 16) + g,
        group = warp / Shape::ROW_WARPS * Shape::COLUMN_TILES;
    const char *x = stage + row * TILE_COLS + t * 8;
    const char *x_scale = stage + Shape::X_SCALE_AT + row * 16;
#pragma unroll
    for (int begin = 0; begin < 2; begin += Shape::AT_ONCE) {
        uint32_t a[2][Shape::ROW_TILES][4];
        gemm_row dx[2][Shape::ROW_TILES][2];
#pragma unroll
        for (int block = begin; block < begin + Shape::AT_ONCE; block++)
#pragma unroll
            for (int m = 0; m < Shape::ROW_TILES; m++) {
                gemm_i8_take_rows(tile.p, x + m * 1024 + ((g & 2) * 16 ^ block * 32), a[block][m]);
                gemm_i8_take_sums<Shape::FORM>(x_scale + m * 256 + block * 8, a[block][m],
                                               dx[block][m]);
            }
#pragma unroll
        for (int n = 0; n < Shape::COLUMN_TILES; n++) {
            gemm_weights<Shape::FORM> w;
            gemm_i8_take_share<Shape>(stage, group + n, lane, begin, &w);
            uint32_t b[2][2];
            form_fragments<Shape::FORM>(w.q, w.high, b);
#pragma unroll
            for (int m = 0; m < Shape::ROW_TILES; m++)
#pragma unroll
                for (int block = begin; block < begin + Shape::AT_ONCE; block++)
                    gemm_i8_add_block<Shape::FORM>(tile.acc[m][n], a[block][m], b[block],
                                                   dx[block][m], w, block);
        }
    }
}

/* Everything but the store. `out_row` [Shape::ROWS] gets the row of y that each row goes to, -1:
 * none. Copying weights begins before grid_wait, which is called here unless it was before. */
template <class Shape>
__device__ __forceinline__ void gemm_i8_sum_up(gemm_i8_tile<Shape> &tile, int32_t *out_row,
                                               bool has_waited)
{
    tile.find_weights();
    for (int s = 0; s < tile.p.n_stages - 1 && s < tile.p.n_ktiles; s++) {
        tile.copy_weights(tile.shared + s * Shape::STAGE_BYTES);
        tile.copy_small(tile.shared + s * Shape::STAGE_BYTES, false, true);
    }
    if (!has_waited) {
        grid_wait();
        grid_release();
    }
    tile.find_rows();
    for (int i = threadIdx.x; i < Shape::ROWS; i += GEMM_THREADS) {
        int at = tile.share.row_begin + i;
        out_row[i] = i >= tile.share.n_rows ? -1 : tile.p.pair ? tile.p.pair[at] : at;
    }
    for (int s = 0; s < tile.p.n_stages - 1; s++) {
        if (s < tile.p.n_ktiles) {
            tile.copy_rows(tile.shared + s * Shape::STAGE_BYTES);
            tile.copy_small(tile.shared + s * Shape::STAGE_BYTES, true, false);
        }
        copies_commit();
    }
#pragma unroll
    for (int i = 0; i < Shape::ROW_TILES * Shape::COLUMN_TILES * 4; i++)
        tile.acc[i / (Shape::COLUMN_TILES * 4)][i / 4 % Shape::COLUMN_TILES][i % 4] = 0.0f;
    bool has_columns =
        threadIdx.x / 32 / Shape::ROW_WARPS * Shape::COLUMN_TILES < tile.share.n_groups;
    int last = (tile.p.n_stages - 1) * Shape::STAGE_BYTES, now = 0, next = last;
    for (int k = 0; k < tile.p.n_ktiles; k++) {
        if (tile.p.n_stages == 2)
            copies_wait<0>();
        else
            copies_wait<1>();
        __syncthreads();
        if (k + tile.p.n_stages - 1 < tile.p.n_ktiles) {
            tile.copy_weights(tile.shared + next);
            tile.copy_rows(tile.shared + next);
            tile.copy_small(tile.shared + next, true, true);
        }
        copies_commit();
        if (has_columns) gemm_i8_step<Shape>(tile, tile.stages + now);
        next = now;
        now = now == last ? 0 : now + Shape::STAGE_BYTES;
    }
}

/* Columns col, col + 1 of a part. */
__device__ __forceinline__ void gemm_i8_store_two(const gemm_product &p, const gemm_part &part,
                                                  int row, int col, float v0, float v1)
{
    if (p.half) {
        uint16_t *to = p.half + (int64_t)row * p.half_cols + part.half_column + col;
        if (p.is_even) {
            uint32_t two = half_saturated(v0) | (uint32_t)half_saturated(v1) << 16;
            *reinterpret_cast<uint32_t *>(to) = two;
        } else {
            to[0] = half_saturated(v0);
            if (col + 1 < part.rows) to[1] = half_saturated(v1);
        }
    } else {
        float *to = part.y + (int64_t)row * part.rows + col;
        if (p.is_even) {
            *reinterpret_cast<float2 *>(to) = make_float2(v0, v1);
        } else {
            to[0] = v0;
            if (col + 1 < part.rows) to[1] = v1;
        }
    }
}

template <class Shape>
__device__ __forceinline__ void gemm_i8_store(const gemm_i8_tile<Shape> &tile,
                                              const int32_t *out_row)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int row = warp % Shape::ROW_WARPS * (Shape::ROW_TILES * 16) + g,
        first = warp / Shape::ROW_WARPS * Shape::COLUMN_TILES;
    constexpr float unit = form_unit(Shape::FORM);
    gemm_share own; /* made again: kept, it takes registers in the loop */
    take_columns(tile.p, tile.p.pair ? blockIdx.x : blockIdx.y, &own);
#pragma unroll
    for (int n = 0; n < Shape::COLUMN_TILES; n++) {
        int col = (own.group_begin + first + n) * TILE_ROWS + 2 * t;
        if (col >= own.part->rows) continue;
#pragma unroll
        for (int m = 0; m < Shape::ROW_TILES; m++) {
            const float *v = tile.acc[m][n];
            int to = out_row[row + m * 16], to_8 = out_row[row + m * 16 + 8];
            if (to >= 0) gemm_i8_store_two(tile.p, *own.part, to, col, v[0] * unit, v[1] * unit);
            if (to_8 >= 0)
                gemm_i8_store_two(tile.p, *own.part, to_8, col, v[2] * unit, v[3] * unit);
        }
    }
}

#endif
