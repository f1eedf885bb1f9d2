/* The device's own limits, against which times are set. */
#include "backend/cuda/device.h"

/* Many times the cache, so that little of it is read from there. */
#define READ_BYTES ((size_t)2 << 30)
enum { RUNS = 5, LAUNCHES = 4 };

double cuda_seconds(struct device *d, void (*launch)(const struct queue *q, void *user),
                    void *user)
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

struct work {
    void *memory, *result;
    double amount; /* of one launch: bytes, operations */
};

static void read_memory(const struct queue *q, void *user)
{
    struct work *w = user;
    w->amount = (double)READ_BYTES;
    for (int i = 0; i < LAUNCHES; i++) launch_read_limit(q, w->memory, READ_BYTES, w->result);
}

static void multiply_int8(const struct queue *q, void *user)
{
    struct work *w = user;
    for (int i = 0; i < LAUNCHES; i++) w->amount = launch_int8_limit(q, w->result);
}

static void multiply_half(const struct queue *q, void *user)
{
    struct work *w = user;
    for (int i = 0; i < LAUNCHES; i++) w->amount = launch_half_limit(q, w->result);
}

/* A second, at best; 0 when something failed. */
static double rate_of(struct device *d, void (*launch)(const struct queue *q, void *user),
                      struct work *w)
{
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        double seconds = cuda_seconds(d, launch, w);
        double rate = seconds > 0 ? LAUNCHES * w->amount / seconds : 0;
        if (rate > best) best = rate;
    }
    return best;
}

void cuda_measure_limits(struct device *d, struct device_limits *out)
{
    struct work w = {0};
    *out = (struct device_limits){0};
    cudaSetDevice(d->index);
    if (cudaMalloc(&w.memory, READ_BYTES) == cudaSuccess &&
        cudaMalloc(&w.result, 256) == cudaSuccess &&
        cudaMemsetAsync(w.memory, 1, READ_BYTES, d->queue.stream) == cudaSuccess) {
        out->read_bytes = rate_of(d, read_memory, &w);
        out->int8_operations = rate_of(d, multiply_int8, &w);
        out->fp16_operations = rate_of(d, multiply_half, &w);
    }
    cudaFree(w.memory);
    cudaFree(w.result);
    cudaGetLastError();
}
