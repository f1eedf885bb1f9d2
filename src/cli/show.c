/* carat show: what is in a file, whether it runs here, and how much memory it takes. */
#include <inttypes.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/samplers.h"
#include "carat.h"
#include "cli/command.h"
#include "json/json_tree.h"
#include "cli/memory_text.h"
#include "cli/session.h"
#include "cli/settings.h"
#include "cli/terminal.h"

enum { VALUE_SHOWN = 72 }; /* bytes of a metadata value on one line */

static void print_text(const char *label, const char *text)
{
    struct buf b = {0};
    add_escaped(&b, text, strlen(text), false);
    out_printf("%-14s %s\n", label, buf_text(&b));
    buf_deinit(&b);
}

/* What every model recommends, and what only this one does. */
static void print_sampling(const struct carat_sampling *p)
{
    out_printf("%-14s temp %g, top-k %d, top-p %g, min-p %g", "sampling", (double)p->temperature,
               p->top_k, (double)p->top_p, (double)p->min_p);
    if (p->xtc_probability > 0.0f)
        out_printf(", xtc-probability %g, xtc-threshold %g", (double)p->xtc_probability,
                   (double)p->xtc_threshold);
    if (p->repeat_penalty != 1.0f)
        out_printf(", repeat-penalty %g, repeat-last-n %d", (double)p->repeat_penalty,
                   p->repeat_last_n);
    if (p->mirostat)
        out_printf(", mirostat %d, mirostat-ent %g, mirostat-lr %g", p->mirostat,
                   (double)p->mirostat_tau, (double)p->mirostat_eta);
    out_text("\n");
    if (strcmp(p->samplers, CARAT_SAMPLERS) == 0) return;
    struct buf order = {0};
    add_samplers(&order, p->samplers);
    print_text("samplers", buf_text(&order));
    buf_deinit(&order);
}

static void print_model(const struct carat_model_info *info)
{
    print_text("name", info->name[0] ? info->name : "(none)");
    print_text("variant", info->variant);
    out_printf("%-14s %s\n", "template", info->size == CARAT_SIZE_SMALL ? "small" : "large");
    out_printf("%-14s %.3f billion\n", "parameters", (double)info->n_params / 1e9);
    out_printf("%-14s %d, width %d, vocabulary %d\n", "layers", info->n_layer, info->n_embd,
               info->n_vocab);
    if (info->n_expert)
        out_printf("%-14s %d, %d used a token\n", "experts", info->n_expert, info->n_expert_used);
    out_printf("%-14s %d positions, local window %d\n", "context", info->n_ctx_train, info->window);
    print_sampling(&info->sampling);
    if (info->note[0]) print_text("note", info->note);
}

static void print_memory(const struct carat_memory *m)
{
    struct buf b = {0};
    memory_add_table(&b, m);
    out_text(buf_text(&b));
    buf_deinit(&b);
}

/* ---- The listing ------------------------------------------------------------------------ */

static void format_value(struct buf *out, const struct carat_value *v)
{
    switch (v->kind) {
    case CARAT_NULL: buf_add_text(out, "null"); break;
    case CARAT_BOOL: buf_add_text(out, v->as.boolean ? "true" : "false"); break;
    case CARAT_INT: buf_printf(out, "%" PRId64, v->as.integer); break;
    case CARAT_REAL: buf_printf(out, "%g", v->as.real); break;
    case CARAT_STRING: add_escaped(out, v->as.string.data, v->as.string.length, false); break;
    case CARAT_ARRAY:
        for (size_t i = 0; i < v->as.array.count; i++) {
            if (i) buf_add_text(out, ", ");
            format_value(out, &v->as.array.items[i]);
        }
        break;
    case CARAT_OBJECT: break; /* the listing has none */
    }
}

/* Bytes of the longest beginning of `text` that has whole characters and at most `most` bytes. */
static size_t cut_length(const struct buf *text, size_t most)
{
    if (text->length <= most) return text->length;
    while (most > 0 && ((unsigned char)text->data[most] & 0xC0) == 0x80) most--;
    return most;
}

static void print_key(const struct carat_value *entry)
{
    struct buf key = {0}, value = {0};
    format_value(&key, json_member(entry, "key"));
    format_value(&value, json_member(entry, "value"));
    const struct carat_value *count = json_member(entry, "count");
    size_t n = cut_length(&value, VALUE_SHOWN);
    out_printf("  %-46s ", buf_text(&key));
    if (count->kind == CARAT_INT) out_printf("%" PRId64 " values: ", count->as.integer);
    out_write(buf_text(&value), n);
    out_text(n < value.length ? " ...\n" : "\n");
    buf_deinit(&key);
    buf_deinit(&value);
}

static void print_tensor(const struct carat_value *entry)
{
    struct buf name = {0}, type = {0}, shape = {0}, bytes = {0};
    format_value(&name, json_member(entry, "name"));
    format_value(&type, json_member(entry, "type"));
    format_value(&shape, json_member(entry, "shape"));
    format_value(&bytes, json_member(entry, "bytes"));
    out_printf("  %-42s %-8s %14s  %s\n", buf_text(&name), buf_text(&type), buf_text(&bytes),
               buf_text(&shape));
    buf_deinit(&name);
    buf_deinit(&type);
    buf_deinit(&shape);
    buf_deinit(&bytes);
}

static void print_entries(const struct carat_value *list, const char *title, bool wanted,
                          void (*print)(const struct carat_value *entry))
{
    if (list->kind != CARAT_ARRAY) return;
    out_printf("%-14s %zu\n", title, list->as.array.count);
    for (size_t i = 0; wanted && i < list->as.array.count; i++) print(&list->as.array.items[i]);
}

static void print_facts(const struct carat_file_facts *facts)
{
    double mib = (double)facts->file_bytes / (1 << 20);
    struct buf mix = {0};
    add_escaped(&mix, facts->mix, strlen(facts->mix), false);
    out_printf("%-14s %.*f %s (%" PRIu64 " bytes)", "size", mib < 1024 ? 1 : 2,
               mib < 1024 ? mib : mib / 1024, mib < 1024 ? "MiB" : "GiB", facts->file_bytes);
    if (facts->n_parts > 1) out_printf(" in %d parts", facts->n_parts);
    out_text("\n");
    out_printf("%-14s %s (%s)\n", "quantisation", facts->quantisation, buf_text(&mix));
    buf_deinit(&mix);
}

static int print_listing(const struct options *o, const char *json, bool *is_runnable,
                         struct carat_error *err)
{
    struct json_tree tree;
    TRY(json_tree_read(&tree, json, strlen(json), JSON_OWN, err));
    struct buf path = {0}, problem = {0};
    const struct carat_value *why = json_member(&tree.root, "problem");
    *is_runnable = why->kind != CARAT_STRING;
    format_value(&path, json_member(&tree.root, "path"));
    print_text("file", buf_text(&path));
    if (!*is_runnable) {
        format_value(&problem, why);
        print_text("cannot run", buf_text(&problem));
    }
    print_entries(json_member(&tree.root, "metadata"), "metadata", opt_is_set(o, OPT_KV),
                  print_key);
    print_entries(json_member(&tree.root, "tensors"), "tensors", opt_is_set(o, OPT_TENSORS),
                  print_tensor);
    buf_deinit(&path);
    buf_deinit(&problem);
    json_tree_free(&tree);
    return CARAT_OK;
}

/* ---- JSON ------------------------------------------------------------------------------- */

/* By the names of members of requests. */
static void add_sampling(struct json *j, const struct carat_sampling *p)
{
    json_key_object(j, "sampling");
    json_key_float(j, "temperature", p->temperature);
    json_key_int(j, "top_k", p->top_k);
    json_key_float(j, "top_p", p->top_p);
    json_key_float(j, "min_p", p->min_p);
    json_key_float(j, "xtc_probability", p->xtc_probability);
    json_key_float(j, "xtc_threshold", p->xtc_threshold);
    json_key_float(j, "repeat_penalty", p->repeat_penalty);
    json_key_int(j, "repeat_last_n", p->repeat_last_n);
    json_key_int(j, "mirostat", p->mirostat);
    json_key_float(j, "mirostat_tau", p->mirostat_tau);
    json_key_float(j, "mirostat_eta", p->mirostat_eta);
    json_key_array(j, "samplers");
    for (const char *c = p->samplers; sampler_name(*c); c++) json_put_string(j, sampler_name(*c));
    json_end_array(j);
    json_end_object(j);
}

static void add_model(struct json *j, const struct carat_model_info *info)
{
    json_begin_object(j);
    json_key_string(j, "name", info->name);
    json_key_string(j, "variant", info->variant);
    json_key_string(j, "template", info->size == CARAT_SIZE_SMALL ? "small" : "large");
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        {"n_params", info->n_params},       {"n_layer", info->n_layer},
        {"n_embd", info->n_embd},           {"n_vocab", info->n_vocab},
        {"n_ctx_train", info->n_ctx_train}, {"window", info->window},
        {"n_expert", info->n_expert},       {"n_expert_used", info->n_expert_used},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_key_int(j, rows[i].key, rows[i].value);
    }
    add_sampling(j, &info->sampling);
    json_key_string(j, "note", info->note);
    json_end_object(j);
}

/* Prints the listing with more members before its closing brace. */
static void print_file_json(const char *listing, const struct carat_file_facts *facts,
                            const carat_model *model, const struct carat_memory *m)
{
    size_t length = strlen(listing);
    out_write(listing, length - 1);
    struct buf b = {0};
    struct json j = {.out = &b, .need_comma = true};
    json_key_string(&j, "quantisation", facts->quantisation);
    json_key_string(&j, "types", facts->mix);
    if (model) {
        json_key(&j, "model");
        add_model(&j, carat_model_info(model));
    }
    if (m) {
        json_key(&j, "memory");
        memory_add_json(&j, m);
    }
    out_text(buf_text(&b));
    out_text("}\n");
    buf_deinit(&b);
}

int command_show(const struct options *o)
{
    struct carat_error err = {0};
    struct session s = {0};
    struct carat_file_facts facts = {0};
    char *listing = NULL;
    bool is_runnable = true, has_memory = false;
    struct carat_memory memory = {0};
    int status = session_find(&s, o, &err);
    if (status == CARAT_OK) status = no_more_arguments(o, s.next_argument, &err);
    if (status == CARAT_OK) status = carat_show_json(buf_text(&s.path), &listing, &err);
    if (status == CARAT_OK) status = carat_file_facts(buf_text(&s.path), false, &facts, &err);
    if (status == CARAT_OK && carat_model_open(&s.model, buf_text(&s.path), NULL) == CARAT_OK) {
        struct carat_engine_options options = engine_options(o);
        options.n_ctx = (int32_t)opt_int(o, OPT_FIT);
        int estimated = carat_memory_estimate(s.model, &options, &memory, &err);
        has_memory = estimated == CARAT_OK;
        if (opt_is_set(o, OPT_FIT)) status = estimated; /* it was asked for */
    }
    if (status == CARAT_OK && opt_is_set(o, OPT_JSON)) {
        print_file_json(listing, &facts, s.model, has_memory ? &memory : NULL);
    } else if (status == CARAT_OK) {
        bool has_lists = opt_is_set(o, OPT_KV) || opt_is_set(o, OPT_TENSORS);
        int listed = print_listing(o, listing, &is_runnable, &err);
        if (has_lists || !s.model) status = listed;
        if (status == CARAT_OK) print_facts(&facts);
        if (s.model && status == CARAT_OK) print_model(carat_model_info(s.model));
        if (has_memory && status == CARAT_OK) print_memory(&memory);
    }
    carat_free(listing);
    session_close(&s);
    return status == CARAT_OK ? 0 : report(&err);
}
