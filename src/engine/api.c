/* The small functions of carat.h: each passes on to the module that does the work. */
#include <stdio.h>
#include <stdlib.h>

#include "answer/answer.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "carat_inspect.h"
#include "engine/engine.h"
#include "engine/fit.h"
#include "engine/options.h"
#include "json/json_tree.h"
#include "text/chat.h"
#include "text/tokenizer.h"

const char *carat_version(void)
{
    return CARAT_VERSION;
}

void carat_free(void *memory)
{
    mem_free(memory);
}

int carat_tokenize(const carat_model *model, const char *text, size_t length,
                   enum carat_special special, bool add_bos, int32_t **ids, size_t *count,
                   struct carat_error *err)
{
    return tokenizer_encode(model->vocab, text, length, special, add_bos, ids, count, err);
}

const char *carat_token_piece(const carat_model *model, int32_t id, size_t *length)
{
    return vocab_piece(model->vocab, id, length);
}

bool carat_token_is_stop(const carat_model *model, int32_t id)
{
    return vocab_is_stop(model->vocab, id);
}

bool carat_token_is_control(const carat_model *model, int32_t id)
{
    return vocab_is_special(model->vocab, id);
}

int carat_detokenize(const carat_model *model, const int32_t *ids, size_t count, bool show_special,
                     char **text, size_t *length, struct carat_error *err)
{
    return tokenizer_decode(model->vocab, ids, count, show_special, text, length, err);
}

int carat_decoder_open(carat_decoder **out, const carat_model *model, bool show_special,
                       struct carat_error *err)
{
    return decoder_open(out, model->vocab, show_special, err);
}

const char *carat_decoder_push(carat_decoder *decoder, int32_t id, size_t *length)
{
    return decoder_push(decoder, id, length);
}

const char *carat_decoder_finish(carat_decoder *decoder, size_t *length)
{
    return decoder_finish(decoder, length);
}

bool carat_decoder_failed(const carat_decoder *decoder)
{
    return decoder_failed(decoder);
}

void carat_decoder_close(carat_decoder *decoder)
{
    decoder_close(decoder);
}

int carat_chat_text(enum carat_size size, const struct carat_value *request, char **out,
                    size_t *length, struct carat_error *err)
{
    return chat_text(size, request, out, length, err);
}

int carat_chat_tokenize(const carat_model *model, const struct carat_value *request, int32_t **ids,
                        size_t *count, struct carat_error *err)
{
    return chat_tokenize(model->vocab, model->info.size, request, model->config.n_ctx_train, ids,
                         count, err);
}

int carat_check_prompt_bytes(const carat_model *model, size_t bytes, int32_t n_ctx,
                             size_t *bytes_max, struct carat_error *err)
{
    return vocab_check_length(model->vocab, bytes, n_ctx, bytes_max, err);
}

int carat_chat_tokenize_json(const carat_model *model, const char *json, size_t length,
                             int32_t **ids, size_t *count, struct carat_error *err)
{
    struct json_tree tree;
    TRY(json_tree_read(&tree, json, length, JSON_CHAT_REQUEST, err));
    int status = carat_chat_tokenize(model, &tree.root, ids, count, err);
    json_tree_free(&tree);
    return status;
}

int carat_answer_open(carat_answer **out, const carat_model *model, const int32_t *prompt,
                      size_t n_prompt, const struct carat_answer_options *options,
                      struct carat_error *err)
{
    return answer_open(out, model->vocab, prompt, n_prompt, options, err);
}

int carat_answer_push(carat_answer *answer, const int32_t *ids, size_t count,
                      const struct carat_part **parts, size_t *n_parts, struct carat_error *err)
{
    return answer_push(answer, ids, count, parts, n_parts, err);
}

int carat_answer_finish(carat_answer *answer, const struct carat_part **parts, size_t *n_parts,
                        struct carat_error *err)
{
    return answer_finish(answer, parts, n_parts, err);
}

const char *carat_answer_stop(const carat_answer *answer)
{
    return answer_stop(answer);
}

bool carat_answer_is_thinking(const carat_answer *answer)
{
    return answer_is_thinking(answer);
}

void carat_answer_close(carat_answer *answer)
{
    answer_close(answer);
}

int carat_memory_estimate(const carat_model *model, const struct carat_engine_options *options,
                          struct carat_memory *out, struct carat_error *err)
{
    struct carat_engine_options o;
    TRY(options_copy(&o, options, err));
    struct layout layout;
    struct layout_source from = engine_source(model, &o);
    TRY(layout_init(&layout, &from, &o, err));
    *out = layout.memory;
    layout_deinit(&layout);
    return CARAT_OK;
}

/* Hands a finished buffer over to the caller, who frees it with carat_free. */
static int give_text(struct buf *text, char **out, struct carat_error *err)
{
    if (text->failed) {
        buf_deinit(text);
        return err_no_memory(err, "text", text->capacity);
    }
    *out = text->data;
    return CARAT_OK;
}

int carat_plan_text(const carat_model *model, const struct carat_engine_options *options,
                    int32_t rows, int32_t outs, char **out, struct carat_error *err)
{
    struct carat_engine_options o;
    TRY(options_copy(&o, options, err));
    struct layout layout;
    struct buf text = {0};
    struct layout_source from = engine_source(model, &o);
    TRY(layout_init(&layout, &from, &o, err));
    int status = plans_print(&layout.plans, layout.targets, rows, outs, &text, err);
    layout_deinit(&layout);
    return status ? status : give_text(&text, out, err);
}

int carat_profile_text(const carat_engine *engine, char **out, struct carat_error *err)
{
    struct buf text = {0};
    runner_print_profile(engine->runner, &text);
    if (text.length == 0 && !text.failed)
        return err_set(err, CARAT_EUSAGE, "backend \"%s\" has taken no profile",
                       engine->runner->layout.setup.backend);
    return give_text(&text, out, err);
}

const char *carat_backend_name(int32_t index)
{
    int32_t n = 0;
    while (backend_list[n] && n < index) n++;
    return index >= 0 && backend_list[n] ? backend_list[n]->name : NULL;
}

int carat_backend_probe(const char *name, struct carat_error *err)
{
    const struct backend *backend;
    TRY(backend_find(&backend, name, err));
    return backend->probe ? backend->probe(err) : CARAT_OK;
}

const char *carat_isa_name(int32_t index)
{
    for (int b = 0; backend_list[b]; b++)
        if (backend_list[b]->isa_name) return backend_list[b]->isa_name(index);
    return NULL;
}

int carat_isa_probe(const char *name, struct carat_error *err)
{
    for (int b = 0; backend_list[b]; b++)
        if (backend_list[b]->isa_probe) return backend_list[b]->isa_probe(name, err);
    return err_set(err, CARAT_EUSAGE, "%s: there are no instruction sets to choose from", name);
}

const char *carat_backend_default(void)
{
    return backend_default()->name;
}

int32_t carat_backend_chunk(const char *name)
{
    const struct backend *backend;
    return backend_find(&backend, name, NULL) ? 0 : backend->chunk;
}

static int describe(struct carat_device *out, const struct backend *backend, int index,
                    struct carat_error *err)
{
    struct device *device;
    struct device_facts facts;
    static const struct device_options defaults;
    TRY(backend->open(&device, index, &defaults, err));
    backend->describe(device, &facts);
    backend->close(device);
    *out = (struct carat_device){.index = index,
                                 .memory_total = facts.memory_total,
                                 .memory_available = facts.memory_available,
                                 .fp16_operations = facts.fp16_rate,
                                 .int8_operations = facts.int8_rate};
    snprintf(out->backend, sizeof out->backend, "%s", backend->name);
    snprintf(out->name, sizeof out->name, "%s", facts.name);
    if (facts.matmul != MATMUL_AUTO)
        snprintf(out->matmul, sizeof out->matmul, "%s",
                 facts.matmul == MATMUL_FP16 ? "fp16" : "int8");
    return CARAT_OK;
}

int carat_device_at(int32_t n, struct carat_device *out, struct carat_error *err)
{
    int32_t before = 0;
    for (int b = 0; backend_list[b]; b++) {
        int32_t count = backend_list[b]->count();
        if (n >= before && n < before + count)
            return describe(out, backend_list[b], n - before, err);
        before += count;
    }
    return err_set(err, CARAT_EUSAGE, "device: 0 to %d expected, %d found", before - 1, n);
}

static void add_device(struct json *j, const struct carat_device *d)
{
    json_begin_object(j);
    json_key_string(j, "backend", d->backend);
    json_key_int(j, "index", d->index);
    json_key_string(j, "device", d->name);
    json_key_int(j, "memory_total", (int64_t)d->memory_total);
    json_key_int(j, "memory_available", (int64_t)d->memory_available);
    if (d->matmul[0]) { /* how it computes products of many rows, and why */
        json_key_string(j, "matmul", d->matmul);
    }
    if (d->matmul[0] && d->fp16_operations > 0) {
        json_key_int(j, "matmul_fp16_gops", (int64_t)(d->fp16_operations / 1e9));
        json_key_int(j, "matmul_int8_gops", (int64_t)(d->int8_operations / 1e9));
    }
    json_end_object(j);
}

int carat_devices_json(char **out, struct carat_error *err)
{
    struct buf text = {0};
    struct json j = {.out = &text};
    struct carat_device device;
    struct carat_error problem = {0};
    int status = CARAT_OK;
    json_begin_array(&j);
    for (int32_t i = 0; (status = carat_device_at(i, &device, &problem)) == CARAT_OK; i++)
        add_device(&j, &device);
    json_end_array(&j);
    if (status == CARAT_EUSAGE) return give_text(&text, out, err);
    buf_deinit(&text);
    if (err) *err = problem;
    return status;
}
