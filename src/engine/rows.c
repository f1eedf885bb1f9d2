#include "engine/rows.h"

enum { TRIES = 4 };

/* Share of the limit for a step in which a prompt ends: somebody waits for its first token, and
 * rows of other prompts that only fill the step would make that wait longer. */
#define SHARE_OF_ENDS 0.5

struct filling {
    int32_t ends;    /* rows of prompts that end in this step */
    bool has_filler; /* others have rows too */
};

static struct filling count_rows(struct pace_step *step, const struct schedule_item *items,
                                 int32_t n)
{
    struct filling f = {0};
    step->n_prompt = 0;
    step->prompt_positions = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct schedule_item *s = &items[i];
        step->n_prompt += s->rows;
        step->prompt_positions += s->rows * (s->position + 0.5 * s->rows);
        if (s->rows == s->left)
            f.ends += s->rows;
        else if (s->rows > 0)
            f.has_filler = true;
    }
    return f;
}

static int32_t rows_allowed(const struct pace *pace, const struct pace_step *step,
                            struct filling filling, int32_t rows_max)
{
    int32_t most = pace_rows(pace, step, 1, rows_max);
    if (filling.ends == 0 || !filling.has_filler) return most;
    int32_t fewer = pace_rows(pace, step, SHARE_OF_ENDS, rows_max);
    int32_t needed = filling.ends / (SCHEDULE_SHARE - 1) * SCHEDULE_SHARE;
    if (fewer < needed) fewer = needed;
    return fewer < most ? fewer : most;
}

/* Which rows are chosen depends on how many are allowed, and how many are allowed depends on their
 * positions. So this takes a few tries. */
void rows_choose(const struct pace *pace, struct pace_step *step, struct schedule_item *items,
                 int32_t n, int32_t rows_max, int32_t *order)
{
    for (int32_t rows = rows_max, tries = 0;; tries++) {
        schedule_prompts(items, n, rows, order);
        struct filling filling = count_rows(step, items, n);
        if (step->n_prompt == 0) return;
        int32_t most = rows_allowed(pace, step, filling, rows_max);
        if (most >= step->n_prompt || tries == TRIES) return;
        rows = most;
    }
}
