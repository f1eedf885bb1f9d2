#include "engine/draft.h"

#include <stddef.h>

enum {
    MATCH_LEAST = 2, /* ids that have to be the same; one is there by chance */
    MATCH_MOST = 16,
    REACH = 1 << 16 /* ids that are searched, from the end on: some microseconds */
};

/* Chosen by replaying texts of this repository: prose, code, edits of code, JSON
 * (docs/benchmarks.md). */
#define WEIGHT 0.1      /* of the newest guess in its kind's chance, */
#define WEIGHT_ALL 0.02 /* and in that of all sequences */
#define HOPE 0.003      /* added to the chance of a kind that does not pay, at each occasion */

void draft_begin(struct draft_chances *all)
{
    *all = (struct draft_chances){{0.4, 0.6, 0.8, 0.9}};
}

void draft_init(struct draft *d, const struct draft_chances *all)
{
    *d = (struct draft){.chances = *all};
}

static double *chance_of(struct draft *d)
{
    return &d->chances.of[d->kind];
}

/* How many ids before `end` equal the last ones of ids[n]; at most `most`. */
static int32_t count_same(const int32_t *ids, int32_t n, int32_t end, int32_t most)
{
    int32_t same = 0;
    if (most > end) most = end;
    while (same < most && ids[end - 1 - same] == ids[n - 1 - same]) same++;
    return same;
}

/* The last place in ids[first .. end - 1] that holds this id, and one more; 0: there is none. In
 * blocks, which compilers make vectors of: long sequences are searched in each step. */
static int32_t last_end(const int32_t *ids, int32_t first, int32_t end, int32_t id)
{
    enum { BLOCK = 32 };
    for (; end - BLOCK >= first; end -= BLOCK) {
        int32_t found = 0;
        for (int32_t i = 1; i <= BLOCK; i++) found |= ids[end - i] == id;
        if (found) break;
    }
    while (end > first && ids[end - 1] != id) end--;
    return end > first ? end : 0;
}

static int32_t kind_of(int32_t same)
{
    return same <= 2 ? 0 : same <= 4 ? 1 : same <= 8 ? 2 : 3;
}

void draft_find(struct draft *d, int32_t *ids, int32_t n, int32_t most)
{
    int32_t from = 0, first = n > REACH ? n - REACH : 0, longest = MATCH_LEAST - 1, end = n - 1;
    while (longest < MATCH_MOST && (end = last_end(ids, first, end, ids[n - 1])) > 0) {
        int32_t same = count_same(ids, n, end--, MATCH_MOST);
        if (same <= longest) continue;
        longest = same;
        from = end + 1;
    }
    d->n = 0;
    d->found = from > 0 ? most : 0;
    d->kind = kind_of(longest);
    /* Where the two ends overlap, guesses go on with guesses: a repetition repeats. */
    for (int32_t i = 0; i < d->found; i++) ids[n + i] = ids[from + i];
}

static void take_none(struct draft *const *drafts, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        drafts[i]->n = 0;
        drafts[i]->next = *chance_of(drafts[i]);
    }
}

/* Takes the likeliest guess of all. Returns how likely it is; 0: there are no more. */
static double take_likeliest(struct draft *const *drafts, int32_t n)
{
    struct draft *best = NULL;
    for (int32_t i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (d->n < d->found && (!best || d->next > best->next)) best = d;
    }
    if (!best) return 0;
    double chance = best->next;
    best->n++;
    best->next *= *chance_of(best);
    return chance;
}

void draft_share(struct draft *const *drafts, int32_t n, int32_t n_tokens, const double *times,
                 int32_t most)
{
    double tokens = n_tokens, best = tokens / times[0];
    int32_t count = 0;
    take_none(drafts, n);
    for (int32_t i = 1; i <= most; i++) {
        double chance = take_likeliest(drafts, n);
        if (chance == 0) break;
        tokens += chance;
        if (tokens / times[i] <= best) continue;
        best = tokens / times[i];
        count = i;
    }
    take_none(drafts, n);
    for (int32_t i = 0; i < count; i++) take_likeliest(drafts, n);
    for (int32_t i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (d->found > 0 && d->n == 0 && *chance_of(d) + HOPE < 1) *chance_of(d) += HOPE;
    }
}

void draft_note(struct draft *d, struct draft_chances *all, int32_t n_right)
{
    double *own = chance_of(d), *of_all = &all->of[d->kind];
    for (int32_t i = 0; i < d->n && i <= n_right; i++) {
        *own += WEIGHT * ((i < n_right) - *own);
        *of_all += WEIGHT_ALL * ((i < n_right) - *of_all);
    }
}
