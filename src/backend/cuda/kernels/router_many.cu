/* Logits of a router for many rows, z[t] = w x[t], on tensor cores and as exact as in fp32: the
 * choice of experts is between near-equal values.
 *
 * Numbers. Of 32 columns of a row of x or w the largest |value| is brought into [2^7, 2^8) by a
 * power of two. Then a value is hi + lo, two fp16 numbers, which keep 22 bits of it. Three products
 * give (hi + lo) (hi' + lo') without lo lo'. mma.sync truncates its fp32 sums: they run over 32
 * columns only, and a fused multiply-add brings them, scaled back, into the sum of the slice. With
 * S the sum of |w x| over a row, the error is at most
 *     3 * 2^-22 S (values) + 6 * 2^-22 S (mma) + (chunks of a slice + slices) * 2^-24 S,
 * 2^-18.2 S for 2816 columns, where matmul_exact has 2^-17.1 S at most. Whatever is not finite
 * makes all logits of its row (or of its expert) NaN.
 *
 * Work. A block makes 64 rows x 128 experts of a slice of the columns. Slices depend on the number
 * of columns alone, and the reader of the logits adds them up (route.cu). fp32 chunks come by
 * cp.async, two ahead; a thread splits what it has copied itself, so that a chunk needs one
 * barrier. Eight warps have 32 x 32 results each. A row of halves is 128 bytes in pieces of 16: hi,
 * lo, hi, lo ... Piece c of row r lies at c ^ r % 8, which keeps stores and ldmatrix off the same
 * banks.
 * Bound: the latency of a chunk (2 us with one block on a multiprocessor, 3 with two): splitting,
 * the barrier, ldmatrix and mma wait for each other. */
#include <cfloat>

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

namespace {

enum {
    TOKENS = 64,
    OUTS = ROUTER_EXPERTS_MAX,
    COLS = 32, /* of a chunk */
    THREADS = 256,
    ROWS = TOKENS + OUTS, /* of both operands */
    ROW_BYTES = 128,      /* of 32 fp32 values, and of their halves */
    QUADS = ROWS * COLS / 4 / THREADS,
    X_QUADS = TOKENS * COLS / 4 / THREADS,
    STEP_ROWS = THREADS / 8, /* that all threads copy at once */
    BUFFER_BYTES = ROWS * ROW_BYTES,
    SHARED_BYTES = 4 * BUFFER_BYTES + 2 * ROWS * 4
};

struct slices {
    int32_t cols, n; /* columns of each slice but the last; number of slices */
};

__host__ __device__ slices slices_of(int32_t cols)
{
    int32_t chunks = (cols + COLS - 1) / COLS;
    int32_t each = (chunks + ROUTER_PARTS_MAX - 1) / ROUTER_PARTS_MAX;
    return {each * COLS, (chunks + each - 1) / each};
}

/* Shared memory: two buffers of fp32 chunks, two of halves, the scales of both. */
struct buffers {
    char *floats, *halves;
    float *scale;

    __device__ __forceinline__ explicit buffers(char *shared)
        : floats(shared), halves(shared + 2 * BUFFER_BYTES),
          scale(reinterpret_cast<float *>(shared + 4 * BUFFER_BYTES))
    {
    }
};

/* What a thread copies and splits: quad threadIdx.x % 8 of rows threadIdx.x / 8 + 32 j, of x and
 * then of w. */
struct source {
    const char *x, *w;
    int64_t x_step, w_step;
    uint32_t is_there;     /* bit j */
    const char *zero_from; /* somewhere that may be read */

    __device__ __forceinline__ source(const struct router_parts_args &a, int first, int live)
    {
        int r = threadIdx.x / 8;
        is_there = 0;
#pragma unroll
        for (int j = 0; j < QUADS; j++) {
            int row = r + (j < X_QUADS ? j : j - X_QUADS) * STEP_ROWS;
            is_there |= (uint32_t)(j < X_QUADS ? first + row < live : row < a.w.rows) << j;
        }
        x = reinterpret_cast<const char *>(a.x + (int64_t)(first + r) * a.w.cols);
        w = reinterpret_cast<const char *>(a.w.quants) + r * a.w.row_bytes;
        zero_from = reinterpret_cast<const char *>(a.w.quants);
        x_step = (int64_t)STEP_ROWS * a.w.cols * 4;
        w_step = STEP_ROWS * a.w.row_bytes;
    }

    /* Columns col .. col + 31 of all rows; zeros after the last. */
    __device__ __forceinline__ void copy(char *to, int col, int cols) const
    {
        int c = col + (int)threadIdx.x % 8 * 4;
#pragma unroll
        for (int j = 0; j < QUADS; j++) {
            const char *from = j < X_QUADS ? x + j * x_step : w + (j - X_QUADS) * w_step;
            bool is_read = (is_there >> j & 1) && c < cols;
            copy16_or_zeros(shared_address(to) + (threadIdx.x + j * THREADS) * 16,
                            is_read ? from + c * 4 : zero_from, is_read ? 16 : 0);
        }
    }
};

/* The power of two for a chunk of a row with this largest |value|, and its inverse; both normal. */
__device__ __forceinline__ float chunk_scale(uint32_t most_bits, float *inverse)
{
    uint32_t exponent = min(max(most_bits >> 23, 8u), 254u);
    *inverse = __uint_as_float((261u - exponent) << 23);
    return __uint_as_float((exponent - 7u) << 23);
}

__device__ __forceinline__ uint2 halves_of(float4 x)
{
    return make_uint2(pack_halves(x.x, x.y), pack_halves(x.z, x.w));
}

/* A thread's quads of a chunk to halves. */
__device__ __forceinline__ void split(const char *floats, char *halves, float *scale)
{
    int quad = threadIdx.x % 8;
#pragma unroll
    for (int j = 0; j < QUADS; j++) {
        int r = threadIdx.x / 8 + j * STEP_ROWS;
        float4 x = *reinterpret_cast<const float4 *>(floats + (threadIdx.x + j * THREADS) * 16);
        float inverse, s = chunk_scale(octet_max(quad_most(x)), &inverse);
        x = make_float4(x.x * inverse, x.y * inverse, x.z * inverse, x.w * inverse);
        uint2 high = halves_of(x);
        float4 y = half_quad(high, 1.0f);
        uint2 low = halves_of(make_float4(x.x - y.x, x.y - y.y, x.z - y.z, x.w - y.w));
        char *to = halves + r * ROW_BYTES + quad % 2 * 8;
        int chunk = quad / 2 * 2;
        *reinterpret_cast<uint2 *>(to + (chunk ^ (r & 7)) * 16) = high;
        *reinterpret_cast<uint2 *>(to + ((chunk + 1) ^ (r & 7)) * 16) = low;
        if (quad == 0) scale[r] = s;
    }
}

/* Results of a warp: tokens warp_row + 16 i, experts warp_col + 8 j. */
typedef float tile[2][4][4];

struct place {
    int row, col;                            /* in the block */
    uint32_t a_row, b_row, a_chunk, b_chunk; /* what the lane gives to ldmatrix */

    __device__ __forceinline__ place()
    {
        int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        row = warp % 2 * 32;
        col = warp / 2 * 32;
        a_row = row + lane % 16;
        a_chunk = lane / 16;
        b_row = TOKENS + col + lane % 8 + lane / 16 * 8;
        b_chunk = lane / 8 % 2;
    }
};

/* 16 columns from 16 step on of 16 rows from `row`, which the lane reads at `chunk`. */
__device__ __forceinline__ void fetch(uint32_t r[4], uint32_t halves, uint32_t row, uint32_t chunk,
                                      int step, int is_low)
{
    chunk = (step * 2 + chunk) * 2 + is_low;
    load_matrices(r, halves + row * ROW_BYTES + (chunk ^ (row & 7)) * 16);
}

__device__ __forceinline__ void multiply_add(tile &sum, const uint32_t (&a)[2][4],
                                             const uint32_t (&b)[2][4])
{
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            mma_f16(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
}

/* The small products first: what is added to a large sum is truncated like it. */
__device__ __forceinline__ void multiply_chunk(tile &sum, const place &at, uint32_t halves)
{
#pragma unroll
    for (int step = 0; step < COLS / 16; step++) {
        uint32_t a[2][2][4], b[2][2][4]; /* [is low] */
#pragma unroll
        for (int low = 0; low < 2; low++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                fetch(a[low][i], halves, at.a_row + i * 16, at.a_chunk, step, low);
                fetch(b[low][i], halves, at.b_row + i * 16, at.b_chunk, step, low);
            }
        multiply_add(sum, a[1], b[0]);
        multiply_add(sum, a[0], b[1]);
        multiply_add(sum, a[0], b[0]);
    }
}

/* sum += part * scale of its row * scale of its expert. */
__device__ __forceinline__ void add_chunk(tile &sum, const tile &part, const place &at,
                                          const float *scale)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float x = scale[at.row + i * 16 + e / 2 * 8 + lane / 4];
                float w = scale[TOKENS + at.col + j * 8 + lane % 4 * 2 + e % 2];
                /* infinite, it would make a NaN of 0 */
                sum[i][j][e] = __fmaf_rn(part[i][j][e], fminf(x * w, FLT_MAX), sum[i][j][e]);
            }
}

__device__ __forceinline__ void store(const struct router_parts_args &a, const tile &sum,
                                      const place &at, int first, int live)
{
    int lane = threadIdx.x % WARP, n = a.w.rows;
    float *z = a.z + (int64_t)blockIdx.y * a.rows.max * n;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int row = first + at.row + i * 16 + e / 2 * 8 + lane / 4;
                int col = at.col + j * 8 + lane % 4 * 2 + e % 2;
                if (row < live && col < n) z[(int64_t)row * n + col] = sum[i][j][e];
            }
}

/* Blocks that the shared memory of a multiprocessor holds. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define RESIDENT_BLOCKS 1
#else
#define RESIDENT_BLOCKS 2
#endif

/* Grid: (tiles of rows, slices). */
__global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS)
    router_parts(const __grid_constant__ struct router_parts_args a)
{
    extern __shared__ __align__(128) char shared[];
    grid_wait();
    grid_release();
    int first = blockIdx.x * TOKENS, live = rows_live(a.rows, a.step);
    if (first >= live) return;
    const slices s = slices_of(a.w.cols);
    int begin = blockIdx.y * s.cols, end = min(begin + s.cols, a.w.cols);
    const buffers at(shared);
    const source from(a, first, live);
    const place mine;
    for (int k = 0; k < 2; k++) {
        from.copy(at.floats + k * BUFFER_BYTES, begin + k * COLS, end);
        copies_commit();
    }
    tile sum = {};
    for (int col = begin, k = 0; col < end; col += COLS, k ^= 1) {
        char *floats = at.floats + k * BUFFER_BYTES, *halves = at.halves + k * BUFFER_BYTES;
        float *scale = at.scale + k * ROWS;
        copies_wait<1>();
        split(floats, halves, scale);
        __syncthreads(); /* and all have multiplied what was in the other halves */
        from.copy(floats, col + 2 * COLS, end);
        copies_commit();
        tile part = {};
        multiply_chunk(part, mine, shared_address(halves));
        add_chunk(sum, part, mine, scale);
    }
    copies_wait_all();
    store(a, sum, mine, first, live);
}

} // namespace

int32_t router_n_parts(int32_t cols)
{
    return slices_of(cols).n;
}

void launch_router_parts(const struct queue *q, const struct router_parts_args *args)
{
    if (args->rows.max <= 0) return;
    dim3 grid((unsigned)(args->rows.max + TOKENS - 1) / TOKENS,
              (unsigned)router_n_parts(args->w.cols));
    launch(q, router_parts, grid, THREADS, SHARED_BYTES, *args);
}
