#include "engine/fit.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "engine/budget.h"
#include "engine/draft.h"
#include "engine/limits.h"
#include "engine/setup.h"

/* ---- Options ---------------------------------------------------------------------------- */

static int in_range(int32_t value, int32_t least, int32_t most, const char *what,
                    struct carat_error *err)
{
    if (value >= least && value <= most) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: %d to %d expected, %d found", what, least, most, value);
}

static int check_cache_formats(const struct layout *y, const struct backend *backend,
                               struct carat_error *err)
{
    const enum format formats[] = {y->kv_format, y->kv_format_global};
    for (int i = 0; i < 2; i++) {
        if (backend->supports(OP_ATTENTION, formats[i])) continue;
        err_set(err, CARAT_EUSAGE, "KV type %s: not supported on %s",
                format_traits(formats[i])->name, backend->name);
        err_hint(err, "take --kv-type f16");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static int choose_cache_formats(struct layout *y, const struct carat_engine_options *o,
                                struct carat_error *err)
{
    const struct backend *backend = y->targets[FIRST_TARGET].backend;
    switch (o->kv_type) {
    case CARAT_KV_F16:
    case CARAT_KV_Q8_0: y->kv_format = FORMAT_F16; break;
    case CARAT_KV_F32: y->kv_format = FORMAT_F32; break;
    case CARAT_KV_BF16: y->kv_format = FORMAT_BF16; break;
    default: y->kv_format = o->precision == CARAT_PRECISION_FP32 ? FORMAT_F32 : backend->kv_format;
    }
    y->kv_format_global = o->kv_type == CARAT_KV_Q8_0 ? FORMAT_Q8_0 : y->kv_format;
    TRY(check_cache_formats(y, backend, err));
    if (y->config->head_dim_global % format_traits(y->kv_format_global)->block_elements)
        return err_set(err, CARAT_EUSAGE,
                       "KV type q8_0: heads of a multiple of 32 expected, %d found",
                       y->config->head_dim_global);
    return CARAT_OK;
}

/* The most rows of a step. If the user wants the same bits in every step, a step has either only
 * prompt rows or only decode rows, or so few rows that all devices compute them alike. */
static void choose_rows(struct layout *y, int32_t n_draft, bool is_steady)
{
    for (int32_t i = 0; i < y->n_targets; i++) {
        int32_t alike = y->targets[i].alike_rows;
        if (alike > 0 && (y->alike_rows == 0 || alike < y->alike_rows)) y->alike_rows = alike;
    }
    bool may_be_many = y->drafter && (y->alike_rows == 0 || y->n_seq > y->alike_rows);
    int32_t most = may_be_many ? DRAFT_ROWS : DRAFT_FEW_ROWS;
    if (!may_be_many && y->alike_rows > 0 && y->alike_rows < most) most = y->alike_rows;
    y->draft_rows = y->n_seq * (1 + n_draft);
    if (y->draft_rows > most) y->draft_rows = most;
    y->decode_rows = y->draft_rows > y->n_seq ? y->draft_rows : y->n_seq;
    y->step_rows = y->chunk + y->decode_rows;
    if (!is_steady) return;
    y->is_apart = y->targets[FIRST_TARGET].is_apart;
    if (y->is_apart) return;
    if (y->chunk > STEADY_ROWS) y->chunk = STEADY_ROWS;
    if (y->step_rows > STEADY_ROWS) y->step_rows = STEADY_ROWS;
}

static int choose_options(struct layout *y, const struct layout_source *from,
                          const struct carat_engine_options *o, struct carat_error *err)
{
    int32_t n_ctx_train = y->config->n_ctx_train;
    int32_t least = n_ctx_train < CTX_MIN ? n_ctx_train : CTX_MIN;
    y->n_seq = o->n_seq ? o->n_seq : 1;
    y->chunk = o->chunk ? o->chunk : y->targets[FIRST_TARGET].backend->chunk;
    TRY(in_range(y->n_seq, 1, SEQUENCES_MAX, "number of sequences", err));
    TRY(in_range(y->chunk, 1, CHUNK_MAX, "rows of a prefill step", err));
    choose_rows(y, o->n_draft, o->deterministic);
    if (o->n_ctx && in_range(o->n_ctx, least, n_ctx_train, "context size", err) != CARAT_OK) {
        err_hint(err, "the model has %d positions", n_ctx_train);
        return CARAT_EUSAGE;
    }
    TRY(in_range(o->gpu_memory_percent, 0, 100, "percent of the GPU's memory", err));
    if (o->gpu_memory < 0)
        return err_set(err, CARAT_EUSAGE,
                       "bytes of the GPU's memory: 0 or more expected, %lld found",
                       (long long)o->gpu_memory);
    if (o->cache_bytes < 0)
        return err_set(err, CARAT_EUSAGE, "bytes of the cache: 0 or more expected, %lld found",
                       (long long)o->cache_bytes);
    if (o->cache_split)
        TRY(in_range(o->cache_split, KV_PAGE, CACHE_SPLIT_MAX, "positions of an anchor", err));
    y->shares_pages = from->shares_pages;
    y->has_no_anchors = o->no_prefix_cache;
    y->cache_bytes = (uint64_t)o->cache_bytes;
    y->cache_split = o->cache_split ? o->cache_split : CACHE_SPLIT;
    y->outs_max = y->chunk < from->outs_max ? y->chunk : from->outs_max;
    return choose_cache_formats(y, o, err);
}

/* ---- Devices ---------------------------------------------------------------------------- */

/* Views of the weights that are the target's own. */
static int bind_weights(const struct layout *y, const struct layout_source *from, struct target *t,
                        struct carat_error *err)
{
    struct buf note = {0};
    t->weights = &t->own;
    int status = weights_bind(&t->own, y->config, from->gguf, from->arena, &note, err);
    if (!status && from->drafter) {
        struct weights_file model = {y->config, from->gguf, &t->own};
        t->draft_weights = &t->draft;
        status = weights_bind_drafter(&t->draft, y->drafter, from->drafter->gguf, &model,
                                      from->arena, &note, err);
    }
    buf_deinit(&note);
    return status;
}

static int open_target(struct layout *y, const struct layout_source *from,
                       const struct target_choice *choice, const struct carat_engine_options *o,
                       struct carat_error *err)
{
    carat_assert(y->n_targets < SITES_MAX);
    struct target *t = &y->targets[y->n_targets];
    struct target_choice chosen = *choice;
    chosen.has_layer_inputs = y->config->n_ple > 0;
    chosen.has_drafter = y->drafter && y->config->n_expert == 0;
    TRY(target_open(t, &chosen, o, err));
    y->n_targets++;
    t->weights = from->weights;
    t->draft_weights = from->drafter ? from->drafter->weights : NULL;
    return from->arena ? bind_weights(y, from, t, err) : CARAT_OK;
}

static int open_first(struct layout *y, const struct layout_source *from,
                      const struct carat_engine_options *o, struct carat_error *err)
{
    struct target_choice first = {.backend = o->backend ? o->backend : backend_default()->name,
                                  .device = o->device,
                                  .is_first = true};
    if (from->n_parts > 0) {
        first.backend = from->parts[0].backend;
        first.device = from->parts[0].device;
    }
    TRY(open_target(y, from, &first, o, err));
    return choose_options(y, from, o, err);
}

static int open_other(struct layout *y, const struct layout_source *from, const char *backend,
                      int32_t device, const struct carat_engine_options *o, struct carat_error *err)
{
    struct target_choice other = {.backend = backend, .device = device};
    TRY(open_target(y, from, &other, o, err));
    const struct target *t = &y->targets[y->n_targets - 1], *first = &y->targets[FIRST_TARGET];
    if (o->deterministic && !t->backend->is_host && t->is_apart != first->is_apart)
        return err_set(err, CARAT_EUSAGE,
                       "deterministic: GPUs of one kind expected, %s and %s found", first->name,
                       t->name);
    return check_cache_formats(y, t->backend, err);
}

/* Divides the pass in two. The second device is opened the first time that it is needed. */
static int divide(struct layout *y, const struct layout_source *from, int32_t n_first,
                  const struct carat_engine_options *o, struct carat_error *err)
{
    y->split = split_with_rest(y->config, n_first, y->n_far_experts);
    if (!split_uses(y->config, &y->split, REST_TARGET) || y->n_targets > REST_TARGET)
        return CARAT_OK;
    return open_other(y, from, "cpu", 0, o, err);
}

/* Divides the pass as the parts say. */
static int divide_in_order(struct layout *y, const struct layout_source *from,
                           const struct carat_engine_options *o, struct carat_error *err)
{
    int32_t n_layers[SITES_MAX] = {0};
    for (int32_t i = 0; i < from->n_parts; i++) {
        const struct layout_part *part = &from->parts[i];
        n_layers[i] = part->n_layers;
        if (i > 0) TRY(open_other(y, from, part->backend, part->device, o, err));
    }
    y->split = split_in_order(y->config, n_layers, from->n_parts);
    if (split_is_sound(y->config, &y->split)) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE,
                   "layers that read the keys of another layer have to be on its device");
}

/* ---- Sizes ------------------------------------------------------------------------------ */

/* What determines the sizes of pools. Page bytes are those of the first device that has any. */
static struct pools_shape pools_shape(const struct layout *y)
{
    int32_t site = 0;
    while (site < y->n_targets - 1 && !y->caches.page_bytes[site][KV_LOCAL] &&
           !y->caches.page_bytes[site][KV_GLOBAL])
        site++;
    struct pools_shape s = {.n_seq = y->n_seq,
                            .chunk = y->chunk,
                            .window_pages = y->caches.window_pages,
                            .anchor_pages = y->caches.anchor_pages,
                            .split = y->cache_split};
    for (int kind = 0; kind < KV_KINDS; kind++) {
        s.slots[kind] = y->caches.slots[kind];
        s.page_bytes[kind] = y->caches.page_bytes[site][kind];
    }
    return s;
}

static void set_pools(struct layout *y, const struct pools *pools)
{
    y->pools = *pools;
    caches_set_pools(&y->caches, pools->n_pages, y->targets, y->n_targets);
}

/* Caches for this context, with pools of the size that they should have. */
static void plan_caches(struct layout *y, int32_t n_ctx)
{
    y->n_ctx = n_ctx;
    struct caches_shape shape = {.n_ctx = n_ctx,
                                 .n_seq = y->n_seq,
                                 .chunk = y->chunk,
                                 .local = y->kv_format,
                                 .global = y->kv_format_global,
                                 .turned = y->targets[FIRST_TARGET].weights->turned};
    caches_plan(&y->caches, y->config, &shape, &y->split);
    struct pools_shape s = pools_shape(y);
    struct pools pools = y->shares_pages ? pools_full(&s) : pools_fixed(&s);
    if (y->shares_pages && y->cache_bytes) {
        pools = pools_within(&s, 0, false);
        y->cache_bytes_least = pools_bytes(&s, &pools);
        pools = pools_within(&s, y->cache_bytes, !y->has_no_anchors);
    }
    set_pools(y, &pools);
}

static bool is_cache_too_small(const struct layout *y)
{
    return y->shares_pages && y->cache_bytes && y->cache_bytes < y->cache_bytes_least;
}

static int check_cache_bytes(const struct layout *y, struct carat_error *err)
{
    if (!is_cache_too_small(y)) return CARAT_OK;
    err_set(err, CARAT_EMEMORY,
            "cache of %.1f MB: one sequence of %d positions needs %.1f MB in steps of %d rows",
            (double)y->cache_bytes / 1e6, y->n_ctx, (double)y->cache_bytes_least / 1e6, y->chunk);
    err_hint(err, "take a larger --cache-memory, a smaller context (-c) or a smaller chunk (-b)");
    return CARAT_EMEMORY;
}

static int compile(struct layout *y, struct carat_error *err)
{
    struct plan_source from = {.targets = y->targets,
                               .n_targets = y->n_targets,
                               .config = y->config,
                               .drafter = y->drafter,
                               .caches = y->caches.cache,
                               .split = &y->split,
                               .step_rows = y->step_rows,
                               .decode_rows = y->decode_rows};
    plans_deinit(&y->plans, y->targets);
    TRY(plans_compile(&y->plans, &from, y->n_seq, y->chunk, y->outs_max, err));
    for (int32_t i = 0; i < y->n_targets; i++) {
        y->targets[i].buffers = y->plans.bytes[i] + y->plans.scratch_bytes[i];
        y->targets[i].drafter = y->plans.draft_bytes[i];
    }
    return CARAT_OK;
}

/* Places the weights in what caches and buffers leave. */
static void place_weights(struct layout *y)
{
    uint64_t others[SITES_MAX];
    for (int32_t i = 0; i < y->n_targets; i++)
        others[i] = bytes_add(target_kv_bytes(&y->targets[i]),
                              y->targets[i].buffers + y->targets[i].drafter);
    budget_place(y, others);
}

/* All contexts together may exceed the global pool. If a pool for all sequences at full length does
 * not fit, it gets the memory that there is, at least enough for one sequence. */
static void shrink_pools(struct layout *y)
{
    if (!y->shares_pages || y->cache_bytes || budget_all_fits(y)) return;
    struct pools_shape s = pools_shape(y);
    struct pools least = pools_least(&s), pools = y->pools;
    uint64_t surplus = 0;
    for (int32_t i = 0; i < y->n_targets; i++) {
        uint64_t needed = budget_needed(y, i), page = y->caches.page_bytes[i][KV_GLOBAL];
        if (budget_fits(y, i) || page == 0) continue;
        uint64_t pages = (needed - y->targets[i].available - 1) / page + 1;
        if (pages > surplus) surplus = pages;
    }
    uint64_t spare = (uint64_t)(pools.n_pages[KV_GLOBAL] - least.n_pages[KV_GLOBAL]);
    pools.n_pages[KV_GLOBAL] -= (int32_t)(surplus < spare ? surplus : spare);
    set_pools(y, &pools);
    place_weights(y);
}

/* Measures what everything takes with this context. */
static int measure_layout(struct layout *y, int32_t n_ctx, struct carat_error *err)
{
    plan_caches(y, n_ctx);
    TRY(compile(y, err));
    place_weights(y);
    shrink_pools(y);
    return CARAT_OK;
}

/* Anchors to add if the user set no limit: as many as go with the global pool, at least
 * ANCHORS_MIN. They may take an eighth of what is left on each device; ANCHORS_MIN of them may take
 * a quarter. What only makes products faster comes after them. */
static int32_t count_anchors(const struct layout *y)
{
    struct pools_shape s = pools_shape(y);
    uint64_t n = (uint64_t)pools_anchors_wanted(&s, &y->pools);
    if (n < ANCHORS_MIN) n = ANCHORS_MIN;
    for (int32_t i = 0; i < y->n_targets; i++) {
        const struct target *t = &y->targets[i];
        uint64_t anchor =
            bytes_multiply((uint64_t)y->caches.anchor_pages, y->caches.page_bytes[i][KV_LOCAL]);
        uint64_t optional = t->placement.mirror_bytes + t->placement.cached_bytes;
        uint64_t left = bytes_left(t->available, budget_needed(y, i) - optional);
        if (anchor == 0) continue;
        uint64_t most = left / 8 / anchor;
        if (most < ANCHORS_MIN && left / 4 / anchor >= ANCHORS_MIN) most = ANCHORS_MIN;
        if (most < n) n = most;
    }
    return (int32_t)n;
}

static void add_anchors(struct layout *y)
{
    if (!y->shares_pages || y->cache_bytes || y->has_no_anchors || !budget_all_fits(y)) return;
    struct pools_shape s = pools_shape(y);
    struct pools before = y->pools, pools = before;
    pools_add_anchors(&s, &pools, count_anchors(y));
    set_pools(y, &pools);
    place_weights(y);
    if (budget_all_fits(y)) return;
    set_pools(y, &before);
    place_weights(y);
}

/* A context that we choose may give caches nine tenths of what everything else leaves. */
static bool caches_fit(const struct layout *y, const uint64_t *left)
{
    if (is_cache_too_small(y)) return false;
    for (int32_t i = 0; i < y->n_targets; i++)
        if (target_kv_bytes(&y->targets[i]) > left[i] / 10 * 9) return false;
    return true;
}

static const int32_t usual[] = {131072, 32768, 8192, 4096};
enum { N_USUAL = sizeof usual / sizeof *usual };

/* The largest usual context whose caches fit. */
static int32_t choose_context(struct layout *y, const uint64_t *left)
{
    int32_t n_ctx = y->config->n_ctx_train;
    plan_caches(y, n_ctx);
    for (size_t i = 0; i < N_USUAL && !caches_fit(y, left); i++) {
        if (usual[i] >= y->config->n_ctx_train) continue;
        n_ctx = usual[i];
        plan_caches(y, n_ctx);
    }
    return n_ctx;
}

/* Compiles with the longest context first, to learn what buffers need and what weights need at
 * least. The context is chosen before optional tables are placed: it is worth more. */
static int measure_longest(struct layout *y, struct carat_error *err)
{
    uint64_t others[SITES_MAX], left[SITES_MAX];
    plan_caches(y, y->config->n_ctx_train);
    TRY(compile(y, err));
    for (int32_t i = 0; i < y->n_targets; i++) others[i] = y->targets[i].available;
    budget_place(y, others);
    for (int32_t i = 0; i < y->n_targets; i++) {
        const struct target *t = &y->targets[i];
        uint64_t rest = t->backend->is_host ? budget_host_rest(y) : 0;
        left[i] =
            bytes_left(t->available, t->buffers + t->drafter + t->placement.device_bytes + rest);
    }
    return measure_layout(y, choose_context(y, left), err);
}

/* Measures the pass as it is divided already. */
static int measure_divided(struct layout *y, const struct layout_source *from,
                           const struct carat_engine_options *o, struct carat_error *err)
{
    (void)from;
    return o->n_ctx ? measure_layout(y, o->n_ctx, err) : measure_longest(y, err);
}

/* Puts as many layers on the first device as fit there, when not all do. If the user gave no
 * context size, uses the smallest of `usual`: weights on the faster device are worth more than
 * positions. */
static int measure_largest(struct layout *y, const struct layout_source *from,
                           const struct carat_engine_options *o, struct carat_error *err)
{
    int32_t n_ctx_train = y->config->n_ctx_train;
    int32_t least = 0, most = y->config->n_layer, n_ctx = o->n_ctx ? o->n_ctx : usual[N_USUAL - 1];
    if (n_ctx > n_ctx_train) n_ctx = n_ctx_train;
    while (most - least > 1) { /* `least` fits, `most` does not */
        int32_t middle = (least + most) / 2;
        TRY(divide(y, from, middle, o, err));
        TRY(measure_layout(y, n_ctx, err));
        *(budget_fits(y, FIRST_TARGET) ? &least : &most) = middle;
    }
    TRY(divide(y, from, least, o, err));
    return measure_layout(y, n_ctx, err);
}

/* If the user asked for a context but for no KV type, global caches may be narrower. */
static bool may_narrow(const struct layout *y, const struct carat_engine_options *o)
{
    if (!o->n_ctx || o->kv_type != CARAT_KV_AUTO || y->kv_format != FORMAT_F16) return false;
    for (int32_t i = 0; i < y->n_targets; i++)
        if (!y->targets[i].backend->supports(OP_ATTENTION, FORMAT_Q8_0)) return false;
    return y->config->head_dim_global % format_traits(FORMAT_Q8_0)->block_elements == 0;
}

typedef int (*measure_fn)(struct layout *y, const struct layout_source *from,
                          const struct carat_engine_options *o, struct carat_error *err);

/* Measures in one of the two ways. If that does not fit, but does with narrower caches of global
 * layers, takes the narrower ones. */
static int measure_narrowing(struct layout *y, const struct layout_source *from,
                             const struct carat_engine_options *o, measure_fn way,
                             struct carat_error *err)
{
    TRY(way(y, from, o, err));
    if (budget_all_fits(y) || !may_narrow(y, o)) return CARAT_OK;
    y->kv_format_global = FORMAT_Q8_0;
    TRY(way(y, from, o, err));
    if (budget_all_fits(y)) return CARAT_OK;
    y->kv_format_global = y->kv_format;
    return way(y, from, o, err);
}

/* ---- All of it -------------------------------------------------------------------------- */

/* One device, or two if all does not fit on the first, or if the options say so. A backend of the
 * host gains nothing from a second device; only a test asks for one. */
static int fit_by_options(struct layout *y, const struct layout_source *from,
                          const struct carat_engine_options *o, struct carat_error *err)
{
    bool may_divide = o->gpu_layers || !y->targets[FIRST_TARGET].backend->is_host;
    int32_t asked = o->gpu_layers < 0 ? 0 : o->gpu_layers;
    y->n_far_experts = y->config->n_expert > 0 && may_divide ? o->cpu_expert_layers : 0;
    TRY(divide(y, from, o->gpu_layers ? asked : y->config->n_layer, o, err));
    TRY(measure_narrowing(y, from, o, measure_divided, err));
    if (budget_fits(y, FIRST_TARGET) || !may_divide || o->gpu_layers) return CARAT_OK;
    y->whole_bytes = budget_needed(y, FIRST_TARGET);
    return measure_narrowing(y, from, o, measure_largest, err);
}

static int fit(struct layout *y, const struct layout_source *from,
               const struct carat_engine_options *o, struct carat_error *err)
{
    TRY(open_first(y, from, o, err));
    if (from->n_parts > 0) {
        TRY(divide_in_order(y, from, o, err));
        TRY(measure_narrowing(y, from, o, measure_divided, err));
    } else {
        TRY(fit_by_options(y, from, o, err));
    }
    add_anchors(y);
    setup_describe(y, o);
    budget_fill_table(y);
    TRY(check_cache_bytes(y, err));
    return budget_check(y, err);
}

int layout_init(struct layout *y, const struct layout_source *from,
                const struct carat_engine_options *options, struct carat_error *err)
{
    static const struct carat_engine_options defaults;
    *y = (struct layout){.config = from->config,
                         .drafter = from->drafter ? from->drafter->config : NULL,
                         .host_bytes = from->host_bytes,
                         .host_page_bytes = from->host_page_bytes};
    int status = fit(y, from, options ? options : &defaults, err);
    if (status) layout_deinit(y);
    return status;
}

void layout_deinit(struct layout *y)
{
    plans_deinit(&y->plans, y->targets);
    for (int32_t i = 0; i < y->n_targets; i++) target_close(&y->targets[i]);
}
