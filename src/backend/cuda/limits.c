#include "backend/cuda/limits.h"

#include "backend/cuda/act.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/timing.h"
#include "base/mem.h"
#include "base/rng.h"

/* What is read lies in no cache: it is many times as large, and before each time other memory is
 * read that is larger than any cache as well. */
#define READ_BYTES ((size_t)2 << 30)
#define READ_BYTES_LEAST ((size_t)256 << 20)
#define OTHER_BYTES ((size_t)256 << 20)
enum { RUNS = 8, LAUNCHES = 4, RESULT_BYTES = 256 };

struct work {
    char *memory, *other;
    void *result;
    size_t bytes;
    double operations; /* of one launch */
};

static void read_memory(const struct queue *q, void *user)
{
    struct work *w = user;
    launch_read_limit(q, w->memory, w->bytes, w->result);
}

static void multiply_registers_int8(const struct queue *q, void *user)
{
    struct work *w = user;
    for (int i = 0; i < LAUNCHES; i++) w->operations = launch_int8_limit(q, w->result);
}

static void multiply_registers_half(const struct queue *q, void *user)
{
    struct work *w = user;
    for (int i = 0; i < LAUNCHES; i++) w->operations = launch_half_limit(q, w->result);
}

/* The better of two rates; 0 as long as every run has failed. */
static double better_rate(double rate, double amount, double seconds)
{
    return seconds > 0 && amount / seconds > rate ? amount / seconds : rate;
}

static double read_rate(struct device *d, struct work *w)
{
    double rate = 0;
    for (int i = 0; i < RUNS; i++) {
        launch_read_limit(&d->queue, w->other, OTHER_BYTES, w->result);
        rate = better_rate(rate, (double)w->bytes, cuda_seconds(d, read_memory, w));
    }
    return rate;
}

static double multiply_rate(struct device *d, void (*launch)(const struct queue *q, void *user),
                            struct work *w)
{
    double rate = 0;
    for (int i = 0; i < RUNS; i++) {
        double seconds = cuda_seconds(d, launch, w);
        rate = better_rate(rate, LAUNCHES * w->operations, seconds);
    }
    return rate;
}

/* ---- cuBLAS ----------------------------------------------------------------------------- */

/* A product of many rows, as large as any that a prompt meets. */
enum { ROWS = 4096, SIDE = 8192 };

struct half_product {
    struct cublas *cublas;
    struct gemm_args args;
};

static void multiply_cublas(const struct queue *q, void *user)
{
    struct half_product *p = user;
    for (int i = 0; i < LAUNCHES; i++) cublas_multiply(p->cublas, q, &p->args);
}

/* Fills memory with fp16 values of both signs from 1 to 2: a product of zeros takes less power, and
 * is faster than any that is of use. */
static cudaError_t fill_halves(struct device *d, char *memory, size_t bytes)
{
    enum { BLOCK = 1 << 20 };
    struct rng rng = {.state = 1};
    uint16_t *block = mem_alloc(BLOCK / sizeof *block, sizeof *block);
    if (!block) return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < BLOCK / sizeof *block; i++)
        block[i] = (uint16_t)(0x3c00 | (rng_next(&rng) & 0x83ff));
    cudaError_t status = cudaMemcpy(memory, block, BLOCK, cudaMemcpyHostToDevice);
    for (size_t n = BLOCK; n < bytes && !status; n *= 2)
        status = cudaMemcpyAsync(memory + n, memory, n < bytes - n ? n : bytes - n,
                                 cudaMemcpyDeviceToDevice, d->queue.stream);
    mem_free(block);
    return status;
}

/* The rate of products by cuBLAS, in the memory that was read before; 0: it cannot be measured. */
static double cublas_rate(struct device *d, const struct work *w)
{
    size_t x_bytes = aligned(act_bytes(ROWS, SIDE)), w_bytes = (size_t)SIDE * SIDE * 2;
    size_t y_bytes = (size_t)ROWS * SIDE * 2;
    if (!d->cublas || x_bytes + w_bytes + y_bytes + CUBLAS_WORKSPACE_BYTES > w->bytes) return 0;
    char *matrix = w->memory + x_bytes, *workspace = matrix + w_bytes + y_bytes;
    struct half_product p = {.cublas = d->cublas,
                             .args = {.n_rows = ROWS,
                                      .n_w = 1,
                                      .x = act_at(w->memory, ACT_HALF, ROWS, SIDE),
                                      .half = (uint16_t *)(void *)(matrix + w_bytes),
                                      .half_cols = SIDE}};
    p.args.w[0] = (struct cuda_weight){.n_expert = 1,
                                       .rows = SIDE,
                                       .cols = SIDE,
                                       .mirror_cols = SIDE,
                                       .mirror = (uint16_t *)(void *)matrix};
    d->cublas_workspace = NULL; /* programs give it theirs again */
    if (fill_halves(d, w->memory, x_bytes + w_bytes) != cudaSuccess ||
        cublas_set_stream(d->cublas, &d->queue, workspace, CUBLAS_WORKSPACE_BYTES))
        return 0;
    double rate = 0, operations = 2.0 * LAUNCHES * ROWS * SIDE * SIDE;
    for (int i = 0; i < RUNS; i++)
        rate = better_rate(rate, operations, cuda_seconds(d, multiply_cublas, &p));
    return rate;
}

/* ---- All -------------------------------------------------------------------------------- */

static void measure_rates(struct device *d, size_t room, struct device_limits *out)
{
    struct work w = {.bytes = READ_BYTES};
    while (w.bytes >= READ_BYTES_LEAST && w.bytes + OTHER_BYTES + RESULT_BYTES > room) w.bytes /= 2;
    if (w.bytes < READ_BYTES_LEAST) return;
    size_t bytes = w.bytes + OTHER_BYTES + RESULT_BYTES;
    if (cudaMalloc((void **)&w.memory, bytes) == cudaSuccess &&
        cudaMemsetAsync(w.memory, 1, bytes, d->queue.stream) == cudaSuccess) {
        w.other = w.memory + w.bytes;
        w.result = w.other + OTHER_BYTES;
        out->read_bytes = read_rate(d, &w);
        out->int8_operations = multiply_rate(d, multiply_registers_int8, &w);
        out->fp16_operations = multiply_rate(d, multiply_registers_half, &w);
        double cublas = cublas_rate(d, &w);
        if (cublas > out->fp16_operations) out->fp16_operations = cublas;
    }
    cudaStreamSynchronize(d->queue.stream);
    cudaFree(w.memory);
    cudaGetLastError();
}

void cuda_measure_limits(struct device *d, size_t room, struct device_limits *out)
{
    cudaSetDevice(d->index);
    if (d->limits.read_bytes <= 0) measure_rates(d, room, &d->limits);
    *out = d->limits;
}
