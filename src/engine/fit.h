/* Finds what fits: the context, the width of the caches, and how many layers the first device
 * computes. */
#ifndef ENGINE_FIT_H
#define ENGINE_FIT_H

#include "engine/layout.h"

/* Opens the devices, chooses sizes and compiles. `options` may be NULL. CARAT_EUSAGE names an
 * option out of range; CARAT_EMEMORY says how much is needed and how much there is. On failure
 * nothing is left to deinit. */
int layout_init(struct layout *y, const struct layout_source *from,
                const struct carat_engine_options *options, struct carat_error *err);
void layout_deinit(struct layout *y);

#endif
