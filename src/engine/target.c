#include "engine/target.h"

#include <string.h>

#include "base/bytes.h"
#include "engine/input_sums.h"

/* What may be taken: what is free, and of a GPU no more than is allowed. */
static void allow(struct target *t, const struct device_facts *facts,
                  const struct carat_engine_options *o)
{
    uint64_t part = (uint64_t)facts->memory_total * (uint64_t)o->gpu_memory_percent / 100;
    uint64_t limit = UINT64_MAX;
    if (o->gpu_memory > 0) limit = (uint64_t)o->gpu_memory;
    if (o->gpu_memory_percent > 0 && part < limit) limit = part;
    t->total = facts->memory_total;
    t->available = bytes_left(facts->memory_available, facts->memory_reserve);
    t->driver = facts->memory_reserve;
    t->is_limited = o->gpu_memory > 0 || o->gpu_memory_percent > 0;
    if (t->is_limited) t->driver += facts->memory_context;
    if (bytes_left(limit, t->driver) < t->available) t->available = bytes_left(limit, t->driver);
}

int target_open(struct target *t, const struct target_choice *choice,
                const struct carat_engine_options *o, struct carat_error *err)
{
    struct device_facts facts;
    struct device_options device = {.n_threads = o->n_threads,
                                    .is_pinned = o->pin_threads,
                                    .takes_turns = !choice->is_first,
                                    .is_steady = o->deterministic,
                                    .is_exact = o->precision == CARAT_PRECISION_FP32,
                                    .matmul = (enum matmul_kind)o->matmul,
                                    .decode_matmul = (enum matmul_kind)o->decode_matmul,
                                    .n_seq = o->n_seq > 0 ? o->n_seq : 1,
                                    .has_layer_inputs = choice->has_layer_inputs,
                                    .has_drafter = choice->has_drafter,
                                    .table_place = (enum table_place)o->ple_place,
                                    .cascade = (enum share_kind)o->cascade,
                                    .mirror_budget = o->mirror_budget,
                                    .cache_budget = o->ple_cache,
                                    .is_profiled = o->profile,
                                    .has_no_graphs = o->no_graphs,
                                    .has_no_cublas = o->no_cublas,
                                    .wants_cublas = o->wants_cublas,
                                    .is_unfused = o->no_fusion,
                                    .isa = o->isa,
                                    .progress = o->progress,
                                    .progress_user = o->progress_user,
                                    .observe = o->importance ? importance_add : NULL,
                                    .observe_user = o->importance};
    TRY(backend_find(&t->backend, choice->backend, err));
    if (o->importance && !t->backend->observes)
        return err_set(err, CARAT_EUSAGE, "backend %s cannot measure importance: cpu expected",
                       t->backend->name);
    TRY(t->backend->open(&t->device, choice->device, &device, err));
    t->backend->describe(t->device, &facts);
    memcpy(t->name, facts.name, sizeof facts.name);
    t->decode_matmul = facts.decode_matmul;
    t->alike_rows = facts.alike_rows;
    t->is_apart = facts.is_apart;
    static const struct carat_engine_options unlimited;
    allow(t, &facts, t->backend->is_host ? &unlimited : o);
    struct device_limits limits; /* the device remembers them */
    if ((o->measure_limits || o->profile) && choice->is_first && t->backend->measure_limits)
        t->backend->measure_limits(t->device, t->available, &limits);
    return CARAT_OK;
}

void target_close(struct target *t)
{
    if (t->device) t->backend->close(t->device);
    t->device = NULL;
}

static int take_block(const struct target *t, size_t bytes, void **out, struct carat_error *err)
{
    return bytes ? t->backend->alloc(t->device, bytes, out, err) : CARAT_OK;
}

static int load_weights(const struct target *t, struct weights *w, int32_t *n_loaded,
                        struct carat_error *err)
{
    for (; *n_loaded < w->n_all; (*n_loaded)++)
        TRY(t->backend->weight_load(t->device, &w->all[*n_loaded], err));
    return CARAT_OK;
}

/* One piece for all caches: a device may round each piece up to 2 MB. */
int target_take(struct target *t, size_t buffer_bytes, size_t scratch_bytes,
                struct carat_error *err)
{
    TRY(take_block(t, target_kv_bytes(t), &t->kv, err));
    TRY(take_block(t, buffer_bytes, &t->memory, err));
    TRY(take_block(t, scratch_bytes, &t->scratch, err));
    TRY(load_weights(t, &t->own, &t->n_loaded, err));
    return load_weights(t, &t->draft, &t->n_draft_loaded, err);
}

static void unload_weights(const struct target *t, struct weights *w, int32_t *n_loaded)
{
    while (*n_loaded > 0) t->backend->weight_unload(t->device, &w->all[--*n_loaded]);
}

static void give_back(const struct target *t, void **memory)
{
    if (*memory) t->backend->free(t->device, *memory);
    *memory = NULL;
}

void target_give(struct target *t)
{
    unload_weights(t, &t->draft, &t->n_draft_loaded);
    unload_weights(t, &t->own, &t->n_loaded);
    give_back(t, &t->kv);
    give_back(t, &t->memory);
    give_back(t, &t->scratch);
}
