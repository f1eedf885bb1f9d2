/* Where the texts are that end a repetition for DRY.
 *
 * A breaker is in the text of one token, or begins at the end of one and goes on in the tokens that
 * the rest of it is tokenised to, as in llama.cpp. */
#ifndef ENGINE_DRY_BREAKS_H
#define ENGINE_DRY_BREAKS_H

#include "carat.h"
#include "text/vocab.h"

struct dry_breaks;

enum { DRY_TAIL_MAX = 20 }; /* tokens of a breaker after the first one; others do not count */

/* Copies the texts; see carat_sampling. *out is NULL if there are none. CARAT_EMEMORY. */
int dry_breaks_open(struct dry_breaks **out, const struct carat_sampling *p, const struct vocab *v,
                    struct carat_error *err);
void dry_breaks_close(struct dry_breaks *b); /* NULL is fine, also below */

/* How many of the n tokens after `id` belong to a breaker that begins in it: the most, if several
 * do; -1: none does. */
int32_t dry_breaks_after(const struct dry_breaks *b, int32_t id, const int32_t *tokens, int32_t n);

/* Whether the text of this token has a whole breaker. */
bool dry_breaks_within(const struct dry_breaks *b, int32_t id);

#endif
