/* The C library's allocator, with a count of live blocks and a switch that makes allocations
 * fail. Both are atomics: allocation is never on a hot path, so their cost does not matter. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_long blocks_live;
static atomic_long failures_after = -1; /* allocations still granted; negative: no limit */
static atomic_bool failure_delivered;

static bool must_fail(void)
{
    long left = atomic_load(&failures_after);
    if (left < 0) return false;
    if (left > 0) {
        atomic_store(&failures_after, left - 1);
        return false;
    }
    atomic_store(&failure_delivered, true);
    return true;
}

bool mem_may_allocate(void)
{
    return !must_fail();
}

void *mem_alloc(size_t count, size_t size)
{
    if (must_fail()) return NULL;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *block = calloc(bytes ? bytes : 1, 1);
    if (block) atomic_fetch_add(&blocks_live, 1);
    return block;
}

void *mem_resize(void *block, size_t count, size_t size)
{
    if (must_fail()) return NULL;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *resized = realloc(block, bytes ? bytes : 1);
    if (resized && !block) atomic_fetch_add(&blocks_live, 1);
    return resized;
}

char *mem_copy_text(const char *text, size_t length)
{
    if (length == SIZE_MAX) return NULL;
    char *copy = mem_alloc(length + 1, 1);
    if (copy && length) memcpy(copy, text, length);
    return copy;
}

void mem_free(void *block)
{
    if (!block) return;
    atomic_fetch_sub(&blocks_live, 1);
    free(block);
}

int mem_fail_after(long n)
{
    atomic_store(&failures_after, n);
    return atomic_exchange(&failure_delivered, false);
}

long mem_blocks_live(void)
{
    return atomic_load(&blocks_live);
}
