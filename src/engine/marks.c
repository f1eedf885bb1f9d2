#include "engine/marks.h"

/* The turn that the answer begins, the user's before it, and the one before that. */
enum { LAST_TURNS = 3 };

bool marks_add(struct marks *m, int32_t block)
{
    if (block <= 0) return true;
    for (int32_t i = 0; i < m->n; i++)
        if (m->block[i] == block) return true;
    if (m->n == MARKS_MAX) return false;
    m->block[m->n++] = block;
    return true;
}

bool marks_has(const struct marks *m, int32_t block, int32_t page)
{
    int32_t stride = MARKS_STRIDE / page;
    if (block <= m->prompt_blocks && block % stride == 0) return true;
    for (int32_t i = 0; i < m->n; i++)
        if (m->block[i] == block) return true;
    return false;
}

/* The prompt's first position is the begin-of-text token, then the first turn begins. */
static void add_turns(struct marks *m, const int32_t *ids, int32_t n, int32_t turn_id, int32_t page)
{
    int32_t n_turns = 0;
    for (int32_t i = 0; i < n && n_turns < 2; i++) {
        n_turns += ids[i] == turn_id;
        if (n_turns == 2) marks_add(m, i / page);
    }
    n_turns = 0;
    for (int32_t i = n; i-- > 0 && n_turns < LAST_TURNS;) {
        if (ids[i] != turn_id) continue;
        n_turns++;
        marks_add(m, i / page);
    }
}

void marks_init(struct marks *m, const int32_t *ids, int32_t n, int32_t turn_id, int32_t page)
{
    *m = (struct marks){.prompt_blocks = n / page};
    marks_add(m, n / page);
    marks_add(m, (n - 1) / page);
    if (turn_id >= 0) add_turns(m, ids, n, turn_id, page);
}
