/* Candidates for the next token: the best logits of a row, and their weights.
 *
 * Their order is best first, equal logits by rising id. */
#ifndef ENGINE_CANDIDATES_H
#define ENGINE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

struct candidate {
    float logit;
    int32_t id;
    double weight; /* exp((logit - best) / temperature) */
};

/* Whether a comes after b in the order of candidates. */
static inline bool candidate_after(struct candidate a, struct candidate b)
{
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

/* Puts the k best of a row above -infinity into all[k], in no order. Returns their number, or -1
 * for NaN or +infinity. */
int32_t candidates_take(struct candidate *all, int32_t k, const float *row, int32_t n);

/* Moves the k best of `count` candidates to their beginning, in order; returns their number. */
int32_t candidates_best(struct candidate *all, int32_t count, int32_t k);

/* Puts them in order. After candidates_take `is_heap` saves work. */
void candidates_sort(struct candidate *all, int32_t count, bool is_heap);
void candidates_sort_by_id(struct candidate *all, int32_t count);

/* Sets the weights at a temperature above 0; returns their sum. */
double candidates_weigh(struct candidate *all, int32_t count, double temperature);

/* The sum of the weights. */
double candidates_sum(const struct candidate *all, int32_t count);

#endif
