/* What the device can do at most: bytes read with 16-byte loads, eight in flight a thread; 8-bit
 * and fp16 products of mma.sync with operands in registers. Results go nowhere, but depend on what
 * was read, so that nothing is left out. */
#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/read_limit.h"

enum { MMA_WARPS = 8, MMA_ROUNDS = 2048, CHAINS = 8 };

/* The last round is not whole: its loads are in flight together too, or the end would take longer
 * than its bytes need. */
__global__ void __launch_bounds__(READ_THREADS)
    read_all(const uint4 *from, int64_t n, uint32_t *out)
{
    grid_wait();
    uint32_t sum = 0;
    int64_t step = (int64_t)gridDim.x * READ_THREADS;
    int64_t at = (int64_t)blockIdx.x * READ_THREADS + threadIdx.x;
    for (; at < n; at += READ_IN_FLIGHT * step) {
        uint4 v[READ_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < READ_IN_FLIGHT; i++)
            v[i] = at + i * step < n ? __ldcs(from + at + i * step) : uint4();
#pragma unroll
        for (int i = 0; i < READ_IN_FLIGHT; i++) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    if (sum == READ_MARK) *out = sum;
}

/* For sums of either kind. */
__device__ __forceinline__ void mma_add(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_i8_k32_add(d, a, b[0], b[1]);
}
__device__ __forceinline__ void mma_add(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_f16(d, a, b[0], b[1]);
}

/* Two fp16 values from 1 to 2, whose sums of products stay small; as four bytes they are as good as
 * any. */
__device__ __forceinline__ uint32_t operand(uint32_t seed)
{
    return 0x3c003c00u | (seed & 0x03ff03ffu);
}

/* Sum: int32_t for 8-bit operands, float for fp16. */
template <typename Sum>
__global__ void __launch_bounds__(32 * MMA_WARPS) multiply_all(uint32_t *out)
{
    grid_wait();
    Sum acc[CHAINS][4] = {};
    uint32_t a[4], b[2];
    for (int i = 0; i < 4; i++) a[i] = operand(threadIdx.x * 0x01030507u + i);
    for (int i = 0; i < 2; i++) b[i] = operand(threadIdx.x * 0x02040608u + i);
    for (int round = 0; round < MMA_ROUNDS; round++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++) mma_add(acc[c], a, b);
    Sum sum = 0;
    for (int c = 0; c < CHAINS; c++)
        for (int i = 0; i < 4; i++) sum += acc[c][i];
    if (sum == Sum(-1)) *out = 1;
}

/* `columns`: of one mma.sync. */
template <typename Sum> double launch_multiply(const struct queue *q, void *out, int columns)
{
    unsigned blocks = (unsigned)q->n_sm * 4;
    launch(q, multiply_all<Sum>, dim3(blocks), 32 * MMA_WARPS, 0, static_cast<uint32_t *>(out));
    return 2.0 * 16 * 8 * columns * CHAINS * MMA_ROUNDS * MMA_WARPS * blocks;
}

extern "C" void launch_read_limit(const struct queue *q, const void *memory, size_t bytes,
                                  void *out)
{
    launch(q, read_all, dim3((unsigned)q->n_sm * READ_BLOCKS), READ_THREADS, 0,
           static_cast<const uint4 *>(memory), (int64_t)(bytes / sizeof(uint4)),
           static_cast<uint32_t *>(out));
}

extern "C" double launch_int8_limit(const struct queue *q, void *out)
{
    return launch_multiply<int32_t>(q, out, 32);
}

extern "C" double launch_half_limit(const struct queue *q, void *out)
{
    return launch_multiply<float>(q, out, 16);
}
