/* Heads: norm, RoPE and the write of keys and values, each on its own and all in one.
 *
 * A group (a head of d values) is cut into two halves, since RoPE turns the pairs (i, i + d/2);
 * thread j of the group's unit of threads holds quad j of both halves. A unit is whole warps, of
 * which d/8 threads work. Its sum of squares runs over the thread's two quads, the warp by
 * butterfly, then over the unit's warps in order: the same in launch_group_norm and launch_heads,
 * which therefore write the same bits.
 *
 * The angle is position * inv_freq in fp32, as the model was trained; its sine and cosine are exact
 * to about an ulp for angles up to 2^22.
 *
 * Launch: a row's heads over blocks of 128 threads, 4 heads of up to 256 values or 2 of 512 each;
 * with many rows four times as many, by a kernel that knows their form.
 * Bound: bytes read and written; for one row latency: a read from L2, a sum, sine and cosine. */
#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace {

enum { UNIT_THREADS_MAX = 1024, UNITS_BLOCK = 128, BLOCKS_PER_SM = 10 };

__host__ __device__ constexpr int unit_threads(int group)
{
    return ((group + 7) / 8 + WARP - 1) / WARP * WARP;
}
/* Threads of a block: one unit, or as many as fit in 128. */
inline int block_threads(int group)
{
    int t = unit_threads(group);
    return t >= UNITS_BLOCK ? t : UNITS_BLOCK / t * t;
}

/* Bytes to the token's cell. No kernel writes the step's arrays or the table, so this may be read
 * before grid_wait, and nobody waits for two reads one after the other. */
__device__ __forceinline__ size_t cell_offset(const struct kv_cache &cache,
                                              const struct step_view &step, int token)
{
    return kv_offset(&cache, step.sequence[token], step.position[token]);
}

/* ---- All in one ---------------------------------------------------------------------------- */

__device__ __forceinline__ void store_head(const struct heads_args &p, enum head_kind kind, int row,
                                           size_t offset, int head, int j,
                                           const struct half_quads &x)
{
    const int d = p.cache.head_dim;
    uint32_t lo = 0, hi = 0; /* largest of the blocks of both quads, for Q8_0 */
    if (kind != HEAD_Q && p.cache.format == FORMAT_Q8_0) {
        lo = quad_most(x.lo), hi = quad_most(x.hi);
        if (d == 32) lo = hi = max(lo, hi); /* the head is one block */
        lo = octet_max(lo), hi = octet_max(hi);
    }
    if (j >= d / 8) return;
    if (kind == HEAD_Q) {
        float *y = p.q_out + ((int64_t)row * p.n_heads + head) * d + 4 * j;
        *reinterpret_cast<float4 *>(y) = x.lo;
        *reinterpret_cast<float4 *>(y + d / 2) = x.hi;
        return;
    }
    char *cell = static_cast<char *>(kind == HEAD_K ? p.cache.k : p.cache.v) + offset +
                 head * p.cache.head_bytes;
    store_in_cell(p.cache, p.cache.format, cell, kind == HEAD_K, 4 * j, x.lo, lo);
    store_in_cell(p.cache, p.cache.format, cell, kind == HEAD_K, d / 2 + 4 * j, x.hi, hi);
}

__global__ void __launch_bounds__(UNITS_BLOCK, BLOCKS_PER_SM)
    heads_kernel(const __grid_constant__ struct heads_args p, int threads)
{
    __shared__ float shared[WARP];
    const int d = p.cache.head_dim, j = threadIdx.x % threads, row = blockIdx.x;
    const int n_q = p.has_q ? p.n_heads : 0, n_kv = p.has_k ? p.cache.n_heads : 0;
    int head = blockIdx.y * (blockDim.x / threads) + threadIdx.x / threads;
    const bool is_head = head < n_q + 2 * n_kv;
    enum head_kind kind = HEAD_Q;
    if (head >= n_q) head -= n_q, kind = HEAD_K;
    if (kind == HEAD_K && head >= n_kv) head -= n_kv, kind = HEAD_V;
    const float *w = kind == HEAD_Q ? p.w_q : kind == HEAD_K ? p.w_k : nullptr;
    const int limit = j < d / 8 ? d : 0; /* threads beyond the head have zeros */
    float4 w_lo = load_factors(w, 4 * j, limit), w_hi = load_factors(w, d / 2 + 4 * j, limit);
    float4 frequency =
        kind == HEAD_V ? make_float4(0, 0, 0, 0) : load_quad(p.inv_freq, 4 * j, limit / 2);
    const bool is_live = is_head && row < rows_live(p.rows, p.step);
    int token = is_live ? row_token(p.rows, p.step, row) : 0;
    float position = is_live ? (float)(p.step.position[token] + p.ahead) : 0.0f;
    size_t offset = is_live && kind != HEAD_Q ? cell_offset(p.cache, p.step, token) : 0;
    const struct angles by = angles_at(position, frequency);
    grid_wait();
    grid_release();
    struct half_quads x = {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
    if (is_head) x = load_head(p, kind, row, head, j);
    x = unit_norm(x, w_lo, w_hi, d, p.eps, threads, shared);
    turn(&x, by, frequency);
    if (is_live) store_head(p, kind, row, offset, head, j, x);
}

/* ---- The same for many rows ------------------------------------------------------------------ */

/* A unit has up to HEADS_EACH neighbouring heads of one kind, for which it makes sines once. What
 * form they have is known, so that a head takes 200 instructions and not 1100. */
enum { HEADS_EACH = 4, MANY_BLOCKS_PER_SM = 8 };

struct head_range {
    enum head_kind kind;
    int first, n;  /* heads */
    int64_t place; /* of the first one's first value among the halves */
};

__device__ __forceinline__ int units_of(int heads)
{
    return (heads + HEADS_EACH - 1) / HEADS_EACH;
}

__device__ __forceinline__ struct head_range head_range_of(const struct heads_args &p, int unit)
{
    const int n_q = p.has_q ? p.n_heads : 0, n_kv = p.has_k ? p.cache.n_heads : 0;
    struct head_range range = {HEAD_Q, unit, n_q};
    int col = p.q_col;
    if (range.first >= units_of(n_q)) {
        range = {HEAD_K, unit - units_of(n_q), n_kv};
        col = p.k_col;
    }
    if (range.kind == HEAD_K && range.first >= units_of(n_kv)) {
        range = {HEAD_V, range.first - units_of(n_kv), n_kv};
        col = p.is_k_eq_v ? p.k_col : p.v_col;
    }
    range.first *= HEADS_EACH;
    range.n = min(range.n - range.first, (int)HEADS_EACH); /* below 1: no heads are left */
    range.place = (int64_t)blockIdx.x * p.half_cols + col + range.first * p.cache.head_dim;
    return range;
}

/* 1 / sqrt(mean + eps) of each head; all threads of the block call it. A division by D, a power of
 * two, is a product. */
template <int D>
__device__ __forceinline__ void many_factors(const struct half_quads (&x)[HEADS_EACH],
                                             float (&r)[HEADS_EACH], float eps)
{
    __shared__ float shared[HEADS_EACH][UNITS_BLOCK / WARP];
    const int warp = threadIdx.x / WARP;
#pragma unroll
    for (int e = 0; e < HEADS_EACH; e++) {
        r[e] = warp_sum(__fadd_rn(quad_squares(x[e].lo), quad_squares(x[e].hi)));
        if (D / 8 > WARP && threadIdx.x % WARP == 0) shared[e][warp] = r[e];
    }
    if (D / 8 > WARP) __syncthreads();
#pragma unroll
    for (int e = 0; e < HEADS_EACH; e++) {
        if (D / 8 > WARP) r[e] = __fadd_rn(shared[e][warp / 2 * 2], shared[e][warp / 2 * 2 + 1]);
        r[e] = rsqrtf(__fadd_rn(__fmul_rn(r[e], 1.0f / D), eps));
    }
}

/* heads_kernel of halves, heads of D values and fp16 caches. */
template <int D>
__global__ void __launch_bounds__(UNITS_BLOCK, MANY_BLOCKS_PER_SM)
    heads_many_kernel(const __grid_constant__ struct heads_args p)
{
    constexpr int THREADS = D / 8;
    const int j = threadIdx.x % THREADS, row = blockIdx.x;
    const struct head_range range =
        head_range_of(p, blockIdx.y * (UNITS_BLOCK / THREADS) + threadIdx.x / THREADS);
    const float *w = range.kind == HEAD_Q ? p.w_q : range.kind == HEAD_K ? p.w_k : nullptr;
    const float4 w_lo = load_factors(w, 4 * j, D), w_hi = load_factors(w, D / 2 + 4 * j, D);
    const float4 frequency =
        range.kind == HEAD_V ? make_float4(0, 0, 0, 0) : load_quad(p.inv_freq, 4 * j, D / 2);
    const bool is_live = row < rows_live(p.rows, p.step);
    const int token = is_live ? row_token(p.rows, p.step, row) : 0;
    const float position = is_live ? (float)(p.step.position[token] + p.ahead) : 0.0f;
    const bool is_cached = is_live && range.n > 0 && range.kind != HEAD_Q;
    const size_t offset = is_cached ? cell_offset(p.cache, p.step, token) : 0;
    const struct angles by = angles_at(position, frequency);
    grid_wait();
    grid_release();
    const float scale = p.half_scale[row];
    struct half_quads x[HEADS_EACH];
    float r[HEADS_EACH];
#pragma unroll
    for (int e = 0; e < HEADS_EACH; e++) {
        const uint16_t *from = p.half + range.place + (e < range.n ? e * D : 0) + 4 * j;
        if (range.n < 1) from = p.half;
        x[e] = {half_quad(*reinterpret_cast<const uint2 *>(from), scale),
                half_quad(*reinterpret_cast<const uint2 *>(from + D / 2), scale)};
    }
    many_factors<D>(x, r, p.eps);
    if (!is_live) return;
#pragma unroll
    for (int e = 0; e < HEADS_EACH; e++) {
        if (e >= range.n) return;
        x[e] = {quad_normed(x[e].lo, r[e], w_lo), quad_normed(x[e].hi, r[e], w_hi)};
        turn(&x[e], by, frequency);
        if (range.kind == HEAD_Q) {
            float *y = p.q_out + ((int64_t)row * p.n_heads + range.first + e) * D + 4 * j;
            *reinterpret_cast<float4 *>(y) = x[e].lo;
            *reinterpret_cast<float4 *>(y + D / 2) = x[e].hi;
        } else {
            const bool is_key = range.kind == HEAD_K;
            char *cell = static_cast<char *>(is_key ? p.cache.k : p.cache.v) + offset +
                         (range.first + e) * p.cache.head_bytes;
            store_in_cell(p.cache, FORMAT_F16, cell, is_key, 4 * j, x[e].lo, 0);
            store_in_cell(p.cache, FORMAT_F16, cell, is_key, D / 2 + 4 * j, x[e].hi, 0);
        }
    }
}

/* ---- One by one ---------------------------------------------------------------------------- */

struct group_args {
    struct step_view step;
    struct rows rows;
    const float *x, *w;
    float *y;
    int32_t cols, group, threads;
    float eps;     /* of the norm */
    int32_t ahead; /* of positions, of RoPE */
};

/* Groups that do not divide into halves of quads end in a part quad: half is rounded up. */
__global__ void __launch_bounds__(UNIT_THREADS_MAX)
    group_norm_kernel(const __grid_constant__ struct group_args p)
{
    __shared__ float shared[WARP];
    const int j = threadIdx.x % p.threads, row = blockIdx.x, half = (p.group + 7) / 8 * 4;
    const int g = blockIdx.y * (blockDim.x / p.threads) + threadIdx.x / p.threads;
    const int limit = 4 * j < half && g < p.cols / p.group ? p.group : 0;
    float4 w_lo = load_factors(p.w, 4 * j, limit), w_hi = load_factors(p.w, half + 4 * j, limit);
    grid_wait();
    grid_release();
    const int64_t at = (int64_t)row * p.cols + (limit ? g * p.group : 0);
    struct half_quads x = {load_quad(p.x + at, 4 * j, min(limit, half)),
                           load_quad(p.x + at, half + 4 * j, limit)};
    x = unit_norm(x, w_lo, w_hi, p.group, p.eps, p.threads, shared);
    if (row >= rows_live(p.rows, p.step)) return;
    store_quad(p.y + at, 4 * j, min(limit, half), x.lo);
    store_quad(p.y + at, half + 4 * j, limit, x.hi);
}

__global__ void __launch_bounds__(UNIT_THREADS_MAX)
    rope_kernel(const __grid_constant__ struct group_args p)
{
    const int j = threadIdx.x % p.threads, row = blockIdx.x, half = p.group / 2;
    const int g = blockIdx.y * (blockDim.x / p.threads) + threadIdx.x / p.threads;
    const bool is_in = 4 * j < half && g < p.cols / p.group;
    float4 frequency = load_quad(p.w, 4 * j, is_in ? half : 0);
    grid_wait();
    grid_release();
    if (!is_in || row >= rows_live(p.rows, p.step)) return;
    float position = (float)(p.step.position[row_token(p.rows, p.step, row)] + p.ahead);
    const int64_t at = (int64_t)row * p.cols + g * p.group;
    struct half_quads x = {load_quad(p.x + at, 4 * j, half),
                           load_quad(p.x + at + half, 4 * j, half)};
    turn(&x, angles_at(position, frequency), frequency);
    store_quad(p.y + at, 4 * j, half, x.lo);
    store_quad(p.y + at + half, 4 * j, half, x.hi);
}

struct write_args {
    struct step_view step;
    struct rows rows;
    const float *k, *v;
    struct kv_cache cache;
};

__global__ void __launch_bounds__(256) kv_write_kernel(const __grid_constant__ struct write_args p)
{
    const int cols = p.cache.n_heads * p.cache.head_dim, row = blockIdx.x;
    const int col = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    const float *source = (blockIdx.z ? p.v : p.k) + (int64_t)row * cols;
    const bool is_live = col < cols && row < rows_live(p.rows, p.step);
    size_t offset = is_live ? cell_offset(p.cache, p.step, row_token(p.rows, p.step, row)) : 0;
    grid_wait();
    grid_release();
    float4 x = load_quad(source, col, cols);
    uint32_t most_bits = octet_max(quad_most(x));
    if (!is_live) return;
    const int head = col / p.cache.head_dim;
    char *cell = static_cast<char *>(blockIdx.z ? p.cache.v : p.cache.k) + offset +
                 head * p.cache.head_bytes;
    store_in_cell(p.cache, p.cache.format, cell, !blockIdx.z, col % p.cache.head_dim, x, most_bits);
}

bool are_many(const struct queue *q, const struct heads_args *args)
{
    int d = args->cache.head_dim;
    return args->rows.max > q->n_sm && args->half && (d == 256 || d == 512) &&
           (!args->has_k || args->cache.format == FORMAT_F16);
}

void launch_many(const struct queue *q, const struct heads_args *args)
{
    int n_q = args->has_q ? args->n_heads : 0, n_kv = args->has_k ? args->cache.n_heads : 0;
    int n = (n_q + HEADS_EACH - 1) / HEADS_EACH + 2 * ((n_kv + HEADS_EACH - 1) / HEADS_EACH);
    int d = args->cache.head_dim, each = UNITS_BLOCK / (d / 8);
    dim3 grid((unsigned)args->rows.max, (unsigned)((n + each - 1) / each));
    launch(q, d == 256 ? heads_many_kernel<256> : heads_many_kernel<512>, grid, UNITS_BLOCK, 0,
           *args);
}

inline unsigned units_grid(int n, int group)
{
    int each = block_threads(group) / unit_threads(group);
    return (unsigned)((n + each - 1) / each);
}

void launch_groups(const struct queue *q, void (*kernel)(struct group_args), struct group_args args)
{
    if (args.rows.max <= 0) return;
    args.threads = unit_threads(args.group);
    dim3 grid((unsigned)args.rows.max, units_grid(args.cols / args.group, args.group));
    launch(q, kernel, grid, (unsigned)block_threads(args.group), 0, args);
}

} // namespace

extern "C" void launch_heads(const struct queue *q, const struct heads_args *args)
{
    int d = args->cache.head_dim;
    int n = (args->has_q ? args->n_heads : 0) + (args->has_k ? 2 * args->cache.n_heads : 0);
    if (args->rows.max <= 0 || n == 0) return;
    if (are_many(q, args)) {
        launch_many(q, args);
        return;
    }
    launch(q, heads_kernel, dim3((unsigned)args->rows.max, units_grid(n, d)),
           (unsigned)block_threads(d), 0, *args, unit_threads(d));
}

extern "C" void launch_group_norm(const struct queue *q, struct step_view step, struct rows rows,
                                  const float *x, const float *w, float *y, int32_t cols,
                                  int32_t group, float eps)
{
    launch_groups(q, group_norm_kernel, {step, rows, x, w, y, cols, group, 0, eps, 0});
}

extern "C" void launch_rope(const struct queue *q, struct step_view step, struct rows rows,
                            const float *x, const float *inv_freq, float *y, int32_t cols,
                            int32_t head_dim, int32_t ahead)
{
    launch_groups(q, rope_kernel, {step, rows, x, inv_freq, y, cols, head_dim, 0, 0.0f, ahead});
}

extern "C" void launch_kv_write(const struct queue *q, struct step_view step, struct rows rows,
                                const float *k, const float *v, struct kv_cache cache)
{
    if (rows.max <= 0) return;
    int quads = cache.n_heads * cache.head_dim / 4;
    dim3 grid((unsigned)rows.max, (unsigned)((quads + 255) / 256), 2);
    struct write_args args = {step, rows, k, v, cache};
    launch(q, kv_write_kernel, grid, 256, 0, args);
}
