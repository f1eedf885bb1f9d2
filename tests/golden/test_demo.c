/* The demo model answers as llama.cpp does: its greedy ids for a few prompts are a fixture (made
 * by tools/oracle/golden.py), and every backend must give the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_JSON

#include <jansson.h>

#include "carat.h"
#include "support/devices.h"

#define DEMO CARAT_SOURCE_DIR "/models/demo.gguf"
#define FIXTURE CARAT_SOURCE_DIR "/tests/golden/fixtures/demo-greedy.json"

enum { IDS_MAX = 1024 };

struct ids {
    int32_t at[IDS_MAX];
    size_t n;
};

static struct ids read_ids(const json_t *array)
{
    struct ids ids = {.n = json_array_size(array)};
    assert_in_range(ids.n, 1, IDS_MAX);
    for (size_t i = 0; i < ids.n; i++)
        ids.at[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

/* The greedy answer; its last id is the one that ended it. */
static struct ids answer(carat_engine *engine, const struct ids *prompt)
{
    struct carat_error err = {0};
    struct ids out = {.n = 0};
    struct carat_request request = {
        .prompt = prompt->at,
        .n_prompt = prompt->n,
        .max_tokens = 200,
        .sampling = {.temperature = 0, .top_p = 1, .repeat_penalty = 1}};
    carat_request_id id;
    assert_int_equal(carat_submit(engine, &request, &id, &err), CARAT_OK);
    for (int more = 1; more > 0;) {
        more = carat_step(engine, &err);
        assert_true(more >= 0);
        const struct carat_event *event;
        while ((event = carat_next_event(engine))) {
            if (event->kind == CARAT_EVENT_TOKEN) out.at[out.n++] = event->id;
            if (event->kind == CARAT_EVENT_DONE) {
                assert_int_equal(event->finish, CARAT_FINISH_STOP);
                out.at[out.n++] = event->stop_id;
            }
        }
    }
    return out;
}

static void check_backend(const struct carat_engine_options *options)
{
    struct carat_error err = {0};
    carat_model *model;
    carat_engine *engine;
    json_t *root = json_load_file(FIXTURE, 0, NULL), *item;
    size_t i;
    assert_non_null(root);
    assert_int_equal(carat_model_open(&model, DEMO, &err), CARAT_OK);
    assert_int_equal(carat_engine_open(&engine, model, options, &err), CARAT_OK);
    json_array_foreach(json_object_get(root, "cases"), i, item)
    {
        struct ids prompt = read_ids(json_object_get(item, "prompt"));
        struct ids expected = read_ids(json_object_get(item, "answer"));
        struct ids found = answer(engine, &prompt);
        assert_int_equal(found.n, expected.n);
        assert_memory_equal(found.at, expected.at, expected.n * sizeof *expected.at);
    }
    assert_in_range(i, 3, 100);
    carat_engine_close(engine);
    carat_model_close(model);
    json_decref(root);
}

static void ref_gives_the_ids_of_llama_cpp(void **state)
{
    (void)state;
    check_backend(&(struct carat_engine_options){.backend = "ref"});
}

static void cpu_gives_the_ids_of_llama_cpp(void **state)
{
    (void)state;
    check_backend(
        &(struct carat_engine_options){.backend = "cpu", .n_threads = 2, .isa = forced_isa()});
}

static void cpu_in_small_chunks_gives_the_ids_of_llama_cpp(void **state)
{
    (void)state;
    check_backend(
        &(struct carat_engine_options){.backend = "cpu", .chunk = 5, .isa = forced_isa()});
}

/* In fp32 too: there the answer must not depend on rounding at all. */
static void cuda_gives_the_ids_of_llama_cpp(void **state)
{
    (void)state;
    need_device("cuda");
    check_backend(&(struct carat_engine_options){.backend = "cuda"});
    check_backend(&(struct carat_engine_options){.backend = "cuda", .chunk = 5});
    check_backend(
        &(struct carat_engine_options){.backend = "cuda", .precision = CARAT_PRECISION_FP32});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(cpu_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(cpu_in_small_chunks_gives_the_ids_of_llama_cpp),
        cmocka_unit_test(cuda_gives_the_ids_of_llama_cpp),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* "cuda_*" */
    return cmocka_run_group_tests_name("demo", tests, NULL, NULL);
}

#else

static void answers_of_the_demo_model(void **state)
{
    (void)state;
    print_message("skipped: built without jansson, which reads the fixture\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_of_the_demo_model)};
    return cmocka_run_group_tests_name("demo", tests, NULL, NULL);
}

#endif
