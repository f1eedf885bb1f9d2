/* Where one request is in its grammar: in free text, in a thought, or in what the grammar takes.
 *
 * Rules
 * 1. grammar_state_open allocates; nothing else does.
 * 2. One thread at a time for a state; different threads may use states of one grammar. */
#ifndef GRAMMAR_STATE_H
#define GRAMMAR_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carat.h"

struct grammar_state;

/* The grammar must outlive the state. The ids of the prompt tell whether the answer begins inside a
 * thought; they are not kept. CARAT_EMEMORY: *out is NULL. */
int grammar_state_open(struct grammar_state **out, const carat_grammar *g, const int32_t *prompt,
                       size_t n_prompt, struct carat_error *err);
void grammar_state_close(struct grammar_state *s); /* NULL is fine */

/* Whether the id may come next. Stop ids may when the text is complete, and in free text. */
bool grammar_state_allows(struct grammar_state *s, int32_t id);

/* Takes in the next id. One that is not allowed makes the state dead: nothing is allowed any more.
 * A stop id changes nothing. */
void grammar_state_accept(struct grammar_state *s, int32_t id);

/* mask_words(n_vocab) words: the bit of each id says what grammar_state_allows says. If
 * the grammar's tables are too small for it, all bits are 0 and the state is dead: see
 * grammar_state_problem. */
void grammar_state_mask(struct grammar_state *s, uint64_t *bits);

/* grammar_expect, where the grammar says what may come; else 0. */
int32_t grammar_state_expect(struct grammar_state *s, int32_t last, int32_t *ids, int32_t most);

bool grammar_state_is_free(const struct grammar_state *s); /* every id is allowed */
bool grammar_state_is_complete(struct grammar_state *s);   /* stop ids are allowed */

/* Why no id is allowed, or "". Lives for ever. */
const char *grammar_state_problem(const struct grammar_state *s);

#endif
