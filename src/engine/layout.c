#include "engine/layout.h"

#include <string.h>

#include "base/allowance.h"
#include "engine/limits.h"

static int in_range(int32_t value, int32_t least, int32_t most, const char *what,
                    struct carat_error *err)
{
    if (value >= least && value <= most) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: %d to %d expected, %d found", what, least, most, value);
}

/* What `taken` leaves of the memory. */
static uint64_t left_of(uint64_t available, uint64_t taken)
{
    return available > taken ? available - taken : 0;
}

static int check_cache_formats(const struct layout *y, const struct backend *backend,
                               struct carat_error *err)
{
    const enum format formats[] = {y->kv_format, y->kv_format_global};
    for (int i = 0; i < 2; i++) {
        if (backend->supports(OP_ATTENTION, formats[i])) continue;
        err_set(err, CARAT_EUSAGE, "KV type %s: not on %s", format_of(formats[i])->name,
                backend->name);
        err_hint(err, "take --kv-type f16");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static int choose_options(struct layout *y, const struct gemma_config *c,
                          const struct carat_engine_options *o, struct carat_error *err)
{
    const struct backend *backend = y->targets[SITE_NEAR].backend;
    int32_t n_ctx_train = c->n_ctx_train;
    int32_t least = n_ctx_train < CTX_MIN ? n_ctx_train : CTX_MIN;
    y->n_seq = o->n_seq ? o->n_seq : 1;
    y->chunk = o->chunk ? o->chunk : backend->chunk;
    TRY(in_range(y->n_seq, 1, SEQUENCES_MAX, "number of sequences", err));
    TRY(in_range(y->chunk, 1, CHUNK_MAX, "rows of a prefill step", err));
    if (o->n_ctx) TRY(in_range(o->n_ctx, least, n_ctx_train, "context size", err));
    TRY(in_range(o->gpu_memory_percent, 0, 100, "percent of the GPU's memory", err));
    if (o->gpu_memory < 0)
        return err_set(err, CARAT_EUSAGE,
                       "bytes of the GPU's memory: 0 or more expected, %lld found",
                       (long long)o->gpu_memory);
    y->score_rows = y->chunk < SCORE_ROWS ? y->chunk : SCORE_ROWS;
    switch (o->kv_type) {
    case CARAT_KV_F16:
    case CARAT_KV_Q8_0: y->kv_format = FORMAT_F16; break;
    case CARAT_KV_F32: y->kv_format = FORMAT_F32; break;
    case CARAT_KV_BF16: y->kv_format = FORMAT_BF16; break;
    default: y->kv_format = o->precision == CARAT_PRECISION_FP32 ? FORMAT_F32 : backend->kv_format;
    }
    y->kv_format_global = o->kv_type == CARAT_KV_Q8_0 ? FORMAT_Q8_0 : y->kv_format;
    TRY(check_cache_formats(y, backend, err));
    if (c->head_dim_global % format_of(y->kv_format_global)->block_elements)
        return err_set(err, CARAT_EUSAGE,
                       "KV type q8_0: heads of a multiple of 32 expected, %d found",
                       c->head_dim_global);
    return CARAT_OK;
}

/* ---- Devices ---------------------------------------------------------------------------- */

/* What may be taken: what is free, and of a GPU no more than is allowed. */
static void allow(struct site_memory *m, const struct device_facts *facts,
                  const struct carat_engine_options *o)
{
    uint64_t part = (uint64_t)facts->memory_total * (uint64_t)o->gpu_memory_percent / 100;
    uint64_t limit = UINT64_MAX;
    if (o->gpu_memory > 0) limit = (uint64_t)o->gpu_memory;
    if (o->gpu_memory_percent > 0 && part < limit) limit = part;
    m->total = facts->memory_total;
    m->available = left_of(facts->memory_available, facts->memory_reserve);
    m->driver = facts->memory_reserve;
    m->is_limited = o->gpu_memory > 0 || o->gpu_memory_percent > 0;
    if (m->is_limited) m->driver += facts->memory_context;
    if (left_of(limit, m->driver) < m->available) m->available = left_of(limit, m->driver);
}

static int open_target(struct layout *y, enum site site, const char *name,
                       const struct carat_engine_options *o, struct carat_error *err)
{
    struct target *t = &y->targets[site];
    struct device_facts facts;
    struct device_options device = {.n_threads = o->n_threads,
                                    .is_pinned = o->pin_threads,
                                    .takes_turns = site == SITE_FAR,
                                    .is_exact = o->precision == CARAT_PRECISION_FP32,
                                    .matmul = (enum matmul_kind)o->matmul,
                                    .table_place = (enum table_place)o->ple_place,
                                    .mirror_budget = o->mirror_budget,
                                    .cache_budget = o->ple_cache,
                                    .is_profiled = o->profile,
                                    .has_no_graphs = o->no_graphs,
                                    .has_no_cublas = o->no_cublas,
                                    .is_unfused = o->no_fusion,
                                    .progress = o->progress,
                                    .progress_user = o->progress_user};
    TRY(backend_find(&t->backend, name, err));
    TRY(t->backend->open(&t->device, site == SITE_NEAR ? o->device : 0, &device, err));
    t->backend->describe(t->device, &facts);
    memcpy(y->device_names[site], facts.name, sizeof facts.name);
    static const struct carat_engine_options unlimited;
    allow(&y->sites[site], &facts, t->backend->is_host ? &unlimited : o);
    struct device_limits limits; /* the device remembers them */
    if ((o->measure_limits || o->profile) && site == SITE_NEAR && t->backend->measure_limits)
        t->backend->measure_limits(t->device, y->sites[site].available, &limits);
    return CARAT_OK;
}

/* Divides the pass, and opens the second device when it is the first time that one is needed. */
static int divide(struct layout *y, const struct layout_source *from, int32_t n_near,
                  const struct carat_engine_options *o, struct carat_error *err)
{
    const struct gemma_config *c = from->model.config;
    y->split = split_with_rest(c, n_near, y->n_far_experts);
    if (!split_uses(c, &y->split, SITE_FAR) || y->targets[SITE_FAR].device) return CARAT_OK;
    TRY(open_target(y, SITE_FAR, "cpu", o, err));
    TRY(check_cache_formats(y, y->targets[SITE_FAR].backend, err));
    y->weights[SITE_FAR] = from->near;
    if (!from->far) return CARAT_OK;
    struct buf note = {0};
    y->weights[SITE_FAR] = from->far;
    int status = weights_bind(from->far, c, from->model.gguf, from->arena, &note, err);
    buf_deinit(&note);
    return status;
}

/* ---- Memory ----------------------------------------------------------------------------- */

/* Keys, and values, of each layer begin at multiples of so many bytes. */
enum { CACHE_ALIGNMENT = 256 };

void layout_shape_caches(struct layout *y, const struct gemma_config *c, int32_t n_ctx)
{
    y->n_ctx = n_ctx;
    for (int i = 0; i < SITE_COUNT; i++) y->sites[i].kv_local = y->sites[i].kv_global = 0;
    for (int32_t l = 0; l < c->n_kv_layer; l++) {
        const struct layer_spec *s = &c->layer[l];
        struct site_memory *m = &y->sites[y->split.layer[l]];
        int32_t capacity = gemma_kv_capacity(c, l, n_ctx, y->chunk);
        enum format format = s->is_global ? y->kv_format_global : y->kv_format;
        y->caches[l] = kv_cache_shape(format, capacity, s->n_kv_heads, s->head_dim);
        uint64_t bytes = bytes_multiply((uint64_t)y->n_seq * (uint64_t)capacity,
                                        (uint64_t)kv_cell_bytes(&y->caches[l]));
        y->k_bytes[l] = bytes_add(bytes, CACHE_ALIGNMENT - 1) / CACHE_ALIGNMENT * CACHE_ALIGNMENT;
        uint64_t *sum = s->is_global ? &m->kv_global : &m->kv_local;
        *sum = bytes_add(*sum, bytes_multiply(2, y->k_bytes[l]));
    }
}

/* Caches that are chosen by us take 9 tenths of what the rest leaves. */
static bool caches_fit(const struct layout *y, const uint64_t *left)
{
    return layout_kv_bytes(&y->sites[SITE_NEAR]) <= left[SITE_NEAR] / 10 * 9 &&
           layout_kv_bytes(&y->sites[SITE_FAR]) <= left[SITE_FAR] / 10 * 9;
}

static const int32_t usual[] = {131072, 32768, 8192, 4096};
enum { N_USUAL = sizeof usual / sizeof *usual };

/* The largest usual context whose caches fit. */
static int32_t choose_context(struct layout *y, const struct gemma_config *c, const uint64_t *left)
{
    int32_t n_ctx = c->n_ctx_train;
    layout_shape_caches(y, c, n_ctx);
    for (size_t i = 0; i < N_USUAL && !caches_fit(y, left); i++) {
        if (usual[i] >= c->n_ctx_train) continue;
        n_ctx = usual[i];
        layout_shape_caches(y, c, n_ctx);
    }
    return n_ctx;
}

static int compile(struct layout *y, const struct gemma_config *c, struct carat_error *err)
{
    struct plan_source from = {.targets = y->targets,
                               .config = c,
                               .weights = {y->weights[SITE_NEAR], y->weights[SITE_FAR]},
                               .caches = y->caches,
                               .split = y->split};
    plans_deinit(&y->plans, y->targets);
    return plans_compile(&y->plans, &from, y->n_seq, y->chunk, y->score_rows, err);
}

/* Of the host: ids and positions of a step. */
static uint64_t step_bytes(const struct layout *y)
{
    return (uint64_t)(y->chunk + y->n_seq) * 4 * sizeof(int32_t);
}

/* Other programs want some of a device too: what only makes it faster leaves them a tenth, unless
 * somebody has said how much may be taken. */
enum { PART_FOR_OTHERS = 10 };

/* What the host needs besides the table: rows of logits that requests choose tokens from, and a few
 * megabytes for requests, stacks and the tables of the pages themselves. A process that takes its
 * group's last byte is killed, without a word. */
enum { HOST_REST = 4 << 20 };

static uint64_t host_rest(const struct layout *y)
{
    return HOST_REST + (uint64_t)(y->n_seq + 1) * (uint64_t)y->config->n_vocab * sizeof(float);
}

static uint64_t taken_on(const struct layout *y, enum site site)
{
    const struct site_memory *m = &y->sites[site];
    return bytes_add(layout_kv_bytes(m), m->buffers + y->placements[site].device_bytes);
}

static uint64_t needed_on(const struct layout *y, enum site site)
{
    uint64_t taken = taken_on(y, site);
    if (!y->targets[site].backend->is_host) return taken;
    return taken + taken / 256 + step_bytes(y) + host_rest(y);
}

/* What a device pins of the host's memory has to be there beside what the CPU computes in. */
static uint64_t left_on_host(const struct layout *y)
{
    bool is_shared = y->targets[SITE_FAR].device;
    return is_shared ? left_of(y->sites[SITE_FAR].available, needed_on(y, SITE_FAR))
                     : allowed_memory();
}

/* Where the weights of a site go when `others` of its memory is taken by all else. Half of what the
 * host has left may be pinned: nobody else gets it back. */
static void place(struct layout *y, enum site site, uint64_t others)
{
    const struct site_memory *m = &y->sites[site];
    uint64_t left = left_of(m->available, others);
    uint64_t for_others = m->is_limited ? 0 : m->total / PART_FOR_OTHERS;
    struct room room = {.bytes = left, .extra_bytes = left_of(left, for_others)};
    if (site == SITE_NEAR) room.pinned_bytes = left_on_host(y) / 2;
    plans_place(&y->plans, &y->targets[site], site, &room, &y->placements[site]);
}

/* What the plans take for this context. */
static int measure(struct layout *y, const struct gemma_config *c, int32_t n_ctx,
                   struct carat_error *err)
{
    layout_shape_caches(y, c, n_ctx);
    TRY(compile(y, c, err));
    for (int i = SITE_COUNT - 1; i >= 0; i--) { /* the first place asks what the host has left */
        struct site_memory *m = &y->sites[i];
        m->buffers = y->plans.bytes[i] + y->plans.scratch_bytes[i];
        place(y, (enum site)i, layout_kv_bytes(m) + m->buffers);
    }
    return CARAT_OK;
}

static bool fits(const struct layout *y, enum site site)
{
    return !y->targets[site].device || needed_on(y, site) <= y->sites[site].available;
}

static int check_pinned(const struct layout *y, struct carat_error *err)
{
    uint64_t available = left_on_host(y);
    uint64_t pinned = y->placements[SITE_NEAR].pinned_bytes;
    if (pinned <= available) return CARAT_OK;
    err_set(err, CARAT_EMEMORY,
            "%.1f MB of pinned host memory needed for tables and steps, %.1f MB available",
            (double)pinned / 1e6, (double)available / 1e6);
    err_hint(err, "take --ple host, or a smaller chunk (-b)");
    return CARAT_EMEMORY;
}

static bool all_fits(const struct layout *y)
{
    return fits(y, SITE_NEAR) && fits(y, SITE_FAR);
}

static int check_memory(const struct layout *y, struct carat_error *err)
{
    if (all_fits(y)) return check_pinned(y, err);
    enum site site = fits(y, SITE_NEAR) ? SITE_FAR : SITE_NEAR;
    err_set(err, CARAT_EMEMORY,
            "context of %d positions for %d sequence%s: %.1f MB needed, %.1f MB of them for "
            "weights in the form of %s; %.1f MB available",
            y->n_ctx, y->n_seq, y->n_seq == 1 ? "" : "s", (double)needed_on(y, site) / 1e6,
            (double)y->placements[site].device_bytes / 1e6, y->targets[site].backend->name,
            (double)y->sites[site].available / 1e6);
    err_hint(err, "take a smaller context (-c), fewer sequences, or %s%s",
             y->targets[SITE_FAR].device ? "other --gpu-layers" : "--kv-type q8_0",
             y->sites[site].is_limited ? "; --gpu-memory allows no more" : "");
    return CARAT_EMEMORY;
}

/* Plans come first with the longest context: they tell what buffers, and weights at least, need.
 * A longer context is worth more than tables on the device. */
static int measure_longest(struct layout *y, const struct gemma_config *c, struct carat_error *err)
{
    uint64_t left[SITE_COUNT];
    layout_shape_caches(y, c, c->n_ctx_train);
    TRY(compile(y, c, err));
    for (int i = SITE_COUNT - 1; i >= 0; i--) {
        uint64_t buffers = y->plans.bytes[i] + y->plans.scratch_bytes[i];
        place(y, (enum site)i, y->sites[i].available);
        uint64_t rest = y->targets[i].backend && y->targets[i].backend->is_host ? host_rest(y) : 0;
        left[i] = left_of(y->sites[i].available, buffers + y->placements[i].device_bytes + rest);
    }
    return measure(y, c, choose_context(y, c, left), err);
}

/* As many layers near as fit there, when not all do. Of a context that nobody asked for this takes
 * the least usual one: weights on the faster device are worth more than positions. */
static int measure_largest(struct layout *y, const struct layout_source *from,
                           const struct carat_engine_options *o, struct carat_error *err)
{
    const struct gemma_config *c = from->model.config;
    int32_t least = 0, most = c->n_layer, n_ctx = o->n_ctx ? o->n_ctx : usual[N_USUAL - 1];
    if (n_ctx > c->n_ctx_train) n_ctx = c->n_ctx_train;
    while (most - least > 1) { /* `least` fits, `most` does not */
        int32_t middle = (least + most) / 2;
        TRY(divide(y, from, middle, o, err));
        TRY(measure(y, c, n_ctx, err));
        *(fits(y, SITE_NEAR) ? &least : &most) = middle;
    }
    TRY(divide(y, from, least, o, err));
    return measure(y, c, n_ctx, err);
}

/* All of the pass near, or as it was divided by the user. */
static int measure_whole(struct layout *y, const struct layout_source *from,
                         const struct carat_engine_options *o, struct carat_error *err)
{
    const struct gemma_config *c = from->model.config;
    return o->n_ctx ? measure(y, c, o->n_ctx, err) : measure_longest(y, c, err);
}

/* Of a context that somebody asked for, caches may be narrower if nobody asked for their type. */
static bool may_narrow(const struct layout *y, const struct gemma_config *c,
                       const struct carat_engine_options *o)
{
    if (!o->n_ctx || o->kv_type != CARAT_KV_AUTO || y->kv_format != FORMAT_F16) return false;
    for (int i = 0; i < SITE_COUNT; i++)
        if (y->targets[i].device && !y->targets[i].backend->supports(OP_ATTENTION, FORMAT_Q8_0))
            return false;
    return c->head_dim_global % format_of(FORMAT_Q8_0)->block_elements == 0;
}

typedef int (*measure_fn)(struct layout *y, const struct layout_source *from,
                          const struct carat_engine_options *o, struct carat_error *err);

/* Measures in one of the two ways. If that does not fit, and does with narrower caches of global
 * layers, these are taken. */
static int measure_narrowing(struct layout *y, const struct layout_source *from,
                             const struct carat_engine_options *o, measure_fn way,
                             struct carat_error *err)
{
    TRY(way(y, from, o, err));
    if (all_fits(y) || !may_narrow(y, from->model.config, o)) return CARAT_OK;
    y->kv_format_global = FORMAT_Q8_0;
    TRY(way(y, from, o, err));
    if (all_fits(y)) return CARAT_OK;
    y->kv_format_global = y->kv_format;
    return way(y, from, o, err);
}

static void fill_memory(struct layout *y)
{
    const struct site_memory *near = &y->sites[SITE_NEAR];
    const struct placement *placed = &y->placements[SITE_NEAR];
    uint64_t mapped = y->weights[SITE_NEAR]->bytes_mapped;
    y->memory = (struct carat_memory){
        .weights_mapped = mapped,
        .weights = placed->device_bytes,
        .mirrors = placed->mirror_bytes,
        .ple_cache = placed->cached_bytes,
        .kv_local = near->kv_local,
        .kv_global = near->kv_global,
        .buffers = near->buffers,
        .step = step_bytes(y),
        .pinned = placed->pinned_bytes,
        .total = bytes_add(taken_on(y, SITE_NEAR), mapped + step_bytes(y) + placed->pinned_bytes),
        .driver = near->driver,
        .available = near->available,
        .kv_type = y->setup.kv_type,
        .kv_is_narrowed = y->setup.kv_reason == CARAT_REASON_MEMORY,
        .n_ctx = y->n_ctx,
        .gpu_layers = split_count_layers(y->config, &y->split, SITE_NEAR),
    };
    if (!y->targets[SITE_FAR].device) return;
    y->memory.second_total = taken_on(y, SITE_FAR);
    y->memory.second_available = y->sites[SITE_FAR].available;
}

static int fill_layout(struct layout *y, const struct layout_source *from,
                       const struct carat_engine_options *o, struct carat_error *err)
{
    const struct gemma_config *c = from->model.config;
    TRY(open_target(y, SITE_NEAR, o->backend ? o->backend : backend_default()->name, o, err));
    TRY(choose_options(y, c, o, err));
    y->weights[SITE_NEAR] = from->near;
    /* A host's own backend has nothing to gain from a second one, unless a test asks for it. */
    bool may_divide = o->gpu_layers || !y->targets[SITE_NEAR].backend->is_host;
    y->n_far_experts = c->n_expert > 0 && may_divide ? o->cpu_expert_layers : 0;
    int32_t asked = o->gpu_layers < 0 ? 0 : o->gpu_layers;
    TRY(divide(y, from, o->gpu_layers ? asked : c->n_layer, o, err));
    TRY(measure_narrowing(y, from, o, measure_whole, err));
    if (!fits(y, SITE_NEAR) && may_divide && !o->gpu_layers) {
        y->whole_bytes = needed_on(y, SITE_NEAR);
        TRY(measure_narrowing(y, from, o, measure_largest, err));
    }
    layout_describe(y, c, o, &y->setup);
    fill_memory(y);
    return check_memory(y, err);
}

int layout_init(struct layout *y, const struct layout_source *from,
                const struct carat_engine_options *options, struct carat_error *err)
{
    static const struct carat_engine_options defaults;
    *y = (struct layout){.config = from->model.config};
    int status = fill_layout(y, from, options ? options : &defaults, err);
    if (status) layout_deinit(y);
    return status;
}

void layout_deinit(struct layout *y)
{
    plans_deinit(&y->plans, y->targets);
    for (int i = 0; i < SITE_COUNT; i++) {
        if (y->targets[i].device) y->targets[i].backend->close(y->targets[i].device);
        y->targets[i].device = NULL;
    }
}
