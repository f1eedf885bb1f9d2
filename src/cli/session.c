#include "cli/session.h"

#include <stdio.h>
#include <string.h>

#include "base/allowance.h"
#include "base/os.h"
#include "cli/drafters.h"
#include "cli/memory_text.h"
#include "cli/models.h"
#include "cli/offer.h"
#include "cli/setup.h"
#include "cli/terminal.h"

static const char *named_backend(const struct options *o)
{
    enum option_id id = o->command == COMMAND_LOGITS    ? OPT_LOGITS_BACKEND
                        : o->command == COMMAND_IMATRIX ? OPT_IMATRIX_BACKEND
                                                        : OPT_BACKEND;
    return opt_text(o, id);
}

bool named_by_options(const struct options *o, struct buf *name)
{
    const struct option_value *model = &o->values[OPT_MODEL], *hf = &o->values[OPT_HF_REPO];
    const struct option_value *url = &o->values[OPT_MODEL_URL], *file = &o->values[OPT_HF_FILE];
    bool is_flag = model->is_flag || hf->is_flag || url->is_flag;
    buf_clear(name);
    if (model->is_flag || (model->is_set && !is_flag))
        buf_add_text(name, model->text);
    else if (url->is_flag || (url->is_set && !is_flag))
        buf_add_text(name, url->text);
    else if (hf->is_set && file->is_set)
        buf_printf(name, "hf:%.*s/%s", (int)strcspn(hf->text, ":"), hf->text, file->text);
    else if (hf->is_set)
        buf_printf(name, "hf:%s", hf->text);
    return is_flag;
}

bool first_argument_is_model(const struct options *o)
{
    struct buf name = {0};
    bool is_flag = named_by_options(o, &name), is_set = name.length > 0;
    buf_deinit(&name);
    if (o->n_arguments == 0 || is_flag) return false;
    return !is_set || !command_takes_text(o->command) || model_is_named(o->arguments[0]);
}

/* Decides what session_start prints. */
static void read_manner(struct session *s, const struct options *o)
{
    s->options = o;
    s->is_auto = strcmp(named_backend(o), "auto") == 0;
    s->tells_memory = o->command == COMMAND_RUN || o->command == COMMAND_CHAT ||
                      o->command == COMMAND_SERVE || o->command == COMMAND_BENCH;
    s->is_verbose = s->tells_memory && opt_is_set(o, OPT_VERBOSE);
}

static int hint_usage(const struct command_spec *spec, struct carat_error *err)
{
    err_hint(err, "usage: carat %s%s%s", spec->name, spec->arguments[0] ? " " : "",
             spec->arguments);
    return CARAT_EUSAGE;
}

static int find_named(struct session *s, const struct options *o, const char *name,
                      struct carat_error *err)
{
    buf_clear(&s->name);
    buf_add_text(&s->name, name);
    return model_get(o, name, &s->path, err);
}

static int find_model(struct session *s, const struct options *o, struct carat_error *err)
{
    struct buf name = {0};
    if (first_argument_is_model(o)) return find_named(s, o, o->arguments[s->next_argument++], err);
    named_by_options(o, &name);
    int status = name.length ? find_named(s, o, buf_text(&name), err) : CARAT_EUSAGE;
    bool is_named = name.length > 0;
    buf_deinit(&name);
    if (is_named) return status;
    const struct command_spec *spec = &command_specs[o->command];
    err_set(err, CARAT_EUSAGE, "%s: MODEL is missing", spec->name);
    return hint_usage(spec, err);
}

int session_find(struct session *s, const struct options *o, struct carat_error *err)
{
    read_manner(s, o);
    TRY(find_model(s, o, err));
    return drafter_get(o, &s->draft_path, &s->finds_drafter, err);
}

int session_load(struct session *s, struct carat_error *err)
{
    progress("loading", 0, 0);
    int status = carat_model_open(&s->model, buf_text(&s->path), err);
    if (!status && s->draft_path.length > 0)
        status = carat_drafter_open(&s->drafter, buf_text(&s->draft_path), s->model, err);
    progress_end();
    if (status || !s->finds_drafter) return status;
    return drafter_find(s->options, buf_text(&s->path), buf_text(&s->name), s->model, &s->drafter,
                        err);
}

int session_open(struct session *s, const struct options *o, struct carat_error *err)
{
    *s = (struct session){0};
    TRY(session_find(s, o, err));
    return session_load(s, err);
}

int session_open_name(struct session *s, const struct options *o, const char *name,
                      struct carat_error *err)
{
    *s = (struct session){0};
    read_manner(s, o);
    TRY(find_named(s, o, name, err));
    TRY(drafter_get(o, &s->draft_path, &s->finds_drafter, err));
    return session_load(s, err);
}

void session_add_setup(const struct session *s, struct buf *line)
{
    const struct carat_setup *setup = carat_engine_setup(s->engine);
    const char *preferred = carat_backend_name(0);
    struct carat_error why = {0};
    setup_add_line(line, setup);
    if (s->is_auto && strcmp(setup->backend, preferred) != 0 &&
        carat_backend_probe(preferred, &why) != CARAT_OK)
        buf_printf(line, " (%s)", why.message);
}

static void tell_setup(struct session *s)
{
    struct buf line = {0};
    session_add_setup(s, &line);
    if (strcmp(buf_text(&line), buf_text(&s->told)) != 0) note("%s", buf_text(&line));
    buf_deinit(&s->told);
    s->told = line;
}

static void tell_memory(void *user, const struct carat_memory *memory)
{
    const struct session *s = user;
    struct buf text = {0};
    if (s->is_verbose)
        memory_add_table(&text, memory);
    else
        memory_add_line(&text, memory);
    if (s->is_verbose && !terminal_is_quiet())
        err_printf("%s", buf_text(&text));
    else
        note("%s", buf_text(&text));
    buf_deinit(&text);
}

void session_tell(struct session *s, struct carat_engine_options *options)
{
    options->progress_user = s;
    options->drafter = s->drafter;
    if (s->tells_memory) options->planned = tell_memory;
}

int session_start(struct session *s, const struct carat_engine_options *options,
                  struct carat_error *err)
{
    struct carat_engine_options more = *options;
    session_tell(s, &more);
    progress("starting", 0, 0);
    int status = carat_engine_open(&s->engine, s->model, &more, err);
    progress_end();
    if (status == CARAT_OK && !s->is_silent) tell_setup(s);
    return status;
}

void session_print_profile(const struct session *s)
{
    struct carat_error err = {0};
    char *text;
    if (carat_profile_text(s->engine, &text, &err) != CARAT_OK) {
        report(&err);
        return;
    }
    fputs(text, stderr);
    carat_free(text);
}

void session_close(struct session *s)
{
    if (s->engine) carat_engine_close(s->engine);
    carat_drafter_close(s->drafter);
    if (s->model) carat_model_close(s->model);
    buf_deinit(&s->name);
    buf_deinit(&s->path);
    buf_deinit(&s->draft_path);
    buf_deinit(&s->told);
    *s = (struct session){0};
}

enum carat_kv_type kv_type_named(const char *name)
{
    if (strcmp(name, "f16") == 0) return CARAT_KV_F16;
    if (strcmp(name, "bf16") == 0) return CARAT_KV_BF16;
    if (strcmp(name, "q8_0") == 0) return CARAT_KV_Q8_0;
    return strcmp(name, "f32") == 0 ? CARAT_KV_F32 : CARAT_KV_AUTO;
}

enum carat_precision session_precision(const struct options *o)
{
    bool is_exact = strcmp(opt_text(o, OPT_PRECISION), "fp32") == 0;
    return is_exact ? CARAT_PRECISION_FP32 : CARAT_PRECISION_FAST;
}

const char *session_backend(const struct options *o)
{
    const char *name = named_backend(o);
    return strcmp(name, "auto") == 0 ? carat_backend_default() : name;
}

static enum carat_matmul matmul_of(const char *name)
{
    if (strcmp(name, "int8") == 0) return CARAT_MATMUL_INT8;
    return strcmp(name, "fp16") == 0 ? CARAT_MATMUL_FP16 : CARAT_MATMUL_AUTO;
}

static void show_loading(void *user, size_t done, size_t total)
{
    (void)user;
    progress("loading weights", (int)(done >> 20), (int)(total >> 20));
}

void set_layers(const struct options *o, struct carat_engine_options *out, int64_t gpu_layers,
                int32_t cpu_experts)
{
    bool is_fallback = strcmp(named_backend(o), "auto") == 0 && strcmp(out->backend, "cuda") != 0;
    if (is_fallback) return;
    out->gpu_layers = gpu_layers == 0 ? -1 : gpu_layers < 0 ? 0 : (int32_t)gpu_layers;
    out->cpu_expert_layers = cpu_experts;
}

/* More than the engine takes is no mistake: N is the most, and fewer do as well. bench guesses if
 * it is asked to, or has a drafter. */
static int32_t drafts_wanted(const struct options *o)
{
    enum option_id option = o->command == COMMAND_BENCH ? OPT_BENCH_DRAFT : OPT_DRAFT;
    int64_t asked = opt_int(o, option);
    bool has_drafter = opt_is_set(o, OPT_MODEL_DRAFT) || opt_is_set(o, OPT_HF_DRAFT);
    if (has_drafter && !opt_is_set(o, option)) return CARAT_DRAFT_MAX;
    return asked < CARAT_DRAFT_MAX ? (int32_t)asked : CARAT_DRAFT_MAX;
}

void set_device_options(const struct options *o, struct carat_engine_options *out)
{
    const char *cascade = opt_text(o, OPT_CASCADE);
    int64_t mirror = opt_int(o, OPT_MIRROR), cache = opt_int(o, OPT_PLE_CACHE);
    const char *ple = opt_text(o, OPT_PLE);
    out->backend = session_backend(o);
    out->device = (int32_t)opt_int(o, OPT_DEVICE);
    set_layers(o, out, opt_int(o, OPT_GPU_LAYERS),
               opt_is_set(o, OPT_CPU_EXPERTS) ? INT32_MAX
                                              : (int32_t)opt_int(o, OPT_CPU_EXPERT_LAYERS));
    out->matmul = matmul_of(opt_text(o, OPT_MATMUL));
    out->decode_matmul = matmul_of(opt_text(o, OPT_DECODE_MATMUL));
    out->gpu_memory = opt_int(o, OPT_GPU_MEMORY);
    out->gpu_memory_percent = o->values[OPT_GPU_MEMORY].percent;
    out->cache_bytes = opt_int(o, OPT_CACHE_MEMORY);
    out->cache_split = (int32_t)opt_int(o, OPT_CACHE_SPLIT);
    out->no_prefix_cache = opt_is_set(o, OPT_NO_PREFIX_CACHE);
    out->max_itl_ms = opt_real(o, OPT_MAX_ITL);
    out->n_draft = drafts_wanted(o);
    out->deterministic = opt_is_set(o, OPT_DETERMINISTIC);
    out->n_queue = (int32_t)opt_int(o, OPT_QUEUE);
    out->mirror_budget = mirror < 0 ? 0 : mirror == 0 ? -1 : mirror;
    out->ple_place = strcmp(ple, "pinned") == 0 ? CARAT_PLE_PINNED
                     : strcmp(ple, "host") == 0 ? CARAT_PLE_HOST
                     : strcmp(ple, "gpu") == 0  ? CARAT_PLE_GPU
                                                : CARAT_PLE_AUTO;
    out->ple_cache = cache < 0 ? 0 : cache == 0 ? -1 : cache;
    out->cascade = strcmp(cascade, "on") == 0    ? CARAT_CASCADE_ON
                   : strcmp(cascade, "off") == 0 ? CARAT_CASCADE_OFF
                                                 : CARAT_CASCADE_AUTO;
    out->pin_threads = opt_is_set(o, OPT_PIN);
    out->isa = opt_text(o, OPT_ISA);
    out->precision = session_precision(o);
    out->profile =
        (o->command == COMMAND_RUN || o->command == COMMAND_BENCH) && opt_is_set(o, OPT_PROFILE);
    out->no_graphs = strcmp(opt_text(o, OPT_GRAPHS), "off") == 0;
    out->no_cublas = strcmp(opt_text(o, OPT_CUBLAS), "off") == 0;
    out->wants_cublas = strcmp(opt_text(o, OPT_CUBLAS), "on") == 0;
    out->no_fusion = strcmp(opt_text(o, OPT_FUSE), "off") == 0;
    out->progress = show_loading;
}

int32_t threads_within(int64_t asked)
{
    enum { PATIENCE = 4 }; /* more threads than this per processor must be a mistake */
    int most = allowance_threads("", os_processors()).count;
    if (asked <= (int64_t)most * PATIENCE) return (int32_t)asked;
    note("--threads %lld: only %d can run at a time here, %d are taken", (long long)asked, most,
         most);
    return most;
}

int32_t context_for(const carat_model *model, int32_t positions)
{
    enum { LEAST = 64 };
    int32_t trained = carat_model_info(model)->n_ctx_train;
    int32_t least = trained < LEAST ? trained : LEAST;
    return positions < least ? least : positions;
}

int check_options(const struct options *o, struct carat_error *err)
{
    const struct option_value *keys = &o->values[OPT_KEYS_TYPE];
    const struct option_value *values = &o->values[OPT_VALUES_TYPE];
    const struct option_value *both = &o->values[OPT_KV_TYPE];
    TRY(carat_isa_probe(opt_text(o, OPT_ISA), err));
    if (!keys->is_set && !values->is_set) return CARAT_OK;
    bool is_one = strcmp(keys->text, values->text) == 0;
    if (is_one && (!both->is_set || strcmp(both->text, keys->text) == 0)) return CARAT_OK;
    if (is_one)
        return err_set(err, CARAT_EUSAGE, "--kv-type %s contradicts --cache-type-k %s", both->text,
                       keys->text);
    err_set(err, CARAT_EUSAGE, "%s: keys in %s with values in %s are not supported",
            command_specs[o->command].name, keys->text, values->text);
    err_hint(err, "give -ctk and -ctv the same type (f16 when left out), or --kv-type %s",
             keys->is_set ? keys->text : values->text);
    return CARAT_EUSAGE;
}

static enum carat_kv_type kv_type_wanted(const struct options *o)
{
    bool has_two = opt_is_set(o, OPT_KEYS_TYPE) || opt_is_set(o, OPT_VALUES_TYPE);
    return kv_type_named(opt_text(o, has_two ? OPT_KEYS_TYPE : OPT_KV_TYPE));
}

int32_t chunk_within(int32_t chunk, int32_t batch, const char *backend)
{
    if (batch == 0) return chunk;
    if (chunk == 0) chunk = carat_backend_chunk(backend);
    return chunk < batch ? chunk : batch;
}

struct carat_engine_options engine_options(const struct options *o)
{
    struct carat_engine_options options = {
        .size = sizeof options,
        .n_ctx = (int32_t)opt_int(o, OPT_CTX),
        .n_seq = 1,
        .chunk = chunk_within((int32_t)opt_int(o, OPT_CHUNK), (int32_t)opt_int(o, OPT_BATCH),
                              session_backend(o)),
        .kv_type = kv_type_wanted(o),
        .n_threads = threads_within(opt_int(o, OPT_THREADS)),
    };
    set_device_options(o, &options);
    return options;
}

void join_arguments(const struct options *o, size_t first, struct buf *out)
{
    for (size_t i = first; i < o->n_arguments; i++) {
        if (i > first) buf_add_char(out, ' ');
        buf_add_text(out, o->arguments[i]);
    }
}

int no_more_arguments(const struct options *o, size_t first, struct carat_error *err)
{
    if (o->n_arguments <= first) return CARAT_OK;
    const struct command_spec *spec = &command_specs[o->command];
    err_set(err, CARAT_EUSAGE, "%s: unexpected argument %s", spec->name, o->arguments[first]);
    return hint_usage(spec, err);
}
