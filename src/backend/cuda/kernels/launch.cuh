/* How kernels are started, and the two instructions that let a kernel start while the one before
 * it ends.
 *
 * On chips that can (compute capability 9.0 and later) launches are programmatic dependents: the
 * next kernel's blocks may start as soon as every block of this one has called grid_release or
 * left; what they do before grid_wait must not touch anything that an earlier kernel of the plan
 * writes (weights are fine). Rules:
 * 1. Every thread of every kernel calls grid_wait (a second call does nothing) before it reads or
 *    writes anything but weights and the step's arrays (which no kernel writes), and before it may
 *    leave: completion is passed on only by those who waited.
 * 2. grid_release follows grid_wait, but for attend_combine and norms of a few rows that go to
 *    products in fp16: what comes after these reads nothing else before its own wait than rule 1
 *    allows.
 * So when a block starts after any other launch, all blocks of that one have passed their wait, and
 * what was written by the launch before it may be read at once, by __ldcg: L1 may hold older
 * bytes. */
#ifndef CUDA_LAUNCH_CUH
#define CUDA_LAUNCH_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/kernels.h"

__device__ __forceinline__ void grid_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void grid_release()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The blocks of a launch. Clusters are of the first dimension; 1: none. */
struct launch_shape {
    dim3 grid;
    unsigned threads;
    size_t shared_bytes;
    unsigned cluster;
};

/* Whether 16 bytes can be read or written at once. */
static inline bool is_at_16(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/* Brings a kernel to the device, which its first launch would do otherwise: the driver loads a
 * kernel when somebody asks for its attributes. */
static inline cudaError_t load_kernel(const void *kernel)
{
    cudaFuncAttributes ignored;
    return cudaFuncGetAttributes(&ignored, kernel);
}

/* A block has 48 KB of shared memory without permission, its kernel's arrays among them (these are
 * below 16 KB). Permission is never lowered: recorded launches of the kernel may need what later
 * ones do not. Asking takes 0.6 us, a quarter of a launch. A failure is the next launch's. */
static inline void allow_shared(const void *kernel, size_t bytes)
{
    enum { FREE = 32 << 10 };
    cudaFuncAttributes now;
    if (bytes <= FREE || cudaFuncGetAttributes(&now, kernel) != cudaSuccess) return;
    if ((size_t)now.maxDynamicSharedSizeBytes < bytes)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* Starts `kernel` on the queue, or only loads it. Nothing is checked here: the fence reports. */
template <typename... Params, typename... Args>
static inline void launch(const struct queue *queue, void (*kernel)(Params...),
                          const struct launch_shape &shape, Args &&...args)
{
    const void *key = reinterpret_cast<const void *>(kernel);
    if (queue->loads_only) return (void)load_kernel(key);
    allow_shared(key, shape.shared_bytes);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    config.gridDim = shape.grid;
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = queue->stream;
    config.attrs = attributes;
    if (queue->has_dependent_launch) {
        cudaLaunchAttribute &dependent = attributes[config.numAttrs++];
        dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        dependent.val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster > 1) {
        cudaLaunchAttribute &cluster = attributes[config.numAttrs++];
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {shape.cluster, 1, 1};
    }
    cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

/* The same without clusters. */
template <typename... Params, typename... Args>
static inline void launch(const struct queue *queue, void (*kernel)(Params...), dim3 grid,
                          unsigned threads, size_t shared_bytes, Args &&...args)
{
    launch(queue, kernel, launch_shape{grid, threads, shared_bytes, 1},
           static_cast<Args &&>(args)...);
}

/* Live rows of a launch. */
__device__ __forceinline__ int rows_live(const struct rows &rows, const struct step_view &step)
{
    return step.counts[rows.is_out ? 2 : 0];
}

/* The token that row r is. */
__device__ __forceinline__ int row_token(const struct rows &rows, const struct step_view &step,
                                         int r)
{
    return rows.is_out ? step.out_row[r] : r;
}

#endif
