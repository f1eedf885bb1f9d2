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

/* How likely the next guess of each kind is to be right: learned. */
struct draft_chances {
    double of[DRAFT_KINDS];
};

struct draft {
    int32_t found, kind;          /* guesses of the current step, and their kind */
    int32_t n;                    /* how many of them are taken */
    double next;                  /* how likely one more of them is right: all before it are, too */
    struct draft_chances chances; /* in this sequence */
};

/* What is assumed before anything was guessed: of all sequences, and of one after others. */
void draft_begin(struct draft_chances *all);
void draft_init(struct draft *d, const struct draft_chances *all);

/* Writes at most `most` guesses of what follows ids[n] to ids + n: what followed the longest end of
 * these ids that is there twice, the last time it was there. Sets d->found, and d->n to 0. */
void draft_find(struct draft *d, int32_t *ids, int32_t n, int32_t most);

/* Takes (d->n) those of the found guesses of `n` sequences, `most` in all, with which a step gives
 * the most tokens for its time; without guesses it gives n_tokens. times[i]: what it takes with i
 * guesses. Guesses of a kind that is not taken become a little more likely, so that they are tried
 * again. */
void draft_share(struct draft *const *drafts, int32_t n, int32_t n_tokens, const double *times,
                 int32_t most);

/* Learns, quickly for this sequence and slowly for all: of the d->n guesses the first n_right were
 * right. */
void draft_note(struct draft *d, struct draft_chances *all, int32_t n_right);

#endif
