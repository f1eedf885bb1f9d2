/* Split attention of one row in a layer with a window, fp16 caches and heads of 256 values, which
 * makes the row's heads itself: norms, rotation and the write of the new cell need no launch of
 * their own. The bits are those of launch_heads and attention_decode_mma.cuh.
 *
 * Four warps attend. Two to four more make heads meanwhile: each block the queries of its key head,
 * and the block with the row's last tile also the key and value of the row's own position, which it
 * takes from shared memory. All other keys and values were written before the product whose results
 * become heads, so that the first tile is asked for before the wait. Heads have warps of their own
 * because a warp's loads come back in order: reads of what the product wrote should not queue
 * behind keys.
 *
 * Bound: latency; after the wait a read from L2, norm and rotation, then the tiles. */
#ifndef CUDA_ATTENTION_DECODE_OWN_CUH
#define CUDA_ATTENTION_DECODE_OWN_CUH

#include <limits.h>

#include "backend/cuda/kernels/attention_decode_mma.cuh"
#include "backend/cuda/kernels/heads.cuh"

namespace {

enum { OWN_DIM = 256, OWN_ATTEND = OWN_DIM / 2, OWN_EACH = 2 };

struct own_shared {
    struct shared<OWN_DIM> tile;
    char fresh[2][OWN_DIM * 2]; /* key and value of the row's own position */
};

/* The row's own key and value, at place `at` among those that it sees; INT_MAX: there is none, as
 * an earlier layer has made it. */
struct own_apart {
    const struct own_shared &s;
    int at;
    __device__ __forceinline__ int n_cached(int n) const
    {
        return min(n, at);
    }
    __device__ __forceinline__ void add_key(const struct reader &r, int begin, uint4 (&k)[8]) const
    {
        if (begin + r.key != at) return;
#pragma unroll
        for (int c = 0; c < 8; c++)
            k[c] = *(const uint4 *)(s.fresh[0] + 64 * c + 16 * (threadIdx.x % 4));
    }
    __device__ __forceinline__ void add_value(const struct reader &r, int begin,
                                              uint4 (&v)[2][4]) const
    {
        const char *from = s.fresh[1] + 128 * (threadIdx.x / 32) + 16 * (threadIdx.x % 32 / 4);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (begin + r.four + i / 4 * 16 + i % 4 == at) v[i / 4][i % 4] = *(const uint4 *)from;
    }
    __device__ __forceinline__ void meet() const
    {
        asm volatile("bar.sync 1, %0;" ::"n"((int)OWN_ATTEND) : "memory");
    }
};

/* ---- Heads ----------------------------------------------------------------------------------- */

__device__ __forceinline__ struct half_quads own_factors(const float *w)
{
    int lane = threadIdx.x % 32;
    return {load_factors(w, 4 * lane, OWN_DIM), load_factors(w, OWN_DIM / 2 + 4 * lane, OWN_DIM)};
}

__device__ __forceinline__ void own_norm(struct half_quads *x, const struct half_quads &w,
                                         float eps)
{
    *x = unit_norm(*x, w.lo, w.hi, OWN_DIM, eps, WARP, NULL);
}

/* Quads `lane` and `lane` + 32 of query head g of the block to where load_queries puts them. */
__device__ __forceinline__ void put_query(struct shared<OWN_DIM> &s, int g,
                                          const struct half_quads &x)
{
    int lane = threadIdx.x % 32, step = lane / 8 * 2 + lane % 2, to = 4 * g + lane % 8 / 2;
    s.query[step][to] = make_operand(x.lo);
    s.query[step + OWN_DIM / 32][to] = make_operand(x.hi);
}

/* A warp that makes heads; the last two have the key and the value. */
__device__ __forceinline__ void make_heads(const struct job &j, const struct heads_args &p,
                                           struct own_shared &s)
{
    const int n = (blockDim.x - OWN_ATTEND) / 32, i = (threadIdx.x - OWN_ATTEND) / 32;
    const int lane = threadIdx.x % 32, key_head = blockIdx.x;
    const bool is_key = i == n - 2;
    const struct half_quads w_q = own_factors(p.w_q), w_k = own_factors(is_key ? p.w_k : NULL);
    const float4 frequency = load_quad(p.inv_freq, 4 * lane, OWN_DIM / 2);
    struct span span;
    const bool is_live = find_span(j, 0, &span) && blockIdx.y < span.n_segments;
    const int position = is_live ? span.first + span.n - 1 : 0;
    const bool is_fresh =
        is_live && p.has_k && i >= n - 2 && blockIdx.y == (tiles_of(span) - 1) % span.n_segments;
    const size_t offset = is_fresh ? kv_offset(&j.a.cache, span.sequence, position) : 0;
    const struct angles by = angles_at((float)(position + p.ahead), frequency);
    grid_wait();
    grid_release();
    if (!is_live) return;
    struct half_quads x[OWN_EACH] = {}, kv = {};
#pragma unroll
    for (int e = 0; e < OWN_EACH; e++)
        if (i + e * n < j.group)
            x[e] = load_head(p, HEAD_Q, 0, key_head * j.group + i + e * n, lane);
    if (is_fresh) kv = load_head(p, is_key ? HEAD_K : HEAD_V, 0, key_head, lane);
#pragma unroll
    for (int e = 0; e < OWN_EACH; e++) {
        if (i + e * n >= j.group) break;
        own_norm(&x[e], w_q, p.eps);
        turn(&x[e], by, frequency);
        put_query(s.tile, i + e * n, x[e]);
    }
    if (is_fresh) {
        own_norm(&kv, w_k, p.eps);
        if (is_key) turn(&kv, by, frequency);
        char *cell = (char *)(is_key ? j.a.cache.k : j.a.cache.v) + offset;
        cell += key_head * OWN_DIM * 2;
        char *const to[2] = {s.fresh[is_key ? 0 : 1], cell};
#pragma unroll
        for (int c = 0; c < 2; c++) {
            store_cell(FORMAT_F16, to[c], 4 * lane, kv.lo, 0);
            store_cell(FORMAT_F16, to[c], OWN_DIM / 2 + 4 * lane, kv.hi, 0);
        }
    }
    __syncthreads();
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* Slots of query heads that the block does not have. */
__device__ __forceinline__ void clear_queries(struct shared<OWN_DIM> &s, int group)
{
    int slot = threadIdx.x % 32, first = threadIdx.x / 32;
    if (slot / 4 < group) return;
#pragma unroll
    for (int step = first; step < OWN_DIM / 16; step += OWN_ATTEND / 32)
        s.query[step][slot] = make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ void attend_heads(const struct job &j, bool has_k, struct own_shared &s)
{
    struct span span;
    if (!find_span(j, 0, &span) || blockIdx.y >= span.n_segments) {
        grid_wait();
        return;
    }
    const struct walk walk = walk_of(j, span, blockIdx.y);
    const struct reader reader = reader_of<OWN_DIM>(j, blockIdx.x);
    const struct two_tiles at = first_tiles(j, walk);
    const struct own_apart apart = {s, has_k ? span.n - 1 : INT_MAX};
    uint4 k[8], v[2][4];
    read_keys(reader, at.offset, at.begin, apart.n_cached(span.n), k);
    read_values(reader, kv_cell_bytes(&j.a.cache), at.offset, at.begin, apart.n_cached(span.n), v);
    fetch_tile<OWN_DIM>(reader, at.offset_next, at.next, apart.n_cached(span.n));
    clear_queries(s.tile, j.group);
    grid_wait();
    grid_release();
    __syncthreads();
    float sum[8][4] = {};
    struct running run = {-INFINITY, 0};
    attend_tiles<OWN_DIM>(j, walk, reader, at, apart, k, v, s.tile, sum, &run);
    int g = threadIdx.x % 32 / 4;
    if (g < j.group)
        store_segment(j, partial_of(j, 0, blockIdx.x * j.group + g, blockIdx.y), sum, run);
}

/* Grid: (key heads, segments). MAKERS warps make heads. With registers for two blocks per
 * multiprocessor, four makers spill (E4B, H200: 421 instead of 429 t/s). */
template <int MAKERS>
__global__ void __launch_bounds__(OWN_ATTEND + 32 * MAKERS, MAKERS == 2 ? 2 : 1)
    attend_own(const __grid_constant__ struct job j, const __grid_constant__ struct heads_args p)
{
    __shared__ struct own_shared s;
    if (threadIdx.x < OWN_ATTEND)
        attend_heads(j, p.has_k, s);
    else
        make_heads(j, p, s);
}

} // namespace

#endif
