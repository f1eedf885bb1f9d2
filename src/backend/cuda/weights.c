/* Weights on the device. A weight is registered by weight_load and put there by bind, when it is
 * known what it is used for: a matrix that products read is cut into tiles, a table that is only
 * looked up keeps the file's rows, a vector becomes floats. */
#include <string.h>

#include "backend/cuda/upload.h"
#include "base/assert.h"

struct cuda_loaded *loaded_of(const struct weight *w)
{
    return w->device_data;
}

/* How the ops of a plan use a weight; neither of both: as a vector. */
struct uses {
    bool is_product, is_table;
};

static struct uses uses_of(const struct plan *plan, const struct weight *w)
{
    struct uses uses = {false, false};
    for (int32_t i = 0; i < plan->n_ops; i++) {
        if (op_weight(&plan->ops[i]) != w) continue;
        if (plan->ops[i].code == OP_EMBED) uses.is_table = true;
        if (op_product(&plan->ops[i])) uses.is_product = true;
    }
    return uses;
}

/* Whether a product takes more than 8 bits of its rows: it is a fine one, or shares them with one,
 * and so a launch. */
static bool is_fine(const struct plan *plan, const struct op *op)
{
    for (int32_t i = 0; op->code == OP_MATMUL && i < plan->n_ops; i++) {
        const struct op *other = &plan->ops[i];
        if (other->code == OP_MATMUL && other->p.matmul.is_fine && other->in[0] == op->in[0])
            return true;
    }
    return false;
}

static bool is_for_outs(const struct plan *plan, const struct op *op)
{
    return plan_buf_at(plan, op->out[0])->rows == ROWS_OUT;
}

static bool reads_attention(const struct plan *plan, const struct op *op)
{
    int32_t writer = plan_buf_at(plan, op->in[0])->first_op; /* not there in a plan that was cut */
    return writer >= 0 && writer < plan->n_ops && plan->ops[writer].code == OP_ATTENTION;
}

/* Of all products of a plan with w. What was decided of a weight once, holds. Of many rows what
 * attention gives goes through fp16 too: a few products, and the error of 8 bits becomes visibly
 * smaller (docs/benchmarks.md). */
static struct precision precision_of(const struct plan *plan, const struct weight *w)
{
    if (w->device_data && loaded_of(w)->view.quants) return loaded_of(w)->precision;
    struct precision precision = {.is_for_outs = true};
    for (int32_t i = 0; i < plan->n_ops; i++) {
        if (op_product(&plan->ops[i]) != w) continue;
        if (is_fine(plan, &plan->ops[i])) precision.is_fine = precision.is_half = true;
        if (reads_attention(plan, &plan->ops[i])) precision.is_half = true;
        if (!is_for_outs(plan, &plan->ops[i])) precision.is_for_outs = false;
    }
    return precision;
}

bool is_always_few(struct precision precision, enum format format)
{
    return precision.is_fine && precision.is_for_outs && !format_is_float(format);
}

/* The weight of op i, unless an op before it has it too. */
static const struct weight *first_met(const struct plan *plan, int32_t i)
{
    const struct weight *w = op_weight(&plan->ops[i]);
    for (int32_t k = 0; w && k < i; k++)
        if (op_weight(&plan->ops[k]) == w) return NULL;
    return w;
}

/* Exact products decode the file's own blocks: tiles round the scales of the K formats to fp16. */
static enum cuda_layout layout_of(const struct device *d, const struct weight *w, struct uses uses)
{
    if (uses.is_product && format_is_float(w->format)) return LAYOUT_ROWS;
    if (uses.is_product) return d->options.is_exact ? LAYOUT_FILE : LAYOUT_TILES;
    return uses.is_table ? LAYOUT_FILE : LAYOUT_FLOATS;
}

/* Bytes of a weight in its layout, and of its planes. */
static size_t layout_bytes(const struct weight *s, enum cuda_layout layout,
                           struct tile_bytes *planes)
{
    size_t n_rows = (size_t)s->rows * (size_t)s->n_expert;
    *planes = (struct tile_bytes){0};
    switch (layout) {
    case LAYOUT_TILES: *planes = tile_bytes_of(s->format, s->rows, s->cols, s->n_expert); break;
    case LAYOUT_ROWS: planes->quants = n_rows * ((s->row_bytes + 15) / 16 * 16); break;
    case LAYOUT_FILE: planes->quants = n_rows * s->row_bytes; break;
    case LAYOUT_FLOATS: planes->quants = n_rows * (size_t)s->cols * sizeof(float); break;
    }
    return aligned(planes->quants) + aligned(planes->high) + aligned(planes->scale) +
           aligned(planes->minus);
}

/* Whether a table stays in host memory and is read from there. */
static bool is_pinned_at(enum table_place tables, struct uses uses)
{
    return uses.is_table && !uses.is_product && tables == TABLE_PINNED;
}

struct row_table *row_table_of(const struct plan *plan)
{
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = plan->ops[i].code == OP_EMBED ? op_weight(&plan->ops[i]) : NULL;
        if (w && loaded_of(w)->rows) return loaded_of(w)->rows;
    }
    return NULL;
}

static bool is_there(const struct weight *w)
{
    return w->device_data && loaded_of(w)->view.quants;
}

/* The largest table that is only looked up, of those that are not there yet: what was decided once
 * holds, and a plan that was cut may not show all uses. NULL: none. */
static const struct weight *largest_table(const struct plan *plan)
{
    const struct weight *largest = NULL;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].code != OP_EMBED) continue;
        const struct weight *w = op_weight(&plan->ops[i]);
        if (is_there(w) || uses_of(plan, w).is_product) continue;
        if (!largest || w->expert_bytes > largest->expert_bytes) largest = w;
    }
    return largest;
}

/* The one that stays in the file. */
static const struct weight *gathered_table(const struct plan *plan, enum table_place tables)
{
    return tables == TABLE_HOST ? largest_table(plan) : NULL;
}

/* What a table in the file takes: its cache, and what this is filled from. */
static size_t rows_bytes(const struct weight *table, const struct plan *plan,
                         const struct placement *at, bool is_pinned)
{
    return aligned(is_pinned ? gather_bytes(table, plan->rows_max[ROWS_TOKEN])
                             : (size_t)at->cached_rows * table->row_bytes);
}

/* Of the weights that are not there yet: on the device, or pinned on the host. */
static size_t planes_bytes(const struct device *d, const struct plan *plan,
                           const struct placement *at, bool is_pinned)
{
    size_t bytes = 0;
    struct tile_bytes planes;
    const struct weight *gathered = gathered_table(plan, at->tables);
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = first_met(plan, i);
        if (!w || is_there(w)) continue;
        struct uses uses = uses_of(plan, w);
        if (w == gathered)
            bytes += rows_bytes(w, plan, at, is_pinned);
        else if (is_pinned_at(at->tables, uses) == is_pinned)
            bytes += layout_bytes(w, layout_of(d, w, uses), &planes);
    }
    return bytes;
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

/* How kernels see a weight whose first plane is `memory`. */
static struct cuda_weight view_at(const struct weight *s, enum cuda_layout layout, char *memory)
{
    return (struct cuda_weight){
        .format = s->format,
        .layout = layout,
        .n_expert = s->n_expert,
        .rows = (int32_t)s->rows,
        .cols = (int32_t)s->cols,
        .n_groups = (int32_t)((s->rows + TILE_ROWS - 1) / TILE_ROWS),
        .n_ktiles = (int32_t)((s->cols + TILE_COLS - 1) / TILE_COLS),
        .row_bytes =
            (int64_t)(layout == LAYOUT_ROWS ? (s->row_bytes + 15) / 16 * 16 : s->row_bytes),
        .mirror_cols = (int32_t)padded_cols(s->cols),
        .quants = (uint8_t *)memory,
    };
}

/* Cuts a weight's planes from the memory. */
static void place_weight(const struct device *d, const struct plan *plan, enum table_place tables,
                         struct cuda_loaded *w, struct planes_memory *from)
{
    struct tile_bytes planes;
    const struct weight *s = w->source;
    struct uses uses = uses_of(plan, s);
    enum cuda_layout layout = layout_of(d, s, uses);
    w->is_pinned = is_pinned_at(tables, uses);
    char **next = w->is_pinned ? &from->pinned : &from->device, *memory = *next;
    *next += layout_bytes(s, layout, &planes);
    w->view = view_at(s, layout, memory);
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
    w->view = view_at(s, LAYOUT_FILE, from->device);
    from->device += rows_bytes(s, plan, at, false);
    from->pinned += rows_bytes(s, plan, at, true);
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
        if (!source || is_there(source)) continue;
        struct cuda_loaded *w = loaded_of(source);
        w->precision = precision_of(plan, source);
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

/* Tables in the asked place, and of one in the file as many rows on the device as steps need. */
static struct placement least_placement(const struct plan *plan, enum table_place tables)
{
    const struct weight *table = gathered_table(plan, tables);
    struct placement at = {.tables = tables};
    if (table) at.cached_rows = gather_slots(table, plan->rows_max[ROWS_TOKEN], 0);
    return at;
}

int weights_upload(struct device *d, const struct plan *plan, const struct placement *placement,
                   char *staging, struct carat_error *err)
{
    struct upload *u;
    size_t total = 0;
    struct placement least = least_placement(plan, d->options.table_place);
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = first_met(plan, i);
        if (w && !is_there(w)) total += w->expert_bytes * (size_t)w->n_expert;
    }
    if (total == 0) return CARAT_OK;
    TRY(upload_open(&u, d, plan, staging, err));
    int status = upload_all(d, u, plan, placement ? placement : &least, total, err);
    upload_close(u);
    cudaError_t failure = cudaGetLastError();
    if (!status && failure) status = cuda_fail(err, failure, "loading weights");
    return status;
}

/* ---- Mirrors ---------------------------------------------------------------------------- */

/* Small fp32 matrices (a router) decide between near-equal values: they stay exact. */
enum { EXACT_ROWS = 128 };

bool is_multiplied_exactly(const struct weight *w)
{
    return w->format == FORMAT_F32 && w->rows <= EXACT_ROWS && w->n_expert == 1;
}

bool wants_mirror(const struct device *d, const struct plan *plan, const struct weight *w)
{
    if (d->options.is_exact || is_multiplied_exactly(w)) return false;
    struct precision precision = precision_of(plan, w);
    if (is_always_few(precision, w->format)) return false;
    return d->many == ACT_HALF || format_is_float(w->format) || precision.is_half;
}

size_t mirror_bytes_of(const struct weight *w)
{
    return (size_t)w->n_expert * (size_t)w->rows * padded_cols(w->cols) * sizeof(uint16_t);
}

/* Products that a long prompt meets in every chunk: those on token rows. */
static bool is_for_mirror(const struct device *d, const struct plan *plan, const struct op *op)
{
    const struct weight *w = op_product(op);
    return w && !is_for_outs(plan, op) && wants_mirror(d, plan, w) &&
           !(w->device_data && loaded_of(w)->view.mirror);
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
        *bytes += mirror_bytes_of(op_product(&plan->ops[i + n++]));
    return n;
}

static bool has_many_rows(const struct plan *plan)
{
    return plan->rows_max[ROWS_TOKEN] > MATVEC_ROWS_MAX;
}

static size_t mirrors_bytes(const struct device *d, const struct plan *plan, size_t limit)
{
    size_t total = 0, bytes;
    if (!has_many_rows(plan)) return 0;
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
            fill_mirror(d, loaded_of(w), (uint16_t *)(void *)memory);
            memory += mirror_bytes_of(w);
        }
        memory = next;
    }
    return CARAT_OK;
}

/* ---- Placement -------------------------------------------------------------------------- */

static size_t weights_bytes(const struct device *d, const struct plan *plan,
                            const struct placement *at)
{
    return planes_bytes(d, plan, at, false) + (plan->n_ops > 0 ? ARRIVED_BYTES : 0);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
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
    size_t bytes = smaller(left / PART_FOR_ROWS, CACHED_BYTES_MOST);
    if (budget != 0) bytes = budget < 0 ? 0 : (size_t)budget;
    return gather_slots(table, plan->rows_max[ROWS_TOKEN], bytes);
}

static size_t left_of(const struct room *room, size_t taken)
{
    return room->extra_bytes > taken ? room->extra_bytes - taken : 0;
}

void cuda_place_weights(const struct device *d, const struct plan *plan, const struct room *room,
                        struct placement *out)
{
    int64_t budget = d->options.mirror_budget;
    const struct weight *table = largest_table(plan);
    *out = least_placement(plan, table_place_for(d, plan, room));
    if (table && out->tables == TABLE_HOST) {
        size_t left = left_of(room, weights_bytes(d, plan, out));
        out->cached_rows = cached_rows_for(d, plan, table, left);
        out->cached_bytes = rows_bytes(table, plan, out, false);
    }
    size_t weights = weights_bytes(d, plan, out), left = left_of(room, weights);
    if (budget != 0) left = budget < 0 ? 0 : smaller(left, (size_t)budget);
    out->mirror_bytes = mirrors_bytes(d, plan, left);
    out->device_bytes = weights + out->mirror_bytes;
    out->pinned_bytes = STEP_BYTES + BEST_BYTES + planes_bytes(d, plan, out, true);
}
