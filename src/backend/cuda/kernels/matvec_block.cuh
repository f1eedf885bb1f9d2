/* The kernel behind launch_matvec and launch_experts_in for tiles: blocks of across x abreast warps
 * (matvec.cuh), a block making across * RG groups of weight rows, its unit, for up to 8 * NT rows;
 * `abreast` slices of the columns at a time, the others in further turns.
 *
 * Rows of many are cut into tiles (grid x); units are grid y, and where there are more units than
 * resident blocks a block takes several, the first tiles of the next under way while the sums of
 * one are finished. For experts grid x counts the experts that the step's rows chose at all: a
 * block collects the pairs of its expert and takes up to eight of them at a time, so that an
 * expert's weights are read once for up to eight rows. */
#ifndef CUDA_MATVEC_BLOCK_CUH
#define CUDA_MATVEC_BLOCK_CUH

#include "backend/cuda/kernels/matvec.cuh"

/* With activations of 8 bits, of 16 (types.h: ACT_FINE), or with the experts that rows chose. */
enum product_kind { PLAIN, FINE, EXPERTS };

/* Shared memory that every chip grants a block (99 KB, some of it for static arrays); what a stage
 * that is filled once may take of it. */
enum { SHARED_MAX = 98 << 10, STAGE_MAX = 80 << 10, EXPERTS_MAX = 1024 };

struct product {
    struct step_view step;
    struct rows rows;
    int32_t n_w;
    struct cuda_weight w[3];
    float *y[3]; /* MATVEC_STORE */
    struct act x;
    struct gelu_epilogue gelu;
    const int32_t *ids; /* experts */
    int32_t n_used;

    int32_t slice_shift; /* 1 << slice_shift slices */
    int32_t across, abreast, n_units;
    /* columns of warps that a weight takes; the pair of gate and up counts once */
    int32_t columns[3];
    /* Activations in shared memory: a stage has 1 << row_shift rows of `kc` tiles of columns of
     * each slice abreast. One stage that is filled once if everything fits, else two in turn. */
    int32_t row_shift, kc, n_chunks;
    bool is_filled_once;
    int32_t slice_bytes, stage_bytes;
    int32_t to_low;                       /* FINE: from the values of a slice to their low plane */
    int32_t ring_at, partial_at, list_at; /* in shared memory */
};

__device__ __forceinline__ int slice_begin(const product &a, int slice)
{
    return a.w[0].n_ktiles * slice >> a.slice_shift;
}

/* Where the groups of a column of warps lie: weight w[which[g]], first tile of slice `index`.
 * Columns behind the last repeat a valid one; finish drops them. Gives the slice's length. */
__device__ __forceinline__ int locate(const product &a, int expert, int column, int index,
                                      int which[RG], int64_t tile[RG])
{
    int k0 = slice_begin(a, index), k = 0;
    bool has_two = a.gelu.kind == MATVEC_GELU_MUL;
    while (k + 1 < a.n_w && column >= a.columns[k] && !has_two) column -= a.columns[k++];
#pragma unroll
    for (int g = 0; g < RG; g++) {
        which[g] = has_two ? g : k;
        int groups = a.w[which[g]].n_groups;
        int group = min(has_two ? column : column * RG + g, groups - 1);
        tile[g] = ((int64_t)expert * groups + group) * a.w[0].n_ktiles + k0;
    }
    return slice_begin(a, index + 1) - k0;
}

template <enum form F>
__device__ __forceinline__ void locate_slice(const product &a, int expert, int column, int index,
                                             slice<F> &s)
{
    int which[RG];
    int64_t tile[RG];
    s.length = locate(a, expert, column, index, which, tile);
#pragma unroll
    for (int g = 0; g < RG; g++) s.at[g] = cursor_at<F>(a.w[which[g]], tile[g]);
}

template <typename RowOf>
__device__ __forceinline__ void finish_store(const product &a, const partial_sums &p, int unit,
                                             int n_rows, RowOf row_of)
{
    int outs = p.slots * 8;
    for (int i = threadIdx.x; i < outs * n_rows; i += blockDim.x) {
        int row = i / outs, slot = i % outs / 8, j = i % 8;
        int column = unit * a.across + slot / RG, k = 0;
        while (k < a.n_w && column >= a.columns[k]) column -= a.columns[k++];
        if (k == a.n_w) continue;
        int out = (column * RG + slot % RG) * 8 + j, outs_w = a.w[k].rows;
        if (out < outs_w) a.y[k][(int64_t)row_of(row) * outs_w + out] = p.total(slot, j, row);
    }
}

/* Local row r is row first + r of the launch, or pair list[first + r]. */
__device__ __forceinline__ void finish_unit(const product &a, const partial_sums &p, int unit,
                                            const int *list, int first, int n_rows)
{
    auto row_of = [&](int r) { return list ? list[first + r] : first + r; };
    if (a.gelu.kind == MATVEC_STORE) {
        finish_store(a, p, unit, n_rows, row_of);
        return;
    }
    int per_column = a.gelu.kind == MATVEC_GELU_MUL ? 8 : 8 * RG;
    finish_gelu(a.gelu, p, unit * a.across * per_column, n_rows, row_of);
}

/* The nth of the experts that any pair chose, those whose id is wrong being one more behind the
 * others. Its pairs go to `list`, rising, their rows to x_rows. False: there are not so many.
 * *expert is -1 for wrong ids. */
__device__ __forceinline__ bool choose_expert(const int32_t *ids, int n_pairs, int n_used,
                                              int n_expert, int nth, int *list, int *x_rows,
                                              int *n_list, int *expert)
{
    __shared__ uint32_t used[EXPERTS_MAX / 32 + 1];
    __shared__ int found;
    if (n_pairs <= n_used) { /* one row: every pair on its own */
        if (nth >= n_pairs) return false;
        int id = ids[nth];
        if (threadIdx.x == 0) list[0] = nth, x_rows[0] = 0;
        __syncthreads();
        *n_list = 1;
        *expert = (uint32_t)id < (uint32_t)n_expert ? id : -1;
        return true;
    }
    for (int i = threadIdx.x; i <= EXPERTS_MAX / 32; i += blockDim.x) used[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n_pairs; i += blockDim.x) {
        uint32_t id = (uint32_t)ids[i];
        if (id < (uint32_t)n_expert)
            atomicOr(&used[id / 32], 1u << id % 32);
        else
            used[EXPERTS_MAX / 32] = 1;
    }
    __syncthreads();
    int word = 0;
    while (word <= EXPERTS_MAX / 32 && nth >= __popc(used[word])) nth -= __popc(used[word++]);
    if (word > EXPERTS_MAX / 32) return false;
    uint32_t bits = used[word];
    for (; nth > 0; nth--) bits &= bits - 1;
    *expert = word == EXPERTS_MAX / 32 ? -1 : word * 32 + __ffs((int)bits) - 1;
    if (threadIdx.x < 32) {
        int n = 0;
        for (int i = threadIdx.x; i - (int)threadIdx.x < n_pairs; i += 32) {
            uint32_t id = i < n_pairs ? (uint32_t)ids[i] : 0;
            bool is_mine = *expert < 0 ? id >= (uint32_t)n_expert : id == (uint32_t)*expert;
            uint32_t mask = __ballot_sync(~0u, is_mine && i < n_pairs);
            if (is_mine && i < n_pairs) {
                int at = n + __popc(mask & ((1u << threadIdx.x) - 1));
                list[at] = i;
                x_rows[at] = i / n_used;
            }
            n += __popc(mask);
        }
        if (threadIdx.x == 0) found = n;
    }
    __syncthreads();
    *n_list = found;
    return true;
}

/* Activations of the whole slices; row r is row first + r, or x_rows[first + r]. */
template <bool IS_FINE>
__device__ __forceinline__ void fill_stage(const product &a, uint8_t *stage, const int *x_rows,
                                           int first, int n_rows)
{
    int lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    for (int i = threadIdx.x / 32; i < a.abreast * n_rows; i += n_warps) {
        int part = i / n_rows, row = i - part * n_rows;
        int k = slice_begin(a, part), n = slice_begin(a, part + 1) - k;
        uint8_t *to = stage + part * a.slice_bytes;
        uint8_t *values = to + row * value_step(a.kc);
        uint8_t *scales = to + (value_step(a.kc) << a.row_shift) + row * scale_step(a.kc);
        int from = x_rows ? x_rows[first + row] : first + row;
        int64_t at = (int64_t)from * a.x.stride + k * 64;
        const uint8_t *x = static_cast<const uint8_t *>(a.x.values) + at;
        const uint8_t *d = reinterpret_cast<const uint8_t *>(a.x.scale) + at / 4;
        for (int j = lane; j < n * 4; j += 32) copy16_through_l1(values + j * 16, x + j * 16);
        for (int j = lane; j < n; j += 32) copy16_through_l1(scales + j * 16, d + j * 16);
        for (int j = lane; IS_FINE && j < n * 4; j += 32)
            copy16_through_l1(values + a.to_low + j * 16, a.x.low + at + j * 16);
    }
}

template <bool IS_FINE>
__device__ __forceinline__ void fill_stage_now(const product &a, uint8_t *stage, const int *x_rows,
                                               int first, int n_rows)
{
    fill_stage<IS_FINE>(a, stage, x_rows, first, n_rows);
    copies_wait_all();
    __syncthreads();
}

/* KC tiles of columns of a turn's slices; row r is row first + r, or x_rows[first + r]. Threads
 * take 16 bytes each: ROWS * KC * 4 of them the values of a slice, as many others those of the
 * next. */
template <int ROWS, int KC, bool IS_FINE>
__device__ __forceinline__ void copy_stage(const product &a, uint8_t *stage, const int *x_rows,
                                           int first, int n_rows, int turn, int chunk)
{
    constexpr int VALUES = ROWS * KC * 4, SCALES = ROWS * KC;
    int n_threads = blockDim.x;
    const uint8_t *x_values = static_cast<const uint8_t *>(a.x.values);
    const uint8_t *x_scales = reinterpret_cast<const uint8_t *>(a.x.scale);
    {
        int i = threadIdx.x, c = i % (KC * 4), row = i / (KC * 4) % ROWS, k_in = chunk * KC + c / 4;
        int from = row >= n_rows ? 0 : x_rows ? x_rows[first + row] : first + row;
        int64_t at = (int64_t)from * a.x.stride + k_in * 64 + c % 4 * 16;
        uint8_t *to = stage + row * value_step(KC) + c * 16;
        for (int part = i / VALUES; part < a.abreast; part += n_threads / VALUES) {
            int k0 = slice_begin(a, turn * a.abreast + part);
            if (row >= n_rows || k0 + k_in >= slice_begin(a, turn * a.abreast + part + 1)) continue;
            copy16_through_l1(to + part * a.slice_bytes, x_values + at + k0 * 64);
            if (IS_FINE)
                copy16_through_l1(to + part * a.slice_bytes + a.to_low, a.x.low + at + k0 * 64);
        }
    }
    int i = threadIdx.x, c = i % KC, row = i / KC % ROWS, k_in = chunk * KC + c;
    int from = row >= n_rows ? 0 : x_rows ? x_rows[first + row] : first + row;
    const uint8_t *d = x_scales + (int64_t)from * (a.x.stride / 4) + k_in * 16;
    uint8_t *to = stage + ROWS * value_step(KC) + row * scale_step(KC) + c * 16;
    for (int part = i / SCALES; part < a.abreast; part += n_threads / SCALES) {
        int k0 = slice_begin(a, turn * a.abreast + part);
        if (row < n_rows && k0 + k_in < slice_begin(a, turn * a.abreast + part + 1))
            copy16_through_l1(to + part * a.slice_bytes, d + k0 * 16);
    }
}

/* Where in a stage a lane finds its part of row row_b's values and the scales of row row_c. */
struct operand_place {
    int values, scales;
};

__device__ __forceinline__ operand_place operands_in_stage(const product &a, int kc, int part,
                                                           int row_b, int row_c)
{
    int at = part * a.slice_bytes;
    return {at + row_b * value_step(kc) + (int)threadIdx.x % 4 * 8,
            at + (value_step(kc) << a.row_shift) + row_c * scale_step(kc)};
}

__device__ __forceinline__ partial_sums partial_sums_of(const product &a, uint8_t *shared)
{
    return {reinterpret_cast<float *>(shared + a.partial_at), 1 << a.slice_shift, a.across * RG,
            1 << a.row_shift};
}

/* What a block does next: a turn's slices of a unit, for rows from `first` on. */
struct job {
    int unit, turn, first;
};

/* Rows of `job` in shared memory: all of the launch, live or not, since nothing shall wait for
 * their number; of experts those up to `end`. */
__device__ __forceinline__ int rows_to_copy(const product &a, const job &job, int end)
{
    return min((a.ids ? end : a.rows.max) - job.first, 1 << a.row_shift);
}

/* False: `now` is the last. `end` is that of the rows. */
template <bool IS_EXPERT>
__device__ __forceinline__ bool next_job(const product &a, const job &now, int end, job *next)
{
    *next = now;
    if (IS_EXPERT) {
        next->first += 1 << a.row_shift;
        return next->first < end;
    }
    next->turn = now.turn + 1;
    if (next->turn * a.abreast < 1 << a.slice_shift) return true;
    next->turn = 0;
    next->unit += gridDim.y;
    return next->unit < a.n_units;
}

/* A warp's share of a job, chunk by chunk; `stage` is where the next chunk of activations lies, and
 * where the other one goes is the other stage. */
template <enum form F, int NT, bool IS_FINE, int DEPTH, typename Locate>
__device__ __forceinline__ void multiply_job(const product &a, float (&acc)[NT][RG * 2],
                                             tile_share<F> (&share)[DEPTH][RG], slice<F> &now,
                                             uint8_t *shared, const int *x_rows, const job &here,
                                             const job &next, bool has_next, int end,
                                             bool is_filled, int *stage, operand_place place,
                                             Locate locate_next)
{
    constexpr int KC = stage_tiles(NT), ROWS = 8 * NT;
    int kc = NT == 1 ? a.kc : KC, n_n = (end - here.first + 7) / 8;
    for (int chunk = 0; chunk < a.n_chunks; chunk++) {
        if (!is_filled) {
            copies_wait_all();
            __syncthreads();
        }
        bool is_same = chunk + 1 < a.n_chunks;
        if (!a.is_filled_once && (is_same || has_next)) {
            const job &to = is_same ? here : next;
            copy_stage<ROWS, KC, IS_FINE>(a, shared + (*stage ^ 1) * a.stage_bytes, x_rows,
                                          to.first, rows_to_copy(a, to, end), to.turn,
                                          is_same ? chunk + 1 : 0);
        }
        const uint8_t *at = shared + *stage * a.stage_bytes;
        int to_low = NT == 1 ? a.to_low : low_step(ROWS, KC);
        operands x = {at + place.values, at + place.scales, scale_step(kc), to_low};
        multiply_stage<F, NT, 2, IS_FINE, DEPTH>(acc, share, now, kc, x, n_n, locate_next);
        if (!a.is_filled_once) *stage ^= 1;
    }
}

template <enum form F, int NT, enum product_kind KIND>
__global__ void __launch_bounds__(32 * WARPS, 2) multiply_tiles(const __grid_constant__ product a)
{
    constexpr bool IS_EXPERT = KIND == EXPERTS, IS_FINE = KIND == FINE;
    constexpr int DEPTH = depth_of(NT), KC = stage_tiles(NT), ROWS = 8 * NT;
    extern __shared__ __align__(128) uint8_t shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int column = warp % a.across, part = warp / a.across, expert = 0, end = a.rows.max;
    job here = {(int)blockIdx.y, 0, IS_EXPERT ? 0 : (int)blockIdx.x * ROWS}, next;
    int *list = IS_EXPERT ? reinterpret_cast<int *>(shared + a.list_at) : nullptr;
    int *x_rows = IS_EXPERT ? list + a.rows.max * a.n_used : nullptr;
    slice<F> now;
    tile_share<F> share[DEPTH][RG];

    if (!IS_EXPERT) {
        locate_slice<F>(a, 0, here.unit * a.across + column, part, now);
        start_slice<F, DEPTH>(share, now);
    }
    grid_wait();
    grid_release();
    int live = rows_live(a.rows, a.step);
    if (IS_EXPERT) {
        if (!choose_expert(a.ids, live * a.n_used, a.n_used, a.w[0].n_expert, blockIdx.x, list,
                           x_rows, &end, &expert))
            return;
        locate_slice<F>(a, max(expert, 0), here.unit * a.across + column, part, now);
        start_slice<F, DEPTH>(share, now);
    }
    if (a.is_filled_once)
        fill_stage<IS_FINE>(a, shared, nullptr, here.first, rows_to_copy(a, here, end));
    else
        copy_stage<ROWS, KC, IS_FINE>(a, shared, x_rows, here.first, rows_to_copy(a, here, end), 0,
                                      0);
    if (!IS_EXPERT) end = min(live, here.first + ROWS);

    int stage = 0; /* rows that the lane gives to B and takes of sums: */
    operand_place at = operands_in_stage(a, NT == 1 ? a.kc : KC, part, lane / 4, lane % 4 * 2);
    partial_sums p = partial_sums_of(a, shared);
    bool is_filled = false, has_next = here.first < end;
    while (has_next) {
        has_next = next_job<IS_EXPERT>(a, here, end, &next);
        auto locate_next = [&](slice<F> *s) {
            s->length = 0;
            if (has_next)
                locate_slice<F>(a, max(expert, 0), next.unit * a.across + column,
                                next.turn * a.abreast + part, *s);
        };
        float acc[NT][RG * 2], start = expert < 0 ? not_a_number() : 0.0f;
#pragma unroll
        for (int i = 0; i < NT * RG * 2; i++) acc[i / (RG * 2)][i % (RG * 2)] = start;
        int length = now.length;
        multiply_job<F, NT, IS_FINE, DEPTH>(a, acc, share, now, shared, x_rows, here, next,
                                            has_next, end, is_filled, &stage, at, locate_next);
        is_filled = a.is_filled_once;
        locate_next(&now);
#pragma unroll
        for (int i = 0; i < DEPTH * RG; i++) /* a slice of fewer tiles did not come so far */
            if (i / RG >= length && i / RG < now.length)
                load_share<F>(share[i / RG][i % RG], now.at[i % RG], i / RG);
        if (here.turn == 0) __syncthreads();
        put_partial<F, NT, 2>(p, here.turn * a.abreast + part, column * RG, acc);
        if (!has_next || next.turn == 0) {
            __syncthreads();
            finish_unit(a, p, here.unit, list, here.first, min(end - here.first, ROWS));
        }
        here = next;
    }
    copies_wait_all();
}

/* ---- Up to four rows ------------------------------------------------------------------------ */

/* Here nothing but the reading of weights matters: they come by cp.async into a ring of shared
 * memory of each warp's own, always two stages ahead across units, and activations of the whole
 * slices stay. Registers instead of the ring were a quarter slower (an H200): the compiler gathers
 * loads at the end of a round, and half of the latency showed. */
enum { RING = 3 };

template <enum form F> struct ring_stage {
    enum {
        TILES = F == FORM_S8 || F == FORM_S6 ? 2 : 4,
        QUANTS = TILES * form_quant_bytes(F),
        SCALE = TILES * form_scale_bytes(F),
        HIGH = TILES * form_high_bytes(F),
        MINUS = TILES * form_minus_bytes(F),
        /* of a stage: quants of both groups, then scales, high bits, minus of both */
        SCALE_AT = RG * QUANTS,
        HIGH_AT = SCALE_AT + RG * SCALE,
        MINUS_AT = HIGH_AT + RG * HIGH,
        BYTES = MINUS_AT + RG * MINUS
    };
};

/* What is still to be asked for of a slice. Quants: a lane's 16 bytes of each group. The smaller
 * planes: lanes 0..15 the first group, 16..31 the second. */
template <enum form F> struct ring_feed {
    const uint8_t *quants[RG], *scale, *high, *minus;
    int left;
    int unit, first; /* what the slice is of; first: of an expert's pairs */
    int place;       /* in the ring */
};

template <enum form F>
__device__ __forceinline__ void aim(ring_feed<F> &f, const product &a, int expert, int column,
                                    int index)
{
    int which[RG], lane = threadIdx.x % 32, g = lane / 16, at = lane % 16 * 16;
    int64_t tile[RG];
    f.left = locate(a, expert, column, index, which, tile);
    for (int i = 0; i < RG; i++)
        f.quants[i] = a.w[which[i]].quants + tile[i] * form_quant_bytes(F) + lane * 16;
    const struct cuda_weight &w = a.w[which[g]];
    int64_t t = g ? tile[1] : tile[0];
    f.scale = reinterpret_cast<const uint8_t *>(w.scale) + t * form_scale_bytes(F) + at;
    if (form_high_bits(F)) f.high = w.high + t * form_high_bytes(F) + at;
    if (form_has_minus(F))
        f.minus = reinterpret_cast<const uint8_t *>(w.minus) + t * form_minus_bytes(F) + at;
}

/* The next stage of a slice, or nothing when it is at its end; a group of copies in any case. */
template <enum form F> __device__ __forceinline__ void feed_stage(ring_feed<F> &f, uint32_t stage)
{
    typedef ring_stage<F> S;
    int lane = threadIdx.x % 32, n = min(f.left, (int)S::TILES), g = lane / 16;
    int at = lane % 16 * 16;
    if (n > 0) {
#pragma unroll
        for (int i = 0; i < RG; i++)
#pragma unroll
            for (int j = 0; j < S::QUANTS; j += 512)
                if (j + lane * 16 < n * form_quant_bytes(F))
                    copy16(stage + i * S::QUANTS + j + lane * 16, f.quants[i] + j);
        if (at < n * form_scale_bytes(F)) copy16(stage + S::SCALE_AT + g * S::SCALE + at, f.scale);
        if (form_high_bits(F) && at < n * form_high_bytes(F))
            copy16(stage + S::HIGH_AT + g * S::HIGH + at, f.high);
        if (form_has_minus(F) && at < n * form_minus_bytes(F))
            copy16(stage + S::MINUS_AT + g * S::MINUS + at, f.minus);
        for (int i = 0; i < RG; i++) f.quants[i] += S::QUANTS;
        f.scale += S::SCALE;
        if (form_high_bits(F)) f.high += S::HIGH;
        if (form_has_minus(F)) f.minus += S::MINUS;
        f.left -= n;
    }
    copies_commit();
}

/* The next stage into the ring, without gaps through the end of a unit. */
template <enum form F, bool IS_EXPERT>
__device__ __forceinline__ void feed_ring(ring_feed<F> &f, const product &a, int expert, int column,
                                          int part, int end, uint32_t ring)
{
    int first = f.first + (1 << a.row_shift), unit = f.unit + gridDim.y;
    if (f.left == 0 && (IS_EXPERT ? first < end : unit < a.n_units)) {
        if (IS_EXPERT)
            f.first = first;
        else
            f.unit = unit;
        aim<F>(f, a, max(expert, 0), f.unit * a.across + column, part);
    }
    feed_stage<F>(f, ring + f.place * ring_stage<F>::BYTES);
    f.place = f.place + 1 == RING ? 0 : f.place + 1;
}

/* A lane's share of tile j of a stage. */
template <enum form F>
__device__ __forceinline__ void read_share(tile_share<F> &s, const uint8_t *stage, int g, int j)
{
    typedef ring_stage<F> S;
    int lane = threadIdx.x % 32;
    const uint8_t *q = stage + g * S::QUANTS + j * form_quant_bytes(F);
    const uint8_t *scale = stage + S::SCALE_AT + g * S::SCALE + j * form_scale_bytes(F);
    if constexpr (F == FORM_S8) {
        uint4 v = reinterpret_cast<const uint4 *>(q)[lane];
        s.q[0] = v.x, s.q[1] = v.y, s.q[2] = v.z, s.q[3] = v.w;
    } else {
        uint2 v = reinterpret_cast<const uint2 *>(q)[lane];
        s.q[0] = v.x, s.q[1] = v.y;
    }
    if constexpr (F == FORM_S6) {
        uint4 v = reinterpret_cast<const uint4 *>(scale)[lane / 8];
        s.scale[0] = v.x, s.scale[1] = v.y, s.scale[2] = v.z, s.scale[3] = v.w;
    } else {
        uint2 v = reinterpret_cast<const uint2 *>(scale)[lane / 8];
        s.scale[0] = v.x, s.scale[1] = v.y;
    }
    const uint8_t *high = stage + S::HIGH_AT + g * S::HIGH + j * form_high_bytes(F);
    if constexpr (form_high_bits(F) == 1) s.high = reinterpret_cast<const uint16_t *>(high)[lane];
    if constexpr (form_high_bits(F) == 2) s.high = reinterpret_cast<const uint32_t *>(high)[lane];
    if constexpr (form_has_minus(F)) {
        uint2 v = reinterpret_cast<const uint2 *>(stage + S::MINUS_AT + g * S::MINUS +
                                                  j * form_minus_bytes(F))[lane / 8];
        s.minus[0] = v.x, s.minus[1] = v.y;
    }
}

template <enum form F, int N, bool IS_FINE>
__device__ __forceinline__ void multiply_ring_stage(float (&acc)[1][RG], const uint8_t *stage,
                                                    operands x, int n)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j >= n) break;
        tile_share<F> share[RG];
#pragma unroll
        for (int g = 0; g < RG; g++) read_share<F>(share[g], stage, g, j);
        multiply<F, 1, 1, IS_FINE>(acc, share, x.at(j), 1);
    }
}

template <enum form F, enum product_kind KIND>
__global__ void __launch_bounds__(32 * WARPS, 3) multiply_few(const __grid_constant__ product a)
{
    constexpr bool IS_EXPERT = KIND == EXPERTS, IS_FINE = KIND == FINE;
    typedef ring_stage<F> S;
    extern __shared__ __align__(128) uint8_t shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = 1 << a.row_shift;
    int column = warp % a.across, part = warp / a.across, unit = blockIdx.y;
    int expert = 0, first = 0, end = a.rows.max;
    int *list = IS_EXPERT ? reinterpret_cast<int *>(shared + a.list_at) : nullptr;
    int *x_rows = IS_EXPERT ? list + a.rows.max * a.n_used : nullptr;
    uint8_t *ring = shared + a.ring_at + warp * RING * S::BYTES;
    uint32_t ring_to = shared_address(ring);
    ring_feed<F> feed = {};
    feed.unit = unit;
    int taken = 0; /* place in the ring */
    auto feed_next = [&]() {
        feed_ring<F, IS_EXPERT>(feed, a, expert, column, part, end, ring_to);
    };

    if (!IS_EXPERT) {
        aim<F>(feed, a, 0, unit * a.across + column, part);
        for (int i = 0; i < RING - 1; i++) feed_next();
    }
    grid_wait();
    grid_release();
    int live = rows_live(a.rows, a.step);
    if (IS_EXPERT) {
        if (!choose_expert(a.ids, live * a.n_used, a.n_used, a.w[0].n_expert, blockIdx.x, list,
                           x_rows, &end, &expert))
            return;
        aim<F>(feed, a, max(expert, 0), unit * a.across + column, part);
        for (int i = 0; i < RING - 1; i++) feed_next();
    }
    fill_stage_now<IS_FINE>(a, shared, x_rows, 0, min(end, rows));
    if (!IS_EXPERT) end = min(live, rows);
    if (end <= 0) return;

    operand_place place =
        operands_in_stage(a, a.kc, part, min(lane / 8, rows - 1), min(lane % 4, rows - 1));
    bool is_low = IS_FINE && lane / 4 % 2 == 1; /* of this lane's column of B */
    operands x = {shared + place.values + (is_low ? a.to_low : 0), shared + place.scales, 0, 0};
    partial_sums p = partial_sums_of(a, shared);
    int length = slice_begin(a, part + 1) - slice_begin(a, part);
    float start = expert < 0 ? not_a_number() : 0.0f;
    for (;;) {
        float acc[1][RG] = {{start, start}};
        for (int k = 0; k < length; k += S::TILES) {
            copies_wait<RING - 2>();
            __syncwarp();
            feed_next();
            multiply_ring_stage<F, S::TILES, IS_FINE>(acc, ring + taken * S::BYTES, x.at(k),
                                                      length - k);
            taken = taken + 1 == RING ? 0 : taken + 1;
        }
        put_partial<F, 1, 1>(p, part, column * RG, acc);
        __syncthreads();
        finish_unit(a, p, unit, list, first, min(end - first, rows));
        __syncthreads();
        if (!IS_EXPERT) {
            unit += gridDim.y;
            if (unit >= a.n_units) break;
            continue;
        }
        first += rows; /* more rows than a stage holds chose this expert: never, with a router */
        if (first >= end) break;
        fill_stage_now<IS_FINE>(a, shared, x_rows, first, min(end - first, rows));
    }
    copies_wait_all();
}

/* ---- Launch -------------------------------------------------------------------------------- */

/* Slices decide bits, so they depend on shapes and the chip alone: enough to give every
 * multiprocessor 12 warps, but of at least two tiles. */
static inline int slices_for(int n_sm, int columns, int n_ktiles, int most)
{
    int n = 1;
    while (n < most && columns * n < 12 * n_sm && n_ktiles >= 4 * n) n *= 2;
    return n;
}

/* Bytes of a stage for one slice, without a low plane. */
static inline int slice_bytes_of(int rows, int kc)
{
    return rows * (value_step(kc) + scale_step(kc));
}

/* A slice in shared memory: values, scales, low plane. */
static inline void shape_slice(product *p, int rows, bool is_fine)
{
    p->slice_bytes = slice_bytes_of(rows, p->kc);
    p->to_low = low_step(rows, p->kc);
    if (is_fine) p->slice_bytes = p->to_low + rows * value_step(p->kc);
}

/* Fills in how slices and units of `p` are dealt to warps and blocks. Two turns and more: with
 * `most` slices abreast. */
static inline void spread(product *p, int n_sm, int most)
{
    bool has_two = p->gelu.kind == MATVEC_GELU_MUL, has_gelu = p->gelu.kind != MATVEC_STORE;
    int columns = 0, per_column = has_two ? 1 : RG; /* groups of eight outputs */
    for (int k = 0; k < (has_two ? 1 : p->n_w); k++) {
        bool is_padded = has_gelu && is_in_blocks(p->gelu.act);
        int groups = is_padded ? round_up(p->w[k].rows, 64) / 8 : p->w[k].n_groups;
        p->columns[k] = (groups + per_column - 1) / per_column;
        columns += p->columns[k];
    }
    int least = has_gelu ? 4 / per_column : 1; /* an epilogue with GELU wants 32 columns */
    int n = slices_for(n_sm, columns * (p->ids ? p->n_used : 1), p->w[0].n_ktiles, WARPS / least);
    for (p->slice_shift = 0; 1 << p->slice_shift < n; p->slice_shift++) continue;
    p->abreast = n < most ? n : most;
    p->across = WARPS / p->abreast;
    p->n_units = (columns + p->across - 1) / p->across;
}

/* Tiles of columns in the longest slice. */
static inline int longest_slice(const product *p)
{
    return ((p->w[0].n_ktiles - 1) >> p->slice_shift) + 1;
}

/* Shared memory behind the activations (and a ring); gives all of it. */
static inline size_t place(product *p, size_t bytes)
{
    p->partial_at = (int32_t)bytes;
    bytes += partial_bytes(1 << p->slice_shift, p->across * RG, 1 << p->row_shift);
    p->list_at = (int32_t)bytes;
    if (p->ids) bytes += (size_t)(p->rows.max * p->n_used) * 2 * sizeof(int);
    return bytes;
}

/* Units are many: two blocks a multiprocessor read in the best order (an H200: the head of E4B in
 * 164 us, with four of them 212). */
enum { RESIDENT = 2, RESIDENT_MAX = 3 };

/* Shared memory that lets no more than n blocks share a multiprocessor: where the next kernel's
 * blocks come early they would crowd on those that are free first. */
static inline size_t crowd_limit(size_t bytes, int n)
{
    int device = 0, all = 0, most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    /* with the kilobyte that a block takes beside, too many */
    size_t wanted = (size_t)(all / (n + 1));
    if (wanted > (size_t)most) wanted = (size_t)most;
    return bytes > wanted ? bytes : wanted;
}

template <bool IS_EXPERT, typename Kernel>
static void launch_units(const struct queue *q, Kernel *kernel, const product &p, int tiles,
                         size_t shared_bytes)
{
    int resident = 1;
    dim3 grid;
    if (IS_EXPERT) {
        int pairs = p.rows.max * p.n_used, kinds = p.w[0].n_expert + 1;
        grid = dim3((unsigned)(pairs < kinds ? pairs : kinds), (unsigned)p.n_units);
    } else {
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32 * WARPS, shared_bytes);
        int needed = (p.n_units * tiles + q->n_sm - 1) / q->n_sm;
        if (needed > RESIDENT_MAX) needed = RESIDENT;
        if (resident > needed) {
            resident = needed;
            shared_bytes = crowd_limit(shared_bytes, needed);
        }
        int most = resident * q->n_sm / tiles;
        if (most < 1) most = 1;
        grid = dim3((unsigned)tiles, (unsigned)(p.n_units < most ? p.n_units : most));
    }
    launch(q, kernel, grid, 32 * WARPS, shared_bytes, p);
}

/* For every kernel here: as much shared memory as crowd_limit may ask for. */
template <typename Kernel> static cudaError_t allow_all_shared(Kernel *kernel)
{
    return allow_shared(kernel, crowd_limit(SHARED_MAX, 1));
}

/* False: activations of these columns do not fit, take launch_tiles. */
template <enum form F, enum product_kind KIND>
static bool launch_few(const struct queue *q, product p)
{
    spread(&p, q->n_sm, WARPS);
    int rows = p.rows.max == 3 ? 4 : p.rows.max;
    for (p.row_shift = 0; 1 << p.row_shift < rows; p.row_shift++) continue;
    p.kc = longest_slice(&p);
    shape_slice(&p, rows, KIND == FINE);
    p.ring_at = round_up(p.abreast * p.slice_bytes, 128); /* or copies take a line more */
    size_t bytes = place(&p, (size_t)(p.ring_at + WARPS * RING * ring_stage<F>::BYTES));
    if (bytes > SHARED_MAX) return false;
    launch_units<KIND == EXPERTS>(q, multiply_few<F, KIND>, p, 1, bytes);
    return true;
}

template <enum form F, int NT, enum product_kind KIND>
static void launch_tiles(const struct queue *q, product p)
{
    int rows = 8 * NT;
    spread(&p, q->n_sm, NT > 1 ? 4 : WARPS);
    for (p.row_shift = 0; 1 << p.row_shift < rows; p.row_shift++) continue;
    int length = longest_slice(&p);
    p.kc = length;
    shape_slice(&p, rows, KIND == FINE);
    p.is_filled_once = NT == 1 && !p.ids && p.abreast * p.slice_bytes <= STAGE_MAX;
    if (!p.is_filled_once) {
        p.kc = stage_tiles(NT);
        shape_slice(&p, rows, KIND == FINE);
    }
    p.n_chunks = (length + p.kc - 1) / p.kc;
    p.stage_bytes = p.abreast * p.slice_bytes;
    size_t bytes = place(&p, (size_t)(p.stage_bytes * (p.is_filled_once ? 1 : 2)));
    launch_units<KIND == EXPERTS>(q, multiply_tiles<F, NT, KIND>, p,
                                  round_up(p.rows.max, rows) / rows, bytes);
}

/* ---- Dispatch -------------------------------------------------------------------------------- */

static inline int outputs_of(const product &p)
{
    int sum = 0;
    for (int k = 0; k < p.n_w; k++) sum += p.w[k].rows;
    return sum;
}

/* Rows beyond 16 go in tiles of 16 side by side, which share the weights in L2: tiles of 32 took
 * 1.2 times as long (E4B Q8_0, 32 rows, H200). With so few outputs that most multiprocessors would
 * be idle, tiles of 8. */
template <enum form F, enum product_kind KIND>
static void launch_form(const struct queue *q, const product &p)
{
    if (p.rows.max <= 4 && launch_few<F, KIND>(q, p)) return;
    if (p.rows.max <= 8 || outputs_of(p) <= 8 * q->n_sm)
        launch_tiles<F, 1, KIND>(q, p);
    else
        launch_tiles<F, 2, KIND>(q, p);
}

template <enum product_kind KIND>
static void launch_product(const struct queue *q, const product &p)
{
    switch (form_of(p.w[0].format)) {
#define X(F)                                                                                       \
    case F: launch_form<F, KIND>(q, p); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}

template <enum form F, enum product_kind KIND> static cudaError_t prepare_form()
{
    cudaError_t error = allow_all_shared(multiply_few<F, KIND>);
    if (!error) error = allow_all_shared(multiply_tiles<F, 1, KIND>);
    if (!error) error = allow_all_shared(multiply_tiles<F, 2, KIND>);
    return error;
}

template <enum product_kind KIND> static cudaError_t prepare_product()
{
    cudaError_t error = cudaSuccess;
#define X(F)                                                                                       \
    if (!error) error = prepare_form<F, KIND>();
    FORM_LIST(X)
#undef X
    return error;
}

/* matvec_fine.cu: compiled apart from matvec.cu. */
void launch_fine(const struct queue *q, const product &p);
cudaError_t fine_prepare();

#endif
