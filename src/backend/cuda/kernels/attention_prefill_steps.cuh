/* What a group of warps of attention_prefill.cu does with one tile of keys: steps 1 to 3. */
#ifndef CUDA_ATTENTION_PREFILL_STEPS_CUH
#define CUDA_ATTENTION_PREFILL_STEPS_CUH

#include "backend/cuda/kernels/attention_prefill_tile.cuh"
#include "backend/cuda/kernels/launch.cuh"

#include <limits.h>

namespace {

constexpr float LOG2E = 1.44269504f;
constexpr float TOP_NONE = -1e30f; /* finite, so that a masked score's p is 0 and not NaN */
constexpr float TOP_ROOM = 4;      /* a new top is the largest score less this */
constexpr float P_LIMIT = 14;      /* log2 of the largest p; fp16 ends at 2^16 */

template <int COLS_, int W_, int WARPS_, bool IS_HALF_> struct shape {
    static constexpr int COLS = COLS_, W = W_, WARPS = WARPS_;
    static constexpr bool IS_HALF = IS_HALF_; /* the cache is fp16 */
    static constexpr int HEAD = COLS * W, THREADS = WARPS * 32;
    static constexpr int GROUPS = WARPS / W, ROWS = GROUPS * 32;
    static constexpr int OWN = 4 / W; /* n-tiles (8 keys) of a tile that a warp owns */
    static constexpr int K_STEPS = COLS / 16, N_TILES = COLS / 8;
    static constexpr int TILE_BYTES = TILE_KEYS * HEAD * 2;
    static constexpr int PART_BYTES = W * (W - 1) * 2 * OWN * 512; /* a group */
    static constexpr int SHARE_BYTES = 32 * TILE_KEYS * 2;         /* a group */
    /* Shared memory: keys, values, shares, parts, stats (float [GROUPS][W][32]), positions of the
     * rows (int32_t [ROWS], -1: not there). */
    static constexpr int SHARES = 2 * TILE_BYTES;
    static constexpr int PARTS = SHARES + GROUPS * SHARE_BYTES;
    static constexpr int STATS = PARTS + GROUPS * PART_BYTES;
    static constexpr int POSITIONS = STATS + WARPS * 128;
    static_assert(WARPS % W == 0 && ROWS <= THREADS, "");
    static_assert(WARPS * 8 * COLS * 4 <= STATS, "eight rows of outputs a warp");
};

template <class S> constexpr size_t shared_bytes()
{
    return S::POSITIONS + S::ROWS * sizeof(int32_t);
}

/* What a thread holds: of rows g, g + 8, g + 16, g + 24 of its group's 32 (g = lane / 4). */
template <class S> struct state {
    uint32_t q[S::K_STEPS][2][4];
    float o[2][S::N_TILES][4];
    float top[4], sum[4];
};

template <class S> __device__ __forceinline__ void state_clear(struct state<S> &mine)
{
#pragma unroll
    for (int i = 0; i < 2 * S::N_TILES * 4; i++)
        mine.o[i / (S::N_TILES * 4)][i / 4 % S::N_TILES][i % 4] = 0;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        mine.top[r] = TOP_NONE;
        mine.sum[r] = 0;
    }
}

/* Places in shared memory, and the thread's own. */
struct place {
    char *shared;
    uint32_t keys;           /* the tile of keys; that of values follows */
    uint32_t k_lane, v_lane; /* this lane's row and chunk of ldmatrix, in the tile */
    uint32_t shares, share_lane;
    char *parts;
    float *stats; /* [W][32] */
    int lane, w, group;
};

template <class S> __device__ __forceinline__ struct place place_of(char *shared)
{
    struct place at;
    int warp = (int)threadIdx.x / 32, l = (int)threadIdx.x % 32, row = l & 7, m = l >> 3;
    at.shared = shared;
    at.lane = l, at.w = warp % S::W, at.group = warp / S::W;
    at.keys = shared_address(shared);
    /* Matrices of keys: (n-tile, lower k), (n-tile, upper k), (next n-tile, ...). The warp's n-tile
     * i is keys 8 (i ^ w OWN) ..: its own keys are always the first OWN n-tiles. */
    int key = ((m >> 1) ^ (at.w * S::OWN)) * 8 + row;
    at.k_lane = (uint32_t)(at.w * S::COLS * 2) + chunk_at<S::HEAD>(key, m & 1);
    /* Matrices of values: (lower keys, n-tile), (upper keys, n-tile), (lower, next n-tile), ... */
    at.v_lane = (uint32_t)(at.w * S::COLS * 2) + chunk_at<S::HEAD>((m & 1) * 8 + row, m >> 1);
    at.shares = at.keys + S::SHARES + (uint32_t)(at.group * S::SHARE_BYTES);
    /* Shares: 64 bytes a row, chunk c at place c ^ row / 2 % 4. */
    at.share_lane = (uint32_t)(((m & 1) * 8 + row) * 64 + (((m >> 1) ^ (row >> 1)) << 4));
    at.parts = shared + S::PARTS + at.group * S::PART_BYTES;
    at.stats = reinterpret_cast<float *>(shared + S::STATS) + at.group * S::W * 32;
    return at;
}

/* ---- Steps of a tile ------------------------------------------------------------------------- */

__device__ __forceinline__ void clear(float (&c)[2][2][4])
{
#pragma unroll
    for (int i = 0; i < 16; i++) c[i / 8][i / 4 % 2][i % 4] = 0;
}

/* What step 1 has of n-tiles 2 pair and 2 pair + 1: the warp's own stay, the others go to those
 * that own them. */
template <class S>
__device__ __forceinline__ void pass_parts(const struct place &at, const float (&c)[2][2][4],
                                           int pair, float (&s)[2][S::OWN][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int m = i / 2, tile = 2 * pair + i % 2, slot = tile / S::OWN, own = tile % S::OWN;
        const float(&v)[4] = c[m][i % 2];
        if (slot == 0) {
#pragma unroll
            for (int e = 0; e < 4; e++) s[m][own][e] = v[e];
        } else {
            int owner = at.w ^ slot;
            int part = ((owner * (S::W - 1) + slot - 1) * 2 + m) * S::OWN + own;
            reinterpret_cast<float4 *>(at.parts)[part * 32 + at.lane] =
                make_float4(v[0], v[1], v[2], v[3]);
        }
    }
}

/* Where step k of a row that ldmatrix reads lies. */
__device__ __forceinline__ uint32_t at_step(uint32_t lane, int k)
{
    return (lane ^ (uint32_t)((k & 3) << 5)) + (uint32_t)((k >> 2) * 128);
}

/* Step 1. s: what this warp's columns give to the scores of its own keys. Here and in `gather`
 * fragments are loaded one step ahead of their products. */
template <class S>
__device__ __forceinline__ void prefill_score(const struct state<S> &mine, const struct place &at,
                                              float (&s)[2][S::OWN][4])
{
    constexpr int STEPS = 2 * S::K_STEPS;
    uint32_t b[2][4];
    uint32_t row[2] = {at.keys + (at.k_lane ^ (uint32_t)(16 * S::HEAD * 2)), at.keys + at.k_lane};
    float c[2][2][4];
    load_matrices(b[0], row[0]);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        int k = i % S::K_STEPS, next = i + 1;
        if (k == 0) clear(c);
        if (next < STEPS)
            load_matrices(b[next & 1], at_step(row[next / S::K_STEPS], next % S::K_STEPS));
#pragma unroll
        for (int j = 0; j < 4; j++)
            mma_f16(c[j / 2][j % 2], mine.q[k][j / 2], b[i & 1][j % 2 * 2],
                    b[i & 1][j % 2 * 2 + 1]);
        if (k == S::K_STEPS - 1) pass_parts<S>(at, c, 1 - i / S::K_STEPS, s);
    }
}

/* Step 2. */
template <class S>
__device__ __forceinline__ void gather(struct state<S> &mine, const struct place &at)
{
    constexpr int HALF = S::N_TILES / 2, STEPS = 2 * HALF;
    uint32_t a[2][2][4], b[2][4];
    uint32_t values = at.keys + S::TILE_BYTES + at.v_lane;
    uint32_t row[2] = {values, values + (uint32_t)(16 * S::HEAD * 2)};
#pragma unroll
    for (int i = -1; i < STEPS; i++) {
        int ahead = i + 1;
        if (ahead < STEPS) {
            if (ahead % HALF == 0) {
                uint32_t from = at.shares + (at.share_lane ^ (uint32_t)(ahead / HALF << 5));
                load_matrices(a[ahead / HALF][0], from);
                load_matrices(a[ahead / HALF][1], from + 1024);
            }
            load_matrices_turned(b[ahead & 1], at_step(row[ahead / HALF], ahead % HALF));
        }
        if (i < 0) continue;
#pragma unroll
        for (int j = 0; j < 4; j++)
            mma_f16(mine.o[j / 2][i % HALF * 2 + j % 2], a[i / HALF][j / 2], b[i & 1][j % 2 * 2],
                    b[i & 1][j % 2 * 2 + 1]);
    }
}

/* p of own keys to the group's shares; part[r]: their sum; the largest exponent is returned. */
template <class S>
__device__ __forceinline__ float share_out(const struct state<S> &mine, const struct place &at,
                                           const float (&s)[2][S::OWN][4], float (&part)[4])
{
    float most = -INFINITY;
    int g = at.lane >> 2, t = at.lane & 3;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        part[r] = 0;
#pragma unroll
        for (int i = 0; i < S::OWN; i++) {
            const float(&v)[4] = s[r / 2][i];
            float x = fmaf(v[r % 2 * 2], LOG2E, -mine.top[r]);
            float y = fmaf(v[r % 2 * 2 + 1], LOG2E, -mine.top[r]);
            most = fmaxf(most, fmaxf(x, y));
            x = exp2_fast(x), y = exp2_fast(y);
            part[r] += x + y;
            int chunk = at.w * S::OWN + i;
            uint32_t to =
                at.shares + (uint32_t)((r * 8 + g) * 64 + ((chunk ^ ((g >> 1) & 3)) << 4) + t * 4);
            store_shared(to, pack_halves(x, y));
        }
    }
    return most;
}

/* The largest scores of own keys, for all warps of the group. */
template <class S>
__device__ __forceinline__ void tell_largest(const struct place &at, const float (&s)[2][S::OWN][4])
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float most = -INFINITY;
#pragma unroll
        for (int i = 0; i < S::OWN; i++)
            most = fmaxf(most, fmaxf(s[r / 2][i][r % 2 * 2], s[r / 2][i][r % 2 * 2 + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        if ((at.lane & 3) == 0) at.stats[at.w * 32 + r * 8 + (at.lane >> 2)] = most;
    }
}

/* Some p is too large: new tops for the rows that need one, and all that was summed under the old
 * ones is rescaled to the new. Every warp of the group computes the same. A row that needs none
 * stays as it is: its bits do not depend on other rows. */
template <class S>
__device__ __forceinline__ void raise_tops(struct state<S> &mine, const struct place &at)
{
    float factor[4];
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float most = -INFINITY;
#pragma unroll
        for (int w = 0; w < S::W; w++)
            most = fmaxf(most, at.stats[w * 32 + r * 8 + (at.lane >> 2)]);
        bool is_higher = fmaf(most, LOG2E, -mine.top[r]) > P_LIMIT; /* as share_out has it */
        float top = is_higher ? fmaf(most, LOG2E, -TOP_ROOM) : mine.top[r];
        factor[r] = is_higher ? exp2_fast(mine.top[r] - top) : 1.0f;
        mine.sum[r] *= factor[r];
        mine.top[r] = top;
    }
#pragma unroll
    for (int i = 0; i < 2 * S::N_TILES * 4; i++) {
        int m = i / (S::N_TILES * 4), n = i / 4 % S::N_TILES, e = i % 4;
        mine.o[m][n][e] *= factor[2 * m + e / 2];
    }
}

/* Step 3. The parts are there. `first`: position of the tile's first key; is_edge: some row does
 * not see all of the tile. Gives the largest exponent of p. */
template <class S>
__device__ __forceinline__ float prefill_weigh(const struct state<S> &mine, const struct place &at,
                                               float (&s)[2][S::OWN][4], float (&part)[4],
                                               const int32_t *position, int first, int window,
                                               bool is_edge)
{
#pragma unroll
    for (int slot = 1; slot < S::W; slot++)
#pragma unroll
        for (int i = 0; i < 2 * S::OWN; i++) {
            int part = (at.w * (S::W - 1) + slot - 1) * 2 * S::OWN + i;
            float4 v = reinterpret_cast<const float4 *>(at.parts)[part * 32 + at.lane];
            float(&to)[4] = s[i / S::OWN][i % S::OWN];
            to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w;
        }
    if (is_edge) {
        int key0 = first + at.w * S::OWN * 8 + (at.lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < 2 * S::OWN * 4; i++) {
            int m = i / (S::OWN * 4), n = i / 4 % S::OWN, e = i % 4;
            int p = position[at.group * 32 + m * 16 + e / 2 * 8 + (at.lane >> 2)];
            int key = key0 + n * 8 + e % 2;
            if (key > p || key <= p - window) s[m][n][e] = -INFINITY;
        }
    }
    return share_out<S>(mine, at, s, part);
}

} // namespace

#endif
