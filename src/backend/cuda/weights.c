#include "backend/cuda/weights.h"

#include "backend/cuda/placement.h"
#include "backend/cuda/planes.h"
#include "backend/cuda/row_table.h"
#include "backend/cuda/upload.h"
#include "backend/cuda/weight_use.h"
#include "base/mem.h"

int cuda_weight_load(struct device *d, struct weight *weight, struct carat_error *err)
{
    (void)d;
    struct cuda_loaded *w = mem_alloc(1, sizeof *w);
    if (!w) return err_no_memory(err, weight->name, sizeof *w);
    w->source = weight;
    weight->device_data = w;
    return CARAT_OK;
}

void cuda_weight_unload(struct device *d, struct weight *weight)
{
    struct cuda_loaded *w = weight->device_data; /* planes live as long as the device */
    cudaSetDevice(d->index);
    if (w && w->rows == d->rows) d->rows = NULL;
    if (w) row_table_close(w->rows);
    mem_free(w);
    weight->device_data = NULL;
}

struct row_table *row_table_in_plan(const struct plan *plan)
{
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = plan->ops[i].code == OP_EMBED ? op_weight(&plan->ops[i]) : NULL;
        if (w && loaded_weight(w)->rows) return loaded_weight(w)->rows;
    }
    return NULL;
}

/* Memory of all weights that a plan brings, as one piece for each place: pieces of their own would
 * be rounded up to 2 MB each by the driver. */
struct planes_memory {
    char *device, *pinned;
};

static int take_planes(struct device *d, const struct plan *plan, const struct placement *at,
                       struct planes_memory *out, struct carat_error *err)
{
    size_t bytes = planes_bytes(d, plan, at, false);
    size_t pinned = planes_bytes(d, plan, at, true);
    *out = (struct planes_memory){0};
    if (bytes && !(out->device = slab_take(d, bytes, false)))
        return cuda_fail(err, cudaErrorMemoryAllocation, "weights");
    if (pinned && !(out->pinned = slab_take(d, pinned, true)))
        return err_no_memory(err, "tables in pinned memory (--ple)", pinned);
    return CARAT_OK;
}

/* Cuts a weight's planes from the memory. */
static void place_weight(const struct device *d, const struct plan *plan, enum table_place tables,
                         struct cuda_loaded *w, struct planes_memory *from)
{
    struct tile_bytes planes;
    const struct weight *s = w->source;
    struct weight_use use = weight_use_in_plan(plan, s);
    enum cuda_layout layout = layout_for(d, s, use);
    w->is_pinned = is_pinned_at(tables, use);
    char **next = w->is_pinned ? &from->pinned : &from->device, *memory = *next;
    *next += layout_bytes(s, layout, &planes);
    w->view = weight_view(s, layout, memory);
    size_t at = aligned(planes.quants);
    if (planes.high) w->view.high = (uint8_t *)memory + at;
    at += aligned(planes.high);
    if (planes.scale) w->view.scale = (uint16_t *)(void *)(memory + at);
    at += aligned(planes.scale);
    if (planes.minus) w->view.minus = (uint16_t *)(void *)(memory + at);
}

/* The same for a table in the file. */
static int open_rows(struct device *d, const struct plan *plan, const struct placement *at,
                     struct cuda_loaded *w, struct planes_memory *from, struct carat_error *err)
{
    const struct weight *s = w->source;
    TRY(row_table_open(&w->rows, s, plan->rows_max[ROWS_TOKEN], at->cached_rows, from->device,
                       from->pinned, err));
    w->view = weight_view(s, LAYOUT_FILE, from->device);
    from->device += table_rows_bytes(s, plan, at, false);
    from->pinned += table_rows_bytes(s, plan, at, true);
    d->rows = w->rows;
    return CARAT_OK;
}

static void report(const struct device *d, size_t done, size_t total)
{
    if (d->options.progress) d->options.progress(d->options.progress_user, done, total);
}

static int upload_all(struct device *d, struct upload *u, const struct plan *plan,
                      const struct placement *at, size_t total, struct carat_error *err)
{
    size_t done = 0;
    struct planes_memory memory;
    const struct weight *gathered = gathered_table(plan, at->tables);
    TRY(take_planes(d, plan, at, &memory, err));
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *source = op_weight(&plan->ops[i]);
        if (!source || weight_is_there(source)) continue;
        struct cuda_loaded *w = loaded_weight(source);
        w->precision = weight_precision(plan, source);
        if (source == gathered) {
            TRY(open_rows(d, plan, at, w, &memory, err));
        } else {
            place_weight(d, plan, at->tables, w, &memory);
            TRY(upload_weight(u, w, err));
        }
        done += source->expert_bytes * (size_t)source->n_expert;
        report(d, done < total ? done : total, total);
    }
    return CARAT_OK;
}

int weights_upload(struct device *d, const struct plan *plan, const struct placement *placement,
                   char *staging, struct carat_error *err)
{
    struct upload *u;
    size_t total = 0;
    struct placement least = placement_least(plan, d->options.table_place);
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = weight_first_met(plan, i);
        if (w && !weight_is_there(w)) total += w->expert_bytes * (size_t)w->n_expert;
    }
    if (total == 0) return CARAT_OK;
    TRY(upload_open(&u, d, plan, staging, err));
    int status = upload_all(d, u, plan, placement ? placement : &least, total, err);
    upload_close(u);
    cudaError_t failure = cudaGetLastError();
    if (!status && failure) status = cuda_fail(err, failure, "loading weights");
    return status;
}
