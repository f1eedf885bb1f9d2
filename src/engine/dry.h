/* DRY: lowers the logits of tokens that would go on with a repetition, the more the longer it is.
 *
 * If the last tokens, n of them, have occurred together before, the token that followed there is
 * lowered by multiplier * base ^ (n - allowed length), from the allowed length on. Of several such
 * places the longest counts. Only the last tokens up to a number are looked at, and of those only
 * what comes after the newest breaker.
 *
 * Rules
 * 1. dry_open allocates; nothing else does. A sampler without DRY has NULL.
 * 2. dry_find takes time linear in the tokens that are looked at, and does nothing if no token came
 *    since the last call. Usually one came: then it only looks for earlier ones like it. */
#ifndef ENGINE_DRY_H
#define ENGINE_DRY_H

#include "carat.h"
#include "text/vocab.h"

struct dry;

/* Whether the settings ask for it. */
bool dry_is_on(const struct carat_sampling *p);

/* CARAT_EUSAGE names the breaker and what is expected. */
int dry_check_breakers(const struct carat_sampling *p, struct carat_error *err);

struct dry_options {
    const struct carat_sampling *sampling; /* checked; zeros replaced by defaults */
    int32_t n_vocab;
    const struct vocab *vocab; /* for the breakers; NULL: there are none */
    int64_t n_tokens;          /* at most so many will be accepted */
};
int dry_open(struct dry **out, const struct dry_options *options, struct carat_error *err);
void dry_close(struct dry *d); /* NULL is fine */

/* Takes in the next token. Ids are in range. */
void dry_accept(struct dry *d, int32_t id);

/* Finds what is lowered for the token after the accepted ones. */
void dry_find(struct dry *d);

/* By how much the logit of an id is lowered. */
float dry_penalty(const struct dry *d, int32_t id);

/* The ids that may be lowered; borrowed until the next dry_accept. */
const int32_t *dry_ids(const struct dry *d, int32_t *n);

#endif
