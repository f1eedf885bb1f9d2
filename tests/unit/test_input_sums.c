/* carat_importance: what products read, on both backends that can be observed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "carat_inspect.h"
#include "carat_quantize.h"
#include "gguf/imatrix.h"
#include "support/engines.h"

enum { N_TOKENS = 50 };

static int take_piece(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    struct buf *file = user;
    buf_add(file, bytes, n);
    return file->failed ? err_no_memory(err, "file", n) : CARAT_OK;
}

struct rows {
    float *logits; /* NULL: none wanted */
};

static int keep_row(void *user, int32_t position, const float *logits, int32_t n_vocab)
{
    struct rows *rows = user;
    if (rows->logits)
        memcpy(rows->logits + (size_t)position * (size_t)n_vocab, logits,
               (size_t)n_vocab * sizeof *logits);
    return CARAT_OK;
}

/* Reads N_TOKENS tokens. Returns the matrix, which is opened from a file; NULL `file`: none. */
static struct imatrix *measure(int size, const char *backend, int32_t chunk, struct rows *rows,
                               const char *name)
{
    int32_t ids[N_TOKENS];
    struct carat_error err = {0};
    carat_importance *sums = NULL;
    struct imatrix *m = NULL;
    char path[512];
    draw_ids(3, ids, N_TOKENS);
    if (name && carat_importance_open(&sums, models[size], &err)) fail_msg("%s", err.message);
    carat_engine *e = open_engine(
        models[size], &(struct carat_engine_options){.size = sizeof(struct carat_engine_options),
                                                     .backend = backend,
                                                     .n_ctx = 64,
                                                     .chunk = chunk,
                                                     .precision = CARAT_PRECISION_FP32,
                                                     .n_threads = 2,
                                                     .importance = sums});
    if (carat_score(e, ids, N_TOKENS, NULL, 0, keep_row, rows, &err)) fail_msg("%s", err.message);
    carat_engine_close(e);
    if (!name) return NULL;
    struct buf file = {0};
    struct carat_importance_facts facts = {"words.txt", 1, N_TOKENS};
    if (carat_importance_write(sums, &facts, take_piece, &file, &err)) fail_msg("%s", err.message);
    scratch_write(&scratch, name, file.data, file.length);
    buf_deinit(&file);
    carat_importance_close(sums);
    if (imatrix_open(&m, scratch_file(&scratch, name, path), &err)) fail_msg("%s", err.message);
    return m;
}

static float float_at(const uint8_t *floats, int64_t i)
{
    float value;
    memcpy(&value, floats + i * 4, sizeof value);
    return value;
}

/* The rows that were counted: each token once, or once for each expert that it was sent to. */
static double count_rows(const struct imatrix_entry *e)
{
    double sum = 0;
    for (int64_t i = 0; i < e->n_counts; i++) sum += (double)float_at(e->counts, i);
    return sum;
}

static void compare(const struct imatrix *a, const struct imatrix *b, double tolerance)
{
    assert_int_equal(imatrix_count(a), imatrix_count(b));
    for (size_t i = 0; i < imatrix_count(a); i++) {
        const struct imatrix_entry *x = imatrix_at(a, i), *y = imatrix_at(b, i);
        double difference = 0, size = 0;
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->n_values, y->n_values);
        for (int64_t k = 0; k < x->n_values; k++) {
            double p = (double)float_at(x->values, k), q = (double)float_at(y->values, k);
            difference += fabs(p - q);
            size += q;
        }
        assert_true(size > 0 && difference <= tolerance * size);
        for (int64_t k = 0; k < x->n_counts; k++)
            assert_true(float_at(x->counts, k) == float_at(y->counts, k));
    }
}

static void every_layer_sees_every_row_on_both_backends(void **state)
{
    (void)state;
    struct rows none = {0};
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct imatrix *ref = measure(size, "ref", 0, &none, "ref.gguf");
        struct imatrix *cpu = measure(size, "cpu", 0, &none, "cpu.gguf");
        struct imatrix *cut = measure(size, "cpu", 16, &none, "cut.gguf");
        assert_true(imatrix_count(ref) > 20);
        assert_int_equal(imatrix_chunks(ref), 1);
        for (size_t i = 0; i < imatrix_count(ref); i++) {
            const struct imatrix_entry *e = imatrix_at(ref, i);
            double n_rows = count_rows(e);
            bool is_routed = strstr(e->name, "_exps") != NULL;
            assert_true(strncmp(e->name, "blk.", 4) == 0);
            assert_int_equal(e->n_counts > 1, is_routed);
            assert_true(is_routed ? n_rows > N_TOKENS && fmod(n_rows, N_TOKENS) == 0
                                  : n_rows == N_TOKENS);
        }
        /* In fp32 they differ by the order of sums, and by experts' ids never: */
        compare(cpu, ref, 1e-3);
        compare(cut, cpu,
                0); /* a row's result does not depend on others, and sums are of doubles */
        imatrix_close(ref);
        imatrix_close(cpu);
        imatrix_close(cut);
    }
}

static void observing_changes_no_bit(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        size_t n = (size_t)N_TOKENS * TINY_VOCABULARY;
        struct rows with = {mem_alloc(n, sizeof(float))}, without = {mem_alloc(n, sizeof(float))};
        imatrix_close(measure(size, "cpu", 0, &with, "cpu.gguf"));
        measure(size, "cpu", 0, &without, NULL);
        assert_memory_equal(with.logits, without.logits, n * sizeof(float));
        mem_free(with.logits);
        mem_free(without.logits);
    }
}

static void what_has_read_nothing_is_not_written(void **state)
{
    (void)state;
    carat_importance *sums;
    struct buf file = {0};
    struct carat_error err = {0};
    struct carat_importance_facts facts = {"words.txt", 1, N_TOKENS};
    assert_int_equal(carat_importance_open(&sums, models[0], &err), CARAT_OK);
    assert_int_equal(carat_importance_write(sums, &facts, take_piece, &file, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "no product has read anything yet");
    assert_int_equal(file.length, 0);
    carat_importance_close(sums);
    carat_importance_close(NULL);
}

static void failures_of_memory_are_told(void **state)
{
    (void)state;
    bool has_failed = true;
    for (long n = 0; has_failed; n++) {
        carat_importance *sums;
        struct carat_error err = {0};
        mem_fail_after(n);
        int status = carat_importance_open(&sums, models[GEMMA_26B], &err);
        has_failed = mem_fail_after(-1);
        assert_int_equal(status, has_failed ? CARAT_EMEMORY : CARAT_OK);
        carat_importance_close(sums);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_sees_every_row_on_both_backends),
        cmocka_unit_test(observing_changes_no_bit),
        cmocka_unit_test(what_has_read_nothing_is_not_written),
        cmocka_unit_test(failures_of_memory_are_told),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
