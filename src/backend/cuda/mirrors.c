#include "backend/cuda/mirrors.h"

#include "backend/cuda/act.h"
#include "backend/cuda/step_size.h"
#include "backend/cuda/weight_use.h"

/* Whether a product of many rows reads a mirror (else: tiles, or it is exact). */
static bool wants_mirror(const struct device *d, const struct plan *plan, const struct weight *w)
{
    if (d->options.is_exact || is_multiplied_exactly(w)) return false;
    if (w->n_expert > 1 && device_has_half_experts(d) && !format_is_float(w->format)) return false;
    struct precision precision = weight_precision(plan, w);
    if (is_always_few(precision, w->format)) return false;
    return d->many == ACT_HALF || format_is_float(w->format) || precision.is_half;
}

size_t weight_mirror_bytes(const struct weight *w)
{
    return (size_t)w->n_expert * (size_t)w->rows * padded_cols(w->cols) * sizeof(uint16_t);
}

static bool has_many_rows(const struct device *d, const struct plan *plan)
{
    return step_size_for(d, ROWS_TOKEN, plan->rows_max[ROWS_TOKEN], !plan->is_all_out) == STEP_MANY;
}

bool crowds_read_mirrors(const struct device *d)
{
    return d->half_least > 0 && !d->options.is_steady && d->many == ACT_HALF && device_has_wgmma(d);
}

/* Products that are met again and again: those on token rows, in every chunk of a long prompt,
 * those of crowds, and those with floats in every decode step. Other products on rows whose logits
 * are wanted have few rows. */
static bool is_for_mirror(const struct device *d, const struct plan *plan, const struct op *op)
{
    const struct weight *w = op_product(op);
    if (!w || !wants_mirror(d, plan, w)) return false;
    bool has_crowds = plan->rows_max[ROWS_OUT] > MATVEC_ROWS_MAX && crowds_read_mirrors(d);
    bool is_of_crowds = has_crowds && !makes_logits(plan, op);
    bool is_often = has_many_rows(d, plan) && (!is_for_outs(plan, op) || is_of_crowds);
    if (!is_often && !reads_mirrors_early(d, w)) return false;
    return !(w->device_data && loaded_weight(w)->view.mirror);
}

bool mirrors_are_large(const struct plan *plan)
{
    enum { LARGE = 80 << 20 }; /* gate of E4B has 50 MiB, of 12B 113 */
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = op_product(&plan->ops[i]);
        if (w && w->n_expert == 1 && !makes_logits(plan, &plan->ops[i]) &&
            weight_mirror_bytes(w) > LARGE)
            return true;
    }
    return false;
}

/* The products from op i on that read the same rows: their mirrors lie side by side, so that one
 * matrix product can do them all. */
static int32_t side_by_side(const struct device *d, const struct plan *plan, int32_t i,
                            size_t *bytes)
{
    int32_t n = 0;
    *bytes = 0;
    while (i + n < plan->n_ops && n < 3 && is_for_mirror(d, plan, &plan->ops[i + n]) &&
           plan->ops[i + n].code == plan->ops[i].code &&
           plan->ops[i + n].in[0] == plan->ops[i].in[0])
        *bytes += weight_mirror_bytes(op_product(&plan->ops[i + n++]));
    return n;
}

size_t mirrors_bytes(const struct device *d, const struct plan *plan, size_t limit)
{
    size_t total = 0, bytes;
    for (int32_t i = 0, n; i < plan->n_ops; i += n ? n : 1) {
        n = side_by_side(d, plan, i, &bytes);
        if (aligned(bytes) <= limit - total) total += aligned(bytes);
    }
    return total;
}

static void fill_mirror(struct device *d, struct cuda_loaded *w, uint16_t *memory)
{
    w->view.mirror = memory;
    for (int32_t e = 0; e < w->view.n_expert; e++)
        launch_mirror(&d->queue, &w->view, e, 0, w->view.rows);
}

int mirrors_make(struct device *d, const struct plan *plan, const struct placement *placement,
                 struct carat_error *err)
{
    size_t left = placement ? placement->mirror_bytes - d->mirror_bytes : 0, bytes;
    size_t total = mirrors_bytes(d, plan, left);
    char *memory = total ? slab_take(d, total, false) : NULL;
    if (total && !memory) return cuda_fail(err, cudaErrorMemoryAllocation, "fp16 mirrors");
    for (int32_t i = 0, n; total && i < plan->n_ops; i += n ? n : 1) {
        n = side_by_side(d, plan, i, &bytes);
        if (n == 0 || aligned(bytes) > left) continue;
        left -= aligned(bytes);
        d->mirror_bytes += aligned(bytes);
        char *next = memory + aligned(bytes);
        for (int32_t k = 0; k < n; k++) {
            const struct weight *w = op_product(&plan->ops[i + k]);
            fill_mirror(d, loaded_weight(w), (uint16_t *)(void *)memory);
            memory += weight_mirror_bytes(w);
        }
        memory = next;
    }
    return CARAT_OK;
}
