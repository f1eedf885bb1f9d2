/* Attention of many rows: y[r, h] = sum_s softmax_s(q[r, h] . k[s, g(h)]) v[s, g(h)], s over the
 * keys of the row's sequence at max(0, p - window + 1) .. p.
 *
 * A block takes one key head and a tile of rows: tokens x the query heads that share the key head.
 * It goes over the keys in tiles of 32 with a running softmax: no matrix of scores leaves it. Tiles
 * before every row's window and after every row's position are never read; masks are applied to
 * tiles at these edges only. Sequences within a tile of rows are served one after the other.
 *
 * A group of W warps owns 32 rows (two m-tiles). Warp w owns COLS = head / W of the columns: its
 * part of the queries stays in registers as operands, and its part of the outputs too. So every
 * fragment of keys and values that a warp reads from shared memory serves two products, and a head
 * of 512 needs no more registers than one of 256. For one tile a group does
 *     1. each warp: scores of 32 rows x 32 keys over its own columns, a part of the sum; the parts
 *        that belong to keys of other warps go to them through shared memory, in the lanes' order;
 *     2. each warp: outputs += shares (of the tile before) x its columns of the values;
 *     3. each warp: adds up the parts for its own 32 / W keys, p = 2^(s log2 e - top), as fp16 to
 *        shared memory for the whole group.
 * Keys have one buffer and values another: the next keys travel under steps 2 and 3, the values
 * under 3 and the next 1. `top` of a row lags behind its largest score: it moves only when some p
 * would exceed 2^14, which is rare after the first tile, so that outputs are hardly ever rescaled;
 * p of the largest score is between 2^4 and 2^14, the upper half of fp16's range.
 *
 * Rounding: q, k, v, p to fp16, sums in fp32. Which keys share a tile depends on the row's place in
 * the tile of rows, so the last bits do; the same launch always gives the same bits.
 *
 * Expected bound: 4 x head x visible pairs flops at the rate of mma.sync; per tile and warp 128
 * products (214 clocks of an SM at 641 TFLOP/s on 132 SMs) against 24 to 28 KB through shared
 * memory (190 to 220 clocks). A warp's 192 registers of queries and outputs leave room for one
 * fragment ahead and 8 warps an SM, so that half of the product rate is what to expect. */
#include "backend/cuda/kernels/attention_prefill.cuh"
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
    /* Shared memory: keys, values, shares, parts, stats (float [GROUPS][W][32]), the run. */
    static constexpr int SHARES = 2 * TILE_BYTES;
    static constexpr int PARTS = SHARES + GROUPS * SHARE_BYTES;
    static constexpr int STATS = PARTS + GROUPS * PART_BYTES;
    static constexpr int RUN = STATS + WARPS * 128;
    static_assert(WARPS % W == 0 && ROWS <= THREADS, "");
    static_assert(WARPS * 8 * COLS * 4 <= STATS, "eight rows of outputs a warp");
};

/* Rows of a block with the same sequence: the block's rows are served run by run. */
template <int ROWS> struct run_rows {
    int32_t end, lowest, highest;
    int32_t position[ROWS]; /* of row r, -1 when it is not in the run */
};

template <class S> constexpr size_t shared_bytes()
{
    return S::RUN + sizeof(run_rows<S::ROWS>);
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
__device__ __forceinline__ void score(const struct state<S> &mine, const struct place &at,
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
 * ones is brought to the new. Every warp of the group computes the same. */
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
        most *= LOG2E;
        bool is_higher = most - mine.top[r] > P_LIMIT;
        float top = is_higher ? most - TOP_ROOM : mine.top[r];
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
__device__ __forceinline__ float weigh(const struct state<S> &mine, const struct place &at,
                                       float (&s)[2][S::OWN][4], float (&part)[4],
                                       const int32_t *position, int first, int window, bool is_edge)
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

/* ---- All tiles of a run ---------------------------------------------------------------------- */

struct keys_of_run {
    struct kv_run cells; /* from position `first` on */
    const char *k, *v;   /* the head's part of the first cell of the cache */
    enum format format;
    int32_t first, last; /* positions, both included */
    int32_t window;      /* INT_MAX: none */
    int32_t low, high;   /* positions of the group's rows; low -1 when one is not in the run */
};

__device__ __forceinline__ bool is_seen(const struct keys_of_run &run, int first)
{
    return first <= run.high && first + TILE_KEYS - 1 > run.low - run.window;
}

__device__ __forceinline__ bool is_edge(const struct keys_of_run &run, int first)
{
    return first + TILE_KEYS - 1 > run.low || first <= run.high - run.window;
}

/* Starts copying the tile that begins at position `first`, with zeros after the last position.
 * base: run.k or run.v. */
template <class S>
__device__ __forceinline__ void fetch(const struct keys_of_run &run, const char *base, int first,
                                      uint32_t to)
{
    fetch_tile<S::HEAD, S::THREADS, S::IS_HALF>(to, base, run.cells, run.format, first - run.first,
                                                run.last - first + 1);
}

/* All tiles of the run; the keys of the first are on their way. */
template <class S>
__device__ __forceinline__ void attend_run(struct state<S> &mine, const struct place &at,
                                           const struct keys_of_run &run, const int32_t *position)
{
    bool has_shares = false;
    copies_wait<0>();
    __syncthreads();
    for (int first = run.first; first <= run.last; first += TILE_KEYS) {
        bool is_here = is_seen(run, first);
        float s[2][S::OWN][4], part[4];
        bool is_large = false;
        if (is_here) score<S>(mine, at, s);
        copies_wait<0>();
        __syncthreads(); /* keys are used up; values and shares of the tile before are there */
        fetch<S>(run, run.k, first + TILE_KEYS, at.keys);
        if (has_shares) gather<S>(mine, at);
        __syncthreads(); /* values and shares are used up; parts are there */
        fetch<S>(run, run.v, first, at.keys + S::TILE_BYTES);
        if (is_here)
            is_large = weigh<S>(mine, at, s, part, position, first, run.window,
                                is_edge(run, first)) > P_LIMIT;
        copies_wait<1>();
        if (__syncthreads_or(is_large)) { /* the next keys are there */
            if (is_here) tell_largest<S>(at, s);
            __syncthreads();
            if (is_here) raise_tops<S>(mine, at);
            if (is_here) share_out<S>(mine, at, s, part);
        }
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (is_here) mine.sum[r] += part[r];
        has_shares = is_here;
    }
    copies_wait<0>();
    __syncthreads();
    if (has_shares) gather<S>(mine, at);
}

/* ---- A block --------------------------------------------------------------------------------- */

/* The block's rows. Row r of it is query head r % n_group of the key head, row r / n_group of the
 * launch counted from `first`. */
struct block_rows {
    int32_t first, n, n_group;
    uint32_t inverse; /* ceil(2^16 / n_group) */
};

/* r / n_group, exact for r < 2^8 and n_group < 2^8. */
__device__ __forceinline__ int token_of(const struct block_rows &rows, int r)
{
    return (int)((uint32_t)r * rows.inverse >> 16);
}

template <class S>
__device__ __forceinline__ struct block_rows block_rows_of(const struct attention_args &a)
{
    struct block_rows rows;
    rows.n_group = a.n_heads / a.cache.n_heads;
    rows.inverse = (65535u + (uint32_t)rows.n_group) / (uint32_t)rows.n_group;
    int begin = a.part == attention_args::ATTEND_CHUNK ? a.step.counts[1] : 0;
    int end =
        a.part == attention_args::ATTEND_DECODE ? a.step.counts[1] : rows_live(a.rows, a.step);
    int tokens = S::ROWS / rows.n_group;
    /* The last tokens see the most keys: they go first. */
    rows.first = begin + (int)(gridDim.y - 1 - blockIdx.y) * tokens;
    rows.n = min(tokens, end - rows.first) * rows.n_group;
    return rows;
}

/* The query head of the block's row r. */
__device__ __forceinline__ int head_of(const struct block_rows &rows, int r)
{
    return (int)blockIdx.x * rows.n_group + r - token_of(rows, r) * rows.n_group;
}

/* Queries as the operands of this warp's products. Rows that are not there take the first one's:
 * they see no key, and are not stored. */
template <class S>
__device__ __forceinline__ void load_queries(struct state<S> &mine, const struct place &at,
                                             const struct attention_args &a,
                                             const struct block_rows &rows)
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int in_block = at.group * 32 + r * 8 + (at.lane >> 2);
        int of = in_block < rows.n ? in_block : 0;
        size_t row = (size_t)(rows.first + token_of(rows, of));
        const float *q = a.q + (row * (size_t)a.n_heads + (size_t)head_of(rows, of)) * S::HEAD +
                         at.w * S::COLS + (at.lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < S::K_STEPS * 2; i++) {
            float2 two = *reinterpret_cast<const float2 *>(q + i * 8);
            mine.q[i / 2][r / 2][i % 2 * 2 + r % 2] = pack_halves_saturated(two.x, two.y);
        }
    }
}

/* The run of rows that begins at row `begin`. */
template <class S>
__device__ __forceinline__ int take_run(run_rows<S::ROWS> *run, const struct attention_args &a,
                                        const struct block_rows &rows, int begin, int &sequence)
{
    int r = (int)threadIdx.x, of_r = 0, position = -1;
    __syncthreads();
    sequence = a.step.sequence[row_token(a.rows, a.step, rows.first + token_of(rows, begin))];
    if (r == 0) run->end = rows.n, run->lowest = INT_MAX, run->highest = -1;
    if (r < rows.n) {
        int token = row_token(a.rows, a.step, rows.first + token_of(rows, r));
        of_r = a.step.sequence[token];
        position = a.step.position[token];
    }
    __syncthreads();
    if (r >= begin && r < rows.n && of_r != sequence) atomicMin(&run->end, r);
    __syncthreads();
    bool is_in = r >= begin && r < run->end;
    if (is_in) {
        atomicMin(&run->lowest, position);
        atomicMax(&run->highest, position);
    }
    if (r < S::ROWS) run->position[r] = is_in ? position : -1;
    __syncthreads();
    return run->end;
}

/* Eight rows of a warp's columns, rows first .. of the block, as activations in blocks. They come
 * through shared memory, where a block of 32 columns can be taken by eight neighbours. */
template <class S>
__device__ __forceinline__ void store_rows_blocks(const float2 *stage, const struct place &at,
                                                  const struct act &act,
                                                  const struct block_rows &rows, int first)
{
    constexpr int LANES = S::COLS / 4; /* of a row */
    int u = at.lane % LANES;
#pragma unroll 2
    for (int j = 0; j < 8 * LANES / 32; j++) {
        int i = j * 32 / LANES + at.lane / LANES;
        float4 x =
            *reinterpret_cast<const float4 *>(stage + i * S::COLS / 2 + ((2 * u) ^ ((i & 3) * 4)));
        bool is_live = first + i < rows.n;
        int r = is_live ? first + i : 0;
        size_t row = (size_t)(rows.first + token_of(rows, r));
        int column = head_of(rows, r) * S::HEAD + at.w * S::COLS + u * 4;
        act_store_blocks(act, (int64_t)row, column / 4, x, is_live);
    }
}

/* Row `r` (0 .. 3) of a thread's four. Half activations have the scale 1: a block does not see the
 * other heads of a row, and need not, since an output is a mean of values, and values are normed:
 * at most sqrt(512) each. */
template <class S>
__device__ __forceinline__ void store_row(const struct state<S> &mine, const struct place &at,
                                          const struct attention_args &a,
                                          const struct block_rows &rows, int r, float inverse)
{
    int in_block = at.group * 32 + r * 8 + (at.lane >> 2);
    if (in_block >= rows.n) return;
    size_t row = (size_t)(rows.first + token_of(rows, in_block));
    int column = head_of(rows, in_block) * S::HEAD + at.w * S::COLS + (at.lane & 3) * 2;
    const float(&o)[S::N_TILES][4] = mine.o[r / 2];
    int e = r % 2 * 2;
    if (a.act.kind == ACT_HALF) {
        uint16_t *to = static_cast<uint16_t *>(a.act.values) + row * (size_t)a.act.stride + column;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            *reinterpret_cast<uint32_t *>(to + n * 8) =
                pack_halves(o[n][e] * inverse, o[n][e + 1] * inverse);
        if (column == 0) a.act.scale[row] = 1.0f;
    }
    if (a.y) {
        float *to = a.y + row * (size_t)(a.n_heads * S::HEAD) + column;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            *reinterpret_cast<float2 *>(to + n * 8) =
                make_float2(o[n][e] * inverse, o[n][e + 1] * inverse);
    }
}

template <class S>
__device__ __forceinline__ void store_outputs(struct state<S> &mine, const struct place &at,
                                              const struct attention_args &a,
                                              const struct block_rows &rows)
{
    int g = at.lane >> 2, t = at.lane & 3;
    float2 *stage =
        reinterpret_cast<float2 *>(at.shared) + (at.group * S::W + at.w) * 8 * (S::COLS / 2);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        mine.sum[r] += __shfl_xor_sync(0xffffffffu, mine.sum[r], 1);
        mine.sum[r] += __shfl_xor_sync(0xffffffffu, mine.sum[r], 2);
        if (t == 0) at.stats[at.w * 32 + r * 8 + g] = mine.sum[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 4; r++) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < S::W; w++) sum += at.stats[w * 32 + r * 8 + g];
        float inverse = 1.0f / sum;
        store_row<S>(mine, at, a, rows, r, inverse);
        if (!is_in_blocks(a.act)) continue;
#pragma unroll
        for (int n = 0; n < S::N_TILES; n++)
            stage[g * (S::COLS / 2) + ((n * 4 + t) ^ ((g & 3) * 4))] = make_float2(
                mine.o[r / 2][n][r % 2 * 2] * inverse, mine.o[r / 2][n][r % 2 * 2 + 1] * inverse);
        __syncwarp();
        store_rows_blocks<S>(stage, at, a.act, rows, at.group * 32 + r * 8);
        __syncwarp();
    }
}

/* A value that is the same in all lanes, and known to be: it goes to a uniform register, and with
 * it all that follows from it. */
__device__ __forceinline__ int uniform(int x)
{
    return __reduce_max_sync(0xffffffffu, x);
}

/* Grid: key heads x tiles of rows. */
template <class S>
__global__ void __launch_bounds__(S::THREADS, 256 / S::THREADS)
    attend(const struct attention_args a)
{
    extern __shared__ __align__(1024) char shared[];
    auto *run = reinterpret_cast<run_rows<S::ROWS> *>(shared + S::RUN);
    grid_wait();
    grid_release();
    struct block_rows rows = block_rows_of<S>(a);
    if (rows.n <= 0) return;
    struct place at = place_of<S>(shared);
    struct state<S> mine;
    for (int begin = 0, end; begin < rows.n; begin = end) {
        struct keys_of_run keys;
        int sequence;
        end = take_run<S>(run, a, rows, begin, sequence);
        sequence = uniform(sequence);
        const size_t head = (size_t)blockIdx.x * (size_t)a.cache.head_bytes;
        keys.k = static_cast<const char *>(a.cache.k) + head;
        keys.v = static_cast<const char *>(a.cache.v) + head;
        keys.format = a.cache.format;
        keys.window = a.window > 0 ? a.window : INT_MAX;
        keys.first = uniform(max(0, run->lowest - keys.window + 1));
        keys.last = uniform(run->highest);
        keys.cells = kv_run_from(&a.cache, sequence, keys.first);
        fetch<S>(keys, keys.k, keys.first, at.keys);
        if (begin == 0) {
            load_queries<S>(mine, at, a, rows);
            state_clear(mine);
        }
        int position = run->position[at.group * 32 + at.lane];
        keys.low = __reduce_min_sync(0xffffffffu, position);
        keys.high = __reduce_max_sync(0xffffffffu, position);
        attend_run<S>(mine, at, keys, run->position);
    }
    store_outputs<S>(mine, at, a, rows);
}

} // namespace

/* ---- Variants -------------------------------------------------------------------------------- */

/* X(name, columns a warp, warps a group, warps, fp16 cache). All of them fit 99 KB and fill an SM's
 * registers: a block of 8 warps or, where a group has two warps or one, two blocks of 4, which fill
 * each other's waits: on an H200 6 % faster than one of 8 for a window of 1024, and a prompt of 512
 * tokens gets twice the blocks. Other formats convert as they load, once for all rows of a block:
 * more rows. */
#define VARIANT_LIST(X)                                                                            \
    X(half_64, 64, 1, 4, true)                                                                     \
    X(half_128, 64, 2, 4, true)                                                                    \
    X(half_256, 128, 2, 4, true)                                                                   \
    X(half_512, 128, 4, 8, true)                                                                   \
    X(other_64, 64, 1, 8, false)                                                                   \
    X(other_128, 64, 2, 8, false)                                                                  \
    X(other_256, 128, 2, 8, false)                                                                 \
    X(other_512, 128, 4, 8, false)

#define X(name, ...) using name = shape<__VA_ARGS__>;
VARIANT_LIST(X)
#undef X

int attention_prefill_prepare(void)
{
    cudaError_t error = cudaSuccess;
#define X(name, ...)                                                                               \
    static_assert(shared_bytes<name>() <= 99 * 1024, "");                                          \
    if (!error) error = allow_shared(attend<name>, shared_bytes<name>());
    VARIANT_LIST(X)
#undef X
    return (int)error;
}

bool attention_prefill_takes(const struct attention_args *args)
{
    const struct kv_cache *cache = &args->cache;
    int32_t d = cache->head_dim;
    bool is_format = cache->format == FORMAT_F16 || cache->format == FORMAT_BF16 ||
                     cache->format == FORMAT_F32 || cache->format == FORMAT_Q8_0;
    return !args->is_exact && is_format && (d == 64 || d == 128 || d == 256 || d == 512) &&
           args->n_heads % cache->n_heads == 0 && args->n_heads / cache->n_heads <= 32;
}

template <class S> static void start(const struct queue *q, const struct attention_args *args)
{
    int tokens = S::ROWS / (args->n_heads / args->cache.n_heads);
    dim3 grid((unsigned)args->cache.n_heads, (unsigned)((args->rows.max + tokens - 1) / tokens));
    launch(q, attend<S>, grid, S::THREADS, shared_bytes<S>(), *args);
}

void launch_attention_prefill(const struct queue *q, const struct attention_args *args)
{
    bool is_half = args->cache.format == FORMAT_F16;
    switch (args->cache.head_dim) {
    case 64: is_half ? start<half_64>(q, args) : start<other_64>(q, args); break;
    case 128: is_half ? start<half_128>(q, args) : start<other_128>(q, args); break;
    case 256: is_half ? start<half_256>(q, args) : start<other_256>(q, args); break;
    case 512: is_half ? start<half_512>(q, args) : start<other_512>(q, args); break;
    }
}
