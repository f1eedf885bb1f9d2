/* Sampling within a grammar (src/grammar/state.h): the likeliest ids are checked one by one until
 * the draw cannot depend on the others; only if that fails all ids are masked. The distribution is
 * the same as if all ids were masked first.
 *
 * Rules
 * 1. A constraint of NULL means none: the functions are then those of sample.h.
 * 2. constrain_open allocates; nothing else does.
 * 3. One thread at a time for a constraint. */
#ifndef ENGINE_CONSTRAIN_H
#define ENGINE_CONSTRAIN_H

#include "engine/sample.h"

struct constraint;

/* *out is NULL if the grammar is. The grammar must outlive the constraint. CARAT_EUSAGE: the
 * grammar is for another vocabulary. */
int constrain_open(struct constraint **out, const carat_grammar *grammar, const int32_t *prompt,
                   size_t n_prompt, int32_t n_vocab, struct carat_error *err);
void constrain_close(struct constraint *c); /* NULL is fine */

/* sample_pick_best where sample_takes_best says so. CONSTRAIN_NEEDS_ROW: call constrain_pick with
 * the whole row. */
enum { CONSTRAIN_NEEDS_ROW = SAMPLE_UNDECIDED };
int32_t constrain_pick_best(struct constraint *c, struct sampler *s, const struct logit_pair *best,
                            int n);

/* sample_pick; -1 also where no allowed id is possible. `own` is the copy of `logits` that
 * sample_copy gave and on_logits has changed, or NULL. */
int32_t constrain_pick(struct constraint *c, struct sampler *s, float *own, const float *logits);

/* Whether the id may come next. */
bool constrain_allows(struct constraint *c, int32_t id);

/* Writes at most `most` ids that are likely to follow the newest one, `last`, because the grammar
 * leaves little else; returns how many. */
int32_t constrain_expect(struct constraint *c, int32_t last, int32_t *ids, int32_t most);

/* Takes in what was picked. */
void constrain_accept(struct constraint *c, int32_t id);

/* Computes the mask of the next pick; to be called while the device works, as picks then only look
 * at bits. Returns its mask_words(n_vocab) words, valid until constrain_accept, if the n_best
 * largest logits within it will do (backend.h: best_allowed); else NULL. */
const uint64_t *constrain_mask(struct constraint *c, const struct sampler *s, int n_best);

/* sample_pick from the largest logits within that mask: n pairs, n_best or fewer. -1 and
 * CONSTRAIN_NEEDS_ROW as above. */
int32_t constrain_pick_masked(struct constraint *c, struct sampler *s,
                              const struct logit_pair *best, int n);

/* Why nothing was picked, for the message of an ended request; `other` if it is not the grammar. */
const char *constrain_problem(const struct constraint *c, const char *other);

#endif
