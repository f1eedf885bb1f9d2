/* Layers without a V: weights of the keys' norm belong to the queries where nothing turns, and the
 * cache then holds keys and values at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/model_file.h"
#include "support/engines.h"

enum { TURNED = 128, HEAD_DIM = 512 }; /* of the fixtures, as of the published models */

static const char *const with_v[] = {"e2b-q8_0", "e4b-q4_0"};
static const char *const without_v[] = {"12b-q4_k", "26b-q4_0", "31b-mixed"};

static carat_model *open_fixture(const char *name)
{
    char path[512];
    carat_model *model = NULL;
    struct carat_error err = {0};
    snprintf(path, sizeof path, CARAT_SOURCE_DIR "/tests/golden/fixtures/%s.gguf", name);
    if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
    return model;
}

/* The weights of a norm, as the file has them. */
static const float *norm_in_file(const carat_model *m, int32_t l, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", l, which);
    const struct gguf_tensor *t = gguf_tensor_find(m->gguf, name);
    assert_non_null(t);
    return (const float *)(const void *)t->data;
}

/* The product of both norms' weights, which is all that a score knows of them, is what it was; keys
 * have theirs in turned columns alone. */
static void check_layer(const carat_model *m, int32_t l)
{
    const struct layer_weights *w = &m->weights.layer[l];
    const float *q = w->attn_q_norm->data, *k = w->attn_k_norm->data;
    const float *file_q = norm_in_file(m, l, "attn_q_norm"),
                *file_k = norm_in_file(m, l, "attn_k_norm");
    int32_t d = m->config.layer[l].head_dim;
    bool is_shared = m->config.layer[l].k_eq_v;
    for (int32_t i = 0; i < d; i++) {
        bool is_apart = !is_shared || i % (d / 2) < TURNED / 2;
        assert_true(k[i] == (is_apart ? file_k[i] : 1.0f));
        assert_true(q[i] == (is_apart ? file_q[i] : file_q[i] * file_k[i]));
    }
}

static void norms_of_keys_move_to_queries_where_nothing_turns(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof without_v / sizeof *without_v; i++) {
        carat_model *m = open_fixture(without_v[i]);
        int32_t n = 0;
        assert_int_equal(m->weights.turned, TURNED);
        for (int32_t l = 0; l < m->config.n_layer; l++) {
            check_layer(m, l);
            n += m->config.layer[l].k_eq_v;
        }
        assert_true(n > 0 && n < m->config.n_layer);
        carat_model_close(m);
    }
}

static void norms_of_layers_with_a_v_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof with_v / sizeof *with_v; i++) {
        carat_model *m = open_fixture(with_v[i]);
        for (int32_t l = 0; l < m->config.n_kv_layer; l++) check_layer(m, l);
        carat_model_close(m);
    }
}

static const struct kv_cache *global_cache(const carat_engine *e)
{
    const struct gemma_config *c = e->runner->layout.config;
    for (int32_t l = 0; l < c->n_kv_layer; l++)
        if (c->layer[l].is_global) return &e->runner->layout.caches.cache[l];
    return NULL;
}

/* In every format; with q8_0 twice as many columns are kept twice (kv_share). */
static void an_engine_shares_keys_in_every_format(void **state)
{
    (void)state;
    static const struct {
        enum carat_kv_type type;
        int32_t turned;
    } cases[] = {{CARAT_KV_F16, TURNED}, {CARAT_KV_F32, TURNED}, {CARAT_KV_Q8_0, 2 * TURNED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int has_v = 0; has_v < 2; has_v++) {
            carat_model *m = open_fixture(has_v ? with_v[1] : without_v[0]);
            struct carat_engine_options o = {
                .backend = "cpu", .n_ctx = 256, .kv_type = cases[i].type};
            carat_engine *e = open_engine(m, &o);
            const struct kv_cache *c = global_cache(e);
            assert_int_equal(c->head_dim, HEAD_DIM);
            assert_int_equal(c->turned, has_v ? 0 : cases[i].turned);
            carat_engine_close(e);
            carat_model_close(m);
        }
}

static int nothing_is_left(void **state)
{
    (void)state;
    return mem_blocks_live() == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_of_keys_move_to_queries_where_nothing_turns),
        cmocka_unit_test(norms_of_layers_with_a_v_stay),
        cmocka_unit_test(an_engine_shares_keys_in_every_format),
    };
    return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
