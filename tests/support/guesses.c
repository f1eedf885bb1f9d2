#include "support/guesses.h"

#include <string.h>

#include "base/assert.h"
#include "engine/draft.h"

static struct known {
    const int32_t *prompt, *answer;
    int32_t n_prompt, n_answer;
} all[GUESSES_MAX];
static int32_t n_all;

void guesses_clear(void)
{
    n_all = 0;
}

void guesses_add(const int32_t *prompt, int32_t n_prompt, const int32_t *answer, int32_t n_answer)
{
    carat_assert(n_all < GUESSES_MAX);
    all[n_all++] = (struct known){prompt, answer, n_prompt, n_answer};
}

/* Whether these are the prompt and a beginning of the answer. */
static int is_beginning(const struct known *k, const int32_t *ids, int32_t n)
{
    int32_t n_answer = n - k->n_prompt;
    if (n_answer < 0 || n_answer >= k->n_answer) return 0;
    return memcmp(ids, k->prompt, (size_t)k->n_prompt * sizeof *ids) == 0 &&
           memcmp(ids + k->n_prompt, k->answer, (size_t)n_answer * sizeof *ids) == 0;
}

/* The linker puts these in place of those of draft.c. Which guesses are wrong depends on their
 * places. */
void __wrap_draft_find(struct draft *d, int32_t *ids, int32_t n, int32_t most);
void __wrap_draft_share(struct draft *const *drafts, int32_t n, int32_t n_tokens,
                        const double *times, int32_t most);
bool __wrap_draft_asks(const struct draft *d);
bool __wrap_draft_pays(struct draft *const *drafts, int32_t n, int32_t n_tokens,
                       const double *times, int32_t most, double cost);

/* A drafter, if there is one, is asked where no answer is known, and now and then where one is. */
bool __wrap_draft_asks(const struct draft *d)
{
    return d->found % 3 == 0;
}

/* As many passes of it as there is room for, whatever they cost. */
bool __wrap_draft_pays(struct draft *const *drafts, int32_t n, int32_t n_tokens,
                       const double *times, int32_t most, double cost)
{
    int32_t count = n;
    (void)n_tokens, (void)times, (void)cost;
    for (int32_t i = 0; i < n; i++) count += drafts[i]->found;
    return count <= most;
}

void __wrap_draft_find(struct draft *d, int32_t *ids, int32_t n, int32_t most)
{
    d->n = d->found = 0;
    for (int32_t k = 0; k < n_all; k++) {
        if (!is_beginning(&all[k], ids, n)) continue;
        int32_t done = n - all[k].n_prompt;
        for (; d->found < most && done + d->found < all[k].n_answer; d->found++)
            ids[n + d->found] =
                all[k].answer[done + d->found] ^ ((n + d->found) % GUESSES_WRONG == 0);
        return;
    }
}

/* As many as there is room for, whatever they cost. */
void __wrap_draft_share(struct draft *const *drafts, int32_t n, int32_t n_tokens,
                        const double *times, int32_t most)
{
    (void)n_tokens;
    (void)times;
    for (int32_t i = 0; i < n; i++) {
        struct draft *d = drafts[i];
        d->n = d->found < most ? d->found : most;
        most -= d->n;
    }
}
