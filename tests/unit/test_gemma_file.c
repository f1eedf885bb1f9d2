/* Drafters as the tests and random-model write them: Google's shapes, and pairs of a target and a
 * drafter that agree as often as was asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "carat_inspect.h"
#include "support/engines.h"

enum { TENSORS = 49, D = 32, V = TINY_VOCABULARY };

/* ---- Shapes ----------------------------------------------------------------------------- */

struct list {
    struct gemma_tensor tensors[TENSORS];
    int n;
    int64_t n_values;
};

static void take(void *user, const struct gemma_tensor *t)
{
    struct list *list = user;
    assert_true(list->n < TENSORS);
    list->tensors[list->n++] = *t;
    list->n_values += t->dims[0] * t->dims[1] * t->dims[2];
}

static void expect_shape(const struct list *list, const char *name, int64_t inputs, int64_t outputs)
{
    for (int i = 0; i < list->n; i++) {
        const struct gemma_tensor *t = &list->tensors[i];
        if (strcmp(t->name, name) != 0) continue;
        assert_int_equal(t->dims[0], inputs);
        assert_int_equal(t->dims[1], outputs);
        return;
    }
    fail_msg("no %s", name);
}

/* The counts of parameters, in millions, are about those that Google gives. (Theirs include half a
 * million of the ordered embeddings of E2B and E4B, which files do not have.) */
static void drafters_have_the_shapes_of_googles(void **state)
{
    (void)state;
    static const struct {
        int n_embd, n_head, n_ff, n_embd_out, millions;
    } expected[GEMMA_SIZES] = {
        [GEMMA_E2B] = {256, 4, 2048, 1536, 78},    [GEMMA_E4B] = {256, 4, 2048, 2560, 78},
        [GEMMA_12B] = {1024, 16, 8192, 3840, 423}, [GEMMA_26B] = {1024, 16, 8192, 2816, 420},
        [GEMMA_31B] = {1024, 32, 8192, 5376, 470},
    };
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct gemma_shape target = gemma_true_shape((enum gemma_size)size);
        struct gemma_shape shape = gemma_drafter_shape(&target);
        struct gemma_layout layout = gemma_layout_plain(FORMAT_Q8_0);
        struct list list = {0};
        int64_t n = expected[size].n_embd, n_head = expected[size].n_head;
        gemma_tensors(&shape, &layout, take, &list);
        assert_int_equal(list.n, TENSORS);
        expect_shape(&list, "token_embd.weight", n, 262144);
        expect_shape(&list, "rope_freqs.weight", 256, 1);
        expect_shape(&list, "nextn.pre_projection.weight", 2 * expected[size].n_embd_out, n);
        expect_shape(&list, "nextn.post_projection.weight", n, expected[size].n_embd_out);
        expect_shape(&list, "blk.2.attn_q.weight", n, n_head * 256);
        expect_shape(&list, "blk.3.attn_q.weight", n, n_head * 512);
        expect_shape(&list, "blk.3.attn_q_norm.weight", 512, 1);
        expect_shape(&list, "blk.3.attn_output.weight", n_head * 512, n);
        expect_shape(&list, "blk.0.ffn_down.weight", expected[size].n_ff, n);
        expect_shape(&list, "blk.0.layer_output_scale.weight", 1, 1);
        double millions = (double)list.n_values / 1e6;
        print_message("%s: %.1f million parameters\n", target.name, millions);
        assert_true(millions > 0.98 * expected[size].millions);
        assert_true(millions < 1.02 * expected[size].millions);
    }
}

static void drafters_have_keys_of_their_own(void **state)
{
    (void)state;
    static const char *const key = "gemma4-assistant.attention.head_count_kv";
    struct carat_error err = {0};
    struct gguf *g;
    char path[512];
    uint32_t n, kv[4];
    struct tiny_options options = {.size = GEMMA_26B};
    scratch_file(&scratch, "drafter.gguf", path);
    assert_int_equal(tiny_drafter_save(path, &options, &err), CARAT_OK);
    assert_int_equal(gguf_open(&g, path, &err), CARAT_OK);
    assert_int_equal(gguf_get_u32(g, "gemma4-assistant.embedding_length_out", &n, &err), CARAT_OK);
    assert_int_equal(n, 64);
    assert_int_equal(gguf_get_u32(g, "gemma4-assistant.nextn_predict_layers", &n, &err), CARAT_OK);
    assert_int_equal(n, 4);
    assert_int_equal(gguf_find(g, key)->count, 4);
    assert_int_equal(gguf_get_u32_per_layer(g, key, 4, kv, &err), CARAT_OK);
    assert_true(kv[0] == 2 && kv[1] == 2 && kv[2] == 2 && kv[3] == 1);
    assert_null(gguf_find(g, "gemma4-assistant.final_logit_softcapping"));
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        assert_null(strstr(gguf_kv_at(g, i)->key.data, "gemma4."));
    gguf_close(g);
}

/* ---- Pairs ------------------------------------------------------------------------------ */

/* All values of a tensor as floats. */
static float *values_of(struct gguf_writer *w, const char *name, enum format format)
{
    const struct gguf_out_tensor *t = gguf_writer_tensor(w, name);
    assert_non_null(t);
    int64_t n = t->dims[0] * t->dims[1];
    float *values = mem_alloc((size_t)n, sizeof *values);
    assert_non_null(values);
    format_traits(format)->decode(t->data, values, n);
    return values;
}

static bool is_zero(const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (values[i] != 0.0f) return false;
    return true;
}

/* Returns how many of the target's rows the drafter has. */
static int count_common_rows(const struct tiny_options *of_target,
                             const struct tiny_options *of_drafter)
{
    struct gguf_writer target = {0}, drafter = {0};
    int n = 0;
    tiny_model_put(&target, of_target);
    tiny_drafter_put(&drafter, of_drafter);
    assert_int_equal(drafter.n_tensor, TENSORS);
    float *all = values_of(&target, "output.weight", of_target->format);
    float *some = values_of(&drafter, "token_embd.weight", of_target->format);
    for (int i = 0; i < V; i++) {
        const float *row = all + (size_t)i * 2 * D, *guess = some + (size_t)i * D;
        assert_true(is_zero(row + D, D));
        assert_false(is_zero(row, D));
        if (is_zero(guess, D)) continue;
        assert_memory_equal(row, guess, D * sizeof *row);
        n++;
    }
    mem_free(all);
    mem_free(some);
    gguf_writer_deinit(&target);
    gguf_writer_deinit(&drafter);
    return n;
}

static void a_pair_has_rows_in_common(void **state)
{
    (void)state;
    static const enum format formats[] = {FORMAT_F32, FORMAT_Q8_0, FORMAT_Q4_0};
    for (int size = 0; size < GEMMA_SIZES; size++) {
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            struct tiny_options target = {
                .size = (enum gemma_size)size, .format = formats[i], .is_simple = true};
            struct tiny_options drafter = target;
            drafter.seed = TINY_SEED; /* any */
            assert_int_equal(count_common_rows(&target, &drafter), 0);
            drafter.agreement = 100;
            assert_int_equal(count_common_rows(&target, &drafter), V);
            drafter.agreement = 70;
            int n = count_common_rows(&target, &drafter);
            assert_true(n > V * 65 / 100 && n < V * 75 / 100);
        }
    }
}

struct guesses {
    const int32_t *ids;
    const float *embedding, *table;
    int n_right;
};

/* The row of the drafter's table that is most like the token's embedding. */
static int32_t guess(const struct guesses *g, int32_t id)
{
    int32_t best = 0;
    float most = -1e30f;
    for (int32_t i = 0; i < V; i++) {
        float sum = 0.0f;
        for (int k = 0; k < D; k++)
            sum +=
                g->embedding[(size_t)id * 2 * D + (size_t)k] * g->table[(size_t)i * D + (size_t)k];
        if (sum > most) {
            most = sum;
            best = i;
        }
    }
    return best;
}

static int check_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct guesses *g = user;
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    g->n_right += best == guess(g, g->ids[position]);
    return 0;
}

enum { N_IDS = 200 };

static int count_right(const carat_model *model, const struct tiny_options *options)
{
    struct gguf_writer target = {0}, drafter = {0};
    struct carat_error err = {0};
    int32_t ids[N_IDS];
    tiny_model_put(&target, options);
    tiny_drafter_put(&drafter, options);
    float *embedding = values_of(&target, "token_embd.weight", FORMAT_F32);
    float *table = values_of(&drafter, "token_embd.weight", FORMAT_F32);
    struct guesses g = {.ids = ids, .embedding = embedding, .table = table};
    draw_ids(TINY_SEED, ids, N_IDS);
    carat_engine *e = open_engine(model, &(struct carat_engine_options){.n_ctx = 256});
    assert_int_equal(carat_score(e, ids, N_IDS, NULL, 0, check_row, &g, &err), CARAT_OK);
    carat_engine_close(e);
    mem_free(embedding);
    mem_free(table);
    gguf_writer_deinit(&target);
    gguf_writer_deinit(&drafter);
    return g.n_right;
}

/* Whatever was read before, the target's logits are largest for what the drafter guesses. */
static void a_pair_agrees(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct tiny_options options = {.size = (enum gemma_size)size, .is_simple = true};
        struct carat_error err = {0};
        carat_model *model;
        char path[512];
        scratch_file(&scratch, "target.gguf", path);
        assert_int_equal(tiny_model_save(path, &options, &err), CARAT_OK);
        if (carat_model_open(&model, path, &err)) fail_msg("%s", err.message);
        options.agreement = 100;
        assert_int_equal(count_right(model, &options), N_IDS);
        options.agreement = 70;
        int n = count_right(model, &options);
        print_message("agreement 70: %d of %d\n", n, N_IDS);
        assert_true(n > N_IDS * 55 / 100 && n < N_IDS * 85 / 100);
        carat_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafters_have_the_shapes_of_googles),
        cmocka_unit_test(drafters_have_keys_of_their_own),
        cmocka_unit_test(a_pair_has_rows_in_common),
        cmocka_unit_test(a_pair_agrees),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
