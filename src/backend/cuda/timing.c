#include "backend/cuda/timing.h"

double cuda_seconds(struct device *d, void (*launch)(const struct queue *q, void *user), void *user)
{
    float ms = 0;
    cudaEvent_t begin = NULL, end = NULL;
    cudaError_t status = cudaEventCreate(&begin);
    if (!status) status = cudaEventCreate(&end);
    if (!status) status = cudaEventRecord(begin, d->queue.stream);
    if (!status) {
        launch(&d->queue, user);
        status = cudaGetLastError();
    }
    if (!status) status = cudaEventRecord(end, d->queue.stream);
    if (!status) status = cudaEventSynchronize(end);
    if (!status) status = cudaEventElapsedTime(&ms, begin, end);
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    return status ? 0 : (double)ms / 1e3;
}
