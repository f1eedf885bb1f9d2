/* Where a sequence is to leave anchors (cache/prefix.h): positions at which a later prompt is
 * likely to go on. A mark is a number of blocks: a position rounded down to whole pages. Pure. */
#ifndef ENGINE_MARKS_H
#define ENGINE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

enum { MARKS_MAX = 64, MARKS_STRIDE = 8192 /* positions of long prompts from mark to mark */ };

struct marks {
    int32_t block[MARKS_MAX];
    int32_t n;
    int32_t prompt_blocks; /* every MARKS_STRIDE positions up to here are marked too */
};

/* Marks the beginning of a prompt's second turn (where the system's turn with the tools ends), of
 * its last turns, its end, and where an equal prompt would go on. `turn_id`: the token that begins
 * a turn; -1: there is none. `page`: positions of a block. */
void marks_init(struct marks *m, const int32_t *ids, int32_t n, int32_t turn_id, int32_t page);

/* Marks a number of blocks; 0 needs no mark. False when there is no room for it. */
bool marks_add(struct marks *m, int32_t block);

bool marks_has(const struct marks *m, int32_t block, int32_t page);

#endif
