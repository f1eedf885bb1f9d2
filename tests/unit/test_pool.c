/* Threads that walk through a job together, and pools that share the machine's cores. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cores.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/topology.h"

enum { WORKERS = 4, ITEMS = 1000, ROUNDS = 300 };

static struct pool *open_pool(int n_threads)
{
    struct pool *pool;
    struct carat_error err = {0};
    struct pool_options options = {.n_threads = n_threads};
    if (pool_open(&pool, &options, &err)) fail_msg("%s", err.message);
    assert_int_equal(pool_threads(pool), n_threads);
    return pool;
}

/* ---- One pool ---------------------------------------------------------------------------- */

struct parts {
    atomic_int first, second, early; /* early: saw less than all of the first part */
    struct pool_share share, long_share;
    atomic_int items[ITEMS], long_items[ITEMS];
};

static void do_parts(void *user, const struct pool_worker *worker)
{
    struct parts *p = user;
    atomic_fetch_add(&p->first, 1);
    pool_barrier(worker);
    if (atomic_load(&p->first) % worker->count != 0) atomic_fetch_add(&p->early, 1);
    atomic_fetch_add(&p->second, 1);
    for (int64_t i; (i = pool_take(&p->share, ITEMS)) >= 0;) atomic_fetch_add(&p->items[i], 1);
    int64_t first, last;
    while (pool_take_stretch(worker, &p->long_share, ITEMS, 3, &first, &last))
        for (; first < last; first++) atomic_fetch_add(&p->long_items[first], 1);
    pool_barrier(worker);
}

static void a_job_is_done_by_all_workers_part_by_part(void **state)
{
    (void)state;
    static struct parts p;
    struct pool *pool = open_pool(WORKERS);
    for (int round = 1; round <= ROUNDS; round++) {
        atomic_store(&p.share.next, 0);
        atomic_store(&p.long_share.next, 0);
        pool_run(pool, do_parts, &p);
        assert_int_equal(atomic_load(&p.first), round * WORKERS);
        assert_int_equal(atomic_load(&p.second), round * WORKERS);
        for (int i = 0; i < ITEMS; i++) {
            assert_int_equal(atomic_load(&p.items[i]), round);
            assert_int_equal(atomic_load(&p.long_items[i]), round);
        }
    }
    assert_int_equal(atomic_load(&p.early), 0);
    pool_close(pool);
    assert_int_equal(mem_blocks_live(), 0);
}

static void parts_of_workers_follow_each_other_from_the_first_item_to_the_last(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++)
        for (int n_parts = 1; n_parts < 9; n_parts++) {
            struct pool_worker w = {.count = 3, .n_parts = n_parts};
            int64_t end = 0, most = n / (w.count * n_parts) + 1;
            for (w.index = 0; w.index < w.count; w.index++)
                for (w.part = 0; w.part < n_parts; w.part++) {
                    int64_t first, last;
                    pool_stretch(&w, n, &first, &last);
                    assert_int_equal(first, end);
                    assert_in_range(last, first, first + most);
                    end = last;
                }
            assert_int_equal(end, n);
        }
}

/* A worker's parts are what it gets at once otherwise. */
static void a_worker_has_the_same_stretch_in_parts_and_as_a_whole(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++)
        for (int index = 0; index < 3; index++) {
            struct pool_worker whole = {.index = index, .count = 3, .n_parts = 1};
            struct pool_worker begin = {.index = index, .count = 3, .n_parts = 5};
            struct pool_worker end = {.index = index, .count = 3, .part = 4, .n_parts = 5};
            int64_t first, last, at[4];
            pool_stretch(&whole, n, &first, &last);
            pool_stretch(&begin, n, &at[0], &at[1]);
            pool_stretch(&end, n, &at[2], &at[3]);
            assert_int_equal(at[0], first);
            assert_int_equal(at[3], last);
        }
}

/* ---- Several ----------------------------------------------------------------------------- */

static atomic_int running, most;

static void count_running(void *user, const struct pool_worker *worker)
{
    (void)user;
    int now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);
    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now)) continue;
    pool_barrier(worker);
    atomic_fetch_sub(&running, 1);
}

static void *run_jobs(void *n_threads)
{
    int n = *(int *)n_threads;
    struct pool *pool = open_pool(n);
    for (int i = 0; i < ROUNDS; i++) {
        cores_take(n);
        pool_run(pool, count_running, NULL);
        cores_give(n);
    }
    pool_close(pool);
    return NULL;
}

/* Pools of any size, even with more threads than there are cores. */
static void jobs_of_several_pools_never_take_more_than_the_cores(void **state)
{
    (void)state;
    int cores = topology_cores(), sizes[4] = {cores, cores, 1, cores + 1};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_jobs, &sizes[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_in_range(atomic_load(&most), cores, cores + 1);
    assert_int_equal(atomic_load(&running), 0);
}

static atomic_int turns[2];

static void *take_turn(void *size)
{
    cores_take(*(int *)size);
    atomic_store(&turns[*(int *)size == 1], 1);
    cores_give(*(int *)size);
    return NULL;
}

/* A job that needs all cores is not overtaken forever by small ones. */
static void who_asks_first_goes_first(void **state)
{
    (void)state;
    int all = topology_cores() + 1, one = 1;
    pthread_t large, small;
    cores_take(1);
    assert_int_equal(pthread_create(&large, NULL, take_turn, &all), 0);
    while (cores_waiting() < 1) usleep(1000);
    assert_int_equal(pthread_create(&small, NULL, take_turn, &one), 0);
    while (cores_waiting() < 2) usleep(1000);
    assert_int_equal(atomic_load(&turns[0]), 0); /* waits for the core that is taken, */
    assert_int_equal(atomic_load(&turns[1]), 0); /* and the other after it */
    cores_give(1);
    pthread_join(large, NULL);
    pthread_join(small, NULL);
    assert_int_equal(atomic_load(&turns[0]) + atomic_load(&turns[1]), 2);
}

/* ---- Crowded ----------------------------------------------------------------------------- */

/* Threads of this process that sleep. */
static int count_sleeping(void)
{
    int n = 0;
    DIR *threads = opendir("/proc/self/task");
    assert_non_null(threads);
    for (struct dirent *one; (one = readdir(threads));) {
        char path[300], state = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", one->d_name);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1) n += state == 'S';
        if (file) fclose(file);
    }
    closedir(threads);
    return n;
}

/* However patient they are to be: who watches keeps others from computing. */
static void workers_without_a_processor_each_sleep_between_jobs(void **state)
{
    (void)state;
    int n = os_processors() + 2, seconds = 0;
    struct pool *pool;
    struct carat_error err = {0};
    struct pool_options options = {.n_threads = n, .patience = 1e6};
    if (pool_open(&pool, &options, &err)) fail_msg("%s", err.message);
    atomic_store(&most, 0);
    pool_run(pool, count_running, NULL);
    for (double begin = os_seconds(); count_sleeping() < n - 1 && seconds < 60;
         seconds = (int)(os_seconds() - begin))
        usleep(1000);
    assert_true(count_sleeping() >= n - 1);
    pool_close(pool);
}

/* ---- Pinned ------------------------------------------------------------------------------ */

static void note_processors(void *user, const struct pool_worker *worker)
{
    cpu_set_t *seen = user;
    sched_getaffinity(0, sizeof *seen, &seen[worker->index]);
}

static struct pool *open_pinned(int n_threads)
{
    struct pool *pool;
    struct carat_error err = {0};
    struct pool_options options = {.n_threads = n_threads, .is_pinned = true};
    if (pool_open(&pool, &options, &err)) fail_msg("%s", err.message);
    return pool;
}

static void need_two_processors(const cpu_set_t *allowed)
{
    if (CPU_COUNT(allowed) > 1) return;
    print_message("skipped: one processor\n");
    skip();
}

static void pinned_workers_have_a_processor_each_and_the_caller_gets_all_back(void **state)
{
    (void)state;
    cpu_set_t before, after, seen[2], both;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    need_two_processors(&before);
    for (int round = 0; round < 2; round++) { /* the second pool pins as well as the first */
        struct pool *pool = open_pinned(2);
        pool_run(pool, note_processors, seen);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
        pool_close(pool);
        assert_int_equal(CPU_COUNT(&seen[0]), 1);
        assert_int_equal(CPU_COUNT(&seen[1]), 1);
        CPU_AND(&both, &seen[0], &seen[1]);
        assert_int_equal(CPU_COUNT(&both), 0);
    }
    assert_int_equal(mem_blocks_live(), 0);
}

/* Two engines of one process: one thread opens both, and others run their jobs. */
static void pools_next_to_each_other_pin_to_different_processors(void **state)
{
    (void)state;
    cpu_set_t all, seen[2], both;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    need_two_processors(&all);
    struct pool *pools[2] = {open_pinned(1), open_pinned(1)};
    for (int i = 0; i < 2; i++) pool_run(pools[i], note_processors, &seen[i]);
    CPU_AND(&both, &seen[0], &seen[1]);
    assert_int_equal(CPU_COUNT(&both), 0);
    pool_close(pools[0]);
    pools[0] = open_pinned(1); /* gets what has become free */
    pool_run(pools[0], note_processors, &both);
    assert_true(CPU_EQUAL(&both, &seen[0]));
    for (int i = 0; i < 2; i++) pool_close(pools[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_done_by_all_workers_part_by_part),
        cmocka_unit_test(parts_of_workers_follow_each_other_from_the_first_item_to_the_last),
        cmocka_unit_test(a_worker_has_the_same_stretch_in_parts_and_as_a_whole),
        cmocka_unit_test(jobs_of_several_pools_never_take_more_than_the_cores),
        cmocka_unit_test(who_asks_first_goes_first),
        cmocka_unit_test(workers_without_a_processor_each_sleep_between_jobs),
        cmocka_unit_test(pinned_workers_have_a_processor_each_and_the_caller_gets_all_back),
        cmocka_unit_test(pools_next_to_each_other_pin_to_different_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
