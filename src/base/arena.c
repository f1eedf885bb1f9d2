#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

enum { ALIGNMENT = 64, BLOCK_BYTES = 64 * 1024 };

struct arena_block {
    struct arena_block *next;
    size_t used, capacity; /* of the bytes after this header */
};

static char *first_byte(struct arena_block *block)
{
    uintptr_t address = (uintptr_t)(block + 1);
    return (char *)((address + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
}

static struct arena_block *add_block(struct arena *arena, size_t bytes)
{
    size_t capacity = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
    size_t total;
    if (__builtin_add_overflow(capacity, sizeof(struct arena_block) + ALIGNMENT, &total))
        return NULL;
    struct arena_block *block = mem_alloc(total, 1);
    if (!block) return NULL;
    block->capacity = capacity;
    /* A large request gets a block of its own, listed after the newest one, whose room stays
     * usable. */
    if (capacity == bytes && arena->blocks) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

void *arena_take(struct arena *arena, size_t count, size_t size)
{
    carat_assert(!arena->sealed);
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    if (__builtin_add_overflow(bytes, ALIGNMENT - 1, &bytes)) return NULL;
    bytes &= ~(size_t)(ALIGNMENT - 1);
    struct arena_block *block = arena->blocks;
    if (!block || block->capacity - block->used < bytes) block = add_block(arena, bytes);
    if (!block) return NULL;
    char *taken = first_byte(block) + block->used;
    block->used += bytes;
    arena->bytes += bytes;
    return taken;
}

char *arena_copy_text(struct arena *arena, const char *text, size_t length)
{
    if (length == SIZE_MAX) return NULL;
    char *copy = arena_take(arena, length + 1, 1);
    if (copy && length) memcpy(copy, text, length);
    return copy;
}

void arena_seal(struct arena *arena)
{
    arena->sealed = 1;
}

void arena_deinit(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *next = arena->blocks->next;
        mem_free(arena->blocks);
        arena->blocks = next;
    }
    arena->bytes = 0;
    arena->sealed = 0;
}
