/* The limits of this machine, measured with all workers at once: reading memory that is in no
 * cache, and multiplying bytes in registers. The best of a few short runs counts. Runs of products
 * get longer until a clock can tell their time: some kernels are a hundred times as fast as
 * others. */
#include "backend/cpu/program.h"
#include "base/os.h"

enum { RUNS = 5, FIRST_ROUNDS = 1 << 13 };
static const double run_seconds = 8e-3; /* of products, at least */
static const size_t read_size_max = (size_t)256 << 20, read_size_least = (size_t)64 << 20;

struct limits {
    const struct cpu_kernels *kernels;
    double (*multiply)(int64_t rounds); /* the product that is measured */
    int64_t rounds;
    uint8_t *memory;
    size_t bytes;
    double operations[512]; /* of each worker */
};

static void fill(void *user, const struct pool_worker *worker)
{
    struct limits *l = user;
    int64_t first, last;
    pool_stretch(worker, (int64_t)(l->bytes / 4096), &first, &last);
    for (int64_t page = first; page < last; page++) l->memory[page * 4096] = (uint8_t)page;
}

static void read_memory(void *user, const struct pool_worker *worker)
{
    struct limits *l = user;
    int64_t first, last;
    pool_stretch(worker, (int64_t)(l->bytes / 4096), &first, &last);
    l->operations[worker->index] =
        l->kernels->read_bytes(l->memory + first * 4096, (size_t)(last - first) * 4096);
}

static void multiply(void *user, const struct pool_worker *worker)
{
    struct limits *l = user;
    l->operations[worker->index] = l->multiply(l->rounds);
}

static double best_seconds(struct pool *pool, void (*job)(void *, const struct pool_worker *),
                           struct limits *l)
{
    double best = 1e30;
    for (int i = 0; i < RUNS; i++) {
        double begin = os_seconds();
        pool_run(pool, job, l);
        double seconds = os_seconds() - begin;
        if (seconds < best) best = seconds;
    }
    return best;
}

/* Operations a second of all workers; 0: there is no such product. */
static double measure_products(struct pool *pool, double (*product)(int64_t rounds),
                               struct limits *l)
{
    if (!product) return 0;
    l->multiply = product;
    l->rounds = FIRST_ROUNDS;
    double seconds, rate = 0;
    while ((seconds = best_seconds(pool, multiply, l)) < run_seconds) l->rounds *= 4;
    for (int i = 0; i < pool_threads(pool); i++) rate += l->operations[i] / seconds;
    return rate;
}

static void measure_reading(struct device *device, size_t room, struct limits *l,
                            struct device_limits *out)
{
    l->bytes = read_size_max;
    while (l->bytes > room / 2) l->bytes /= 2;
    if (l->bytes < read_size_least || !(l->memory = os_pages_take(l->bytes))) return;
    pool_run(device->pool, fill, l);
    out->read_bytes = (double)l->bytes / best_seconds(device->pool, read_memory, l);
    os_pages_give(l->memory, l->bytes);
}

void cpu_measure_limits(struct device *device, size_t room, struct device_limits *out)
{
    struct limits l = {.kernels = device->kernels};
    struct device_limits *known = &device->limits;
    if (known->int8_operations <= 0) {
        const struct cpu_kernels *k = l.kernels;
        known->int8_operations = measure_products(device->pool, k->multiply_bytes, &l);
        known->code_operations = measure_products(device->pool, k->multiply_codes, &l);
        if (device->has_bf16)
            known->fp16_operations = measure_products(device->pool, k->multiply_bf16, &l);
    }
    if (known->read_bytes <= 0) measure_reading(device, room, &l, known);
    *out = *known;
}
