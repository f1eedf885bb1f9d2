/* Whether this build has code for a device, seen by loading a kernel that does nothing. */
#include "backend/cuda/kernels/launch.cuh"

static __global__ void nothing() {}

int kernels_status(void)
{
    return load_kernel(reinterpret_cast<const void *>(nothing));
}
