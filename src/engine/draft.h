/* Guesses of an answer's next tokens. Where the last few ids stand earlier in the sequence, what
 * followed them there may follow again: in code, quotations, tables, tool calls. Others come from a
 * grammar that leaves little else, or from a drafter (drafting.c). A step computes guesses as
 * further rows, which cost little as long as the weights have to be read anyway. Each row's logits
 * then give the token that they would have given without guesses, and a row counts if the token
 * before it was guessed right. So guesses change no answer, only how soon it comes.
 *
 * Pure: works on ids and numbers. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "carat.h"

/* Rows of a step with guesses, at most. Without a drafter they are few: guesses of many sequences
 * are seldom right at the same time (docs/benchmarks.md). A device may allow fewer (backend.h:
 * alike_rows). */
enum { DRAFT_ROWS = 64, DRAFT_FEW_ROWS = 8 };

/* Sequences that a drafter guesses for in a pass, at most: each has at least one row more. */
enum { PASS_ROWS = DRAFT_ROWS / 2 };

/* Guesses are sorted. Those from the context by how many ids before them were the same: 2, up to 4,
 * up to 8, more. Those of a drafter by how far its best logit leads: by less than 1, 2, 4, more.
 * The last are those that a grammar leaves. */
enum {
    DRAFT_MATCHES = 4,
    DRAFT_LEADS = 4,
    DRAFT_EXPECTED = DRAFT_MATCHES + DRAFT_LEADS,
    DRAFT_KINDS
};

/* How likely the next guess of each kind is to be right, and one that the drafter has not made yet:
 * learned. */
struct draft_chances {
    double of[DRAFT_KINDS], unmade;
};

struct draft {
    int32_t found;                 /* guesses of the current step */
    uint8_t kind[CARAT_DRAFT_MAX]; /* of each of them */
    int32_t n;                     /* how many of them are taken */
    double next;                  /* how likely one more of them is right: all before it are, too */
    struct draft_chances chances; /* in this sequence */
};

/* What is assumed before anything was guessed: of all sequences, and of one after others. */
void draft_begin(struct draft_chances *all);
void draft_init(struct draft *d, const struct draft_chances *all);

/* Writes at most `most` guesses of what follows ids[n] to ids + n: what followed the longest end of
 * these ids that is there twice, the last time it was there. Sets d->found, and d->n to 0. */
void draft_find(struct draft *d, int32_t *ids, int32_t n, int32_t most);

/* Whether what a grammar leaves is better than what was found in the context. */
bool draft_expects(const struct draft *d);

/* n guesses that a grammar leaves take the place of what was found. */
void draft_expect(struct draft *d, int32_t n);

/* Whether the drafter is better than what was found in the context. */
bool draft_asks(const struct draft *d);

/* Adds a drafter's guess, whose logit leads by this much, to those at ids + n. */
void draft_add(struct draft *d, int32_t *ids, int32_t n, int32_t id, float lead);

/* Whether another pass of the drafter pays, which makes one more guess for each of these `n`
 * sequences. `times` as below, with what earlier passes took; `cost`: what a pass takes, likewise.
 * If not even a first one pays, guesses of the drafter become a little more likely. */
bool draft_pays(struct draft *const *drafts, int32_t n, int32_t n_tokens, const double *times,
                int32_t most, double cost);

/* Takes (d->n) those of the found guesses of `n` sequences, `most` in all, with which a step gives
 * the most tokens for its time; without guesses it gives n_tokens. times[i]: what it takes with i
 * guesses. Guesses of a kind that is not taken become a little more likely, so that they are tried
 * again. */
void draft_share(struct draft *const *drafts, int32_t n, int32_t n_tokens, const double *times,
                 int32_t most);

/* Learns, quickly for this sequence and slowly for all: of the found guesses the first n_right were
 * right. n_right may be d->n + 1, as the token after the last one that was taken is known, too. */
void draft_note(struct draft *d, struct draft_chances *all, int32_t n_right);

#endif
