/* The set of ids that a state allows, as bits. Three ways, the cheapest that fits:
 * - where all plain characters are taken alike: the set of plain tokens, and the trees of what
 *   follows plain characters (index.h);
 * - where most characters lead to such a state: the mask of that state, and a walk through the part
 *   of the tree where the two differ;
 * - else a walk through the tree of all tokens, along the bytes that lead on. */
#ifndef GRAMMAR_MASK_H
#define GRAMMAR_MASK_H

#include "grammar/index.h"
#include "grammar/machine.h"

struct masker;

/* For one machine and one vocabulary, which must outlive it. CARAT_EMEMORY: *out is NULL. */
int masker_open(struct masker **out, struct machine *m, const struct token_index *x,
                struct carat_error *err);
void masker_close(struct masker *k); /* NULL is fine */

/* Fills in index_words(x) words. Stop ids are set where the state is complete. Allocates nothing.
 * Returns the nodes that were looked at, which is what it cost; 0: the machine is full, and the
 * call can be repeated after machine_compact. */
uint64_t masker_fill(struct masker *k, uint32_t state, uint64_t *bits);

#endif
