#include "engine/layout.h"

#include "engine/limits.h"

static int in_range(int32_t value, int32_t least, int32_t most, const char *what,
                    struct carat_error *err)
{
    if (value >= least && value <= most) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: %d to %d expected, %d found", what, least, most, value);
}

static int choose_options(struct layout *y, const carat_model *model,
                          const struct carat_engine_options *o, struct carat_error *err)
{
    int32_t n_ctx_train = model->config.n_ctx_train;
    int32_t least = n_ctx_train < CTX_MIN ? n_ctx_train : CTX_MIN;
    y->n_seq = o->n_seq ? o->n_seq : 1;
    y->chunk = o->chunk ? o->chunk : CHUNK_DEFAULT;
    TRY(in_range(y->n_seq, 1, SEQUENCES_MAX, "number of sequences", err));
    TRY(in_range(y->chunk, 1, CHUNK_MAX, "rows of a prefill step", err));
    if (o->n_ctx) TRY(in_range(o->n_ctx, least, n_ctx_train, "context size", err));
    y->score_rows = y->chunk < SCORE_ROWS ? y->chunk : SCORE_ROWS;
    switch (o->kv_type) {
    case CARAT_KV_F16:
    case CARAT_KV_Q8_0: y->kv_format = FORMAT_F16; break;
    case CARAT_KV_F32: y->kv_format = FORMAT_F32; break;
    default:
        y->kv_format =
            o->precision == CARAT_PRECISION_FP32 ? FORMAT_F32 : y->backend->kv_format;
    }
    y->kv_format_global = o->kv_type == CARAT_KV_Q8_0 ? FORMAT_Q8_0 : y->kv_format;
    if (model->config.head_dim_global % format_of(y->kv_format_global)->block_elements)
        return err_set(err, CARAT_EUSAGE,
                       "KV type q8_0: heads of a multiple of 32 expected, %d found",
                       model->config.head_dim_global);
    return CARAT_OK;
}

/* Shapes of the caches for a context, and what they take. */
static void shape_caches(struct layout *y, const struct gemma_config *c, int32_t n_ctx)
{
    y->n_ctx = n_ctx;
    y->memory.kv_local = y->memory.kv_global = 0;
    for (int32_t l = 0; l < c->n_kv_layer; l++) {
        const struct layer_spec *s = &c->layer[l];
        int32_t capacity = gemma_kv_capacity(c, l, n_ctx, y->chunk);
        enum format format = s->is_global ? y->kv_format_global : y->kv_format;
        y->caches[l] = (struct kv_cache){.format = format,
                                         .capacity = capacity,
                                         .n_heads = s->n_kv_heads,
                                         .head_dim = s->head_dim};
        y->k_bytes[l] = (size_t)y->n_seq * (size_t)capacity *
                        format_row_bytes(format, (int64_t)s->n_kv_heads * s->head_dim);
        *(s->is_global ? &y->memory.kv_global : &y->memory.kv_local) += 2 * y->k_bytes[l];
    }
}

static uint64_t kv_bytes(const struct layout *y)
{
    return y->memory.kv_local + y->memory.kv_global;
}

/* The largest usual context whose caches fit with a tenth of the memory to spare. */
static void choose_context(struct layout *y, const struct gemma_config *c, uint64_t available)
{
    static const int32_t usual[] = {131072, 32768, 8192, 4096};
    shape_caches(y, c, c->n_ctx_train);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (kv_bytes(y) <= available / 10 * 9) return;
        if (usual[i] < c->n_ctx_train) shape_caches(y, c, usual[i]);
    }
}

static int check_memory(const struct layout *y, struct carat_error *err)
{
    uint64_t needed = y->memory.total - y->memory.weights_mapped;
    if (needed <= y->memory.available) return CARAT_OK;
    err_set(err, CARAT_EMEMORY,
            "context of %d positions for %d sequence%s: %.1f MB needed beside the weights, "
            "%.1f MB available",
            y->n_ctx, y->n_seq, y->n_seq == 1 ? "" : "s", (double)needed / 1e6,
            (double)y->memory.available / 1e6);
    err_hint(err, "take a smaller context (-c), fewer sequences, or --kv-type f16");
    return CARAT_EMEMORY;
}

static int fill_layout(struct layout *y, const carat_model *model, const struct weights *w,
                       const struct carat_engine_options *o, struct carat_error *err)
{
    struct device_facts facts;
    y->backend->describe(y->device, &facts);
    TRY(choose_options(y, model, o, err));
    if (o->n_ctx)
        shape_caches(y, &model->config, o->n_ctx);
    else
        choose_context(y, &model->config, facts.memory_available);
    TRY(plans_compile(&y->plans, y->backend, y->device, &model->config, w, y->caches, y->n_seq,
                      y->chunk, y->score_rows, err));
    struct carat_memory *m = &y->memory;
    m->weights_mapped = w->bytes_mapped;
    m->buffers = y->plans.bytes + y->plans.scratch_bytes;
    m->step = (uint64_t)(y->chunk + y->n_seq) * 4 * sizeof(int32_t);
    m->total = m->weights_mapped + kv_bytes(y) + m->buffers + m->step;
    m->available = facts.memory_available;
    m->n_ctx = y->n_ctx;
    return check_memory(y, err);
}

int layout_init(struct layout *y, const carat_model *model, const struct weights *w,
                const struct carat_engine_options *options, struct carat_error *err)
{
    static const struct carat_engine_options defaults;
    if (!options) options = &defaults;
    *y = (struct layout){0};
    struct device_options device = {.n_threads = options->n_threads,
                                    .is_pinned = options->pin_threads,
                                    .is_exact = options->precision == CARAT_PRECISION_FP32};
    TRY(backend_find(&y->backend, options->backend ? options->backend : backend_list[0]->name,
                     err));
    TRY(y->backend->open(&y->device, 0, &device, err));
    int status = fill_layout(y, model, w, options, err);
    if (status) layout_deinit(y);
    return status;
}

void layout_deinit(struct layout *y)
{
    plans_deinit(&y->plans, y->backend);
    if (y->device) y->backend->close(y->device);
    y->device = NULL;
}
