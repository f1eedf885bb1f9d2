/* What describes an engine instead of answering: measurements, plans and devices as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "carat_inspect.h"
#include "support/engines.h"

static void measuring_runs_and_checks_its_arguments(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_engine_options options = {.backend = "ref", .n_ctx = 128, .n_seq = 3, .chunk = 16};
    carat_engine *e = open_engine(models[GEMMA_26B], &options);
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

/* ---- Profiles --------------------------------------------------------------------------- */

/* The milliseconds in the title of a table, and the sum of those of its rows. */
static void sum_table(const char *title, double *told, double *sum)
{
    const char *line = strchr(title, ',');
    *sum = 0;
    assert_int_equal(sscanf(line, ", %lf ms each", told), 1);
    line = strchr(strchr(line, '\n') + 1, '\n') + 1; /* after the column heads */
    for (bool is_last = false; !is_last; line = strchr(line, '\n') + 1) {
        double ms;
        is_last = strncmp(line, "host, gaps", 10) == 0;
        assert_int_equal(sscanf(line + 50, "%lf", &ms), 1);
        *sum += ms;
    }
}

static void profile(enum gemma_size size, const struct carat_engine_options *options)
{
    carat_engine *e = open_engine(models[size], options);
    struct carat_error err = {0};
    char *text;
    double seconds, told, sum;
    struct carat_measure what = {.n_prompt = 100, .n_gen = 4};
    assert_int_equal(carat_measure(e, &what, &seconds, &err), CARAT_OK);
    assert_int_equal(carat_profile_text(e, &text, &err), CARAT_OK);
    const char *prefill = strstr(text, "prefill: 1 steps"), *decode = strstr(text, "decode: 4 ste");
    if (!prefill || !decode) fail_msg("a table is missing in:\n%s", text);
    if (size == GEMMA_26B && !strstr(text, "EXPERT_IN")) fail_msg("no experts in:\n%s", text);
    assert_non_null(strstr(prefill, "attention local"));
    for (int i = 0; i < 2; i++) {
        sum_table(i ? decode : prefill, &told, &sum);
        if (told <= 0 || sum < told - 0.05 || sum > told + 0.05) /* rows are rounded to 1 us */
            fail_msg("rows sum to %.3f ms:\n%s", sum, text);
    }
    carat_free(text);
    carat_engine_close(e);
}

static void a_profile_on_the_cpu_tells_where_all_the_time_went(void **state)
{
    (void)state;
    for (int n_threads = 0; n_threads < 3; n_threads++) { /* 0: small steps on one thread */
        struct carat_engine_options options = {
            .backend = "cpu", .n_ctx = 128, .chunk = 128, .n_threads = n_threads, .profile = true};
        profile(GEMMA_E4B, &options);
        profile(GEMMA_26B, &options);
    }
}

static void no_profile_is_an_error_that_names_the_backend(void **state)
{
    (void)state;
    static const struct carat_engine_options cases[] = {
        {.backend = "ref", .n_ctx = 128, .profile = true},
        {.backend = "cpu", .n_ctx = 128},
    };
    for (int i = 0; i < 2; i++) {
        carat_engine *e = open_engine(models[GEMMA_E2B], &cases[i]);
        struct carat_error err = {0};
        char *text, expected[64];
        assert_int_equal(carat_profile_text(e, &text, &err), CARAT_EUSAGE);
        snprintf(expected, sizeof expected, "backend \"%s\" has taken no profile",
                 cases[i].backend);
        assert_string_equal(err.message, expected);
        carat_engine_close(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measuring_runs_and_checks_its_arguments),
        cmocka_unit_test(the_plan_and_the_devices_can_be_read),
        cmocka_unit_test(a_profile_on_the_cpu_tells_where_all_the_time_went),
        cmocka_unit_test(no_profile_is_an_error_that_names_the_backend),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
