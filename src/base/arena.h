/* An arena: memory with one lifetime, freed at once, closed for good when start-up is over.
 *
 * Rules
 * 1. `arena_take` gives zeroed memory aligned to 64 bytes; it lives until `arena_deinit`.
 * 2. After `arena_seal` a take is a programmer error (assertion): nothing allocates in a step.
 * 3. One thread at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena {
    struct arena_block *blocks; /* newest first */
    size_t bytes;               /* taken so far, for memory tables */
    int sealed;
};

/* A zeroed struct arena is a valid empty one. Returns NULL when out of memory. */
void *arena_take(struct arena *arena, size_t count, size_t size);
char *arena_copy_text(struct arena *arena, const char *text, size_t length);
void arena_seal(struct arena *arena);
void arena_deinit(struct arena *arena);

#endif
