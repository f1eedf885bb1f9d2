/* Picks the next token from a row of logits.
 *
 * Order: bias and suppressed ids, then what carat_sampling.samplers says (order.h), then the draw.
 * Usually: penalties, DRY, top-n-sigma, top-k, typical sampling, temperature, softmax, top-p,
 * min-p, XTC. Penalties that come first change the row. A top-k that comes next chooses the
 * candidates, in one pass over 262,144 logits instead of a softmax over all of them. All other
 * samplers work on candidates.
 *
 * Samplers that look at all candidates together (shape.h), and unusual orders, need to know all
 * that a grammar allows. So with these ids are not asked about one by one.
 *
 * Rules
 * 1. Everything is allocated by sample_open; picking and accepting never fail for memory.
 * 2. One thread at a time. The row is only read.
 * 3. Members of carat_sampling that are 0 mean what carat.h says of them. */
#ifndef ENGINE_SAMPLE_H
#define ENGINE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "carat.h"
#include "text/vocab.h"

struct sampler;

enum { SAMPLE_LAST_N_MAX = 1 << 20 };

/* CARAT_EUSAGE names the parameter and its range. */
int sample_check(const struct carat_sampling *sampling, struct carat_error *err);

struct sampler_options {
    int32_t n_vocab;
    struct carat_sampling sampling;
    const struct carat_logit_bias *bias; /* copied */
    size_t n_bias;
    const int32_t *suppressed; /* copied; never picked */
    size_t n_suppressed;
    const struct vocab *vocab; /* for DRY's breakers; NULL: there are none */
    int64_t n_tokens;          /* at most so many will be accepted; 0: nobody knows */
    bool changes_row;          /* sample_copy will be called; best pairs are not enough then */
    bool is_bound;             /* sample_copy may be called, after sample_pick_allowed */
};
/* CARAT_EUSAGE: a number or an id out of its range; CARAT_EMEMORY. *out is NULL then. */
int sample_open(struct sampler **out, const struct sampler_options *options,
                struct carat_error *err);
void sample_close(struct sampler *s); /* NULL is fine */

/* A copy of the row that the caller may change and then hand to sample_pick. */
float *sample_copy(struct sampler *s, const float *logits);

/* The id, or -1 when the row holds NaN or +infinity, or nothing that may be picked. */
int32_t sample_pick(struct sampler *s, const float *logits);

/* Picks the same id from the n largest logits of the row, falling, ties by rising id (backend.h:
 * best). Only if sample_takes_best says so: nothing but penalties changes the row, and n is enough.
 * SAMPLE_UNDECIDED: after penalties it is not; pick from the row. */
bool sample_takes_best(const struct sampler *s, int n);
int32_t sample_pick_best(struct sampler *s, const struct logit_pair *best, int n);
enum { SAMPLE_UNDECIDED = -2 };

/* The same for ids that a grammar allows: the distribution is that of a row in which all others are
 * -infinity, to the last digit that matters. Asks about as few ids as are needed to know that.
 * SAMPLE_UNDECIDED: asking is not enough, or the order is not plain (order.h); set the others to
 * -infinity and pick from that row. */
typedef bool (*sample_allows_fn)(void *user, int32_t id);
int32_t sample_pick_allowed(struct sampler *s, const float *logits, sample_allows_fn allows,
                            void *user);
/* Whether sample_pick_allowed draws from the whole row first, and asks about that id alone. Then it
 * has to be called first even if all allowed ids are known: a seed must give the same answer in
 * both cases. */
bool sample_draws_first(const struct sampler *s);
int32_t sample_pick_best_allowed(struct sampler *s, const struct logit_pair *best, int n,
                                 sample_allows_fn allows, void *user);

/* The same where all allowed ids are known: `n` of them, rising. For samplers with is_bound. */
enum { SAMPLE_LISTED_MAX = 16384 };
int32_t sample_pick_listed(struct sampler *s, const float *logits, const int32_t *ids, int32_t n);

/* The same from pairs, in any order, of all allowed ids whose logits are not -infinity: at most
 * SAMPLE_LISTED_MAX. Other pairs of -infinity do no harm. */
int32_t sample_pick_known(struct sampler *s, const struct logit_pair *pairs, int32_t n);

/* Takes in a token, of the prompt or picked, for the penalties and DRY. */
void sample_accept(struct sampler *s, int32_t id);

#endif
