/* How many prompt rows a step may have, so that no step takes longer than a limit while somebody
 * decodes. Learned from measured steps:
 *
 *   a decode step      one + rows + positions of the rows
 *   with prompt rows   one + all rows + positions of prompt rows + their mean + positions of
 *                      decode rows + one more if somebody decodes
 *
 * each with a coefficient. Positions stand for the keys that attention reads. The time for a few
 * rows of a prompt depends on the number of keys, however few rows there are. Steps of up to
 * STEADY_ROWS rows and larger ones are learned apart: a GPU computes them in two ways, of which the
 * second has a higher fixed cost and a tenth of the cost for each row. Pure: steps and seconds go
 * in, rows come out. No allocation. */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include "engine/estimate.h"

struct pace_step {
    int32_t n_decode, n_prompt;                /* rows */
    double decode_positions, prompt_positions; /* sums over these rows */
    bool is_awaited;                           /* others decode, but not in this step */
};

struct pace {
    double limit;                      /* seconds */
    struct estimate decode, few, many; /* the last two: with prompt rows */
    int32_t widest;                    /* the most rows of a measured decode step */
    int32_t largest;    /* the most prompt rows of measured steps, slowly forgotten */
    int32_t since_many; /* steps of `few` since the last of `many` with decode rows */
    int32_t n_slow;     /* how many of the latter in a row took too long, up to a few */
};

/* Steps with decode rows should take at most `limit` seconds, or twice a decode step if longer; up
 * to a seventh more where a prompt with many keys would otherwise go on many times slower.
 * From an hour on there is no limit: then rows do not depend on times. */
void pace_init(struct pace *p, double limit);
bool pace_has_limit(const struct pace *p);

/* A step took this many seconds. */
void pace_note(struct pace *p, const struct pace_step *step, double seconds);

/* The most prompt rows, 1 to `rows_max`, for a step with these decode rows and with prompt rows at
 * the mean position of step->prompt_positions / step->n_prompt, within `share` of the limit. 0:
 * first see what a decode step takes. rows_max if nobody decodes or waits to, and share is 1. */
int32_t pace_rows(const struct pace *p, const struct pace_step *step, double share,
                  int32_t rows_max);

/* What such a step without prompt rows takes, in seconds; 0: none was measured yet. */
double pace_decode_seconds(const struct pace *p, const struct pace_step *step);

/* What another decode row adds to the time of such a step without prompt rows, at least, as a share
 * of that time. While little is known of it, it is small, since only a try shows it. Before any
 * decode step was measured, it is what each row of the step takes. */
double pace_row_cost(const struct pace *p, const struct pace_step *step);

#endif
