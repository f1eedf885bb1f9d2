/* The choice of experts of a row by a warp: ids, shares = the n_used largest of softmax(z),
 * c / sum(c) * scale[id]. V experts a lane: expert lane + 32 v. Exponentials are those of double
 * precision, rounded: nearly always the reference's bits, so that ties are the same ties. */
#ifndef CUDA_CHOOSE_CUH
#define CUDA_CHOOSE_CUH

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/round.cuh"

struct choice {
    const float *z, *scale; /* scale NULL: all ones */
    int32_t *ids;
    float *shares;
    int32_t n_expert, n_used;
    int32_t n_parts; /* of z; up to 1: it is whole */
    int64_t part;    /* values from one part to the next */
};

/* Limits where the choice is made by its readers (choice_is_late): up to eight rows, up to 32 of up
 * to 128 experts. */
enum { LATE_ROWS = 8, LATE_USED = 32, LATE_V = 4 };

/* Shares of a row before they are divided by their sum, as keys: their bits plus 2; 1: NaN; 0: not
 * there or taken. Logits are read from L2: other blocks of this launch, or a launch that has not
 * been waited for, may have written them. */
template <int V, bool IS_IN_PARTS>
__device__ __forceinline__ void share_keys(const struct choice &p, int64_t row, uint32_t (&key)[V])
{
    const int lane = threadIdx.x % WARP;
    const float *z = p.z + row * p.n_expert;
    float x[V], top = -INFINITY;
#pragma unroll
    for (int v = 0; v < V; v++)
        x[v] = lane + WARP * v < p.n_expert ? __ldcg(z + lane + WARP * v) : -INFINITY;
    for (int k = 1; IS_IN_PARTS && k < p.n_parts; k++)
#pragma unroll
        for (int v = 0; v < V; v++)
            if (lane + WARP * v < p.n_expert)
                x[v] = __fadd_rn(x[v], __ldcg(z + k * p.part + lane + WARP * v));
#pragma unroll
    for (int v = 0; v < V; v++) top = fmaxf(top, x[v]);
    for (int mask = 16; mask > 0; mask /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
#pragma unroll
    for (int v = 0; v < V; v++) {
        float share = (float)exp((double)(x[v] - top));
        bool is_there = lane + WARP * v < p.n_expert;
        key[v] = !is_there ? 0 : isnan(share) ? 1 : __float_as_uint(share) + 2;
    }
}

/* Takes the largest share that is left, of equal ones the lowest id; NaN comes last. */
template <int V> __device__ __forceinline__ uint32_t take_largest(uint32_t (&key)[V], int *id)
{
    const int lane = threadIdx.x % WARP;
    uint32_t best = 0, lowest = ~0u;
#pragma unroll
    for (int v = 0; v < V; v++) best = max(best, key[v]);
    best = warp_max(best);
#pragma unroll
    for (int v = V - 1; v >= 0; v--)
        if (key[v] == best) lowest = (uint32_t)(lane + WARP * v);
    lowest = __reduce_min_sync(~0u, lowest);
#pragma unroll
    for (int v = 0; v < V; v++)
        if (lane + WARP * v == (int)lowest) key[v] = 0;
    *id = (int)lowest;
    return best;
}

/* The expert that is chosen as number nth, without shares. */
template <int V>
__device__ __forceinline__ int chosen_id(const struct choice &p, int64_t row, int nth)
{
    uint32_t key[V];
    int id = 0;
    share_keys<V, false>(p, row, key);
    for (int s = 0; s <= nth; s++) take_largest<V>(key, &id);
    return id;
}

/* The ids of a row, without shares. */
template <int V>
__device__ __forceinline__ void choose_ids(const struct choice &p, int64_t row, int32_t *ids)
{
    uint32_t key[V];
    int id = 0;
    share_keys<V, false>(p, row, key);
    for (int s = 0; s < p.n_used; s++) {
        take_largest<V>(key, &id);
        ids[row * p.n_used + s] = id;
    }
}

/* All lanes of a warp, for one row. */
template <int V, bool IS_IN_PARTS>
__device__ __forceinline__ void choose(const struct choice &p, int64_t row, bool is_live)
{
    const int lane = threadIdx.x % WARP;
    uint32_t key[V];
    float sum = 0.0f, mine[V] = {}; /* chosen as number lane + 32 v: its share and id */
    int id[V] = {};
    share_keys<V, IS_IN_PARTS>(p, row, key);
    for (int s = 0; s < p.n_used; s++) {
        int taken;
        uint32_t best = take_largest<V>(key, &taken);
        float share = best > 1 ? __uint_as_float(best - 2) : not_a_number();
        sum = __fadd_rn(sum, share);
#pragma unroll
        for (int v = 0; v < V; v++)
            if (lane + WARP * v == s) mine[v] = share, id[v] = taken;
    }
    if (!is_live) return;
#pragma unroll
    for (int v = 0; v < V; v++) {
        int s = lane + WARP * v;
        if (s >= p.n_used) continue;
        p.ids[row * p.n_used + s] = id[v];
        float share = __fdiv_rn(mine[v], sum);
        p.shares[row * p.n_used + s] = p.scale ? __fmul_rn(share, p.scale[id[v]]) : share;
    }
}

#endif
