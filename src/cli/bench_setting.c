#include "cli/bench_setting.h"

#include <string.h>

#include "base/allowance.h"

int bench_read_settings(const struct options *o, struct bench_settings *out,
                        struct carat_error *err)
{
    TRY(bench_read_numbers(o, OPT_BENCH_BATCH, &out->batch, err));
    TRY(bench_read_numbers(o, OPT_BENCH_CHUNK, &out->chunk, err));
    TRY(bench_read_numbers(o, OPT_BENCH_THREADS, &out->threads, err));
    TRY(bench_read_numbers(o, OPT_BENCH_GPU_LAYERS, &out->gpu_layers, err));
    TRY(bench_read_numbers(o, OPT_BENCH_CPU_EXPERTS, &out->cpu_experts, err));
    TRY(bench_read_types(o, &out->kv, err));
    for (size_t i = 0; i < out->threads.n; i++) {
        double most = option_specs[OPT_THREADS].high;
        if (out->threads.at[i] > most)
            return err_set(err, CARAT_EUSAGE, "--threads: at most %.0f expected", most);
        out->threads.at[i] = threads_within(out->threads.at[i]);
    }
    out->n = out->threads.n * out->chunk.n * out->batch.n * out->cpu_experts.n * out->gpu_layers.n *
             out->kv.n;
    return CARAT_OK;
}

static int32_t default_threads(const struct options *o)
{
    return strcmp(opt_text(o, OPT_BACKEND), "ref") == 0 ? 1 : allowed_threads();
}

/* Setting i's place in a list of n values that changes every *stride settings. */
static size_t turn(size_t i, size_t *stride, size_t n)
{
    size_t at = i / *stride % n;
    *stride *= n;
    return at;
}

struct bench_setting bench_setting_at(const struct options *o, const struct bench_settings *l,
                                      size_t i)
{
    struct bench_setting s = {0};
    const char *backend = session_backend(o);
    size_t stride = 1;
    int32_t threads = l->threads.at[turn(i, &stride, l->threads.n)];
    int32_t chunk = l->chunk.at[turn(i, &stride, l->chunk.n)];
    int32_t batch = l->batch.at[turn(i, &stride, l->batch.n)];
    s.cpu_experts = l->cpu_experts.at[turn(i, &stride, l->cpu_experts.n)];
    s.gpu_layers = l->gpu_layers.at[turn(i, &stride, l->gpu_layers.n)];
    s.kv_type = l->kv.at[turn(i, &stride, l->kv.n)];
    s.threads = threads ? threads : default_threads(o);
    s.chunk = chunk_within(chunk ? chunk : carat_backend_chunk(backend), batch, backend);
    s.batch = batch ? batch : s.chunk;
    return s;
}

struct carat_engine_options bench_engine_options(const struct options *o,
                                                 const struct bench_setting *setting)
{
    struct carat_engine_options options = {
        .size = sizeof options,
        /* The engine may take fewer than the default number. */
        .n_threads = setting->threads == default_threads(o) ? 0 : setting->threads,
        .chunk = setting->chunk,
        .kv_type = kv_type_named(setting->kv_type),
    };
    set_device_options(o, &options);
    set_layers(o, &options, setting->gpu_layers,
               opt_is_set(o, OPT_CPU_EXPERTS) ? INT32_MAX : setting->cpu_experts);
    return options;
}
