/* Every backend of this build against the reference, on the same cases: exact arithmetic within
 * the budget of fp32, the default arithmetic within the budget of the list, on one thread and
 * several. A backend whose device is missing is skipped. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/unpack.h"
#include "backend/ref/ref.h"
#include "base/mem.h"
#include "carat_inspect.h"
#include "parity/parity.h"
#include "support/devices.h"

enum { SEED = 20260402 };

static struct parity_shape shapes[PARITY_SHAPES_MAX];
static size_t n_shapes;
static struct device *reference;
static int n_wrong;

/* Problems are reported and counted, so that one run shows everything that is wrong. */
static void report(const char *backend, const struct device_options *o, const char *label,
                   const char *what)
{
    static const char *const matmuls[] = {"", ", int8", ", fp16"};
    print_error("%s%s%s, %d threads%s%s%s%s%s%s%s: %s: %s\n", backend, o->isa ? " " : "",
                o->isa ? o->isa : "", o->n_threads, o->is_exact ? ", exact" : "",
                o->has_no_graphs ? ", launched" : "", o->is_unfused ? ", unfused" : "",
                o->has_no_cublas ? ", without cuBLAS" : "",
                o->table_place == TABLE_HOST ? ", table in the file" : "", matmuls[o->matmul],
                o->decode_matmul == MATMUL_FP16 ? ", decode in fp16" : "", label, what);
    n_wrong++;
}

/* Fine products: what 16 bits of x lose, and scales that tiles round to fp16. With many rows a
 * GPU takes fp16 throughout, with a few if it is asked to. */
static double fine_budget(const struct backend *b, const struct parity_shape *s,
                          enum matmul_kind decode)
{
    bool is_cpu = b == &cpu_backend;
    bool is_half = !is_cpu && (s->rows > 64 || decode == MATMUL_FP16);
    const struct format_traits *t = format_traits(s->format);
    bool is_rounded = t->block_elements == 256 && !(is_cpu && code_kind_has_halves(t->codes));
    if (is_half) return is_rounded ? 2e-6 : 1e-6;
    return is_rounded ? 1e-6 : 1e-9;
}

/* GPUs read caches of q8_0 as fp16(code * d). With the spread of 2 that scores have here, rounded
 * keys and values cost 3e-7 (simulated; with rounded queries 5.5e-7), and rounding to q8_0 itself
 * some hundred times as much. Tiles of a prompt's rows round queries and shares as well, whatever
 * the cache: 1.2e-7 with one of fp16, 2.6e-7 with one of fp32, on an H200. */
static const double HALVES_BUDGET = 1e-6;

/* fp32 in another order: a few roundings for each value, for all ops that are not bit-equal. */
static double budget_of(const struct backend *b, const struct parity_shape *s,
                        const struct device_options *o)
{
    bool is_exact = o->is_exact;
    double budget = parity_budget(s);
    bool is_halves =
        s->code == OP_ATTENTION && !is_exact && (s->format == FORMAT_Q8_0 || s->rows > 64);
    if (is_halves && strcmp(b->name, "cuda") == 0) return HALVES_BUDGET;
    double fine = fine_budget(b, s, o->decode_matmul);
    if (s->is_fine && budget > fine) budget = fine;
    return is_exact && budget > 1e-10 && s->code != OP_ROPE && s->code != OP_ATTENTION ? 1e-10
                                                                                       : budget;
}

/* Ids must be equal; other outputs within the budget. */
static void compare(const struct parity_shape *s, double budget, const struct parity_result *ref,
                    const struct parity_result *found, char problem[256])
{
    problem[0] = '\0';
    if (found->problem[0]) memcpy(problem, found->problem, 256);
    if (ref->pool && memcmp(ref->pool, found->pool, ref->pool_bytes) != 0)
        snprintf(problem, 256, "the caches differ");
    for (int k = 0; k < 2 && ref->y[k]; k++) {
        if (s->code == OP_ROUTE && k == 0) {
            if (memcmp(ref->y[0], found->y[0], ref->n_y[0] * 4) != 0)
                snprintf(problem, 256, "other experts are chosen");
            continue;
        }
        double error = parity_nmse(found->y[k], ref->y[k], ref->n_y[k]);
        if (error > budget)
            snprintf(problem, 256, "error %.3g, at most %.3g expected", error, budget);
    }
}

/* A backend opened in several ways. */
enum { SETTINGS_MAX = 12 };

struct tested {
    const struct backend *backend;
    const struct device_options *options;
    struct device *devices[SETTINGS_MAX];
    size_t n;
};

/* The case is drawn again, because a device may have given pages of its weights back. */
static void check_setting(const struct tested *t, size_t k, size_t i, const char *label,
                          const struct parity_result *ref)
{
    const struct device_options *o = &t->options[k];
    struct parity_case c;
    struct parity_result found;
    struct carat_error err = {0};
    char problem[256];
    assert_true(parity_case_init(&c, &shapes[i], SEED + i));
    if (parity_run(t->backend, t->devices[k], &c, &found, &err)) {
        report(t->backend->name, o, label, err.message);
    } else {
        compare(&shapes[i], budget_of(t->backend, &shapes[i], o), ref, &found, problem);
        if (problem[0]) report(t->backend->name, o, label, problem);
        parity_result_deinit(&found);
    }
    parity_case_deinit(&c);
}

/* The reference is slow: it runs once for all settings. */
static void check_shape(const struct tested *t, size_t i)
{
    struct parity_case c;
    struct parity_result ref;
    struct carat_error err = {0};
    char label[160];
    parity_label(&shapes[i], label);
    assert_true(parity_case_init(&c, &shapes[i], SEED + i));
    assert_int_equal(parity_run(&ref_backend, reference, &c, &ref, &err), CARAT_OK);
    parity_case_deinit(&c);
    for (size_t k = 0; k < t->n; k++) check_setting(t, k, i, label, &ref);
    parity_result_deinit(&ref);
}

static void check_named(const char *name, const struct device_options *options, size_t n)
{
    struct carat_error err = {0};
    struct tested t = {.options = options, .n = n};
    need_device(name);
    assert_true(n <= SETTINGS_MAX);
    assert_int_equal(backend_find(&t.backend, name, &err), CARAT_OK);
    for (size_t k = 0; k < n; k++)
        if (t.backend->open(&t.devices[k], 0, &options[k], &err)) fail_msg("%s", err.message);
    n_wrong = 0;
    for (size_t i = 0; i < n_shapes; i++)
        if (!shapes[i].is_odd && t.backend->supports(shapes[i].code, shapes[i].format))
            check_shape(&t, i);
    for (size_t k = 0; k < n; k++) t.backend->close(t.devices[k]);
    if (n_wrong) fail_msg("%d cases differ", n_wrong);
}

static void cpu_agrees_with_the_reference(void **state)
{
    (void)state;
    struct device_options options[SETTINGS_MAX] = {
        {.n_threads = 1, .is_exact = true}, {.n_threads = 1}, {.n_threads = 3}};
    const char *isa;
    size_t n = 3;
    for (int32_t i = 0; (isa = carat_isa_name(i)); i++) {
        struct carat_error err = {0};
        if (carat_isa_probe(isa, &err) == CARAT_OK)
            options[n++] = (struct device_options){.n_threads = 2, .isa = isa};
        else
            print_message("not run: %s\n", err.message);
        assert_true(n <= SETTINGS_MAX);
    }
    check_named("cpu", options, n);
}

static void cuda_agrees_with_the_reference(void **state)
{
    (void)state;
    static const struct device_options options[] = {
        {.is_exact = true},
        {.is_exact = false},
        {.has_no_graphs = true},
        {.is_unfused = true},
        {.has_no_cublas = true, .matmul = MATMUL_FP16},
        {.table_place = TABLE_HOST},
        {.matmul = MATMUL_INT8},
        {.matmul = MATMUL_FP16},
        {.matmul = MATMUL_FP16, .decode_matmul = MATMUL_FP16},
    };
    check_named("cuda", options, sizeof options / sizeof *options);
}

static void every_backend_has_its_case(void **state);

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(cpu_agrees_with_the_reference),
    cmocka_unit_test(cuda_agrees_with_the_reference),
    cmocka_unit_test(every_backend_has_its_case),
};

static void every_backend_has_its_case(void **state)
{
    (void)state;
    for (int i = 0; backend_list[i]; i++) {
        const char *name = backend_list[i]->name;
        size_t length = strlen(name);
        bool is_there = backend_list[i] == &ref_backend;
        for (size_t k = 0; k < sizeof tests / sizeof *tests; k++)
            is_there = is_there ||
                       (strncmp(tests[k].name, name, length) == 0 && tests[k].name[length] == '_');
        if (!is_there) fail_msg("backend %s has no case here", name);
    }
}

static int open_reference(void **state)
{
    (void)state;
    struct carat_error err = {0};
    print_message("seed %d\n", SEED);
    n_shapes = parity_shapes(shapes);
    return ref_backend.open(&reference, 0, &(struct device_options){0}, &err);
}

static int close_reference(void **state)
{
    (void)state;
    ref_backend.close(reference);
    return mem_blocks_live() == 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* "cuda_*" */
    return cmocka_run_group_tests(tests, open_reference, close_reference);
}
