/* Which decode rows of a step begin with the same pages in layers without a window, so that
 * attention may read these once for all of them. Only pages are compared: equal numbers in all
 * leading entries of the tables. */
#ifndef PLAN_SHARE_H
#define PLAN_SHARE_H

#include "plan/op.h"

/* Steps with more decode rows share nothing. */
enum { SHARE_ROWS_MAX = 512 };

struct share {
    int32_t leader[SHARE_ROWS_MAX], shared[SHARE_ROWS_MAX]; /* as in struct step */
    int32_t order[SHARE_ROWS_MAX], page[SHARE_ROWS_MAX];    /* scratch of share_find */
};

/* Where it pays, wherever there is something to share, nowhere. */
enum share_kind { SHARE_AUTO, SHARE_ON, SHARE_OFF };

/* Rows and positions from which a group is made; no rows: none is. */
struct share_least {
    int32_t rows, positions;
};
struct share_least share_least_of(enum share_kind kind);

/* Finds disjoint groups that save as many pages as possible. `table` [sequences][slots] is in the
 * host's memory. False: no row shares anything; else `s` has the answer for all decode rows.
 * Allocates nothing; reads each row's leading pages about once. */
bool share_find(struct share *s, const int32_t *table, int32_t slots, const struct step *step,
                struct share_least least);

#endif
