/* The device's own limits, against which times are set. */
#include "backend/cuda/device.h"

#include "base/os.h"

/* Many times the cache, so that little of it is read from there. */
#define READ_BYTES ((size_t)2 << 30)
enum { RUNS = 5 };

/* The best of some runs: seconds from the host, a millisecond of work each, are exact enough. */
static double best_seconds(struct device *d, void *memory, void *out, double *operations)
{
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        cudaStreamSynchronize(d->queue.stream);
        double begin = os_seconds();
        for (int k = 0; k < 4; k++) {
            if (operations)
                *operations = launch_int8_limit(&d->queue, out);
            else
                launch_read_limit(&d->queue, memory, READ_BYTES, out);
        }
        cudaStreamSynchronize(d->queue.stream);
        double seconds = (os_seconds() - begin) / 4;
        if (seconds < best) best = seconds;
    }
    return best;
}

void cuda_measure_limits(struct device *d, struct device_limits *out)
{
    void *memory = NULL, *result = NULL;
    double operations = 0;
    *out = (struct device_limits){0};
    cudaSetDevice(d->index);
    if (cudaMalloc(&memory, READ_BYTES) == cudaSuccess && cudaMalloc(&result, 256) == cudaSuccess) {
        cudaMemsetAsync(memory, 1, READ_BYTES, d->queue.stream);
        out->read_bytes = (double)READ_BYTES / best_seconds(d, memory, result, NULL);
        double seconds = best_seconds(d, memory, result, &operations);
        out->int8_operations = operations / seconds;
    }
    cudaFree(memory);
    cudaFree(result);
    cudaGetLastError();
}
