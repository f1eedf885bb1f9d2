/* What tells about an engine instead of answering: measurements, plans and devices as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "carat.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { SEED = 11 };

static struct scratch scratch;
static carat_model *models[GEMMA_SIZES];

static int open_models(void **state)
{
    (void)state;
    return tiny_models_begin(models, &scratch, SEED);
}

static int close_models(void **state)
{
    (void)state;
    return tiny_models_end(models, &scratch);
}

static void measuring_runs_and_checks_its_arguments(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options options = {
        .backend = "ref", .n_ctx = 128, .n_seq = 3, .chunk = 16};
    carat_engine *e;
    assert_int_equal(carat_engine_open(&e, models[GEMMA_26B], &options, &err), CARAT_OK);
    static const struct {
        struct carat_measure what;
        int status;
    } cases[] = {
        {{.n_prompt = 40}, CARAT_OK},
        {{.n_gen = 10, .users = 3}, CARAT_OK},
        {{.n_prompt = 20, .n_gen = 8, .depth = 100, .users = 2}, CARAT_OK},
        {{0}, CARAT_OK},
        {{.n_prompt = 21, .n_gen = 8, .depth = 100}, CARAT_ECONTEXT},
        {{.n_gen = INT32_MAX, .depth = INT32_MAX}, CARAT_ECONTEXT},
        {{.n_gen = 1, .users = 4}, CARAT_EUSAGE},
        {{.n_gen = -1}, CARAT_EUSAGE},
        {{.n_prompt = -1, .n_gen = 5}, CARAT_EUSAGE},
        {{.depth = -1}, CARAT_EUSAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds = -1;
        int status = carat_measure(e, &cases[i].what, &seconds, &err);
        if (status != cases[i].status) fail_msg("case %zu: %d: %s", i, status, err.message);
        assert_true(status ? seconds < 0 : seconds >= 0);
    }
    carat_engine_close(e);
}

static void the_plan_and_the_devices_can_be_read(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options options = {.backend = "ref", .n_ctx = 64, .n_seq = 4, .chunk = 16};
    char *decode, *prefill, *devices;
    assert_int_equal(carat_plan_text(models[GEMMA_E2B], &options, 3, 3, &decode, &err), CARAT_OK);
    assert_int_equal(carat_plan_text(models[GEMMA_E2B], &options, 20, 1, &prefill, &err), CARAT_OK);
    assert_non_null(strstr(decode, "rows at most 4 (token), 4 (out)"));
    assert_non_null(strstr(prefill, "rows at most 20 (token)"));
    assert_non_null(strstr(decode, "SOFTCAP"));
    assert_int_equal(carat_plan_text(models[GEMMA_E2B], &options, 21, 1, &devices, &err),
                     CARAT_EUSAGE);
    assert_int_equal(carat_plan_text(models[GEMMA_E2B], &options, 0, 0, &devices, &err),
                     CARAT_EUSAGE);
    assert_int_equal(carat_plan_text(models[GEMMA_E2B], &options, 1, -1, &devices, &err),
                     CARAT_EUSAGE);
    assert_int_equal(carat_devices_json(&devices, &err), CARAT_OK);
    assert_non_null(strstr(devices, "{\"backend\":\"ref\",\"index\":0,"));
    carat_free(decode);
    carat_free(prefill);
    carat_free(devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measuring_runs_and_checks_its_arguments),
        cmocka_unit_test(the_plan_and_the_devices_can_be_read),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
