/* The text of /metrics, by the rules of its readers: HELP and TYPE once and before the samples, no
 * sample twice, labels escaped, buckets that rise up to +Inf, which is the count. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "server/exposition.h"
#include "server/metrics.h"

enum { SAMPLES_MAX = 1000 };

static const struct metrics_now now = {
    .engine = {.pages_local = {.all = 10, .free = 2, .referenced = 5, .cached = 3},
               .pages_global = {.all = 40, .free = 10, .referenced = 10, .cached = 20},
               .prompt_tokens = 700,
               .cached_tokens = 300,
               .steps = 12},
    .running = 3,
    .waiting = 2,
    .pages_all = 10,
    .page_tokens = 64,
    .is_ready = true,
};

static char *written(struct metrics *m)
{
    static struct buf text;
    buf_clear(&text);
    metrics_write(m, &now, &text);
    assert_false(text.failed);
    return text.data;
}

/* The value of the one line that begins so. */
static double value_of(const char *text, const char *sample)
{
    char line[256];
    snprintf(line, sizeof line, "\n%s ", sample);
    const char *at = strstr(text, line);
    if (!at) fail_msg("%s is not there", sample);
    assert_null(strstr(at + 1, line));
    return strtod(at + strlen(line), NULL);
}

static void check_value(const char *text, const char *sample, double expected)
{
    double value = value_of(text, sample);
    if (fabs(value - expected) > 1e-6) fail_msg("%s is %g, expected %g", sample, value, expected);
}

static struct metrics *filled(const char *model)
{
    struct metrics *m;
    struct carat_error err = {0};
    assert_int_equal(metrics_open(&m, model, &err), CARAT_OK);
    for (int i = 0; i < 3; i++) metrics_reply(m, "/v1/chat/completions", 200);
    metrics_reply(m, "/v1/chat/completions", 429);
    metrics_reply(m, "other", 404);
    metrics_add(m, METRICS_QUEUE_REJECTED, 1);
    metrics_add(m, METRICS_CANCELLED_DECODE, 2);
    metrics_token_gap(m, 0.003);
    metrics_token_gap(m, 0.1); /* a bound belongs to its bucket */
    metrics_token_gap(m, 1e9);
    const struct metrics_answer answer = {.finish = "stop",
                                          .n_prompt = 100,
                                          .n_cached = 64,
                                          .n_generated = 20,
                                          .prefill = 0.2,
                                          .decode = 0.5,
                                          .first_token = 0.25,
                                          .whole = 0.75};
    metrics_answer(m, &answer);
    metrics_answer(m, &answer);
    return m;
}

static void every_family_is_whole_and_in_one_place(void **state)
{
    (void)state;
    struct metrics *m = filled("e4b");
    char *text = written(m), *seen[SAMPLES_MAX], family[128] = "", kind[32] = "";
    int n_seen = 0, n_help = 0, n_type = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char name[128];
        if (sscanf(line, "# HELP %127s", name) == 1) {
            snprintf(family, sizeof family, "%s", name);
            n_help++;
        } else if (sscanf(line, "# TYPE %127s %31s", name, kind) == 2) {
            assert_string_equal(name, family);
            n_type++;
        } else {
            assert_int_equal(strncmp(line, family, strlen(family)), 0);
            const char *rest = line + strlen(family);
            bool is_histogram = strcmp(kind, "histogram") == 0;
            assert_int_equal(is_histogram, rest[0] == '_');
            char *end = strrchr(line, ' ');
            assert_non_null(end);
            *end = '\0';
        }
        assert_true(n_seen < SAMPLES_MAX);
        for (int i = 0; i < n_seen; i++) assert_string_not_equal(seen[i], line);
        seen[n_seen++] = line;
    }
    assert_int_equal(n_help, n_type);
    assert_true(n_help > 50);
    metrics_close(m);
}

static void counters_and_gauges_say_what_was_counted(void **state)
{
    (void)state;
    struct metrics *m = filled("e4b");
    const char *text = written(m);
#define LABEL "{model=\"e4b\""
#define OTHER "{model_name=\"e4b\"}"
    const struct {
        const char *sample;
        double value;
    } expected[] = {
        {"carat_requests_total" LABEL ",route=\"/v1/chat/completions\",status=\"200\"}", 3},
        {"carat_requests_total" LABEL ",route=\"/v1/chat/completions\",status=\"429\"}", 1},
        {"carat_requests_total" LABEL ",route=\"other\",status=\"404\"}", 1},
        {"carat_request_success_total" LABEL ",finish_reason=\"stop\"}", 2},
        {"carat_request_success_total" LABEL ",finish_reason=\"error\"}", 0},
        {"carat_prompt_tokens_total" LABEL "}", 200},
        {"carat_prompt_tokens_cached_total" LABEL "}", 128},
        {"carat_generation_tokens_total" LABEL "}", 40},
        {"carat_queue_rejected_total" LABEL "}", 1},
        {"carat_cancelled_total" LABEL ",phase=\"decode\"}", 2},
        {"carat_cancelled_total" LABEL ",phase=\"queue\"}", 0},
        {"carat_kv_cells" LABEL ",kind=\"global\"}", 2560},
        {"carat_kv_cells_used" LABEL ",kind=\"swa\"}", 320},
        {"carat_kv_cache_usage_ratio" LABEL "}", 0.5},
        {"carat_prefix_cache_hits_total" LABEL "}", 300},
        {"vllm:num_requests_running" OTHER, 3},
        {"vllm:num_requests_waiting" OTHER, 2},
        {"vllm:kv_cache_usage_perc" OTHER, 0.5},
        {"vllm:gpu_cache_usage_perc" OTHER, 0.5},
        {"vllm:gpu_prefix_cache_queries_total" OTHER, 700},
        {"vllm:gpu_prefix_cache_hits_total" OTHER, 300},
        {"vllm:cache_config_info{block_size=\"64\",num_gpu_blocks=\"10\"}", 1},
        {"vllm:prompt_tokens_total" OTHER, 200},
        {"vllm:generation_tokens_total" OTHER, 40},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        check_value(text, expected[i].sample, expected[i].value);
    assert_true(value_of(text, "process_resident_memory_bytes") > 1e6);
    assert_true(value_of(text, "process_open_fds") >= 3);
    assert_true(value_of(text, "process_start_time_seconds") > 1.7e9);
    metrics_close(m);
}

static void buckets_rise_to_the_count(void **state)
{
    (void)state;
    struct metrics *m = filled("e4b");
    const char *text = written(m), *name = "carat_inter_token_latency_seconds_bucket" LABEL ",le=";
    const struct {
        const char *bound;
        int count;
    } expected[] = {{"0.001", 0}, {"0.0025", 0}, {"0.005", 1}, {"0.075", 1},
                    {"0.1", 2},   {"0.15", 2},   {"80", 2},    {"+Inf", 3}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char sample[128];
        snprintf(sample, sizeof sample, "%s\"%s\"}", name, expected[i].bound);
        check_value(text, sample, expected[i].count);
    }
    check_value(text, "carat_inter_token_latency_seconds_count" LABEL "}", 3);
    check_value(text, "carat_inter_token_latency_seconds_sum" LABEL "}", 1e9 + 0.103);
    check_value(text, "carat_request_prompt_tokens_sum" LABEL "}", 200);
    metrics_close(m);
}

static void labels_are_escaped(void **state)
{
    (void)state;
    struct metrics *m = filled("a\"b\\c\nd\xFFz");
    assert_non_null(strstr(written(m), "carat_ready{model=\"a\\\"b\\\\c\\nd\xEF\xBF\xBDz\"} 1\n"));
    metrics_close(m);
}

static void routes_are_bounded(void **state)
{
    (void)state;
    struct metrics *m = filled("e4b");
    for (int i = 0; i < 5000; i++) {
        char route[32];
        snprintf(route, sizeof route, "/%d", i);
        metrics_reply(m, route, 200);
    }
    const char *text = written(m);
    assert_true(strlen(text) < 200000);
    check_value(text, "carat_requests_total" LABEL ",route=\"other\",status=\"0\"}",
                5005 - 3 - 2 - (1023 - 3) + 0.0);
    metrics_close(m);
}

static void running_out_of_memory_is_seen(void **state)
{
    (void)state;
    struct metrics *m = filled("e4b");
    for (long n = 0;; n++) {
        struct buf text = {0};
        mem_fail_after(n);
        metrics_write(m, &now, &text);
        bool has_failed = mem_fail_after(-1);
        assert_int_equal(text.failed, has_failed);
        buf_deinit(&text);
        if (!has_failed) break;
    }
    metrics_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_is_whole_and_in_one_place),
        cmocka_unit_test(counters_and_gauges_say_what_was_counted),
        cmocka_unit_test(buckets_rise_to_the_count),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(routes_are_bounded),
        cmocka_unit_test(running_out_of_memory_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
