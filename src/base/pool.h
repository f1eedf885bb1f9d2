/* Worker threads that walk through one job together.
 *
 * `pool_run` calls `job(user, worker)` once on every worker, the caller being worker 0, and returns
 * when all have returned. Inside a job the workers meet at `pool_barrier` and share out work with a
 * `struct pool_share`. Waiting spins for a short while (between jobs: for `patience`) and then
 * sleeps; with more workers than processors, or than a cgroup's quota, it sleeps almost at once. So
 * an idle pool costs nothing, and two pools in one process do not fight for the cores for long.
 *
 * Rules
 * 1. One job at a time; pool_run is called by the thread that owns the pool.
 * 2. Every worker must reach the same barriers in the same order.
 * 3. Nothing is allocated after pool_open. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct pool;

struct pool_worker {
    struct pool *pool;
    int index, count;  /* worker `index` of `count` */
    int part, n_parts; /* of its stretch, if it works through that in parts: see pool_stretch */
};

struct pool_options {
    int n_threads;   /* workers, the caller among them */
    bool is_pinned;  /* each worker stays on a processor (cores_pin), the caller during jobs */
    double patience; /* seconds that workers without a job stay awake, if each has a processor; at
                      * least 30 us */
};

/* CARAT_EMEMORY when threads cannot be started. */
int pool_open(struct pool **out, const struct pool_options *options, struct carat_error *err);
void pool_close(struct pool *pool); /* NULL is fine */
int pool_threads(const struct pool *pool);

void pool_run(struct pool *pool, void (*job)(void *user, const struct pool_worker *worker),
              void *user);

/* A worker that does a job alone, on the calling thread and without waking the others. */
static inline struct pool_worker pool_alone(struct pool *pool)
{
    return (struct pool_worker){.pool = pool, .count = 1, .n_parts = 1};
}

/* Waits until all workers are here. After it, each sees what the others wrote before it. */
void pool_barrier(const struct pool_worker *worker);

/* The part of [0, n) that belongs to a worker. [0, n) is cut into equal stretches, one for each
 * worker, and each stretch into n_parts equal parts. */
static inline void pool_stretch(const struct pool_worker *w, int64_t n, int64_t *first,
                                int64_t *last)
{
    int64_t place = (int64_t)w->index * w->n_parts + w->part,
            count = (int64_t)w->count * w->n_parts;
    *first = n * place / count;
    *last = n * (place + 1) / count;
}

/* Work that is handed out item by item. Reset by one worker between two barriers. */
struct pool_share {
    atomic_llong next;
};

static inline int64_t pool_take(struct pool_share *share, int64_t n_items)
{
    int64_t item = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
    return item < n_items ? item : -1;
}

/* Hands out [*first, *last) of n items. Stretches are long at first and get as short as `least`
 * items, so that workers seldom change place and yet end together. False when none is left. */
static inline bool pool_take_stretch(const struct pool_worker *w, struct pool_share *share,
                                     int64_t n, int64_t least, int64_t *first, int64_t *last)
{
    long long next = atomic_load_explicit(&share->next, memory_order_relaxed);
    do {
        if (next >= n) return false;
        int64_t left = n - next, most = left / (2 * w->count);
        *first = next;
        *last = next + (most > least ? most : left < least ? left : least);
    } while (!atomic_compare_exchange_weak_explicit(&share->next, &next, *last,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

#endif
