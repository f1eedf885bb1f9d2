/* What the layout has decided, and why, in the words of the public header. */
#include "engine/layout.h"

static enum carat_kv_type kv_type_of(enum format format)
{
    switch (format) {
    case FORMAT_F32: return CARAT_KV_F32;
    case FORMAT_BF16: return CARAT_KV_BF16;
    case FORMAT_Q8_0: return CARAT_KV_Q8_0;
    default: return CARAT_KV_F16;
    }
}

/* The table is where layer 0 is; the CPU reads its own in the mapped file. */
static enum carat_ple table_place(const struct layout *y, const struct gemma_config *c)
{
    bool is_near = y->split.layer[0] == SITE_NEAR;
    if (c->n_ple == 0 || !is_near || y->targets[SITE_NEAR].backend->is_host) return CARAT_PLE_AUTO;
    return (enum carat_ple)y->placements[SITE_NEAR].tables;
}

static enum carat_reason reason_of(bool is_asked, bool does_not_fit)
{
    if (is_asked) return CARAT_REASON_ASKED;
    return does_not_fit ? CARAT_REASON_MEMORY : CARAT_REASON_DEFAULT;
}

void layout_describe(const struct layout *y, const struct gemma_config *c,
                     const struct carat_engine_options *o, struct carat_setup *out)
{
    *out = (struct carat_setup){
        .backend = y->targets[SITE_NEAR].backend->name,
        .device = y->device_names[SITE_NEAR],
        .second_device = y->device_names[SITE_FAR],
        .n_layer = c->n_layer,
        .gpu_layers = split_count_layers(c, &y->split, SITE_NEAR),
        .layers_reason = reason_of(o->gpu_layers != 0, y->whole_bytes > 0),
        .layers_needed = y->whole_bytes,
        .layers_available = y->whole_bytes ? y->sites[SITE_NEAR].available : 0,
        .cpu_expert_layers = y->n_far_experts < c->n_layer ? y->n_far_experts : c->n_layer,
        .ple_place = table_place(y, c),
        .kv_type = kv_type_of(y->kv_format_global),
        .kv_reason = reason_of(o->kv_type != CARAT_KV_AUTO, y->kv_format_global == FORMAT_Q8_0),
    };
    bool has_moved = out->ple_place == CARAT_PLE_PINNED || out->ple_place == CARAT_PLE_HOST;
    out->ple_reason = reason_of(o->ple_place != CARAT_PLE_AUTO, has_moved);
}
