/* A barrier is one counter of arrivals and one of generations. The last to arrive opens the next
 * generation; the others watch it, first by spinning (a step's barriers are microseconds
 * apart), then in the kernel's futex. The same barrier starts and ends a job. */
#include "base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/allowance.h"
#include "base/cores.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/topology.h"

/* Some 30 us: longer than most gaps between two ops of a step, and too short for another program to
 * notice. With more threads than processors, a thread that spins keeps others from arriving. */
enum { SPINS = 2000, SPINS_CROWDED = 20, LINE = 64 };

struct pool {
    pthread_t *threads; /* of workers 1 .. count - 1 */
    struct pool_worker *workers;
    int count, started, spins;
    double patience;
    void (*job)(void *user, const struct pool_worker *worker);
    void *user;
    bool is_closing;
    int *processors; /* of each worker; NULL: they are not pinned */
    /* Whoever arrives writes `arrived`; those who wait watch `generation`, the futex word. So each
     * has a cache line to itself. */
    char before[LINE];
    atomic_int arrived;
    char between[LINE];
    atomic_int generation, sleepers;
    char after[LINE];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void sleep_while(struct pool *p, int generation)
{
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->generation) == generation)
        syscall(SYS_futex, &p->generation, FUTEX_WAIT_PRIVATE, generation, NULL, NULL, 0);
    atomic_fetch_sub(&p->sleepers, 1);
}

/* Whether the next generation begins while we watch. */
static bool begins_soon(struct pool *p, int generation)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(&p->generation, memory_order_acquire) != generation) return true;
        relax();
    }
    return false;
}

/* `patience`: seconds to watch at least before sleeping. */
static void meet(const struct pool_worker *worker, double patience)
{
    struct pool *p = worker->pool;
    if (worker->count == 1) return;
    int generation = atomic_load(&p->generation);
    if (atomic_fetch_add(&p->arrived, 1) == p->count - 1) {
        atomic_store(&p->arrived, 0);
        atomic_store(&p->generation, (int)((unsigned)generation + 1u));
        if (atomic_load(&p->sleepers))
            syscall(SYS_futex, &p->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    double begin = patience > 0 ? os_seconds() : 0;
    do {
        if (begins_soon(p, generation)) return;
    } while (patience > 0 && os_seconds() - begin < patience);
    sleep_while(p, generation);
}

void pool_barrier(const struct pool_worker *worker)
{
    meet(worker, 0);
}

static void *work(void *argument)
{
    const struct pool_worker *worker = argument;
    struct pool *p = worker->pool;
    for (;;) {
        meet(worker, p->patience); /* a job begins */
        if (p->is_closing) return NULL;
        p->job(p->user, worker);
        pool_barrier(worker); /* it has ended */
    }
}

static void pin_thread(pthread_t thread, int processor)
{
    cpu_set_t one;
    if (processor < 0) return;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    pthread_setaffinity_np(thread, sizeof one, &one); /* a hint: may fail */
}

static int pin_threads(struct pool *p)
{
    struct topology t;
    p->processors = mem_alloc((size_t)p->count, sizeof *p->processors);
    if (!p->processors) return CARAT_EMEMORY;
    topology_read(&t, "", NULL);
    for (int i = 0; i < p->count; i++) p->processors[i] = cores_pin(&t);
    for (int i = 1; i < p->count; i++) pin_thread(p->threads[i], p->processors[i]);
    return CARAT_OK;
}

int pool_open(struct pool **out, const struct pool_options *options, struct carat_error *err)
{
    *out = NULL;
    int n_threads = options->n_threads;
    struct pool *p = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "threads", sizeof *p);
    p->threads = mem_alloc((size_t)n_threads, sizeof *p->threads);
    p->workers = mem_alloc((size_t)n_threads, sizeof *p->workers);
    if (!p->threads || !p->workers) {
        pool_close(p);
        return err_no_memory(err, "threads", (size_t)n_threads * sizeof *p->workers);
    }
    p->count = n_threads;
    bool is_crowded = n_threads > allowance_threads("", os_processors()).count;
    p->patience = is_crowded ? 0 : options->patience;
    p->spins = is_crowded ? SPINS_CROWDED : SPINS;
    for (int i = 0; i < n_threads; i++)
        p->workers[i] =
            (struct pool_worker){.pool = p, .index = i, .count = n_threads, .n_parts = 1};
    for (int i = 1; i < n_threads; i++, p->started++)
        if (pthread_create(&p->threads[i], NULL, work, &p->workers[i]) != 0) {
            p->count = p->started + 1; /* only those that exist will reach the last barrier */
            pool_close(p);
            err_set(err, CARAT_EMEMORY, "thread %d of %d cannot be started", i, n_threads);
            err_hint(err, "take fewer threads (-t), or raise the limits that `ulimit -a` shows");
            return CARAT_EMEMORY;
        }
    if (options->is_pinned && pin_threads(p)) {
        pool_close(p);
        return err_no_memory(err, "threads", (size_t)n_threads * sizeof *p->processors);
    }
    *out = p;
    return CARAT_OK;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    p->is_closing = true;
    if (p->started > 0) {
        pool_barrier(&p->workers[0]);
        for (int i = 1; i <= p->started; i++) pthread_join(p->threads[i], NULL);
    }
    for (int i = 0; p->processors && i < p->count; i++) cores_unpin(p->processors[i]);
    mem_free(p->processors);
    mem_free(p->threads);
    mem_free(p->workers);
    mem_free(p);
}

int pool_threads(const struct pool *p)
{
    return p->count;
}

void pool_run(struct pool *p, void (*job)(void *user, const struct pool_worker *worker), void *user)
{
    cpu_set_t before;
    bool is_pinned = p->processors && sched_getaffinity(0, sizeof before, &before) == 0;
    if (is_pinned) pin_thread(pthread_self(), p->processors[0]);
    p->job = job;
    p->user = user;
    pool_barrier(&p->workers[0]);
    job(user, &p->workers[0]);
    pool_barrier(&p->workers[0]);
    if (is_pinned) sched_setaffinity(0, sizeof before, &before);
}
