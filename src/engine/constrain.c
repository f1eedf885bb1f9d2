#include "engine/constrain.h"

#include <math.h>
#include <string.h>

#include "base/mask.h"
#include "base/mem.h"
#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/state.h"

enum { REFUSED_MAX = 6 }; /* ids that are checked one by one before all are masked */

struct constraint {
    struct grammar_state *state;
    uint64_t *bits; /* n_vocab; the mask of the current state if has_bits */
    int32_t *ids;   /* SAMPLE_LISTED_MAX */
    int32_t n_vocab;
    int32_t n_refused; /* by the last pick */
    bool has_bits;
    bool is_undecided; /* the best pairs of the current pick were not enough */
};

int constrain_open(struct constraint **out, const carat_grammar *grammar, const int32_t *prompt,
                   size_t n_prompt, int32_t n_vocab, struct carat_error *err)
{
    size_t words = mask_words(n_vocab);
    *out = NULL;
    if (!grammar) return CARAT_OK;
    if (grammar->index->n_vocab != n_vocab)
        return err_set(err, CARAT_EUSAGE,
                       "grammar: one for %d tokens expected, as the model has, %d found", n_vocab,
                       grammar->index->n_vocab);
    struct constraint *c = mem_alloc(1, sizeof *c);
    if (!c) return err_no_memory(err, "grammar", sizeof *c);
    c->n_vocab = n_vocab;
    c->bits = mem_alloc(words, sizeof *c->bits);
    c->ids = mem_alloc(SAMPLE_LISTED_MAX, sizeof *c->ids);
    int status = c->bits && c->ids ? grammar_state_open(&c->state, grammar, prompt, n_prompt, err)
                                   : err_no_memory(err, "grammar", words * sizeof *c->bits);
    if (status)
        constrain_close(c);
    else
        *out = c;
    return status;
}

void constrain_close(struct constraint *c)
{
    if (!c) return;
    grammar_state_close(c->state);
    mem_free(c->bits);
    mem_free(c->ids);
    mem_free(c);
}

static bool is_free(const struct constraint *c)
{
    return !c || grammar_state_is_free(c->state);
}

static void find_bits(struct constraint *c)
{
    if (!c->has_bits) grammar_state_mask(c->state, c->bits);
    c->has_bits = true;
}

/* Checking one id costs more than reading its bit, but less than computing the whole mask. */
static bool allows(void *user, int32_t id)
{
    struct constraint *c = user;
    if (!c->has_bits && c->n_refused >= REFUSED_MAX) find_bits(c);
    bool is_allowed =
        c->has_bits ? c->bits[id / 64] >> id % 64 & 1 : grammar_state_allows(c->state, id);
    c->n_refused += !is_allowed;
    return is_allowed;
}

bool constrain_allows(struct constraint *c, int32_t id)
{
    return is_free(c) || grammar_state_allows(c->state, id);
}

int32_t constrain_expect(struct constraint *c, int32_t last, int32_t *ids, int32_t most)
{
    return c ? grammar_state_expect(c->state, last, ids, most) : 0;
}

int32_t constrain_pick_best(struct constraint *c, struct sampler *s, const struct logit_pair *best,
                            int n)
{
    if (is_free(c)) return sample_pick_best(s, best, n);
    c->n_refused = 0;
    int32_t id = sample_pick_best_allowed(s, best, n, allows, c);
    c->is_undecided = id == CONSTRAIN_NEEDS_ROW;
    return id;
}

/* How many ids the mask has; if more than `most`, then any number above it. */
static int32_t count_ids(const struct constraint *c, int32_t most)
{
    int32_t n = 0;
    for (int32_t id = 0; id < c->n_vocab && n <= most; id += 64)
        n += __builtin_popcountll(c->bits[id / 64]);
    return n;
}

int32_t constrain_pick_masked(struct constraint *c, struct sampler *s,
                              const struct logit_pair *best, int n)
{
    int32_t id = CONSTRAIN_NEEDS_ROW;
    if (count_ids(c, n) <= n)
        id = sample_pick_known(s, best, n);
    else if (sample_takes_best(s, n))
        id = sample_pick_best(s, best, n);
    c->is_undecided = id == CONSTRAIN_NEEDS_ROW;
    return id;
}

/* The ids of the mask; -1: more than SAMPLE_LISTED_MAX. */
static int32_t list_ids(struct constraint *c)
{
    int32_t n = 0;
    for (int32_t id = 0; id < c->n_vocab; id += 64) {
        for (uint64_t word = c->bits[id / 64]; word; word &= word - 1) {
            if (n == SAMPLE_LISTED_MAX) return -1;
            c->ids[n++] = id + __builtin_ctzll(word);
        }
    }
    return n;
}

/* Sets the logits of ids outside the mask to -infinity; false if the mask is empty. */
static bool mask_row(const struct constraint *c, float *row)
{
    bool has_any = false;
    for (int32_t id = 0; id < c->n_vocab; id += 64) {
        uint64_t word = c->bits[id / 64];
        int32_t n = c->n_vocab - id < 64 ? c->n_vocab - id : 64;
        has_any |= word != 0;
        if (word == UINT64_MAX) continue;
        for (int32_t i = 0; i < n; i++)
            if (!(word >> i & 1)) row[id + i] = -INFINITY;
    }
    return has_any;
}

/* Whether the row holds neither NaN nor +infinity, which a mask might hide. */
static bool is_good(const float *row, int32_t n)
{
    bool is_bad = false;
    for (int32_t i = 0; i < n; i++) is_bad |= !(row[i] < INFINITY);
    return !is_bad;
}

/* Picks from all ids of the mask. `n`: what list_ids returned. */
static int32_t pick_masked(struct constraint *c, struct sampler *s, const float *logits, int32_t n)
{
    if (n >= 0) return sample_pick_listed(s, logits, c->ids, n);
    float *row = sample_copy(s, logits);
    return mask_row(c, row) ? sample_pick(s, row) : -1;
}

/* sample_pick changes this row in place, so it can be called only once: the row is masked
 * before. */
static int32_t pick_own(struct constraint *c, struct sampler *s, float *row)
{
    if (!is_good(row, c->n_vocab)) return -1;
    find_bits(c);
    return mask_row(c, row) ? sample_pick(s, row) : -1;
}

int32_t constrain_pick(struct constraint *c, struct sampler *s, float *own, const float *logits)
{
    if (is_free(c)) return sample_pick(s, own ? own : logits);
    if (own) return pick_own(c, s, own);
    bool is_undecided = c->is_undecided;
    c->is_undecided = false;
    if (is_undecided) find_bits(c);
    int32_t n = c->has_bits && !sample_draws_first(s) ? list_ids(c) : -1;
    if (n >= 0 || is_undecided) return pick_masked(c, s, logits, n);
    c->n_refused = 0;
    int32_t id = sample_pick_allowed(s, logits, allows, c);
    if (id != SAMPLE_UNDECIDED) return id;
    find_bits(c);
    return pick_masked(c, s, logits, list_ids(c));
}

void constrain_accept(struct constraint *c, int32_t id)
{
    if (!c) return;
    grammar_state_accept(c->state, id);
    c->has_bits = false;
}

const uint64_t *constrain_mask(struct constraint *c, const struct sampler *s, int n_best)
{
    if (is_free(c)) return NULL;
    find_bits(c);
    if (sample_draws_first(s)) return NULL;
    return count_ids(c, n_best) <= n_best || sample_takes_best(s, n_best) ? c->bits : NULL;
}

const char *constrain_problem(const struct constraint *c, const char *other)
{
    if (!c) return other;
    const char *problem = grammar_state_problem(c->state);
    return problem[0] ? problem : other;
}
