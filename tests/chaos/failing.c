/* Memory that runs out while a request is at work, in the program carat_scripted, which exists for
 * tests alone. A request with the header "x-carat-fail: N" has the N-th allocation (0: the first)
 * after its arrival fail, in whatever thread; with "N+" all later ones fail, too, until its end.
 * The reply to a request with the header "x-carat-memory" says how many blocks are allocated, how
 * many allocations the last such request made, and how many of them failed. One such request at a
 * time.
 *
 * The linker puts these functions in front of the program's own (--wrap). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "server/dispatch.h"

static atomic_long n_made, n_failed;
static atomic_long fails_at = -1; /* negative: none */
static atomic_bool is_lasting;
static struct http_request *at_work; /* of the server's thread */

void *__real_mem_alloc(size_t count, size_t size);
void *__wrap_mem_alloc(size_t count, size_t size);
void *__real_mem_resize(void *block, size_t count, size_t size);
void *__wrap_mem_resize(void *block, size_t count, size_t size);
char *__real_mem_copy_text(const char *text, size_t length);
char *__wrap_mem_copy_text(const char *text, size_t length);
bool __real_mem_may_allocate(void);
bool __wrap_mem_may_allocate(void);
void __real_dispatch_headers(struct service *s, struct http_request *q);
void __wrap_dispatch_headers(struct service *s, struct http_request *q);
void __real_dispatch_closed(struct service *s, struct http_request *q, bool is_sent);
void __wrap_dispatch_closed(struct service *s, struct http_request *q, bool is_sent);

static bool fails(void)
{
    long at = atomic_load(&fails_at);
    if (at < 0) return false;
    long number = atomic_fetch_add(&n_made, 1);
    bool does = atomic_load(&is_lasting) ? number >= at : number == at;
    if (does) atomic_fetch_add(&n_failed, 1);
    return does;
}

void *__wrap_mem_alloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_mem_alloc(count, size);
}

void *__wrap_mem_resize(void *block, size_t count, size_t size)
{
    return fails() ? NULL : __real_mem_resize(block, count, size);
}

char *__wrap_mem_copy_text(const char *text, size_t length)
{
    return fails() ? NULL : __real_mem_copy_text(text, length);
}

bool __wrap_mem_may_allocate(void)
{
    return !fails() && __real_mem_may_allocate();
}

static void begin(struct http_request *q, const char *when)
{
    char *end;
    long at = strtol(when, &end, 10);
    at_work = q;
    atomic_store(&n_made, 0);
    atomic_store(&n_failed, 0);
    atomic_store(&is_lasting, *end == '+');
    atomic_store(&fails_at, at);
}

static void tell(struct http_request *q)
{
    char text[128];
    int n = snprintf(text, sizeof text, "{\"blocks\": %ld, \"made\": %ld, \"failed\": %ld}",
                     mem_blocks_live(), atomic_load(&n_made), atomic_load(&n_failed));
    const struct http_field field = {"Content-Type", "application/json"};
    http_reply(q, 200, &field, 1, text, (size_t)n);
}

void __wrap_dispatch_headers(struct service *s, struct http_request *q)
{
    const char *when = http_header(q, "x-carat-fail", 0);
    if (http_header(q, "x-carat-memory", 0)) {
        tell(q);
        return;
    }
    if (when) begin(q, when);
    __real_dispatch_headers(s, q);
}

void __wrap_dispatch_closed(struct service *s, struct http_request *q, bool is_sent)
{
    if (q == at_work) {
        at_work = NULL;
        atomic_store(&fails_at, -1);
    }
    __real_dispatch_closed(s, q, is_sent);
}
