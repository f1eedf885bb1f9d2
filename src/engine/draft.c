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
#define HOPE 0.003      /* added to the chance of a kind that does not pay, at each occasion; */
#define HOPE_OF_PASSES 0.001 /* of a drafter: trying it costs more */

void draft_begin(struct draft_chances *all)
{
    *all =
        (struct draft_chances){.of = {0.4, 0.6, 0.8, 0.9, 0.35, 0.5, 0.7, 0.9, 0.8}, .unmade = 0.6};
}

void draft_init(struct draft *d, const struct draft_chances *all)
{
    *d = (struct draft){.chances = *all};
}

/* Of guess i, if those before it are right. */
static double chance_of(const struct draft *d, int32_t i)
{
    return d->chances.of[d->kind[i]];
}

static void add_hope(double *chance, double hope)
{
    if (*chance + hope < 1) *chance += hope;
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

static uint8_t kind_of(int32_t same)
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
    /* Where the two ends overlap, guesses go on with guesses: a repetition repeats. */
    for (int32_t i = 0; i < d->found; i++) {
        ids[n + i] = ids[from + i];
        d->kind[i] = kind_of(longest);
    }
}

bool draft_expects(const struct draft *d)
{
    return d->found == 0 || chance_of(d, 0) < d->chances.of[DRAFT_EXPECTED];
}

void draft_expect(struct draft *d, int32_t n)
{
    d->found = n;
    for (int32_t i = 0; i < n; i++) d->kind[i] = DRAFT_EXPECTED;
}

bool draft_asks(const struct draft *d)
{
    return d->found == 0 || chance_of(d, 0) < d->chances.unmade;
}

static uint8_t kind_of_lead(float lead)
{
    return DRAFT_MATCHES + (lead < 1 ? 0 : lead < 2 ? 1 : lead < 4 ? 2 : 3);
}

void draft_add(struct draft *d, int32_t *ids, int32_t n, int32_t id, float lead)
{
    ids[n + d->found] = id;
    d->kind[d->found++] = kind_of_lead(lead);
}

/* Several passes may pay where one does not: recorded steps have 1, 2, 4, 8 ... rows. */
bool draft_pays(struct draft *const *drafts, int32_t n, int32_t n_tokens, const double *times,
                int32_t most, double cost)
{
    double tokens = n_tokens, gain = 0, all[PASS_ROWS];
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        all[i] = 1;
        for (int32_t k = 0; k < drafts[i]->found; k++) tokens += all[i] *= chance_of(drafts[i], k);
        count += drafts[i]->found;
    }
    for (int32_t passes = 1, then = count; then < most; passes++) {
        then = then + n < most ? then + n : most;
        for (int32_t i = 0; i < n; i++) gain += all[i] *= drafts[i]->chances.unmade;
        if ((tokens + gain) * times[count] > tokens * (times[then] + passes * cost)) return true;
    }
    for (int32_t i = 0; i < n && count == 0; i++)
        add_hope(&drafts[i]->chances.unmade, HOPE_OF_PASSES);
    return false;
}

/* How likely guess d->n is right: all before it are, too. */
static void set_next(struct draft *d, double all)
{
    d->next = d->n < d->found ? all * chance_of(d, d->n) : 0;
}

static void take_none(struct draft *const *drafts, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        drafts[i]->n = 0;
        set_next(drafts[i], 1);
    }
}

/* Takes the likeliest guess of all. Returns how likely it is; 0: there are no more. */
static double take_likeliest(struct draft *const *drafts, int32_t n)
{
    struct draft *best = NULL;
    for (int32_t i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        if (d->next > 0 && (!best || d->next > best->next)) best = d;
    }
    if (!best) return 0;
    double chance = best->next;
    best->n++;
    set_next(best, chance);
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
        if (d->found > 0 && d->n == 0) add_hope(&d->chances.of[d->kind[0]], HOPE);
    }
}

static void learn(double *own, double *of_all, bool is_right)
{
    *own += WEIGHT * (is_right - *own);
    *of_all += WEIGHT_ALL * (is_right - *of_all);
}

void draft_note(struct draft *d, struct draft_chances *all, int32_t n_right)
{
    int32_t n_known = n_right > d->n ? n_right : n_right + 1;
    for (int32_t i = 0; i < d->found && i < n_known; i++) {
        int kind = d->kind[i];
        learn(&d->chances.of[kind], &all->of[kind], i < n_right);
        bool is_drafters = kind >= DRAFT_MATCHES && kind < DRAFT_EXPECTED;
        if (is_drafters) learn(&d->chances.unmade, &all->unmade, i < n_right);
    }
}
