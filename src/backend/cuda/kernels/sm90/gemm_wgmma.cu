/* Matrix products in fp16 on Hopper: y[t] = W x[t] for many rows t, fp32 accumulation by wgmma. The
 * data and the results are those of gemm_f16.cu, and so are the bits: sums run over columns in
 * order, in one chain, whatever the tile and however many rows there are.
 *
 * A block makes one tile of M rows of x by N rows of W after the other. Two groups of four warps
 * multiply, each M / 2 rows, and a thread of a third one keeps a ring of STAGES steps of 64 columns
 * filled by TMA. The groups are not kept in step: while one stores its part of a tile, the other
 * multiplies alone, up to STAGES steps behind it.
 *
 * Launch: a block on each multiprocessor. Tiles come in many shapes; the one is taken that leaves
 * the fewest multiprocessors idle at the end: 2048 x 2560 results are 128 tiles of 256 x 160, but
 * 160 of 128 x 256, which take two rounds. Bound: wgmma, and the chip's power. Pairs of blocks
 * that fetch one half of W each for both are 20 % slower than blocks on their own: L2 gives 8.8
 * TB/s, and pairs wait for each other. */
#include <cuda.h>
#include <cuda_runtime.h>
#include <string.h>

#include "backend/cuda/kernels/gelu.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/kernels/sm90/tensor.cuh"

namespace {

enum {
    GROUP = 128, /* threads that multiply together */
    GROUPS = 2,
    THREADS = (GROUPS + 1) * GROUP,
    STEP = 64, /* columns of a stage */
    ROW_BYTES = STEP * 2,
    SLAB = 64,   /* rows of x that a wgmma takes */
    X_BOX = 128, /* rows of a box of x */
    BAND = 2048  /* rows of x that are multiplied with the same rows of W, one tile after the
                        other, before the next ones of W: they stay in L2 */
};

/* A group has SLABS slabs of rows. */
template <int SLABS_, int N_, int STAGES_> struct variant {
    enum {
        SLABS = SLABS_,
        M = GROUPS * SLABS * SLAB,
        N = N_,
        STAGES = STAGES_,
        X_BYTES = M * ROW_BYTES,
        STAGE_BYTES = X_BYTES + N * ROW_BYTES,
        SHARED = 1024 + STAGES * (STAGE_BYTES + 16),
        IS_LARGE = SLABS * N > 320, /* more than 160 sums a thread */
        REGISTERS_MANY = IS_LARGE ? 240 : 232,
        REGISTERS_FEW = IS_LARGE ? 24 : 40
    };
    static_assert(SHARED <= 227 * 1024, "shared memory of a block");
};

struct product {
    CUtensorMap x, w;
    int32_t n_rows, n_cols, n_steps;
    int32_t n_high, n_wide; /* tiles */
    const float *scale;     /* of rows; NULL: 1 */
    float *y;               /* [n_rows][n_cols], or NULL: */
    uint16_t *half;         /* [n_rows][half_cols] */
    int32_t half_cols;
    /* Gate and up, each half of W and of the columns of a tile: `half` gets gelu(gate) * up times
     * hidden_inverse, in its first n_hidden columns, zeros in the others. n_hidden 0: they are not
     * a pair. */
    int32_t n_hidden;
    float hidden_inverse, *hidden_scale; /* [n_rows], gets 1 / hidden_inverse */
};

/* ---- Where a block works --------------------------------------------------------------------- */

struct place {
    int row, col; /* first of its tile */
};

/* Tile `i`, of all that blocks take in turns; false: there is none. */
template <class V> __device__ __forceinline__ bool take_place(const product &p, int i, place *at)
{
    if (i >= p.n_high * p.n_wide) return false;
    constexpr int HEIGHT = BAND / V::M;
    int band = i / (HEIGHT * p.n_wide), in_band = i - band * HEIGHT * p.n_wide;
    int height = min(HEIGHT, p.n_high - band * HEIGHT);
    at->row = (band * HEIGHT + in_band % height) * V::M;
    at->col = in_band / height * V::N;
    return true;
}

/* Stages of the ring, taken in turns. */
template <class V> struct turn {
    int stage, parity;
    __device__ __forceinline__ void next()
    {
        if (++stage < V::STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

/* Addresses in shared memory. A stage is `full` when its bytes are there, and `empty` when both
 * groups have multiplied what is in it. */
struct ring {
    uint32_t stages, full, empty;
};

template <class V> __device__ __forceinline__ ring ring_at(const char *shared)
{
    ring r;
    r.stages = ((uint32_t)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    r.full = r.stages + V::STAGES * V::STAGE_BYTES;
    r.empty = r.full + V::STAGES * 8;
    return r;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* By one thread. */
template <class V> __device__ __forceinline__ void fill_ring(const product &p, const ring &r)
{
    turn<V> turn = {0, 1}; /* all stages are empty */
    place at;
    for (int i = blockIdx.x; take_place<V>(p, i, &at); i += gridDim.x)
        for (int step = 0; step < p.n_steps; step++, turn.next()) {
            uint32_t barrier = r.full + turn.stage * 8, to = r.stages + turn.stage * V::STAGE_BYTES;
            barrier_wait(r.empty + turn.stage * 8, turn.parity);
            barrier_expect(barrier, V::STAGE_BYTES);
#pragma unroll
            for (int row = 0; row < V::M; row += X_BOX)
                copy_box(to + row * ROW_BYTES, &p.x, step * STEP, at.row + row, barrier);
            to += V::X_BYTES;
            if (p.n_hidden == 0) {
                copy_box(to, &p.w, step * STEP, at.col, barrier);
                continue;
            }
            copy_box(to, &p.w, step * STEP, at.col / 2, barrier);
            copy_box(to + V::N / 2 * ROW_BYTES, &p.w, step * STEP, p.n_hidden + at.col / 2,
                     barrier);
        }
}

/* ---- Results --------------------------------------------------------------------------------- */

/* a of the upper lane of each two (by `mask`) against b of the lower one. */
__device__ __forceinline__ void swap_words(uint32_t &a, uint32_t &b, int mask)
{
    bool is_upper = threadIdx.x & mask;
    uint32_t got = __shfl_xor_sync(~0u, is_upper ? a : b, mask);
    if (is_upper)
        a = got;
    else
        b = got;
}

/* The four words of four neighbouring lanes, turned: word i of lane j to word j of lane i. */
__device__ __forceinline__ uint4 turned(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    swap_words(a, b, 1);
    swap_words(c, d, 1);
    swap_words(a, c, 2);
    swap_words(b, d, 2);
    return make_uint4(a, b, c, d);
}

/* Columns col .. col + COLS - 1 of rows row and row + 8, 32 at a time: 64 bytes of each row by four
 * lanes. `pair_at(j, h)`: columns 8j + 2 (lane % 4) and the next of row + 8h. Columns from `n` on
 * are zeros, from `end` on they are not stored. */
template <int COLS, typename Pair>
__device__ __forceinline__ void store_words(const product &p, int row, int col, int n, int end,
                                            Pair pair_at)
{
    col += threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < COLS / 8; j += 4)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t word[4];
#pragma unroll
            for (int e = 0; e < 4; e++) /* COLS may be an odd multiple of 8 */
                word[e] = pair_at(j + e < COLS / 8 ? j + e : j, h);
            uint4 words = turned(word[0], word[1], word[2], word[3]);
            if (col + j * 8 >= n) words = make_uint4(0, 0, 0, 0);
            int64_t at = (int64_t)(row + 8 * h) * p.half_cols + col + j * 8;
            bool is_there = j + threadIdx.x % 4 < COLS / 8 && col + j * 8 < end;
            if (row + 8 * h < p.n_rows && is_there) *reinterpret_cast<uint4 *>(p.half + at) = words;
        }
}

template <int N>
__device__ __forceinline__ void store_halves(const product &p, const float (&d)[N / 2], int row,
                                             int col)
{
    store_words<N>(p, row, col, p.n_cols, p.n_cols, [&](int j, int h) {
        return pack_halves(d[4 * j + 2 * h], d[4 * j + 2 * h + 1]);
    });
}

/* gelu(gate) * up: gate is in the first half of the tile's columns, up in the other. */
template <int N>
__device__ __forceinline__ void store_hidden(const product &p, const float (&d)[N / 2], int row,
                                             int col)
{
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool is_there = row + 8 * h < p.n_rows;
        scale[h] = is_there ? p.scale[row + 8 * h] : 1.0f;
        if (is_there && col == 0 && threadIdx.x % 4 == 0)
            p.hidden_scale[row + 8 * h] = 1.0f / p.hidden_inverse;
    }
    store_words<N / 2>(p, row, col / 2, p.n_hidden, p.half_cols, [&](int j, int h) {
        float v[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float gate = d[4 * j + 2 * h + i] * scale[h];
            v[i] = gelu_mul(gate, d[4 * j + N / 4 + 2 * h + i] * scale[h]) * p.hidden_inverse;
        }
        return pack_halves(v[0], v[1]);
    });
}

/* The same in fp32, 8 columns at a time. */
template <int N>
__device__ __forceinline__ void store_floats(const product &p, const float (&d)[N / 2], int row,
                                             int col)
{
    col += threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row + 8 * h >= p.n_rows) return;
        float scale = p.scale ? p.scale[row + 8 * h] : 1.0f;
        float *y = p.y + (int64_t)(row + 8 * h) * p.n_cols + col;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            if (col + j * 8 < p.n_cols)
                *reinterpret_cast<float2 *>(y + j * 8) =
                    make_float2(d[4 * j + 2 * h] * scale, d[4 * j + 2 * h + 1] * scale);
    }
}

/* ---- The product of a tile ------------------------------------------------------------------- */

/* One stage: four wgmma of 16 columns for each slab. */
template <class V>
__device__ __forceinline__ void multiply_stage(float (&sums)[V::SLABS][V::N / 2], uint32_t stage,
                                               int group, bool is_first)
{
    uint64_t a = operand_at(stage + group * V::SLABS * SLAB * ROW_BYTES);
    uint64_t b = operand_at(stage + V::X_BYTES);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEP / 16; s++)
#pragma unroll
        for (int i = 0; i < V::SLABS; i++)
            wgmma_shared<V::N>::add(sums[i], a + i * (SLAB * ROW_BYTES >> 4) + s * OPERAND_STEP,
                                    b + s * OPERAND_STEP, s > 0 || !is_first);
    wgmma_commit();
}

/* A group is done with a stage. */
__device__ __forceinline__ void give_back(uint32_t barrier)
{
    if (threadIdx.x % GROUP == 0) barrier_arrive(barrier);
}

template <class V>
__device__ __forceinline__ void multiply_tiles(const product &p, const ring &r, int group)
{
    const int row = group * V::SLABS * SLAB + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
    turn<V> turn = {0, 0};
    place at;
    for (int i = blockIdx.x; take_place<V>(p, i, &at); i += gridDim.x) {
        float sums[V::SLABS][V::N / 2];
        int before = 0; /* the stage that is still being multiplied */
        for (int step = 0; step < p.n_steps; step++, turn.next()) {
            barrier_wait(r.full + turn.stage * 8, turn.parity);
            multiply_stage<V>(sums, r.stages + turn.stage * V::STAGE_BYTES, group, step == 0);
            wgmma_wait<1>();
            if (step > 0) give_back(r.empty + before * 8);
            before = turn.stage;
        }
        wgmma_wait<0>();
        give_back(r.empty + before * 8);
#pragma unroll
        for (int slab = 0; slab < V::SLABS; slab++)
            if (p.n_hidden)
                store_hidden<V::N>(p, sums[slab], at.row + slab * SLAB + row, at.col);
            else if (p.half)
                store_halves<V::N>(p, sums[slab], at.row + slab * SLAB + row, at.col);
            else
                store_floats<V::N>(p, sums[slab], at.row + slab * SLAB + row, at.col);
    }
}

template <class V>
__global__ void __launch_bounds__(THREADS, 1) gemm_wgmma(const __grid_constant__ product p)
{
    extern __shared__ char shared[];
    const ring r = ring_at<V>(shared);
    const int group = threadIdx.x / GROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < V::STAGES; i++) {
            barrier_init(r.full + i * 8, 1);
            barrier_init(r.empty + i * 8, GROUPS);
        }
        barriers_show();
    }
    __syncthreads();
    grid_wait(); /* before weights too: a mirror may have been made just now */
    grid_release();
    if (group == GROUPS) {
        registers_down<V::REGISTERS_FEW>();
        if (threadIdx.x % GROUP == 0) fill_ring<V>(p, r);
    } else {
        registers_up<V::REGISTERS_MANY>();
        multiply_tiles<V>(p, r, group);
    }
}

/* ---- Launching ------------------------------------------------------------------------------- */

/* Slabs, N, stages, and the share of the tensor cores' rate that is reached, in percent. */
#define TILE_LIST(X)                                                                               \
    X(1, 256, 4, 100)                                                                              \
    X(1, 240, 4, 99)                                                                               \
    X(1, 224, 5, 98)                                                                               \
    X(1, 208, 5, 97)                                                                               \
    X(1, 192, 5, 97)                                                                               \
    X(1, 160, 6, 97)                                                                               \
    X(1, 128, 7, 95)                                                                               \
    X(1, 96, 7, 87)                                                                                \
    X(2, 192, 4, 98)                                                                               \
    X(2, 176, 4, 97)                                                                               \
    X(2, 160, 4, 99)                                                                               \
    X(2, 128, 4, 96)                                                                               \
    X(2, 96, 5, 94)

int32_t up(int32_t n, int32_t step)
{
    return (n + step - 1) / step;
}

/* Time of a product with these tiles, in hundredths of a cycle: rounds of tiles, each as long as
 * its wgmma take, and what is stored at the end. */
int64_t time_of(const struct queue *q, const product &p, int32_t slabs, int32_t n, int32_t percent)
{
    int32_t m = GROUPS * slabs * SLAB;
    int64_t rounds = up(up(p.n_rows, m) * up(p.n_cols, n), q->n_sm), cycles = m * n / 32;
    return rounds * cycles * p.n_steps * 10000 / percent + cycles * 200;
}

template <class V> void start(const struct queue *q, product *p)
{
    p->n_high = up(p->n_rows, V::M);
    p->n_wide = up(p->n_cols, V::N);
    int32_t n = p->n_high * p->n_wide;
    launch(q, gemm_wgmma<V>, dim3((unsigned)(n < q->n_sm ? n : q->n_sm)), THREADS, V::SHARED, *p);
}

/* The place in TILE_LIST of the fastest one. */
int best_tile(const struct queue *q, const product &p)
{
    int64_t times[] = {
#define X(slabs, n, stages, percent) time_of(q, p, slabs, n, percent),
        TILE_LIST(X)
#undef X
    };
    int best = 0;
    for (int i = 1; i < GEMM_TILES; i++)
        if (times[i] < times[best]) best = i;
    return best;
}

typedef void start_fn(const struct queue *q, product *p);

void start_tile(const struct queue *q, product *p, int tile)
{
    static start_fn *const starts[] = {
#define X(slabs, n, stages, percent) start<variant<slabs, n, stages>>,
        TILE_LIST(X)
#undef X
    };
    static_assert(sizeof starts / sizeof *starts == GEMM_TILES, "kernels.h counts them");
    starts[tile](q, p);
}

/* ---- Maps ------------------------------------------------------------------------------------ */

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

encode_fn *find_encoder()
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                         cudaEnableDefault, &found);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
    if (error || found != cudaDriverEntryPointSuccess) return nullptr;
    return reinterpret_cast<encode_fn *>(entry);
}

bool make_map(encode_fn *encode, const void *values, int32_t rows, int32_t stride, int32_t box_rows,
              struct tensor_map *out)
{
    CUtensorMap map;
    cuuint64_t size[] = {(cuuint64_t)stride, (cuuint64_t)rows}, row_bytes = (cuuint64_t)stride * 2;
    cuuint32_t box[] = {STEP, (cuuint32_t)box_rows}, every[] = {1, 1};
    static_assert(sizeof map == sizeof *out, "a map");
    CUresult status =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void *>(values), size,
               &row_bytes, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    memcpy(out, &map, sizeof map);
    return status == CUDA_SUCCESS;
}

bool is_pair(const struct gemm_args *args)
{
    return args->hidden.kind != ACT_NONE;
}

bool is_at_16(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/* Whether results can be stored by 16 bytes (fp32: 8). */
bool suits(const struct gemm_args *args)
{
    bool is_right = is_at_16(args->half) && is_at_16(args->y[0]) && is_at_16(args->hidden.values);
    is_right =
        is_right && (args->half ? args->half_cols % 8 == 0 : is_pair(args) || args->n_w == 1);
    for (int32_t k = 0; k < args->n_w; k++) is_right = is_right && args->w[k].rows % 8 == 0;
    return is_right;
}

int32_t all_rows(const struct gemm_args *args)
{
    int32_t n = 0;
    for (int32_t k = 0; k < args->n_w; k++) n += args->w[k].rows;
    return n;
}

} // namespace

int gemm_wgmma_prepare(void)
{
    cudaError_t error = cudaSuccess;
#define X(slabs, n, stages, percent)                                                               \
    if (!error)                                                                                    \
        error = allow_shared(gemm_wgmma<variant<slabs, n, stages>>,                                \
                             variant<slabs, n, stages>::SHARED);
    TILE_LIST(X)
#undef X
    return error;
}

bool gemm_maps_make(const struct gemm_args *args, struct gemm_maps *out)
{
    static const int32_t heights[] = {
#define X(slabs, n, stages, percent) n,
        TILE_LIST(X)
#undef X
    };
    encode_fn *encode = find_encoder();
    int32_t stride = args->x.stride, rows = all_rows(args);
    if (!encode || !suits(args)) return false;
    bool is_made = make_map(encode, args->x.values, args->n_rows, stride, X_BOX, &out->x);
    for (int i = 0; i < GEMM_TILES; i++)
        is_made = is_made && make_map(encode, args->w[0].mirror, rows, stride,
                                      heights[i] / (is_pair(args) ? 2 : 1), &out->w[i]);
    return is_made;
}

void launch_gemm_wgmma(const struct queue *q, const struct gemm_args *args,
                       const struct gemm_maps *maps)
{
    product p = {};
    p.n_rows = args->n_rows;
    p.n_cols = all_rows(args);
    p.n_steps = args->x.stride / STEP;
    if (is_pair(args)) {
        p.scale = args->x.scale;
        p.half = static_cast<uint16_t *>(args->hidden.values);
        p.half_cols = args->hidden.stride;
        p.n_hidden = args->w[0].rows;
        p.n_cols = 2 * p.half_cols;
        p.hidden_inverse = 1.0f / args->hidden_scale;
        p.hidden_scale = args->hidden.scale;
    } else {
        p.scale = args->half || args->is_unscaled ? nullptr : args->x.scale;
        p.y = args->y[0];
        p.half = args->half;
        p.half_cols = args->half_cols;
    }
    int tile = best_tile(q, p);
    memcpy(&p.x, &maps->x, sizeof p.x);
    memcpy(&p.w, &maps->w[tile], sizeof p.w);
    start_tile(q, &p, tile);
}
