#include "cli/bench_facts.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "cli/version.h"

void bench_facts_init(struct bench_facts *facts, const struct options *o, const struct session *s)
{
    const struct carat_model_info *info = carat_model_info(s->model);
    *facts = (struct bench_facts){
        .info = info,
        .path = buf_text(&s->path),
        .backend = session_backend(o),
        .is_exact = session_precision(o) == CARAT_PRECISION_FP32,
        .main_gpu = (int32_t)opt_int(o, OPT_DEVICE),
    };
    snprintf(facts->type, sizeof facts->type, "gemma4 %s %s", info->variant, info->quantisation);
    os_cpu_name(facts->cpu, sizeof facts->cpu);
}

void bench_facts_note_engine(struct bench_facts *facts, const struct session *s)
{
    if (strcmp(facts->backend, "cuda") != 0) return;
    snprintf(facts->gpu, sizeof facts->gpu, "%s", carat_engine_setup(s->engine)->device);
    facts->n_gpu_layers = carat_engine_memory(s->engine)->gpu_layers;
}

const char *bench_kv_type(const struct bench_facts *facts, const struct bench_setting *setting)
{
    if (strcmp(setting->kv_type, "auto") != 0) return setting->kv_type;
    return facts->is_exact || strcmp(facts->backend, "ref") == 0 ? "f32" : "f16";
}

size_t bench_facts_fields(const struct bench_facts *facts, const struct bench_setting *setting,
                          struct field out[BENCH_FACTS])
{
    const struct carat_model_info *info = facts->info;
    const struct field fields[] = {
        {"build_commit", FIELD_TEXT, .text = version_commit()},
        {"build_number", FIELD_INT, .integer = version_build_number()},
        {"cpu_info", FIELD_TEXT, .text = facts->cpu},
        {"gpu_info", FIELD_TEXT, .text = facts->gpu},
        {"backends", FIELD_TEXT, .text = facts->backend},
        {"model_filename", FIELD_TEXT, .text = facts->path},
        {"model_type", FIELD_TEXT, .text = facts->type},
        {"model_size", FIELD_INT, .integer = (int64_t)info->file_bytes},
        {"model_n_params", FIELD_INT, .integer = info->n_params},
        {"n_batch", FIELD_INT, .integer = setting->batch},
        {"n_ubatch", FIELD_INT, .integer = setting->chunk},
        {"n_threads", FIELD_INT, .integer = setting->threads},
        {"cpu_mask", FIELD_TEXT, .text = "0x0"},
        {"cpu_strict", FIELD_BOOL, .integer = 0},
        {"poll", FIELD_INT, .integer = 50},
        {"type_k", FIELD_TEXT, .text = bench_kv_type(facts, setting)},
        {"type_v", FIELD_TEXT, .text = bench_kv_type(facts, setting)},
        {"n_gpu_layers", FIELD_INT, .integer = facts->n_gpu_layers},
        {"n_cpu_moe", FIELD_INT, .integer = setting->cpu_experts},
        {"split_mode", FIELD_TEXT, .text = "none"},
        {"main_gpu", FIELD_INT, .integer = facts->main_gpu},
        {"no_kv_offload", FIELD_BOOL, .integer = 0},
        {"flash_attn", FIELD_BOOL, .integer = 1},
        {"devices", FIELD_TEXT, .text = "auto"},
        {"tensor_split", FIELD_TEXT, .text = "0.00"},
        {"tensor_buft_overrides", FIELD_TEXT, .text = "none"},
        {"use_mmap", FIELD_BOOL, .integer = 1},
        {"embeddings", FIELD_BOOL, .integer = 0},
        {"no_op_offload", FIELD_INT, .integer = 0},
        {"no_host", FIELD_BOOL, .integer = 0},
    };
    _Static_assert(sizeof fields <= BENCH_FACTS * sizeof *fields, "out has room for all");
    memcpy(out, fields, sizeof fields);
    return sizeof fields / sizeof *fields;
}
