/* Matrix products in fp16: y[t] = W x[t] for many rows t, fp32 accumulation.
 *
 * Data: activations [row][stride] fp16 with a power-of-two scale a row (ACT_HALF), weights as
 * mirrors [expert][row][stride] fp16, both row-major and padded with zeros to a multiple of 64
 * columns. Up to three weights that read the same rows go in one launch; a tile never straddles
 * two. Results: fp32 times the row's scale or without it, or fp16 without it.
 *
 * A block of four warps makes a tile of up to 128 rows of x ("tokens") by 128 rows of W, each warp
 * 64 x 64 of it in registers: mma.sync m16n8k16 with x as A and W as B, both read by ldmatrix from
 * a ring of STAGES steps of K columns that cp.async fills. A row of a step is 2 K bytes in chunks
 * of 16, chunk c of row r at c ^ swizzle(r), which spreads the eight rows of an ldmatrix over all
 * banks. Sums run over columns in order: a row has the same bits whatever tile it falls in.
 * The two rows of warps take slices of 16 tokens in turns. So a tile of fewer tokens costs less, in
 * steps of 32: the body is compiled for 1 to 4 slices a warp and chosen by the tile's live rows.
 *
 * Grouped (experts): the tiles of tokens come from struct expert_plan, rows of x are gathered by
 * pair, results scattered to a row a pair. It is the same kernel: the rows of a tile are looked up
 * in a table in shared memory either way.
 *
 * Launch: a block a tile, two on a multiprocessor, neighbours sharing weights or tokens in L2.
 * Bound: mma.sync, 641 TFLOP/s on an H200; shared memory is nearly as busy (a warp reads 4 KB for
 * 32 mma). 128 x 256 by eight warps, which takes a quarter less from L2, was no faster with many
 * tiles and slower with few. */
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/moe.cuh"
#include "backend/cuda/kernels/round.cuh"

namespace {

enum {
    TOKENS = 128,
    COLS = 128,
    WARP_COLS = 64,
    THREADS = 128,
    SLICE = 32, /* tokens of a slice of both rows of warps */
    TABLE_BYTES = 2 * TOKENS * 4,
    SQUARE_BYTES = 16 * WARP_COLS * 4 /* a warp's slice of results */
};
static_assert((int)TOKENS == (int)EXPERT_TILE, "tiles of the plan are tiles of the kernel");

struct product {
    const uint16_t *x;
    const float *scale; /* NULL: results are left without it */
    int32_t stride, n_rows;
    int32_t n_w;
    const uint16_t *w[3];
    int32_t rows[3];
    float *y[3];
    uint16_t *half;
    int32_t half_cols;
    bool is_wide;      /* results may be stored by 16 bytes */
    int32_t tile_rows; /* tokens of a tile, a multiple of SLICE */
    int32_t n_row_tiles, n_col_tiles;
    struct expert_plan plan; /* grouped: first is not NULL */
    int32_t row_div;         /* pair p reads row p / row_div of x */
};

/* A block's tile. */
struct place {
    int32_t n_live;       /* tokens */
    int32_t k, col, rows; /* weight, first of its rows, how many it has */
    int32_t half_first;   /* where the weight's columns begin in `half` */
    const uint16_t *w;    /* matrix */
};

/* ---- A variant ----------------------------------------------------------------------------- */

template <int K_, int STAGES_> struct variant {
    enum {
        K = K_,
        STAGES = STAGES_,
        ROW_BYTES = 2 * K,
        CHUNKS = ROW_BYTES / 16,
        PASS = THREADS / CHUNKS, /* rows that all threads copy at once */
        STAGE_BYTES = (TOKENS + COLS) * ROW_BYTES,
        SHARED = STAGES * STAGE_BYTES + TABLE_BYTES
    };
    static __device__ __forceinline__ int offset(int row, int chunk)
    {
        int swizzle = K == 64 ? row & 7 : row >> 1 & 3;
        return row * ROW_BYTES + (chunk ^ swizzle) * 16;
    }
};

/* Two blocks in the 100 KB of a GeForce chip, and two in the 228 KB of a data-centre one: up to 1.7
 * times as fast on an H200 where tiles are few, 5 % where they are many. */
typedef variant<32, 3> lean;
typedef variant<64, 3> deep;
static_assert(THREADS / 32 * SQUARE_BYTES <= lean::STAGE_BYTES, "squares in one stage");

/* ---- Where a block works ------------------------------------------------------------------ */

/* Column tile n -> weight and its first row. */
__device__ void place_columns(const product &p, int n, int expert, place *at)
{
    at->k = 0;
    at->half_first = 0;
    int tiles = (p.rows[0] + COLS - 1) / COLS;
    while (n >= tiles) {
        n -= tiles;
        at->half_first += p.rows[at->k++];
        tiles = (p.rows[at->k] + COLS - 1) / COLS;
    }
    at->rows = p.rows[at->k];
    at->col = n * COLS;
    at->w = p.w[at->k] + (int64_t)expert * at->rows * p.stride;
}

/* Fills the tables of rows read (in x) and written; false: nothing to do here. */
__device__ bool take_place(const product &p, int32_t *read, int32_t *write, place *at)
{
    int b = (int)blockIdx.x, i = (int)threadIdx.x;
    if (!p.plan.first) {
        /* Neighbouring blocks: up to 16 tiles of tokens against the same weights, so that a wave
         * of blocks covers a region of both that is far from flat. */
        enum { SPAN = 16 };
        int span = b / (SPAN * p.n_col_tiles), in_span = b - span * SPAN * p.n_col_tiles;
        int height = min((int)SPAN, p.n_row_tiles - span * SPAN);
        int first = (span * SPAN + in_span % height) * p.tile_rows;
        at->n_live = min(p.tile_rows, p.n_rows - first);
        place_columns(p, in_span / height, 0, at);
        if (i < TOKENS) read[i] = write[i] = first + min(i, at->n_live - 1);
    } else {
        int t = b / p.n_col_tiles;
        if (t >= *p.plan.n_tile) return false;
        struct expert_tile tile = p.plan.tile[t];
        at->n_live = tile.n;
        place_columns(p, b - t * p.n_col_tiles, tile.expert, at);
        if (i < TOKENS) {
            int pair = p.plan.pair[tile.first + min(i, at->n_live - 1)];
            read[i] = pair / p.row_div;
            write[i] = pair;
        }
    }
    __syncthreads();
    return true;
}

/* ---- Results -------------------------------------------------------------------------------- */

/* Where chunk `chunk` (four columns) of row r lies in a warp's square of 16 tokens x 64 columns:
 * what a half-warp writes at once, 32 bytes of four rows, falls on different banks. */
__device__ __forceinline__ int square_offset(int r, int chunk)
{
    return r * (WARP_COLS * 4) + (chunk ^ (r & 3) * 2) * 16;
}

/* A finished slice to y: two rows of 256 bytes at a time. `first`: its first token, `col`: the
 * warp's first row of the weight. */
__device__ __forceinline__ void store_floats(const product &p, const place &at,
                                             const int32_t *scales, const int32_t *write,
                                             const char *square, int first, int col)
{
    int lane = threadIdx.x % 32, c = col + lane % 16 * 4;
    if (c >= at.rows) return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int r = i * 2 + lane / 16, token = first + r;
        if (token >= at.n_live) break;
        float4 v = *reinterpret_cast<const float4 *>(square + square_offset(r, lane % 16));
        float scale = __int_as_float(scales[token]);
        float *y = p.y[at.k] + (int64_t)write[token] * at.rows + c;
        v.x *= scale, v.y *= scale, v.z *= scale, v.w *= scale;
        if (p.is_wide) {
            *reinterpret_cast<float4 *>(y) = v;
        } else {
            y[0] = v.x;
            if (c + 1 < at.rows) y[1] = v.y;
            if (c + 2 < at.rows) y[2] = v.z;
            if (c + 3 < at.rows) y[3] = v.w;
        }
    }
}

/* The same to `half`: four rows of 128 bytes at a time. */
__device__ __forceinline__ void store_halves(const product &p, const place &at,
                                             const int32_t *write, const char *square, int first,
                                             int col)
{
    int lane = threadIdx.x % 32, c = col + lane % 8 * 8, left = at.rows - c;
    if (left <= 0) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int r = i * 4 + lane / 8, token = first + r, chunk = lane % 8 * 2;
        if (token >= at.n_live) break;
        float4 a = *reinterpret_cast<const float4 *>(square + square_offset(r, chunk));
        float4 b = *reinterpret_cast<const float4 *>(square + square_offset(r, chunk + 1));
        uint4 v = make_uint4(pack_halves(a.x, a.y), pack_halves(a.z, a.w), pack_halves(b.x, b.y),
                             pack_halves(b.z, b.w));
        uint16_t *out = p.half + (int64_t)write[token] * p.half_cols + at.half_first + c;
        if (p.is_wide) {
            *reinterpret_cast<uint4 *>(out) = v;
        } else {
            const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (e < left) out[e] = (uint16_t)(words[e / 2] >> e % 2 * 16);
        }
    }
}

/* A warp's results, slice by slice through its square in shared memory, so that whole lines leave
 * together. */
template <int SLICES>
__device__ __forceinline__ void store(const product &p, const place &at, const int32_t *scales,
                                      const int32_t *write, const float (&sum)[SLICES][8][4],
                                      char *square, int first, int col)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < SLICES; i++, first += SLICE) {
#pragma unroll
        for (int j = 0; j < 16; j++) {
            int r = j / 8 * 8 + lane / 4, chunk = j % 8 * 2 + lane % 4 / 2;
            const float *v = &sum[i][j % 8][j / 8 * 2];
            *reinterpret_cast<float2 *>(square + square_offset(r, chunk) + lane % 2 * 8) =
                make_float2(v[0], v[1]);
        }
        __syncwarp();
        if (p.half)
            store_halves(p, at, write, square, first, col);
        else
            store_floats(p, at, scales, write, square, first, col);
        __syncwarp();
    }
}

/* ---- The product of a tile ------------------------------------------------------------------ */

/* What a thread copies: one chunk of every PASS-th row of the tile, stage by stage. */
template <class V, int SLICES> struct copies {
    enum { A_PASSES = (SLICES * SLICE + V::PASS - 1) / V::PASS, B_PASSES = COLS / V::PASS };
    const uint16_t *a[A_PASSES], *b;
    int64_t b_step;
    uint32_t to;
    int b_live; /* rows of W from the first on; what is beyond is not there to be read */

    __device__ __forceinline__ copies(const product &p, const place &at, const int32_t *read,
                                      uint32_t ring)
    {
        int row = threadIdx.x / V::CHUNKS, chunk = threadIdx.x % V::CHUNKS;
#pragma unroll
        for (int i = 0; i < A_PASSES; i++)
            a[i] = p.x + (int64_t)read[row + i * V::PASS] * p.stride + chunk * 8;
        b = at.w + (int64_t)(at.col + row) * p.stride + chunk * 8;
        b_step = (int64_t)V::PASS * p.stride;
        b_live = at.rows - at.col - row;
        to = ring + V::offset(row, chunk);
    }

    __device__ __forceinline__ void begin(int k, int stage) const
    {
        uint32_t out = to + stage * V::STAGE_BYTES;
#pragma unroll
        for (int i = 0; i < A_PASSES; i++)
            copy16(out + i * V::PASS * V::ROW_BYTES, a[i] + k * V::K);
        out += TOKENS * V::ROW_BYTES;
        const uint16_t *from = b + k * V::K;
#pragma unroll
        for (int i = 0; i < B_PASSES; i++, from += b_step)
            if (i * V::PASS < b_live) copy16(out + i * V::PASS * V::ROW_BYTES, from);
    }
};

template <class V> __device__ __forceinline__ int after(int stage)
{
    return stage + 1 == V::STAGES ? 0 : stage + 1;
}

/* The part of a warp whose columns are beyond the weight's last row: it copies for the others and
 * leaves the tensor cores to them. Barriers as in gemm_f16_tile. */
template <class V, int SLICES>
__device__ __forceinline__ void copy_only(const copies<V, SLICES> &copy, int n_k)
{
    for (int k = 0, stage = V::STAGES - 1; k < n_k; k++, stage = after<V>(stage)) {
        if (k + V::STAGES - 1 < n_k) copy.begin(k + V::STAGES - 1, stage);
        copies_commit();
        copies_wait<V::STAGES - 2>();
        __syncthreads();
    }
}

/* Operands of one mma step of 16 columns. a_at, b_at: the lane's ldmatrix addresses of step 0. */
template <class V, int SLICES> struct operands {
    uint32_t a[SLICES][4], b[4][4];

    __device__ __forceinline__ void fetch(uint32_t a_at, uint32_t b_at, int stage, int step)
    {
        a_at = (a_at + stage * V::STAGE_BYTES) ^ (step * 32);
        b_at = (b_at + stage * V::STAGE_BYTES) ^ (step * 32);
#pragma unroll
        for (int i = 0; i < SLICES; i++) load_matrices(a[i], a_at + i * SLICE * V::ROW_BYTES);
#pragma unroll
        for (int j = 0; j < 4; j++) load_matrices(b[j], b_at + j * 16 * V::ROW_BYTES);
    }

    __device__ __forceinline__ void multiply_add(float (&sum)[SLICES][8][4]) const
    {
#pragma unroll
        for (int i = 0; i < SLICES; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                mma_f16(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
};

template <class V, int SLICES>
__device__ __forceinline__ void gemm_f16_tile(const product &p, const place &at, int32_t *read,
                                              const int32_t *write, char *ring)
{
    enum { STEPS = V::K / 16 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warp_m = warp % 2;
    const int warp_col = warp / 2 * WARP_COLS, n_k = p.stride / V::K;
    const uint32_t base = shared_address(ring);
    const copies<V, SLICES> copy(p, at, read, base);
#pragma unroll
    for (int s = 0; s < V::STAGES - 1; s++) {
        if (s < n_k) copy.begin(s, s);
        copies_commit();
    }
    /* The table of rows read is used up and now holds their scales: fetched one by one between
     * stores they would cost half as much as a product of few columns. */
    int32_t scale = __float_as_int(p.scale ? p.scale[read[threadIdx.x]] : 1.0f);
    copies_wait<V::STAGES - 2>();
    __syncthreads();
    read[threadIdx.x] = scale;
    if (at.col + warp_col >= at.rows) {
        copy_only(copy, n_k);
        return;
    }
    const uint32_t a_at = base + V::offset(warp_m * 16 + lane % 16, lane / 16);
    const uint32_t b_at =
        base + TOKENS * V::ROW_BYTES + V::offset(warp_col + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    operands<V, SLICES> step_operands[2];
    float sum[SLICES][8][4] = {};
    step_operands[0].fetch(a_at, b_at, 0, 0);
    int reads = 0;
    for (int k = 0, writes = V::STAGES - 1; k < n_k; k++, writes = after<V>(writes)) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (step == STEPS - 1) { /* the next stage is there, and this one is free */
                copies_wait<V::STAGES - 2>();
                __syncthreads();
                reads = after<V>(reads);
            }
            step_operands[(step + 1) % 2].fetch(a_at, b_at, reads, (step + 1) % STEPS);
            if (step == 0) {
                if (k + V::STAGES - 1 < n_k) copy.begin(k + V::STAGES - 1, writes);
                copies_commit();
            }
            step_operands[step % 2].multiply_add(sum);
        }
    }
    /* Past the last barrier a warp may still fetch from the stage after the last, garbage that is
     * not multiplied; the squares lie in the one after that. */
    char *squares = ring + after<V>(reads) * V::STAGE_BYTES;
    store<SLICES>(p, at, read, write, sum, squares + warp * SQUARE_BYTES, warp_m * 16,
                  at.col + warp_col);
}

template <class V> __global__ void __launch_bounds__(THREADS, 2) gemm_f16(product p)
{
    extern __shared__ __align__(1024) char shared[];
    int32_t *read = reinterpret_cast<int32_t *>(shared + V::STAGES * V::STAGE_BYTES);
    int32_t *write = read + TOKENS;
    grid_wait(); /* before weights too: a mirror may have been made just now */
    grid_release();
    place at;
    if (!take_place(p, read, write, &at)) return;
    switch ((at.n_live + SLICE - 1) / SLICE) {
    case 1: gemm_f16_tile<V, 1>(p, at, read, write, shared); break;
    case 2: gemm_f16_tile<V, 2>(p, at, read, write, shared); break;
    case 3: gemm_f16_tile<V, 3>(p, at, read, write, shared); break;
    default: gemm_f16_tile<V, 4>(p, at, read, write, shared); break;
    }
}

/* y[row][c] *= scale[row], `Vector` (1 or 4 values) a thread. Grid: (parts of a row, rows). */
template <typename Vector>
__global__ void __launch_bounds__(256) row_scale(float *y, const float *scale, int n_rows, int cols)
{
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    grid_wait();
    grid_release();
    int c = (int)(blockIdx.x * 256 + threadIdx.x) * WIDTH;
    if (c >= cols) return;
    for (int row = (int)blockIdx.y; row < n_rows; row += (int)gridDim.y) {
        Vector *at = reinterpret_cast<Vector *>(y + (int64_t)row * cols + c), v = *at;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) reinterpret_cast<float *>(&v)[i] *= scale[row];
        *at = v;
    }
}

int32_t up(int32_t n, int32_t step)
{
    return (n + step - 1) / step;
}

/* Whether a multiprocessor has shared memory for two blocks of `deep`: 9.x and 10.x have 228 KB,
 * A100 only 164. */
bool has_room(const struct queue *q)
{
    return q->capability >= 90 && q->capability < 120;
}

void gemm_f16_launch(const struct queue *q, const product &p)
{
    dim3 grid((unsigned)(p.n_row_tiles * p.n_col_tiles));
    if (has_room(q))
        launch(q, gemm_f16<deep>, grid, THREADS, deep::SHARED, p);
    else
        launch(q, gemm_f16<lean>, grid, THREADS, lean::SHARED, p);
}

/* Tokens of a tile, so that the multiprocessors end together: a tile's time by its slices, in
 * hundredths of a microsecond for 64 columns on an H200, alone on its multiprocessor and as one of
 * several that fill it. */
void choose_tiles(const struct queue *q, product *p)
{
    static const int32_t alone[] = {45, 49, 55, 69}, among[] = {28, 36, 48, 60};
    int64_t best = INT64_MAX;
    for (int32_t slices = TOKENS / SLICE; slices > 0; slices--) {
        int32_t n = up(p->n_rows, slices * SLICE);
        int32_t rounds = up(n * p->n_col_tiles, q->n_sm);
        int64_t time = rounds == 1 ? alone[slices - 1] : (int64_t)rounds * among[slices - 1];
        if (time >= best) continue;
        best = time;
        p->tile_rows = slices * SLICE;
        p->n_row_tiles = n;
    }
}

/* What dense and grouped products have in common. */
product product_of(int32_t n_w, const struct cuda_weight *w, const struct act &x, float *const *y,
                   uint16_t *half, int32_t half_cols)
{
    product p = {};
    p.x = static_cast<const uint16_t *>(x.values);
    p.scale = half ? nullptr : x.scale;
    p.stride = x.stride;
    p.n_w = n_w;
    p.half = half;
    p.half_cols = half_cols;
    p.row_div = 1;
    int width = half ? 8 : 4; /* values of 16 bytes */
    p.is_wide = is_at_16(half) && (!half || half_cols % width == 0);
    for (int32_t k = 0; k < n_w; k++) {
        p.w[k] = w[k].mirror;
        p.rows[k] = w[k].rows;
        p.y[k] = y[k];
        p.is_wide = p.is_wide && w[k].rows % width == 0 && is_at_16(y[k]);
        p.n_col_tiles += up(w[k].rows, COLS);
    }
    return p;
}

} // namespace

void launch_gemm_f16(const struct queue *q, const struct gemm_args *args)
{
    product p = product_of(args->n_w, args->w, args->x, args->y, args->half, args->half_cols);
    p.n_rows = args->n_rows;
    if (args->is_unscaled) p.scale = nullptr;
    choose_tiles(q, &p);
    gemm_f16_launch(q, p);
}

void launch_grouped_f16(const struct queue *q, const struct grouped_args *args)
{
    product p = product_of(args->n_w, args->w, args->x, args->y, args->half, args->half_cols);
    p.plan = args->plan;
    p.row_div = args->is_row_a_pair ? 1 : args->n_used;
    p.n_row_tiles = expert_tiles_max(args->n_rows, args->n_used, args->w[0].n_expert);
    gemm_f16_launch(q, p);
}

void launch_row_scale(const struct queue *q, float *y, const float *scale, int32_t n_rows,
                      int32_t cols)
{
    bool is_wide = cols % 4 == 0 && is_at_16(y);
    unsigned parts = (unsigned)up(cols, is_wide ? 1024 : 256);
    dim3 grid(parts, n_rows < 65535 ? (unsigned)n_rows : 65535);
    if (is_wide)
        launch(q, row_scale<float4>, grid, 256, 0, y, scale, n_rows, cols);
    else
        launch(q, row_scale<float>, grid, 256, 0, y, scale, n_rows, cols);
}
