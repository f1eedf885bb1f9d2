#include "engine/draft.h"

enum {
    MATCH_LEAST = 2, /* ids that have to be the same; one is there by chance */
    MATCH_MOST = 16,
    REACH = 1 << 16 /* ids that are searched, from the end on: a few microseconds */
};

/* Chosen by replaying texts of this repository: prose, code, edits of code, JSON
 * (docs/benchmarks.md). */
#define WEIGHT 0.2 /* of the newest guess in its kind's chance */
#define HOPE 0.003 /* added to the chance of a kind that does not pay, at each occasion */

void draft_init(struct draft *d)
{
    *d = (struct draft){.chance = {0.4, 0.6, 0.8, 0.9}};
}

/* How many ids before `end` equal the last ones of ids[n]; at most `most`. */
static int32_t count_same(const int32_t *ids, int32_t n, int32_t end, int32_t most)
{
    int32_t same = 0;
    if (most > end) most = end;
    while (same < most && ids[end - 1 - same] == ids[n - 1 - same]) same++;
    return same;
}

int32_t draft_find(int32_t *ids, int32_t n, int32_t most, int32_t *same)
{
    int32_t from = 0, first = n > REACH ? n - REACH : 0;
    *same = MATCH_LEAST - 1;
    for (int32_t end = n - 1; end > first && *same < MATCH_MOST; end--) {
        int32_t found = count_same(ids, n, end, MATCH_MOST);
        if (found <= *same) continue;
        *same = found;
        from = end;
    }
    if (from == 0) return 0;
    /* Where the two ends overlap, guesses go on with guesses: a repetition repeats. */
    for (int32_t i = 0; i < most; i++) ids[n + i] = ids[from + i];
    return most;
}

static int32_t kind_of(int32_t same)
{
    return same <= 2 ? 0 : same <= 4 ? 1 : same <= 8 ? 2 : 3;
}

void draft_take(struct draft *d, int32_t n, int32_t same, const double *times)
{
    d->n = 0;
    d->kind = kind_of(same);
    double *chance = &d->chance[d->kind], all_right = 1, tokens = 1, best = 1;
    for (int32_t i = 1; i <= n; i++) {
        all_right *= *chance;
        tokens += all_right;
        if (tokens / times[i] <= best) continue;
        best = tokens / times[i];
        d->n = i;
    }
    if (n > 0 && d->n == 0 && *chance + HOPE < 1) *chance += HOPE;
}

void draft_note(struct draft *d, int32_t n_right)
{
    double *chance = &d->chance[d->kind];
    for (int32_t i = 0; i < d->n && i <= n_right; i++)
        *chance += WEIGHT * ((i < n_right) - *chance);
}
