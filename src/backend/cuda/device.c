#include "backend/cuda/device.h"

#include "base/mem.h"

int cuda_fail(struct carat_error *err, cudaError_t status, const char *what)
{
    if (status == cudaErrorMemoryAllocation) {
        size_t available = 0, total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&available, &total);
        err_set(err, CARAT_EMEMORY, "%s: no device memory left (%.1f of %.1f GB are free)", what,
                (double)available / 1e9, (double)total / 1e9);
        err_hint(err, "take a smaller context (-c), fewer sequences, or --mirror-budget 0");
        return CARAT_EMEMORY;
    }
    err_set(err, CARAT_EDEVICE, "%s: %s", what, cudaGetErrorString(status));
    if (status == cudaErrorNoKernelImageForDevice)
        err_hint(err, "this build has no code for this GPU: build it with its chip in "
                      "CARAT_CUDA_CHIPS, or take --backend cpu");
    return CARAT_EDEVICE;
}

struct slab {
    struct slab *next;
    void *memory;
    bool is_pinned;
};

void *slab_take(struct device *d, size_t bytes, bool is_pinned)
{
    struct slab *slab = mem_alloc(1, sizeof *slab);
    if (!slab) return NULL;
    cudaError_t status = is_pinned ? cudaMallocHost(&slab->memory, bytes ? bytes : 1)
                                   : cudaMalloc(&slab->memory, bytes ? bytes : 1);
    if (status) {
        cudaGetLastError(); /* the caller tells */
        mem_free(slab);
        return NULL;
    }
    slab->is_pinned = is_pinned;
    slab->next = d->slabs;
    d->slabs = slab;
    return slab->memory;
}

void slabs_free(struct device *d)
{
    for (struct slab *next, *slab = d->slabs; slab; slab = next) {
        next = slab->next;
        if (slab->is_pinned)
            cudaFreeHost(slab->memory);
        else
            cudaFree(slab->memory);
        mem_free(slab);
    }
    d->slabs = NULL;
}
