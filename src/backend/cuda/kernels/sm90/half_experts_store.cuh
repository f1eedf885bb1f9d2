/* Results of half_experts.cu: through shared memory, so that they are stored by 16 bytes. */
#ifndef CUDA_SM90_HALF_EXPERTS_STORE_CUH
#define CUDA_SM90_HALF_EXPERTS_STORE_CUH

#include "backend/cuda/kernels/round.cuh"
#include "backend/cuda/kernels/sm90/half_experts.cuh"

namespace {

/* Four 8 x 8 matrices of halves, turned: lane l says where row l % 8 of matrix l / 8 goes. */
__device__ __forceinline__ void store_turned(uint32_t shared, uint32_t a, uint32_t b, uint32_t c,
                                             uint32_t d)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
        "r"(a), "r"(b), "r"(c), "r"(d)
        : "memory");
}

__device__ __forceinline__ void group_meets(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"((int)GROUP) : "memory");
}

/* Eight results of a pair from column `col` of weight `which` on. */
__device__ __forceinline__ void put_eight(const grouped_product &p, int pair, int which, int col,
                                          uint4 v)
{
    int left = p.rows - col;
    uint16_t *out = p.half + (int64_t)pair * p.half_cols + p.first_col + which * p.rows + col;
    if (left <= 0) return;
    if (p.is_wide) {
        *reinterpret_cast<uint4 *>(out) = v;
        return;
    }
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (e < left) out[e] = (uint16_t)(words[e / 2] >> e % 2 * 16);
}

/* A group's results, ROUND rows at a time, through shared memory: there a row is 16 chunks of eight
 * neighbouring outputs, slot after slot. */
template <int N>
__device__ __forceinline__ void store_sums(const grouped_product &p, const item &it,
                                           const float (&sums)[SLABS][N / 2], uint8_t *out,
                                           const int32_t *table)
{
    const int i = threadIdx.x % GROUP, group = threadIdx.x / GROUP, lane = i % WARP;
    const int row = lane / 16 * 8 + lane % 8, half = lane / 8 % 2; /* of the lane's address */
    const int chunk = i % 16, slot = group * 16 + chunk;           /* of what it stores */
    const int which = slot % p.n_w;
    const int col = (it.unit * (UNIT_SLOTS / p.n_w) + slot / p.n_w) * TILE_ROWS;
#pragma unroll
    for (int r = 0; r < N / ROUND; r++) {
        uint8_t *buffer = out + r % 2 * (ROUND * OUT_BYTES);
#pragma unroll
        for (int s = 0; s < SLABS; s++) {
            const float *d = sums[s] + r * 8;
            int at = (slot_of(0, i / WARP, s) + half) ^ row % 8;
            store_turned(shared_address(buffer) + row * OUT_BYTES + at * 16,
                         pack_halves(d[0], d[1]), pack_halves(d[2], d[3]), pack_halves(d[4], d[5]),
                         pack_halves(d[6], d[7]));
        }
        group_meets(group);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int from = j * 8 + i / 16;
            if (r * ROUND + from >= it.tile.n) continue;
            put_eight(p, table[r * ROUND + from], which, col,
                      *reinterpret_cast<const uint4 *>(buffer + from * OUT_BYTES +
                                                       (chunk ^ from % 8) * 16));
        }
    }
}

} // namespace

#endif
