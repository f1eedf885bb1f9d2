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
static const char *const matmuls[] = {
    [CARAT_MATMUL_AUTO] = "",
    [CARAT_MATMUL_INT8] = "int8",
    [CARAT_MATMUL_FP16] = "fp16",
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
    json_key_int(j, key, (int64_t)value);
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
    add_text(j, "decode_matmul", matmuls[s->decode_matmul]);
    json_end_object(j);
}

/* What a message says of a backend or an instruction set, without its name before a colon. */
static const char *without_name(const char *message, const char *name)
{
    size_t n = strlen(name);
    bool is_named = strncmp(message, name, n) == 0 && strncmp(message + n, ": ", 2) == 0;
    return message + (is_named ? n + 2 : 0);
}

/* Why a backend has no device; "" when it has one. */
static const char *backend_problem(const char *name, struct carat_error *err)
{
    *err = (struct carat_error){0};
    return carat_backend_probe(name, err) == CARAT_OK ? "" : without_name(err->message, name);
}

/* Why this machine cannot run a set; "" when it can. */
static const char *isa_problem(const char *name, struct carat_error *err)
{
    *err = (struct carat_error){0};
    if (carat_isa_probe(name, err) == CARAT_OK) return "";
    bool is_named = strncmp(err->message, "isa ", 4) == 0;
    return without_name(err->message + (is_named ? 4 : 0), name);
}

typedef const char *(*name_fn)(int32_t index);
typedef const char *(*problem_fn)(const char *name, struct carat_error *err);

/* [{"name":..,"problem":null}] */
static void add_problems_json(struct json *j, name_fn name_at, problem_fn problem)
{
    struct carat_error err;
    const char *name;
    json_begin_array(j);
    for (int32_t i = 0; (name = name_at(i)); i++) {
        json_begin_object(j);
        add_text(j, "name", name);
        add_text(j, "problem", problem(name, &err));
        json_end_object(j);
    }
    json_end_array(j);
}

/* "cuda (no driver), cpu, ref"; `used` may be NULL. */
static void add_problems_line(struct buf *out, name_fn name_at, problem_fn problem,
                              const char *used)
{
    struct carat_error err;
    const char *name;
    for (int32_t i = 0; (name = name_at(i)); i++) {
        const char *text = problem(name, &err);
        if (used && strcmp(name, used) == 0) text = "in use";
        buf_printf(out, "%s%s", i ? ", " : "", name);
        if (text[0]) buf_printf(out, " (%s)", text);
    }
}

void backends_add_line(struct buf *out)
{
    add_problems_line(out, carat_backend_name, backend_problem, NULL);
}

void backends_add_json(struct json *j)
{
    add_problems_json(j, carat_backend_name, backend_problem);
}

const char *isa_in_use(const char *asked)
{
    if (strcmp(asked, "auto") != 0) return asked;
    int32_t best = 0;
    while (carat_isa_name(best) && carat_isa_probe(carat_isa_name(best), NULL) != CARAT_OK) best++;
    return carat_isa_name(best);
}

void isas_add_line(struct buf *out, const char *asked)
{
    add_problems_line(out, carat_isa_name, isa_problem, isa_in_use(asked));
}

void isas_add_json(struct json *j)
{
    add_problems_json(j, carat_isa_name, isa_problem);
}
