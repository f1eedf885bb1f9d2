/* Host memory: counted, zeroed, and made to fail on purpose by tests.
 *
 * Rules: every allocation below cli/ goes through here. `mem_free(NULL)` does nothing.
 * Any thread may allocate; the failure switch is for single-threaded tests. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory, or NULL. `count * size` is checked against overflow; a size of 0 gives a
 * valid pointer. */
void *mem_alloc(size_t count, size_t size);

/* Grows or shrinks; new bytes are not zeroed. On failure the old block stays valid. */
void *mem_resize(void *block, size_t count, size_t size);

/* A copy of `text` with a closing NUL. */
char *mem_copy_text(const char *text, size_t length);

void mem_free(void *block);

/* Tests: the n-th allocation from now on (0 = the next) and all later ones fail;
 * a negative n switches this off. Returns whether a failure was delivered since the last call. */
int mem_fail_after(long n);

/* Counts as an allocation for mem_fail_after. For memory that does not come from here. */
bool mem_may_allocate(void);

/* Tests: blocks allocated and not yet freed. */
long mem_blocks_live(void);

#endif
