#include "engine/setup.h"

static enum carat_kv_type kv_type_of(enum format format)
{
    switch (format) {
    case FORMAT_F32: return CARAT_KV_F32;
    case FORMAT_BF16: return CARAT_KV_BF16;
    case FORMAT_Q8_0: return CARAT_KV_Q8_0;
    default: return CARAT_KV_F16;
    }
}

/* The table of per-layer embeddings is where layer 0 is. The CPU reads it in the mapped file. */
static enum carat_ple table_place(const struct layout *y)
{
    const struct target *first = &y->targets[FIRST_TARGET];
    bool is_there = y->config->n_ple > 0 && y->split.layer[0] == FIRST_TARGET;
    if (!is_there || first->backend->is_host) return CARAT_PLE_AUTO;
    return (enum carat_ple)first->placement.tables;
}

static enum carat_reason reason_of(bool is_asked, bool does_not_fit)
{
    if (is_asked) return CARAT_REASON_ASKED;
    return does_not_fit ? CARAT_REASON_MEMORY : CARAT_REASON_DEFAULT;
}

void setup_describe(struct layout *y, const struct carat_engine_options *o)
{
    const struct gemma_config *c = y->config;
    const struct target *first = &y->targets[FIRST_TARGET];
    struct carat_setup *s = &y->setup;
    *s = (struct carat_setup){
        .backend = first->backend->name,
        .device = first->name,
        .second_device = y->n_targets > 1 ? y->targets[REST_TARGET].name : "",
        .n_layer = c->n_layer,
        .gpu_layers = split_count_layers(c, &y->split, FIRST_TARGET),
        .layers_reason = reason_of(o->gpu_layers != 0, y->whole_bytes > 0),
        .layers_needed = y->whole_bytes,
        .layers_available = y->whole_bytes ? first->available : 0,
        .cpu_expert_layers = y->n_far_experts < c->n_layer ? y->n_far_experts : c->n_layer,
        .ple_place = table_place(y),
        .kv_type = kv_type_of(y->kv_format_global),
        .decode_matmul = (enum carat_matmul)first->decode_matmul,
        .kv_reason = reason_of(o->kv_type != CARAT_KV_AUTO, y->kv_format_global == FORMAT_Q8_0),
    };
    bool has_moved = s->ple_place == CARAT_PLE_PINNED || s->ple_place == CARAT_PLE_HOST;
    s->ple_reason = reason_of(o->ple_place != CARAT_PLE_AUTO, has_moved);
}
