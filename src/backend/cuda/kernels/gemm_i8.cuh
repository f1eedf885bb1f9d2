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
 * without ldmatrix. A step covers 64 columns; one or two more are on their way by cp.async. In
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

#include "backend/cuda/kernels/form.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

enum {
    GEMM_THREADS = 128,
    GEMM_COLS = 128, /* rows of w a tile: columns of y */
    GEMM_GROUPS = GEMM_COLS / TILE_ROWS,
    GEMM_ROWS_MAX = 64
};

/* One of the matrices whose rows lie behind each other as columns of a product. */
struct gemm_part {
    const uint8_t *quants, *high, *scale, *minus;
    float *y;
    int rows, n_groups;
    int tile_end;    /* column tiles of all parts up to this one */
    int half_column; /* where its columns begin in `half` */
};

struct gemm_product {
    gemm_part part[3];
    int n_ktiles;
    const int8_t *x;
    const float *x_scale;
    int64_t stride;
    uint16_t *half;
    int half_cols;
    bool is_even; /* two neighbouring columns can be stored at once */
    int tile;     /* rows a block takes at most: 32 or 64 */
    int n_rows;
    /* Experts: rows are pairs; pair NULL: there are none. */
    const int32_t *pair, *first, *tiles, *n_tile;
    int row_div;   /* pair p reads row p / row_div of x */
    int n_stages;  /* 2 or 3 */
    uint32_t zero; /* 0, which the compiler must not know */
};

/* A block's share: rows of `pair`, or of x itself, and groups of 8 columns of a part. */
struct gemm_share {
    int row_begin, n_rows, expert;
    const gemm_part *part;
    int group_begin, n_groups;
};

/* Column tile `tile` of the product. Parts that are not there repeat the last one. */
__device__ __forceinline__ void take_columns(const gemm_product &p, int tile, gemm_share *s)
{
    const gemm_part *part = &p.part[0];
    int before = 0;
    if (tile >= p.part[0].tile_end) before = p.part[0].tile_end, part = &p.part[1];
    if (tile >= p.part[1].tile_end) before = p.part[1].tile_end, part = &p.part[2];
    s->part = part;
    s->group_begin = (tile - before) * GEMM_GROUPS;
    s->n_groups = min((int)GEMM_GROUPS, part->n_groups - s->group_begin);
}

/* acc += c * dx * dw for rows g, g + 8 (dx) and columns 2t, 2t + 1 (dw). */
__device__ __forceinline__ void scale_add(float acc[4], const int c[4], float dx0, float dx1,
                                          float2 dw)
{
    acc[0] = fmaf((float)c[0], dx0 * dw.x, acc[0]);
    acc[1] = fmaf((float)c[1], dx0 * dw.y, acc[1]);
    acc[2] = fmaf((float)c[2], dx1 * dw.x, acc[2]);
    acc[3] = fmaf((float)c[3], dx1 * dw.y, acc[3]);
}

/* WARPS_M warps share the rows, the others the columns; a warp has MT tiles of 16 rows and NT of 8
 * columns. */
template <enum form F, int WARPS_M, int MT> struct gemm_tile {
    enum {
        ROWS = WARPS_M * MT * 16,
        WARPS_N = GEMM_THREADS / 32 / WARPS_M,
        NT = GEMM_GROUPS / WARPS_N,
        WORDS = form_words(F),
        /* 16-byte pieces of a step in each array */
        X_PIECES = ROWS * TILE_COLS / 16,
        QUANT_PIECES = form_quant_bytes(F), /* of GEMM_GROUPS = 16 tiles */
        QUANT_EACH = QUANT_PIECES / 16,
        X_SCALE_PIECES = ROWS,
        SCALE_PIECES = form_scale_bytes(F),
        MINUS_PIECES = form_minus_bytes(F),
        HIGH_PIECES = form_high_bytes(F),
        SMALL_PIECES = X_SCALE_PIECES + SCALE_PIECES + MINUS_PIECES + HIGH_PIECES,
        /* ... and what a thread copies of them */
        X_COPIES = (X_PIECES + GEMM_THREADS - 1) / GEMM_THREADS,
        QUANT_COPIES = (QUANT_PIECES + GEMM_THREADS - 1) / GEMM_THREADS,
        SMALL_COPIES = (SMALL_PIECES + GEMM_THREADS - 1) / GEMM_THREADS,
        AT_ONCE = F == FORM_S8 ? 1 : 2, /* blocks whose operands are in registers together */
        /* where the arrays begin in a stage */
        QUANTS_AT = X_PIECES * 16,
        X_SCALE_AT = QUANTS_AT + QUANT_PIECES * 16,
        SCALE_AT = X_SCALE_AT + X_SCALE_PIECES * 16,
        MINUS_AT = SCALE_AT + SCALE_PIECES * 16,
        HIGH_AT = MINUS_AT + MINUS_PIECES * 16,
        STAGE_BYTES = HIGH_AT + HIGH_PIECES * 16
    };
    static_assert(GEMM_GROUPS == 16, "pieces of a plane are counted in bytes of a tile");

    const gemm_product &p;
    gemm_share share;
    uint32_t shared; /* address of the stages */
    const char *stages;
    /* What the next copies read; offsets are from p.x and from the block's first tile. */
    uint32_t x_at[X_COPIES], quants_at[QUANT_COPIES];
    const char *quants;
    const char *small_from[SMALL_COPIES];
    int small_step[SMALL_COPIES]; /* 0: nothing to copy */
    float acc[MT][NT][4];

    __device__ gemm_tile(const gemm_product &product, const gemm_share &s, char *memory)
        : p(product), share(s), shared(shared_address(memory)), stages(memory)
    {
    }

    __device__ __forceinline__ int source_row(int i) const
    {
        int at = share.row_begin + min(i, share.n_rows - 1);
        return p.pair ? p.pair[at] / p.row_div : at;
    }

    /* Groups beyond the part's last are neither copied nor stored. */
    __device__ __forceinline__ void find_weights()
    {
        const gemm_part &part = *share.part;
        int64_t tile = (int64_t)share.expert * part.n_groups + share.group_begin;
        tile *= p.n_ktiles;
        quants = reinterpret_cast<const char *>(part.quants) + tile * form_quant_bytes(F);
#pragma unroll
        for (int j = 0; j < QUANT_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS;
            quants_at[j] =
                piece / QUANT_EACH * p.n_ktiles * form_quant_bytes(F) + piece % QUANT_EACH * 16;
        }
#pragma unroll
        for (int j = 0; j < SMALL_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS - X_SCALE_PIECES, bytes = SCALE_PIECES;
            const uint8_t *from = part.scale;
            small_step[j] = 0;
            if (piece < 0 || piece >= SMALL_PIECES - X_SCALE_PIECES) continue;
            if (piece >= SCALE_PIECES) {
                piece -= SCALE_PIECES;
                bytes = MINUS_PIECES, from = part.minus;
                if (piece >= MINUS_PIECES) {
                    piece -= MINUS_PIECES;
                    bytes = HIGH_PIECES, from = part.high;
                }
            }
            int group = piece * 16 / bytes;
            if (group >= share.n_groups) continue;
            small_from[j] = reinterpret_cast<const char *>(from) +
                            (tile + group * p.n_ktiles) * bytes + piece * 16 % bytes;
            small_step[j] = bytes;
        }
    }

    __device__ __forceinline__ void find_rows()
    {
#pragma unroll
        for (int j = 0; j < X_COPIES; j++) {
            int piece = (threadIdx.x + j * GEMM_THREADS) % X_PIECES;
            x_at[j] = (uint32_t)source_row(piece / 4) * (uint32_t)p.stride + piece % 4 * 16;
        }
        if (threadIdx.x < X_SCALE_PIECES) {
            small_from[0] = reinterpret_cast<const char *>(p.x_scale) +
                            (int64_t)source_row(threadIdx.x) * (p.stride / ACT_BLOCK * 8);
            small_step[0] = 16;
        }
    }

    __device__ __forceinline__ void copy_weights(uint32_t stage)
    {
#pragma unroll
        for (int j = 0; j < QUANT_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS;
            if (piece / QUANT_EACH < share.n_groups)
                copy16(stage + QUANTS_AT + piece * 16, quants + quants_at[j]);
            quants_at[j] += form_quant_bytes(F);
        }
    }

    __device__ __forceinline__ void copy_small(uint32_t stage, bool with_x, bool with_weights)
    {
#pragma unroll
        for (int j = 0; j < SMALL_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS;
            if (small_step[j] == 0 || !(piece < X_SCALE_PIECES ? with_x : with_weights)) continue;
            copy16(stage + X_SCALE_AT + piece * 16, small_from[j]);
            small_from[j] += small_step[j];
        }
    }

    __device__ __forceinline__ void copy_rows(uint32_t stage)
    {
#pragma unroll
        for (int j = 0; j < X_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS, row = piece / 4;
            if (X_PIECES % GEMM_THREADS != 0 && piece >= X_PIECES) continue;
            copy16(stage + (piece ^ (row & 2)) * 16, p.x + x_at[j]);
            x_at[j] += TILE_COLS;
        }
    }

    /* Rows g and g + 8 of 16 as an A operand. An mma wants four neighbouring registers, of which a
     * load gives the first and third or the second and fourth; left alone, the compiler moves them
     * before every mma (four moves each). The xor is a move that it cannot repeat. */
    __device__ __forceinline__ void take_rows(const char *x, uint32_t a[4]) const
    {
        uint2 low = *reinterpret_cast<const uint2 *>(x);
        uint2 high = *reinterpret_cast<const uint2 *>(x + 512);
        a[0] = low.x ^ p.zero, a[1] = high.x ^ p.zero;
        a[2] = low.y ^ p.zero, a[3] = high.y ^ p.zero;
    }

    /* 64 columns of all this warp's sums. 8-bit weights, which take most registers, go by one block
     * of 32 columns after the other. */
    __device__ __forceinline__ void step(const char *stage)
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        int row = warp % WARPS_M * (MT * 16) + g, group = warp / WARPS_M * NT;
        const char *x = stage + row * TILE_COLS + t * 8;
        const char *x_scale = stage + X_SCALE_AT + row * 16;
#pragma unroll
        for (int begin = 0; begin < 2; begin += AT_ONCE) {
            uint32_t a[2][MT][4];
            float2 dx[2][MT][2];
#pragma unroll
            for (int block = begin; block < begin + AT_ONCE; block++)
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    take_rows(x + m * 1024 + ((g & 2) * 16 ^ block * 32), a[block][m]);
                    for (int i = 0; i < 2; i++)
                        dx[block][m][i] = *reinterpret_cast<const float2 *>(x_scale + m * 256 +
                                                                            i * 128 + block * 8);
                }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                tile_share<F> w;
                take_share(stage, group + n, lane, begin, &w);
                uint32_t b[2][2];
                form_fragments<F>(w.q, w.high, b);
#pragma unroll
                for (int block = begin; block < begin + AT_ONCE; block++)
#pragma unroll
                    for (int m = 0; m < MT; m++)
                        add_block(acc[m][n], a[block][m], b[block], dx[block][m], w, block);
            }
        }
    }

    /* What blocks `begin` .. begin + AT_ONCE - 1 need of a lane's share; the rest is undefined. */
    static __device__ __forceinline__ void take_share(const char *stage, int group, int lane,
                                                      int begin, tile_share<F> *w)
    {
        const char *quants = stage + QUANTS_AT + (group * 32 + lane) * (4 * WORDS);
        if constexpr (WORDS == 4) {
            uint2 v = *reinterpret_cast<const uint2 *>(quants + begin * 8);
            w->q[2 * begin] = v.x, w->q[2 * begin + 1] = v.y;
        } else {
            uint2 v = *reinterpret_cast<const uint2 *>(quants);
            w->q[0] = v.x, w->q[1] = v.y;
        }
        const char *high = stage + HIGH_AT + group * form_high_bytes(F);
        w->high = 0;
        if (form_high_bits(F) == 1) w->high = reinterpret_cast<const uint16_t *>(high)[lane];
        if (form_high_bits(F) == 2) w->high = reinterpret_cast<const uint32_t *>(high)[lane];
        const char *scale = stage + SCALE_AT + group * form_scale_bytes(F);
        if constexpr (form_scales(F) == 4) {
            uint4 v = reinterpret_cast<const uint4 *>(scale)[lane % 4];
            w->scale[0] = v.x, w->scale[1] = v.y, w->scale[2] = v.z, w->scale[3] = v.w;
        } else if constexpr (F == FORM_S8) {
            w->scale[begin] = reinterpret_cast<const uint32_t *>(scale)[lane % 4 * 2 + begin];
        } else {
            uint2 v = reinterpret_cast<const uint2 *>(scale)[lane % 4];
            w->scale[0] = v.x, w->scale[1] = v.y;
        }
        if constexpr (form_has_minus(F)) {
            const char *minus = stage + MINUS_AT + group * 32;
            uint2 v = reinterpret_cast<const uint2 *>(minus)[lane % 4];
            w->minus[0] = v.x, w->minus[1] = v.y;
        }
    }

    static __device__ __forceinline__ void add_block(float sum[4], const uint32_t a[4],
                                                     const uint32_t b[2], const float2 dx[2],
                                                     const tile_share<F> &w, int block)
    {
        int c[4];
        if constexpr (form_scales(F) == 4) {
            mma_i8_k16(c, a[0], a[1], b[0]);
            scale_add(sum, c, dx[0].x, dx[1].x, half2_at(w.scale[2 * block]));
            mma_i8_k16(c, a[2], a[3], b[1]);
            scale_add(sum, c, dx[0].x, dx[1].x, half2_at(w.scale[2 * block + 1]));
        } else {
            mma_i8_k32(c, a, b[0], b[1]);
            scale_add(sum, c, dx[0].x, dx[1].x, half2_at(w.scale[block]));
        }
        if constexpr (form_has_minus(F)) {
            float2 minus = half2_at(w.minus[block]);
            sum[0] = fmaf(dx[0].y, minus.x, sum[0]);
            sum[1] = fmaf(dx[0].y, minus.y, sum[1]);
            sum[2] = fmaf(dx[1].y, minus.x, sum[2]);
            sum[3] = fmaf(dx[1].y, minus.y, sum[3]);
        }
    }

    /* Everything but the store. `out_row` [ROWS] gets the row of y that each row goes to, -1: none.
     * Weights are on their way before grid_wait, which is called here unless it was before. */
    __device__ __forceinline__ void sum_up(int32_t *out_row, bool has_waited)
    {
        find_weights();
        for (int s = 0; s < p.n_stages - 1 && s < p.n_ktiles; s++) {
            copy_weights(shared + s * STAGE_BYTES);
            copy_small(shared + s * STAGE_BYTES, false, true);
        }
        if (!has_waited) {
            grid_wait();
            grid_release();
        }
        find_rows();
        for (int i = threadIdx.x; i < ROWS; i += GEMM_THREADS) {
            int at = share.row_begin + i;
            out_row[i] = i >= share.n_rows ? -1 : p.pair ? p.pair[at] : at;
        }
        for (int s = 0; s < p.n_stages - 1; s++) {
            if (s < p.n_ktiles) {
                copy_rows(shared + s * STAGE_BYTES);
                copy_small(shared + s * STAGE_BYTES, true, false);
            }
            copies_commit();
        }
#pragma unroll
        for (int i = 0; i < MT * NT * 4; i++) acc[i / (NT * 4)][i / 4 % NT][i % 4] = 0.0f;
        bool has_columns = threadIdx.x / 32 / WARPS_M * NT < share.n_groups;
        int last = (p.n_stages - 1) * STAGE_BYTES, now = 0, next = last;
        for (int k = 0; k < p.n_ktiles; k++) {
            if (p.n_stages == 2)
                copies_wait<0>();
            else
                copies_wait<1>();
            __syncthreads();
            if (k + p.n_stages - 1 < p.n_ktiles) {
                copy_weights(shared + next);
                copy_rows(shared + next);
                copy_small(shared + next, true, true);
            }
            copies_commit();
            if (has_columns) step(stages + now);
            next = now;
            now = now == last ? 0 : now + STAGE_BYTES;
        }
    }

    /* Columns col, col + 1 of a part. */
    __device__ __forceinline__ void store_two(const gemm_part &part, int row, int col, float v0,
                                              float v1) const
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

    __device__ __forceinline__ void store(const int32_t *out_row) const
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        int row = warp % WARPS_M * (MT * 16) + g, first = warp / WARPS_M * NT;
        constexpr float unit = form_unit(F);
        gemm_share own; /* made again: kept, it takes registers in the loop */
        take_columns(p, p.pair ? blockIdx.x : blockIdx.y, &own);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            int col = (own.group_begin + first + n) * TILE_ROWS + 2 * t;
            if (col >= own.part->rows) continue;
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const float *v = acc[m][n];
                int to = out_row[row + m * 16], to_8 = out_row[row + m * 16 + 8];
                if (to >= 0) store_two(*own.part, to, col, v[0] * unit, v[1] * unit);
                if (to_8 >= 0) store_two(*own.part, to_8, col, v[2] * unit, v[3] * unit);
            }
        }
    }
};

#endif
