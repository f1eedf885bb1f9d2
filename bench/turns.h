/* What programs of this folder that measure one part of the CPU backend share: a device, memory
 * from it, and reading and register products that take turns with that part, since a machine that
 * others use too is faster in one second than in the next. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/program.h"
#include "base/os.h"

static const size_t turns_read_bytes = (size_t)192 << 20; /* larger than caches */

struct turns {
    struct device *device;
    struct program *program; /* what is measured */
    struct step step;
    uint8_t *memory;     /* read at once */
    double results[512]; /* of each worker */
    int64_t rounds;
};

enum turn { TURN_RUN, TURN_READ, TURN_FLOATS, TURN_BYTES, TURN_CODES, TURN_COUNT };

static inline int turns_fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(2);
}

static inline void *turns_take(struct turns *t, size_t bytes)
{
    void *memory;
    struct carat_error err = {0};
    if (cpu_backend.alloc(t->device, bytes, &memory, &err)) turns_fail(err.message);
    return memory;
}

static inline void turns_open(struct turns *t, const char *isa, const char *threads)
{
    struct carat_error err = {0};
    struct device_options options = {.n_threads = atoi(threads), .isa = isa};
    if (cpu_backend.open(&t->device, 0, &options, &err)) turns_fail(err.message);
    t->memory = turns_take(t, turns_read_bytes);
    memset(t->memory, 1, turns_read_bytes);
    t->rounds = 1 << 19;
}

/* Lays out a plan that has been recorded, and makes it the program. */
static inline void turns_bind(struct turns *t, struct plan *plan)
{
    struct carat_error err = {0};
    if (plan_close(plan, &err) ||
        cpu_backend.bind(t->device, plan, NULL, turns_take(t, plan->bytes + 64),
                         turns_take(t, cpu_backend.scratch_bytes(t->device, plan) + 64),
                         &t->program, &err))
        turns_fail(err.message);
}

/* What turns_take gave stays until the process ends. */
static inline void turns_close(struct turns *t)
{
    cpu_backend.free(t->device, t->memory);
    cpu_backend.unbind(t->program);
    cpu_backend.close(t->device);
}

static inline void turns_read(void *user, const struct pool_worker *worker)
{
    struct turns *t = user;
    int64_t first, last;
    pool_stretch(worker, (int64_t)(turns_read_bytes / 4096), &first, &last);
    t->results[worker->index] =
        t->device->kernels->read_bytes(t->memory + first * 4096, (size_t)(last - first) * 4096);
}

static inline void turns_floats(void *user, const struct pool_worker *worker)
{
    struct turns *t = user;
    t->results[worker->index] = t->device->kernels->multiply_floats(t->rounds);
}

static inline void turns_bytes(void *user, const struct pool_worker *worker)
{
    struct turns *t = user;
    t->results[worker->index] = t->device->kernels->multiply_bytes(t->rounds);
}

static inline void turns_codes(void *user, const struct pool_worker *worker)
{
    struct turns *t = user;
    t->results[worker->index] = t->device->kernels->multiply_codes(t->rounds);
}

/* Seconds of one run, as many runs as take `least` seconds. */
static inline double turns_seconds(struct turns *t, enum turn what, double least)
{
    struct pool *pool = t->device->pool;
    double begin = os_seconds(), seconds;
    int n = 0;
    do {
        switch (what) {
        case TURN_RUN: cpu_backend.run(t->program, &t->step); break;
        case TURN_READ: pool_run(pool, turns_read, t); break;
        case TURN_FLOATS: pool_run(pool, turns_floats, t); break;
        case TURN_BYTES: pool_run(pool, turns_bytes, t); break;
        default: pool_run(pool, turns_codes, t); break;
        }
        n++;
    } while ((seconds = os_seconds() - begin) < least);
    return seconds / n;
}

/* Register operations a second of all workers, after a turn of their kind that took this long. */
static inline double turns_rate(const struct turns *t, double seconds)
{
    return t->results[0] * pool_threads(t->device->pool) / seconds;
}

static inline int turns_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double turns_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, turns_compare);
    return values[n / 2];
}

#endif
