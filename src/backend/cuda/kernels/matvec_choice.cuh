/* Which expert a block works for, and which pairs chose it. */
#ifndef CUDA_MATVEC_CHOICE_CUH
#define CUDA_MATVEC_CHOICE_CUH

#include <stdint.h>

enum { EXPERTS_MAX = 1024 };

/* Finds the nth of the experts that any pair chose. Invalid ids form one extra expert, numbered
 * last; *expert is then -1. The expert's pairs go to `list` in rising order, their rows to x_rows.
 * False: fewer experts were chosen. */
__device__ __forceinline__ bool choose_expert(const int32_t *ids, int n_pairs, int n_used,
                                              int n_expert, int nth, int *list, int *x_rows,
                                              int *n_list, int *expert)
{
    __shared__ uint32_t used[EXPERTS_MAX / 32 + 1];
    __shared__ int found;
    if (n_pairs <= n_used) { /* one row: each pair by itself */
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

#endif
