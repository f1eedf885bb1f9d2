/* What the weights of a plan take, on the device and in page-locked memory: all those that are not
 * there yet, as one piece for each place. */
#ifndef CUDA_PLANES_H
#define CUDA_PLANES_H

#include "backend/cuda/device.h"

/* Bytes of a weight in its layout, and of each of its planes. */
size_t layout_bytes(const struct weight *w, enum cuda_layout layout, struct tile_bytes *planes);

/* The largest table that is only looked up and is not there yet. NULL: none. */
const struct weight *largest_table(const struct plan *plan);

/* The one that stays in the mapped file when tables are in this place. NULL: none. */
const struct weight *gathered_table(const struct plan *plan, enum table_place tables);

/* What a table in the file takes: its cache on the device, or the page-locked memory that this is
 * filled from. */
size_t table_rows_bytes(const struct weight *table, const struct plan *plan,
                        const struct placement *at, bool is_pinned);

/* Of all weights that are not there yet: on the device, or page-locked. */
size_t planes_bytes(const struct device *d, const struct plan *plan, const struct placement *at,
                    bool is_pinned);

#endif
