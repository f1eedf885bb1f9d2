/* What TMA must know of an array, made on the host. */
#ifndef CUDA_SM90_TENSOR_MAP_CUH
#define CUDA_SM90_TENSOR_MAP_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "backend/cuda/types.h"

enum { MAP_RANK_MAX = 5 };

/* An array of `rank` dimensions, the first of which runs fastest, and the box that a copy takes of
 * it. What is outside the array is copied as zeros. */
struct map_shape {
    CUtensorMapDataType type;
    cuuint32_t rank;
    const void *base;                    /* at a multiple of 16 */
    cuuint64_t size[MAP_RANK_MAX];       /* values */
    cuuint64_t stride[MAP_RANK_MAX - 1]; /* bytes, of the second dimension on; multiples of 16 */
    cuuint32_t box[MAP_RANK_MAX];
    CUtensorMapSwizzle swizzle;
};

/* False: the driver is too old or refuses. */
static bool make_tensor_map(CUtensorMap *map, const map_shape &s)
{
    typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static const cuuint32_t every[MAP_RANK_MAX] = {1, 1, 1, 1, 1};
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                         cudaEnableDefault, &found);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
    if (error || found != cudaDriverEntryPointSuccess) return false;
    encode_fn *encode = reinterpret_cast<encode_fn *>(entry);
    return encode(map, s.type, s.rank, const_cast<void *>(s.base), s.size, s.stride, s.box, every,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, s.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#endif
