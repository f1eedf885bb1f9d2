#include "cli/setup.h"

#include <string.h>

#include "carat_inspect.h"

static const char *const reasons[] = {
    [CARAT_REASON_DEFAULT] = "default",
    [CARAT_REASON_ASKED] = "asked",
    [CARAT_REASON_MEMORY] = "memory",
};
static const char *const places[] = {
    [CARAT_PLE_GPU] = "gpu",
    [CARAT_PLE_PINNED] = "pinned",
    [CARAT_PLE_HOST] = "host",
};
static const char *const kv_types[] = {
    [CARAT_KV_F16] = "f16",
    [CARAT_KV_F32] = "f32",
    [CARAT_KV_Q8_0] = "q8_0",
    [CARAT_KV_BF16] = "bf16",
};

void setup_add_line(struct buf *out, const struct carat_setup *s)
{
    buf_printf(out, "on %s", s->device);
    bool is_divided = s->gpu_layers < s->n_layer;
    if (is_divided)
        buf_printf(out, ", %d of %d layers, the others on %s", s->gpu_layers, s->n_layer,
                   s->second_device);
    if (s->cpu_expert_layers == s->n_layer)
        buf_printf(out, is_divided ? ", all experts there" : ", experts on %s", s->second_device);
    else if (s->cpu_expert_layers > 0)
        buf_printf(out, ", experts of %d layers on %s", s->cpu_expert_layers, s->second_device);
    if (s->layers_reason == CARAT_REASON_MEMORY)
        buf_printf(out, "; all layers need %.1f GB, %.1f GB are free",
                   (double)s->layers_needed / 1e9, (double)s->layers_available / 1e9);
    if (s->ple_reason == CARAT_REASON_MEMORY)
        buf_printf(out, "; per-layer embeddings in %s memory, as they do not fit",
                   s->ple_place == CARAT_PLE_PINNED ? "pinned" : "the host's");
    if (s->kv_reason == CARAT_REASON_MEMORY)
        buf_printf(out, "; KV cache in %s, as more does not fit", kv_types[s->kv_type]);
}

static void add_text(struct json *j, const char *key, const char *text)
{
    json_key(j, key);
    if (text && text[0])
        json_put_string(j, text);
    else
        json_put_null(j);
}

static void add_number(struct json *j, const char *key, uint64_t value)
{
    json_key(j, key);
    json_int(j, (int64_t)value);
}

void setup_add_json(struct json *j, const struct carat_setup *s)
{
    json_begin_object(j);
    add_text(j, "backend", s->backend);
    add_text(j, "device", s->device);
    add_text(j, "second_device", s->second_device);
    add_number(j, "n_layer", (uint64_t)s->n_layer);
    add_number(j, "gpu_layers", (uint64_t)s->gpu_layers);
    add_text(j, "layers_reason", reasons[s->layers_reason]);
    add_number(j, "layers_needed", s->layers_needed);
    add_number(j, "layers_available", s->layers_available);
    add_number(j, "cpu_expert_layers", (uint64_t)s->cpu_expert_layers);
    add_text(j, "ple_place", places[s->ple_place]);
    add_text(j, "ple_reason", reasons[s->ple_reason]);
    add_text(j, "kv_type", kv_types[s->kv_type]);
    add_text(j, "kv_reason", reasons[s->kv_reason]);
    json_end_object(j);
}

/* Why a backend has no device, without the name of the backend; "" when it has one. */
static const char *backend_problem(const char *name, struct carat_error *err)
{
    *err = (struct carat_error){0};
    size_t n = strlen(name);
    if (carat_backend_probe(name, err) == CARAT_OK) return "";
    bool is_named = strncmp(err->message, name, n) == 0 && strncmp(err->message + n, ": ", 2) == 0;
    return err->message + (is_named ? n + 2 : 0);
}

void backends_add_line(struct buf *out)
{
    struct carat_error err;
    const char *name;
    for (int32_t i = 0; (name = carat_backend_name(i)); i++) {
        const char *problem = backend_problem(name, &err);
        buf_printf(out, "%s%s", i ? ", " : "", name);
        if (problem[0]) buf_printf(out, " (%s)", problem);
    }
}

void backends_add_json(struct json *j)
{
    struct carat_error err;
    const char *name;
    json_begin_array(j);
    for (int32_t i = 0; (name = carat_backend_name(i)); i++) {
        json_begin_object(j);
        add_text(j, "name", name);
        add_text(j, "problem", backend_problem(name, &err));
        json_end_object(j);
    }
    json_end_array(j);
}
