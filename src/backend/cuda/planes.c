#include "backend/cuda/planes.h"

#include "backend/cuda/gather.h"
#include "backend/cuda/weight_use.h"

size_t layout_bytes(const struct weight *w, enum cuda_layout layout, struct tile_bytes *planes)
{
    size_t n_rows = (size_t)w->rows * (size_t)w->n_expert;
    *planes = (struct tile_bytes){0};
    switch (layout) {
    case LAYOUT_TILES: *planes = tile_bytes_of(w->format, w->rows, w->cols, w->n_expert); break;
    case LAYOUT_ROWS: planes->quants = n_rows * ((w->row_bytes + 15) / 16 * 16); break;
    case LAYOUT_FILE: planes->quants = n_rows * w->row_bytes; break;
    case LAYOUT_FLOATS: planes->quants = n_rows * (size_t)w->cols * sizeof(float); break;
    }
    return aligned(planes->quants) + aligned(planes->high) + aligned(planes->scale) +
           aligned(planes->minus);
}

const struct weight *largest_table(const struct plan *plan)
{
    const struct weight *largest = NULL;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].code != OP_EMBED) continue;
        const struct weight *w = op_weight(&plan->ops[i]);
        if (weight_is_there(w) || weight_use_in_plan(plan, w).is_product) continue;
        if (!largest || w->expert_bytes > largest->expert_bytes) largest = w;
    }
    return largest;
}

const struct weight *gathered_table(const struct plan *plan, enum table_place tables)
{
    return tables == TABLE_HOST ? largest_table(plan) : NULL;
}

size_t table_rows_bytes(const struct weight *table, const struct plan *plan,
                        const struct placement *at, bool is_pinned)
{
    return aligned(is_pinned ? gather_bytes(table, plan->rows_max[ROWS_TOKEN])
                             : (size_t)at->cached_rows * table->row_bytes);
}

size_t planes_bytes(const struct device *d, const struct plan *plan, const struct placement *at,
                    bool is_pinned)
{
    size_t bytes = 0;
    struct tile_bytes planes;
    const struct weight *gathered = gathered_table(plan, at->tables);
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = weight_first_met(plan, i);
        if (!w || weight_is_there(w)) continue;
        struct weight_use use = weight_use_in_plan(plan, w);
        if (w == gathered)
            bytes += table_rows_bytes(w, plan, at, is_pinned);
        else if (is_pinned_at(at->tables, use) == is_pinned)
            bytes += layout_bytes(w, layout_for(d, w, use), &planes);
    }
    return bytes;
}
