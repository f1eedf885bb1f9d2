/* Which samplers run, and in which order. */
#ifndef ENGINE_ORDER_H
#define ENGINE_ORDER_H

#include <stdbool.h>

#include "base/samplers.h"
#include "carat.h"

struct order {
    char row[3];              /* penalties and DRY, where they come first: they change the row */
    bool has_floor;           /* then top-n-sigma, of all logits */
    bool has_top_k;           /* then top-k */
    char rest[SAMPLERS_SIZE]; /* then these, on candidates */
    bool is_plain;            /* nothing after the penalties but top-k, a fixed temperature, top-p
                                 and min-p, in this order */
};

/* `p`: checked; zeros replaced by defaults. Switches off in it what does not run, or has no meaning
 * besides other settings. Samplers that are off are in no order. */
void order_make(struct order *out, struct carat_sampling *p);

bool has_plain_penalties(const struct carat_sampling *p);

#endif
