/* Products of up to 64 rows with weights that lie as rows (LAYOUT_ROWS), for matvec.cu and
 * route.cu. They are fp32 multiply-adds. A warp takes four weight rows and a slice of the columns,
 * a lane 8 neighbouring columns of every 256. A lane's sum runs over rising columns, lanes are
 * added by butterfly, slices in rising order. The bits of a row depend neither on the other rows
 * nor on BLOCK_ROWS, the rows of a block. */
#ifndef CUDA_MATVEC_ROWS_CUH
#define CUDA_MATVEC_ROWS_CUH

#include "backend/cuda/kernels/matvec_sums.cuh"
#include "backend/cuda/kernels/policy.cuh"

enum { ROWS_THREADS_MAX = 512, ROWS_TILE = 8, QUAD = 4, STEP = 256 };

/* Eight neighbouring values as they lie in memory. */
template <typename T> struct packed8 {
    uint4 v[sizeof(T) / 2];
};

template <typename T> __device__ __forceinline__ void unpack8(const packed8<T> &p, float out[8])
{
    const T *v = reinterpret_cast<const T *>(&p);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = (float)v[i];
}

/* Columns col .. col + 7; 0 after the row's end. Rows are padded to 16 bytes, not to 8 values. */
template <typename T>
__device__ __forceinline__ packed8<T> load_row8(struct l2_policy policy, const uint8_t *row,
                                                int col, int cols)
{
    packed8<T> p = {};
    constexpr int PER_VECTOR = 16 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 2; i++)
        if (col + i * PER_VECTOR < cols)
            p.v[i] =
                load_once4_under(policy, row + (int64_t)(col + i * PER_VECTOR) * (int)sizeof(T));
    return p;
}

__device__ __forceinline__ void load_x8(const float *x, int col, int cols, bool is_aligned,
                                        float out[8])
{
    if (is_aligned && col + 8 <= cols) {
        float4 a = *reinterpret_cast<const float4 *>(x + col);
        float4 b = *reinterpret_cast<const float4 *>(x + col + 4);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
        out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = col + i < cols ? x[col + i] : 0.0f;
}

struct rows_product {
    struct step_view step;
    struct rows rows;
    struct cuda_weight w[2];
    const float *x;
    float *y; /* MATVEC_STORE */
    struct gelu_epilogue gelu;
    const int32_t *ids;
    int32_t n_used;
    int32_t quads, n_slices; /* quads * n_slices warps a block */
    float cap;               /* MATVEC_STORE; 0: none */
};

__host__ __device__ __forceinline__ bool has_two(const rows_product &a)
{
    return a.gelu.kind == MATVEC_GELU_MUL;
}

/* Outputs of a block, of each weight. */
__host__ __device__ __forceinline__ int outs_of_block(const rows_product &a)
{
    return a.quads * (has_two(a) ? 2 : 4);
}

/* Weight row number i of a quad. With gate and up a quad is 2 outputs of each; quads 4 g .. 4 g + 3
 * make the eight outputs of slots 2 g and 2 g + 1. */
__device__ __forceinline__ void row_of_quad(const rows_product &a, int quad, int i, int *which,
                                            int *out, int *slot)
{
    *which = has_two(a) ? i / 2 : 0;
    *out = has_two(a) ? quad * 2 + i % 2 : quad * 4 + i;
    *slot = has_two(a) ? quad / 4 * 2 + *which : quad / 2;
}

/* Groups of eight outputs of a block. */
__host__ __device__ __forceinline__ int slots_of_block(const rows_product &a)
{
    return (outs_of_block(a) + 7) / 8 * (has_two(a) ? 2 : 1);
}

/* Rows [first, first + n) are a block's. */
struct row_range {
    int first, n;
};

/* A warp's sums, of all its lanes, to shared memory. */
template <int BLOCK_ROWS>
__device__ __forceinline__ void put_sums(const rows_product &a, const partial_sums &p,
                                         const float (&acc)[QUAD][BLOCK_ROWS], bool is_wrong)
{
    int warp = threadIdx.x / 32, quad = warp % a.quads, slice = warp / a.quads;
#pragma unroll
    for (int i = 0; i < QUAD; i++)
#pragma unroll
        for (int r = 0; r < BLOCK_ROWS; r++) {
            float sum = acc[i][r];
            for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
            int which, out, slot;
            row_of_quad(a, quad, i, &which, &out, &slot);
            if (threadIdx.x % 32 == 0)
                p.slot(slice, slot)[r * 8 + out % 8] = is_wrong ? not_a_number() : sum;
        }
    __syncthreads();
}

/* Puts the sums of a block's outputs from first_out on, by slice, into `p`, and passes a barrier.
 * With no live row it returns n = 0 and leaves nothing. Waits for the kernel before. */
template <typename T, int BLOCK_ROWS>
__device__ __forceinline__ row_range sum_rows(const rows_product &a, const partial_sums &p,
                                              int first_out)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int quad = warp % a.quads, slice = warp / a.quads, n_slices = a.n_slices;
    int cols = a.w[0].cols, outs_w = a.w[0].rows, n_steps = (cols + STEP - 1) / STEP;
    int from = n_steps * slice / n_slices * STEP + lane * 8;
    int to = n_steps * (slice + 1) / n_slices * STEP, expert = 0;
    if (a.ids) { /* nothing can be loaded early: the expert is not known yet */
        grid_wait();
        if ((int)(blockIdx.x / a.n_used) >= rows_live(a.rows, a.step)) return {0, 0};
        expert = a.ids[blockIdx.x];
    }
    bool is_wrong = expert < 0 || expert >= a.w[0].n_expert;
    if (is_wrong) expert = 0;

    const uint8_t *row[QUAD];
    packed8<T> w[QUAD];
    struct l2_policy policy = policy_of(gridDim.x == 1); /* else each tile of rows reads them */
#pragma unroll
    for (int i = 0; i < QUAD; i++) {
        int which, out, slot;
        row_of_quad(a, quad, i, &which, &out, &slot);
        int64_t at = (int64_t)expert * outs_w + min(first_out + out, outs_w - 1);
        row[i] = (which ? a.w[1].quants : a.w[0].quants) + at * a.w[0].row_bytes;
        w[i] = load_row8<T>(policy, row[i], from, from < to ? cols : 0);
    }
    if (!a.ids) grid_wait();
    grid_release();
    int first = a.ids ? blockIdx.x : blockIdx.x * BLOCK_ROWS;
    int n = a.ids ? 1 : min(rows_live(a.rows, a.step) - first, BLOCK_ROWS);
    if (n <= 0) return {first, 0};
    int x_row = a.ids ? first / a.n_used : first;

    float acc[QUAD][BLOCK_ROWS] = {};
    bool is_aligned = cols % 4 == 0;
    for (int col = from; col < to; col += STEP) {
        packed8<T> ahead[QUAD];
#pragma unroll
        for (int i = 0; i < QUAD; i++)
            ahead[i] = load_row8<T>(policy, row[i], col + STEP, col + STEP < to ? cols : 0);
        float v[QUAD][8];
#pragma unroll
        for (int i = 0; i < QUAD; i++) unpack8<T>(w[i], v[i]);
#pragma unroll
        for (int r = 0; r < BLOCK_ROWS; r++) {
            float x[8];
            load_x8(a.x + (int64_t)(x_row + min(r, n - 1)) * cols, col, cols, is_aligned, x);
#pragma unroll
            for (int i = 0; i < QUAD; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) acc[i][r] = __fmaf_rn(v[i][j], x[j], acc[i][r]);
        }
#pragma unroll
        for (int i = 0; i < QUAD; i++) w[i] = ahead[i];
    }
    put_sums<BLOCK_ROWS>(a, p, acc, is_wrong);
    return {first, n};
}

/* The sums, to y; `cap` as in matvec_args. */
__device__ __forceinline__ void store_sums(const rows_product &a, const partial_sums &p,
                                           int first_out, row_range rows, float cap)
{
    int outs = outs_of_block(a), outs_w = a.w[0].rows;
    for (int i = threadIdx.x; i < outs * rows.n; i += blockDim.x) {
        int r = i / outs, out = i % outs;
        if (first_out + out < outs_w)
            a.y[(int64_t)(rows.first + r) * outs_w + first_out + out] =
                p.capped_total(out / 8, out % 8, r, cap);
    }
}

template <int BLOCK_ROWS>
__device__ __forceinline__ partial_sums sums_at(void *shared, const rows_product &a)
{
    return {static_cast<float *>(shared), a.n_slices, slots_of_block(a), BLOCK_ROWS};
}

/* ---- Launch shape ---------------------------------------------------------------------------- */

struct rows_shape {
    bool is_single; /* BLOCK_ROWS is 1; else it is ROWS_TILE */
    dim3 grid;      /* tiles of rows (pairs where there are ids), outputs */
    unsigned threads;
    size_t shared_bytes;
};

/* How the product is dealt to blocks and warps. Small matrices are cut into 16 slices. Epilogues
 * with GELU need 32 outputs in a block. */
static inline rows_shape shape_rows(rows_product *a)
{
    bool has_gelu = a->gelu.kind != MATVEC_STORE;
    a->quads = has_two(*a) ? 16 : has_gelu ? 8 : a->w[0].rows > 4096 ? 4 : 1;
    a->n_slices = has_two(*a) || a->quads == 4 ? 1 : 16 / a->quads;
    int rows = a->w[0].rows, outs = outs_of_block(*a);
    if (has_gelu && is_in_blocks(a->gelu.act)) rows = round_up(rows, 64);
    rows_shape shape;
    shape.is_single = a->ids || a->rows.max == 1;
    int rt = shape.is_single ? 1 : ROWS_TILE;
    int tiles = a->ids ? a->rows.max * a->n_used : (a->rows.max + rt - 1) / rt;
    shape.grid = dim3((unsigned)tiles, (unsigned)((rows + outs - 1) / outs));
    shape.threads = (unsigned)(a->quads * a->n_slices) * 32;
    shape.shared_bytes = partial_bytes(a->n_slices, slots_of_block(*a), rt);
    return shape;
}

#endif
