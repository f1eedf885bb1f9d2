/* Whether jansson ran out of memory. It does not always say so: a text that does not fit into its
 * buffer gets shorter, and a failed allocation may look like wrong syntax. So its allocations are
 * watched. They still come from where they came before. */
#ifndef JSON_MEMORY_H
#define JSON_MEMORY_H

#include <stdbool.h>

/* Watches from now on, in all threads. For programs, which own the process: jansson's allocator is
 * one for all that use it there. Before other threads use jansson; a second call does nothing. */
void json_memory_watch(void);

/* Forgets failures of this thread. */
void json_memory_begin(void);
/* Whether an allocation has failed in this thread since then. Always false when nobody watches. */
bool json_memory_failed(void);

#endif
