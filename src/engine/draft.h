/* Guesses of an answer's next tokens. Where the last few ids stand earlier in the sequence, what
 * followed them there may follow again: in code, quotations, tables, tool calls. A step computes
 * guesses as further rows, which cost little as long as the weights have to be read anyway. Each
 * row's logits then give the token that they would have given without guesses, and a row counts if
 * the token before it was guessed right. So guesses change no answer, only how soon it comes.
 *
 * Pure: works on ids and numbers. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include <stdint.h>

/* Rows of a step with guesses, at most. A device may allow fewer (backend.h: alike_rows). */
enum { DRAFT_ROWS = 8 };

/* Guesses are sorted by how many ids before them were the same: 2, up to 4, up to 8, more. */
enum { DRAFT_KINDS = 4 };

struct draft {
    int32_t n, kind;            /* guesses in the current step */
    double chance[DRAFT_KINDS]; /* that the next guess of this kind is right; learned */
};

/* What is assumed before anything was guessed. */
void draft_init(struct draft *d);

/* Writes at most `most` guesses of what follows ids[n] to ids + n and returns their number: what
 * followed the longest end of these ids that is there twice, the last time it was there. *same: the
 * length of that end, if there is one. */
int32_t draft_find(int32_t *ids, int32_t n, int32_t most, int32_t *same);

/* Takes those of `n` guesses with which most tokens are expected for the time, and notes that in
 * d->n and d->kind. times[i]: what a step with i guesses takes; times[0] is 1. Guesses of a kind
 * that has not been taken become a little more likely, so that they are tried again. */
void draft_take(struct draft *d, int32_t n, int32_t same, const double *times);

/* Learns: of the d->n guesses the first n_right were right. */
void draft_note(struct draft *d, int32_t n_right);

#endif
