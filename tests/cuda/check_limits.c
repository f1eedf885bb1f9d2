/* The measure of the memory's rate: what it counts as read is read, all of it and nothing else. */
#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/read_limit.h"
#include "cuda/check.h"

/* Whether a mark in vector `at` of memory full of zeros is found by a reading of n vectors. */
static bool is_found(const struct queue *q, char *memory, int64_t n, int64_t at, uint32_t *result)
{
    const uint32_t mark = READ_MARK, zero = 0;
    uint32_t found = 0;
    char *place = memory + at * 16 + at % 4 * 4;
    check_upload(place, &mark, sizeof mark);
    check_upload(result, &found, sizeof found);
    launch_read_limit(q, memory, (size_t)n * 16, result);
    check_download(&found, result, sizeof found);
    check_upload(place, &zero, sizeof zero);
    return found == mark;
}

void check_limits(struct check *c)
{
    struct queue queue = c->queue;
    queue.n_sm = 3; /* a small grid, so that a round is small */
    int64_t step = (int64_t)queue.n_sm * READ_BLOCKS * READ_THREADS, round = step * READ_IN_FLIGHT;
    const int64_t sizes[] = {
        1,        7,         step - 1,      step + 5,      round - 1,
        round,    round + 1, 2 * round - 9, 2 * round + 3, 3 * round - round / 2,
        4 * round};
    size_t bytes = (size_t)(4 * round + 1) * 16;
    uint32_t *result = check_alloc(NULL, sizeof *result);
    char *memory = check_alloc(NULL, bytes);
    cudaMemset(memory, 0, bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i], in_tail = n / round * round;
        const int64_t places[] = {0, n / 3, n / 2, in_tail - 1, in_tail, n - 1};
        for (size_t j = 0; j < sizeof places / sizeof *places; j++) {
            if (places[j] < 0 || places[j] >= n) continue;
            check_that(c, is_found(&queue, memory, n, places[j], result),
                       "read limit: vector %lld of %lld was not read", (long long)places[j],
                       (long long)n);
        }
        check_that(c, !is_found(&queue, memory, n, n, result),
                   "read limit: a vector beyond %lld was read", (long long)n);
    }
    struct queue loading = queue;
    loading.loads_only = true;
    check_that(c, !is_found(&loading, memory, round, 0, result),
               "read limit: a queue that only loads kernels started one");
    check_that(c, check_free(memory) && check_free(result), "read limit: a guard was written");
}
