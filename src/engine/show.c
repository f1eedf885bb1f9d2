/* Shows what is in any well-formed GGUF file, even one that cannot be run here: a few facts, or all
 * of it as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "carat.h"
#include "engine/model_file.h"

enum { ELEMENTS_SHOWN = 8 };

static void add_element(struct json *j, const struct gguf_kv *kv, uint64_t i)
{
    if (kv->strings)
        json_text(j, kv->strings[i].data, kv->strings[i].length);
    else if (kv->element_type == GGUF_F32 || kv->element_type == GGUF_F64)
        json_double(j, gguf_array_float(kv, i));
    else if (kv->element_type == GGUF_BOOL)
        json_bool(j, gguf_array_int(kv, i) != 0);
    else if (kv->element_type == GGUF_U64)
        json_uint(j, (uint64_t)gguf_array_int(kv, i));
    else
        json_int(j, gguf_array_int(kv, i));
}

static void add_value(struct json *j, const struct gguf_kv *kv)
{
    switch (kv->type) {
    case GGUF_STRING: json_text(j, kv->value.s.data, kv->value.s.length); break;
    case GGUF_F32:
    case GGUF_F64: json_double(j, kv->value.f); break;
    case GGUF_BOOL: json_bool(j, kv->value.u != 0); break;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64: json_int(j, kv->value.i); break;
    case GGUF_ARRAY:
        json_begin_array(j);
        for (uint64_t i = 0; i < kv->count && i < ELEMENTS_SHOWN; i++) add_element(j, kv, i);
        json_end_array(j);
        break;
    default: json_uint(j, kv->value.u); break;
    }
}

static void add_metadata(struct json *j, const struct gguf_kv *kv)
{
    json_begin_object(j);
    json_key_text(j, "key", kv->key.data, kv->key.length);
    json_key_string(j, "type", gguf_type_name(kv->type));
    if (kv->type == GGUF_ARRAY) {
        json_key_string(j, "element_type", gguf_type_name(kv->element_type));
        json_key_int(j, "count", (int64_t)kv->count);
    }
    json_key(j, "value");
    add_value(j, kv);
    json_end_object(j);
}

static void add_tensor(struct json *j, const struct gguf_tensor *t)
{
    json_begin_object(j);
    json_key_string(j, "name", t->name);
    json_key_string(j, "type", t->type_name);
    json_key_array(j, "shape");
    for (int i = 0; i < t->n_dims; i++) json_int(j, t->dims[i]);
    json_end_array(j);
    json_key_int(j, "bytes", (int64_t)t->bytes);
    json_key_int(j, "part", t->part);
    json_key_int(j, "offset", (int64_t)t->offset);
    json_end_object(j);
}

static void add_file(struct json *j, const struct gguf *g, const char *problem)
{
    json_begin_object(j);
    json_key_string(j, "path", gguf_path(g));
    json_key_int(j, "version", gguf_version(g));
    json_key_int(j, "parts", gguf_part_count(g));
    json_key_int(j, "bytes", (int64_t)gguf_file_bytes(g));
    json_key_string(j, "problem", problem);
    json_key_array(j, "metadata");
    for (size_t i = 0; i < gguf_kv_count(g); i++) add_metadata(j, gguf_kv_at(g, i));
    json_end_array(j);
    json_key_array(j, "tensors");
    for (size_t i = 0; i < gguf_tensor_count(g); i++) add_tensor(j, gguf_tensor_at(g, i));
    json_end_array(j);
    json_end_object(j);
}

int carat_show_json(const char *path, char **out, struct carat_error *err)
{
    *out = NULL;
    struct gguf *g;
    int status = gguf_open(&g, path, err);
    if (status) return status;
    carat_model *model = NULL;
    struct carat_error problem = {0};
    if (carat_model_open(&model, path, &problem) == CARAT_EMEMORY) { /* not the file's fault */
        gguf_close(g);
        if (err) *err = problem;
        return CARAT_EMEMORY;
    }
    struct buf text = {0};
    struct json j = {.out = &text};
    add_file(&j, g, model ? NULL : problem.message);
    carat_model_close(model);
    gguf_close(g);
    if (text.failed) {
        buf_deinit(&text);
        return err_set(err, CARAT_EMEMORY, "%s: no memory for the listing", path);
    }
    *out = text.data;
    return CARAT_OK;
}

/* ---- A few facts ------------------------------------------------------------------------ */

static void take_clean(const struct gguf *g, const char *key, char *out, size_t size)
{
    struct buf text = {0};
    add_clean_value(g, key, &text);
    snprintf(out, size, "%s", buf_text(&text)); /* may cut the last character in two */
    buf_deinit(&text);
}

static void take_facts(const struct gguf *g, struct carat_file_facts *out)
{
    char key[96];
    uint32_t n_ctx = 0;
    take_clean(g, "general.name", out->name, sizeof out->name);
    take_clean(g, "general.architecture", out->architecture, sizeof out->architecture);
    gguf_quantisation(g, out->quantisation, sizeof out->quantisation);
    gguf_type_mix(g, out->mix, sizeof out->mix);
    out->file_bytes = gguf_file_bytes(g);
    out->n_parts = gguf_part_count(g);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int64_t n = 1;
        for (int k = 0; k < t->n_dims; k++) n *= t->dims[k];
        out->n_params += n;
    }
    snprintf(key, sizeof key, "%s.context_length", out->architecture);
    gguf_get_u32(g, key, &n_ctx, NULL);
    out->n_ctx_train = n_ctx > INT32_MAX ? INT32_MAX : (int32_t)n_ctx;
}

int carat_file_facts(const char *path, bool is_tried, struct carat_file_facts *out,
                     struct carat_error *err)
{
    *out = (struct carat_file_facts){0};
    struct gguf *g;
    int status = gguf_open(&g, path, err);
    if (status) return status;
    carat_model *model = NULL;
    struct carat_error problem = {0};
    if (is_tried) status = carat_model_open(&model, path, &problem);
    take_facts(g, out);
    if (status) snprintf(out->problem, sizeof out->problem, "%s", problem.message);
    carat_model_close(model);
    gguf_close(g);
    if (status != CARAT_EMEMORY) return CARAT_OK;
    if (err) *err = problem; /* not the file's fault */
    return status;
}
