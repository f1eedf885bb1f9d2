/* Windows of ops, as the CUDA backend takes them: which windows each member of the family
 * decodes with, and that the placer keeps apart what one window touches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/windows.h"
#include "engine/model_file.h"
#include "model/forward.h"

#define FIXTURES CARAT_SOURCE_DIR "/tests/golden/fixtures/"

static const struct {
    const char *name;
    int launches; /* of a layer in a decode step, at most */
} family[] = {
    {"e2b-q8_0", 12}, {"e4b-q4_0", 12}, {"12b-q4_k", 9}, {"26b-q4_0", 10}, {"31b-mixed", 9},
};
enum { N_MODELS = sizeof family / sizeof *family };

static struct kv_cache caches[LAYERS_MAX];

static int32_t window_length(const void *user, const struct plan *p, int32_t i)
{
    (void)user;
    return window_at(p, i).n;
}

/* The plan of a model for this many rows, with windows. */
static carat_model *compile(struct plan *p, int model, int32_t rows, int32_t outs)
{
    char path[512];
    struct carat_error err = {0};
    carat_model *m;
    snprintf(path, sizeof path, FIXTURES "%s.gguf", family[model].name);
    if (carat_model_open(&m, path, &err)) fail_msg("%s", err.message);
    const struct gemma_config *c = &m->config;
    for (int32_t l = 0; l < c->n_kv_layer; l++)
        caches[l] = kv_cache_shape(FORMAT_F16, 4, c->layer[l].n_kv_heads, c->layer[l].head_dim);
    const struct weights *w = &m->weights;
    struct split undivided = split_with_rest(c, c->n_layer, 0);
    plan_init(p, rows, outs, caches, c->n_kv_layer);
    gemma_forward(p, c, &w, &undivided);
    plan_mark_windows(p, window_length, NULL);
    assert_int_equal(plan_close(p, &err), CARAT_OK);
    return m;
}

static int launches_of(enum window_kind kind)
{
    switch (kind) {
    case WINDOW_PROJECT:          /* products; heads and cache */
    case WINDOW_FFN:              /* gate and up; down */
    case WINDOW_GATED:            /* gate; up */
    case WINDOW_EXPERTS:          /* in; out */
    case WINDOW_PLE:              /* product; norm and sum */
    case WINDOW_LOGITS: return 2; /* product; softcap */
    case WINDOW_MIXED:            /* gate, up, router; down, experts in; experts out */
    case WINDOW_ATTEND: return 3; /* splits; their sum; product */
    case WINDOW_INPUTS: return 4; /* norms; gate; up; norms */
    case WINDOW_NORMS:
    case WINDOW_ROUTE: /* product and choice */
    case WINDOW_SINGLE: break;
    }
    return 1;
}

static void a_layer_decodes_in_few_launches(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct plan p;
        int launches[LAYERS_MAX] = {0}, n_gathered = 0;
        carat_model *model = compile(&p, m, 1, 1);
        for (int32_t i = 0; i < p.n_ops; i += p.ops[i].window) {
            bool is_gather = p.ops[i].code == OP_GATHER_ROWS;
            n_gathered += is_gather;
            if (p.ops[i].layer != LAYER_NONE && !is_gather)
                launches[p.ops[i].layer] += launches_of(window_at(&p, i).kind);
        }
        /* The first layer has a window for its first norm alone. The layer after whose keys only
         * the wanted rows go on projects twice. */
        for (int32_t l = 0; l < model->config.n_layer; l++) {
            int more = l == 0 ? 1 : l == model->config.n_kv_layer - 1 ? 2 : 0;
            if (launches[l] > family[m].launches + more)
                fail_msg("%s: layer %d has %d launches, at most %d expected", family[m].name, l,
                         launches[l], family[m].launches + more);
        }
        assert_true(n_gathered >= 2);
        plan_deinit(&p);
        carat_model_close(model);
    }
}

static void only_what_has_no_window_stands_alone(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct plan p;
        carat_model *model = compile(&p, m, 64, 4);
        for (int32_t i = 0; i < p.n_ops; i += p.ops[i].window) {
            enum op_code code = (enum op_code)p.ops[i].code;
            if (window_at(&p, i).kind != WINDOW_SINGLE) continue;
            if (code != OP_EMBED && code != OP_GATHER_ROWS)
                fail_msg("%s: op %d, %s, stands alone", family[m].name, i, op_name(code));
        }
        plan_deinit(&p);
        carat_model_close(model);
    }
}

static bool touched[8192];

/* The buffers that ops [first, first + n) hand to other ops or take from them. */
static void window_buffers(const struct plan *p, int32_t first, int32_t n)
{
    memset(touched, 0, sizeof touched);
    for (int32_t i = first; i < first + n; i++) {
        for (int k = 0; k < 3; k++)
            if (p->ops[i].in[k] != BUF_NONE) touched[p->ops[i].in[k]] = true;
        for (int k = 0; k < 2; k++)
            if (p->ops[i].out[k] != BUF_NONE) touched[p->ops[i].out[k]] = true;
    }
    for (int32_t b = 0; b < p->n_bufs; b++)
        if (touched[b] && plan_buf_is_internal(p, (buf_id)b)) touched[b] = false;
}

static void buffers_of_a_window_lie_apart(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct plan p;
        carat_model *model = compile(&p, m, 64, 4);
        assert_true(p.n_bufs <= (int32_t)(sizeof touched / sizeof *touched));
        for (int32_t i = 0; i < p.n_ops; i += p.ops[i].window) {
            window_buffers(&p, i, p.ops[i].window);
            for (int32_t a = 0; a < p.n_bufs; a++)
                for (int32_t b = 0; touched[a] && b < a; b++) {
                    if (!touched[b]) continue;
                    size_t a_at = p.bufs[a].offset, b_at = p.bufs[b].offset;
                    if (a_at < b_at + plan_buf_bytes(&p, (buf_id)b) &&
                        b_at < a_at + plan_buf_bytes(&p, (buf_id)a))
                        fail_msg("%s: op %d: buffers %d and %d overlap", family[m].name, i, a, b);
                }
        }
        plan_deinit(&p);
        carat_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_decodes_in_few_launches),
        cmocka_unit_test(only_what_has_no_window_stands_alone),
        cmocka_unit_test(buffers_of_a_window_lie_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
