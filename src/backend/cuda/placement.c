#include "backend/cuda/placement.h"

#include "backend/cuda/gather.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/planes.h"
#include "backend/cuda/step_arrays.h"
#include "base/bytes.h"

struct placement placement_least(const struct plan *plan, enum table_place tables)
{
    const struct weight *table = gathered_table(plan, tables);
    struct placement at = {.tables = tables};
    if (table) at.cached_rows = gather_slots(table, plan->rows_max[ROWS_TOKEN], 0);
    return at;
}

static size_t weights_bytes(const struct device *d, const struct plan *plan,
                            const struct placement *at)
{
    return planes_bytes(d, plan, at, false) + (plan->n_ops > 0 ? ARRIVED_BYTES : 0);
}

/* A table goes where it was asked for, else to the first place that has room for it. */
static enum table_place table_place_for(const struct device *d, const struct plan *plan,
                                        const struct room *room)
{
    struct placement at = {.tables = TABLE_DEVICE};
    if (d->options.table_place != TABLE_AUTO) return d->options.table_place;
    if (weights_bytes(d, plan, &at) <= room->bytes) return TABLE_DEVICE;
    at.tables = TABLE_PINNED;
    return planes_bytes(d, plan, &at, true) <= room->pinned_bytes ? TABLE_PINNED : TABLE_HOST;
}

/* Of what the least placement leaves to things that only make it faster, a quarter goes to rows of
 * the table in the file, up to 256 MB: some 23,000 of E4B in 8 bits. */
enum { CACHED_BYTES_MOST = 256 << 20, PART_FOR_ROWS = 4 };

static int32_t cached_rows_for(const struct device *d, const struct plan *plan,
                               const struct weight *table, size_t left)
{
    int64_t budget = d->options.cache_budget;
    size_t bytes = bytes_smaller(left / PART_FOR_ROWS, CACHED_BYTES_MOST);
    if (budget != 0) bytes = budget < 0 ? 0 : (size_t)budget;
    return gather_slots(table, plan->rows_max[ROWS_TOKEN], bytes);
}

void cuda_place_weights(const struct device *d, const struct plan *plan, const struct room *room,
                        struct placement *out)
{
    int64_t budget = d->options.mirror_budget;
    const struct weight *table = largest_table(plan);
    *out = placement_least(plan, table_place_for(d, plan, room));
    if (table && out->tables == TABLE_HOST) {
        size_t left = bytes_left(room->extra_bytes, weights_bytes(d, plan, out));
        out->cached_rows = cached_rows_for(d, plan, table, left);
        out->cached_bytes = table_rows_bytes(table, plan, out, false);
    }
    size_t weights = weights_bytes(d, plan, out), left = bytes_left(room->extra_bytes, weights);
    if (budget != 0) left = budget < 0 ? 0 : bytes_smaller(left, (size_t)budget);
    out->mirror_bytes = mirrors_bytes(d, plan, left);
    out->device_bytes = weights + out->mirror_bytes;
    out->pinned_bytes = step_bytes(STEP_ROWS_MAX) + BEST_BYTES + planes_bytes(d, plan, out, true);
}
