#include "engine/origin.h"

#include <string.h>

/* Two chains of hashes under different keys, as one hash of 128 bits. They tell files apart, but do
 * not resist somebody who constructs a collision. */
struct digest {
    uint64_t part[2];
};

static void add(struct digest *d, const void *bytes, size_t n)
{
    for (uint64_t i = 0; i < 2; i++)
        d->part[i] = hash_bytes((struct hash_key){d->part[i], i + 1}, bytes, n);
}

static void add_number(struct digest *d, uint64_t number)
{
    add(d, &number, sizeof number);
}

static void add_text(struct digest *d, const char *text)
{
    add(d, text, strlen(text));
}

/* Of an array, only the length counts: what keys and values depend on is in the tensors. */
static void add_entry(struct digest *d, const struct gguf_kv *kv)
{
    add(d, kv->key.data, kv->key.length);
    add_number(d, (uint64_t)kv->type);
    if (kv->type == GGUF_STRING)
        add(d, kv->value.s.data, kv->value.s.length);
    else if (kv->type == GGUF_ARRAY)
        add_number(d, kv->count);
    else
        add_number(d, kv->value.u);
}

static void add_tensor(struct digest *d, const struct gguf_tensor *t)
{
    enum { PIECE = 1024 };
    size_t n = t->bytes < PIECE ? t->bytes : PIECE;
    add_text(d, t->name);
    add_number(d, t->gguf_type);
    add(d, t->dims, sizeof t->dims);
    add_number(d, t->bytes);
    add(d, t->data + (t->bytes - n) / 2, n);
}

static struct digest model_digest(const struct gguf *g)
{
    struct digest d = {{0}};
    for (size_t i = 0; i < gguf_kv_count(g); i++) add_entry(&d, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) add_tensor(&d, gguf_tensor_at(g, i));
    return d;
}

static struct digest setting_digest(const carat_engine *e)
{
    const struct layout *y = &e->runner->layout;
    struct digest d = {{0}};
    add_number(&d, e->is_exact);
    add_number(&d, (uint64_t)e->is_steady + (uint64_t)y->is_apart); /* 2: prompts apart */
    add_number(&d, (uint64_t)y->kv_format);
    add_number(&d, (uint64_t)y->kv_format_global);
    add_number(&d, (uint64_t)y->n_far_experts);
    for (int32_t i = 0; i < y->n_targets; i++) {
        add_text(&d, y->targets[i].backend->name);
        add_number(&d, e->is_steady ? (uint64_t)y->targets[i].decode_matmul : 0);
        add(&d, y->caches.page_bytes[i], sizeof y->caches.page_bytes[i]);
    }
    for (int32_t l = 0; l < y->config->n_layer; l++) add_number(&d, (uint64_t)y->split.layer[l]);
    return d;
}

void origin_find(struct prefix_origin *out, const carat_engine *e)
{
    const struct digest model = model_digest(e->model->gguf), setting = setting_digest(e);
    *out = (struct prefix_origin){
        .model = {model.part[0], model.part[1]},
        .setting = setting.part[0],
        .page_bytes = {[KV_LOCAL] = runner_page_bytes(e->runner, KV_LOCAL),
                       [KV_GLOBAL] = runner_page_bytes(e->runner, KV_GLOBAL)},
        .page = KV_PAGE,
        .window = e->paging.window,
    };
}
