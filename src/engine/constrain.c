#include "engine/constrain.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/state.h"

struct constraint {
    struct grammar_state *state;
    uint64_t *bits; /* n_vocab */
    int32_t n_vocab;
    bool needed_mask; /* by the last pick */
};

int constrain_open(struct constraint **out, const carat_grammar *grammar, const int32_t *prompt,
                   size_t n_prompt, int32_t n_vocab, struct carat_error *err)
{
    size_t words = ((size_t)n_vocab + 63) / 64;
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
    int status = c->bits ? grammar_state_open(&c->state, grammar, prompt, n_prompt, err)
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
    mem_free(c);
}

static bool is_free(const struct constraint *c)
{
    return !c || grammar_state_is_free(c->state);
}

static bool allows(void *user, int32_t id)
{
    return grammar_state_allows(user, id);
}

int32_t constrain_pick_best(struct constraint *c, struct sampler *s, const struct logit_pair *best,
                            int n)
{
    if (is_free(c)) return sample_pick_best(s, best, n);
    int32_t id = sample_pick_best_allowed(s, best, n, allows, c->state);
    if (id >= 0) c->needed_mask = false;
    return id;
}

/* Takes ids that the mask lacks out of the row; false if there is none that it has. */
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

static int32_t pick_masked(struct constraint *c, struct sampler *s, float *row)
{
    if (!is_good(row, c->n_vocab)) return -1;
    grammar_state_mask(c->state, c->bits);
    return mask_row(c, row) ? sample_pick(s, row) : -1;
}

int32_t constrain_pick(struct constraint *c, struct sampler *s, float *own, const float *logits)
{
    if (is_free(c)) return sample_pick(s, own ? own : logits);
    /* The sampler's own row is changed in place, and only once: it is masked before. */
    int32_t id = own ? SAMPLE_UNDECIDED : sample_pick_allowed(s, logits, allows, c->state);
    c->needed_mask = id == SAMPLE_UNDECIDED;
    return c->needed_mask ? pick_masked(c, s, own ? own : sample_copy(s, logits)) : id;
}

void constrain_accept(struct constraint *c, int32_t id)
{
    if (c) grammar_state_accept(c->state, id);
}

void constrain_prepare(struct constraint *c)
{
    if (c && c->needed_mask) grammar_state_prepare(c->state);
}

const char *constrain_problem(const struct constraint *c, const char *other)
{
    if (!c) return other;
    const char *problem = grammar_state_problem(c->state);
    return problem[0] ? problem : other;
}
