/* The choice of experts by a warp, and the arrival of blocks whose last one chooses: for route.cu,
 * which tells the rules, and beside.cu. */
#ifndef CUDA_ROUTE_CUH
#define CUDA_ROUTE_CUH

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/matvec_rows.cuh"

struct choice {
    const float *z, *scale; /* scale NULL: all ones */
    int32_t *ids;
    float *shares;
    int32_t n_expert, n_used;
    int32_t n_parts; /* of z, up to 1: it is whole */
    int64_t part;    /* from one to the next */
};

/* All lanes of a warp, for one row. Each round takes the largest share that is left, of equal ones
 * the lowest id; NaN is taken last. Logits are read from L2: other blocks of this launch may have
 * written them. */
template <int V, bool IS_IN_PARTS>
__device__ __forceinline__ void choose(const struct choice &p, int64_t row, bool is_live)
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
    uint32_t key[V]; /* the share's bits plus 2; 1: NaN; 0: not there or taken */
#pragma unroll
    for (int v = 0; v < V; v++) {
        float share = (float)exp((double)(x[v] - top));
        bool is_there = lane + WARP * v < p.n_expert;
        key[v] = !is_there ? 0 : isnan(share) ? 1 : __float_as_uint(share) + 2;
    }
    float sum = 0.0f, mine[V] = {}; /* chosen as number lane + 32 v: its share and id */
    int id[V] = {};
    for (int s = 0; s < p.n_used; s++) {
        uint32_t best = 0, lowest = ~0u;
#pragma unroll
        for (int v = 0; v < V; v++) best = max(best, key[v]);
        best = warp_max(best);
#pragma unroll
        for (int v = V - 1; v >= 0; v--)
            if (key[v] == best) lowest = (uint32_t)(lane + WARP * v);
        lowest = __reduce_min_sync(~0u, lowest);
        float share = best > 1 ? __uint_as_float(best - 2) : not_a_number();
        sum = __fadd_rn(sum, share);
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (lane + WARP * v == (int)lowest) key[v] = 0;
            if (lane + WARP * v == s) mine[v] = share, id[v] = (int)lowest;
        }
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

struct router {
    struct rows_product product;
    struct choice choice;
    uint32_t *arrived;
};

/* Whether this block is the last of the tile's n; then it sees what all of them wrote. */
__device__ __forceinline__ bool arrives_last(uint32_t *arrived, unsigned n)
{
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicInc(arrived, n - 1) == n - 1;
    __syncthreads();
    if (is_last) __threadfence();
    return is_last;
}

static inline router router_of(const struct router_args *args)
{
    struct router p = {};
    p.product.step = args->step, p.product.rows = args->rows, p.product.w[0] = args->w;
    p.product.x = args->x, p.product.y = args->z, p.product.n_used = 1;
    p.product.gelu.kind = MATVEC_STORE;
    p.choice = {args->z, args->scale, args->ids, args->shares, args->w.rows, args->n_used};
    p.arrived = args->arrived;
    return p;
}

#endif
