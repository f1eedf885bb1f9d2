#include "json/json_memory.h"

#ifdef CARAT_HAVE_JSON

#include <jansson.h>

#include "base/mem.h"

/* jansson calls its allocator without an argument of ours, so these cannot be in a struct. The
 * first two are set once, before there are threads. */
static json_malloc_t malloc_before;
static json_free_t free_before;
static _Thread_local bool has_failed;

static void *watched_malloc(size_t bytes)
{
    void *block = mem_may_allocate() ? malloc_before(bytes) : NULL;
    if (!block) has_failed = true;
    return block;
}

void json_memory_watch(void)
{
    if (malloc_before) return;
    json_get_alloc_funcs(&malloc_before, &free_before);
    json_set_alloc_funcs(watched_malloc, free_before);
}

void json_memory_begin(void)
{
    has_failed = false;
}

bool json_memory_failed(void)
{
    return has_failed;
}

#else

void json_memory_watch(void) {}

void json_memory_begin(void) {}

bool json_memory_failed(void)
{
    return false;
}

#endif
