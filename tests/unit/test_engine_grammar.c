/* Requests with a grammar on an engine: what comes is a complete text of it, alone and in company
 * the same, on every model, with on_logits too. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "json/json_tree.h"
#include "support/answers.h"
#include "support/guesses.h"
#include "text/tokenizer.h"

enum { N_CTX = 256, N_SEQ = 6 };

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"name\":{\"type\":\"string\",\"maxLength\":12},"
    "\"size\":{\"enum\":[\"S\",\"M\",\"L\"]},\"count\":{\"type\":\"integer\",\"minimum\":1,"
    "\"maximum\":99},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},"
    "\"maxItems\":3}},"
    "\"required\":[\"name\",\"count\",\"tags\"]}";

static carat_engine *open_small(const carat_model *model, int32_t n_seq)
{
    struct carat_engine_options options = {.size = sizeof options,
                                           .backend = "cpu",
                                           .n_ctx = N_CTX,
                                           .n_seq = n_seq,
                                           .n_threads = 1,
                                           .max_itl_ms = 1e9,
                                           .n_draft = n_seq == 1 ? CARAT_DRAFT_MAX : 0};
    return open_engine(model, &options);
}

static struct carat_request request_for(const carat_grammar *g, const int32_t *prompt, size_t n,
                                        int i)
{
    static const struct carat_sampling kinds[] = {
        {0},
        {.temperature = 1.0f, .seed = 5},
        {.temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .seed = 6},
        {.temperature = 0.8f, .top_k = 20, .repeat_penalty = 1.1f, .seed = 7},
        {.temperature = 0.8f, .top_k = 20, .xtc_probability = 0.5f, .dry_multiplier = 1, .seed = 8},
        {.temperature = 0.8f, .mirostat = 2, .seed = 9},
        {.temperature = 2, .top_k = 40, .min_p = 0.1f, .seed = 10, .samplers = "ekmt"},
    };
    struct carat_request request = greedy_request(prompt, n, 0);
    request.want_logprob = i == 3;
    request.n_top_logprobs = 0;
    request.ignore_stop = false;
    request.sampling = kinds[i];
    request.grammar = g;
    return request;
}

static void write_answer(const carat_model *model, const struct answer *a, struct buf *text)
{
    for (int32_t i = 0; i < a->n; i++) tokenizer_decode_one(model->vocab, a->ids[i], false, text);
}

static void check_json(const carat_model *model, const struct answer *a)
{
    struct buf text = {0};
    struct json_tree tree;
    struct carat_error err = {0};
    write_answer(model, a, &text);
    print_message("%s\n", buf_text(&text));
    assert_int_equal(a->done.finish, CARAT_FINISH_STOP);
    int status = json_tree_read(&tree, buf_text(&text), text.length, JSON_PLAIN, &err);
    if (status != CARAT_EUNSUPPORTED) {
        if (status) fail_msg("%s: %s", buf_text(&text), err.message);
        int64_t count = json_member(&tree.root, "count")->as.integer;
        assert_in_range(count, 1, 99);
        assert_int_equal(json_member(&tree.root, "tags")->kind, CARAT_ARRAY);
        json_tree_free(&tree);
    }
    buf_deinit(&text);
}

/* Thoughts are free, so a model of random weights is kept from beginning one. */
static const struct carat_logit_bias no_thoughts = {.id = 100, .bias = -10000.0f};

static void answers_are_json_and_depend_neither_on_company_nor_on_guesses(void **state)
{
    (void)state;
    struct carat_error err = {0};
    carat_grammar *g;
    int32_t prompt[25];
    const carat_model *model = models[GEMMA_E4B];
    int status = carat_grammar_open_json_schema(&g, model, schema, sizeof schema - 1, &err);
    if (status == CARAT_EUNSUPPORTED && strstr(err.message, "jansson")) {
        print_message("skipped: built without jansson\n");
        return;
    }
    if (status) fail_msg("%s", err.message);
    draw_ids(TINY_SEED, prompt, 25);
    carat_engine *alone = open_small(model, 1), *together = open_small(model, N_SEQ);
    struct answer answers[N_SEQ];
    memset(answers, 0, sizeof answers);
    for (int i = 0; i < N_SEQ; i++) {
        struct carat_request request = request_for(g, prompt, (size_t)(5 + 4 * i), i);
        request.bias = &no_thoughts;
        request.n_bias = i != 2; /* without it, best pairs may be used where a device gives them */
        if (i == 2) request.sampling.seed = 9;
        answers[i].request = submit(together, &request);
    }
    run_all(together, answers, N_SEQ);
    for (int i = 0; i < N_SEQ; i++) {
        struct carat_request request = request_for(g, prompt, (size_t)(5 + 4 * i), i);
        request.bias = &no_thoughts;
        request.n_bias = i != 2;
        if (i == 2) request.sampling.seed = 9;
        guesses_clear();
        guesses_add(prompt, 5 + 4 * i, answers[i].ids, answers[i].n);
        struct answer a = ask(alone, &request);
        assert_true(a.done.n_accepted > 0 && a.done.n_accepted < a.done.n_drafted);
        assert_int_equal(a.n, answers[i].n);
        assert_memory_equal(a.ids, answers[i].ids, (size_t)a.n * sizeof *a.ids);
        if (i != 2) check_json(model, &a);
    }
    carat_engine_close(alone);
    carat_engine_close(together);
    carat_grammar_close(g);
}

static void gbnf_holds_on_every_model(void **state)
{
    (void)state;
    static const char text[] = "root ::= (\"yes\" | \"no\") \", \" [0-9]{2,4} \"!\"";
    struct carat_error err = {0};
    for (int size = 0; size < GEMMA_SIZES; size++) {
        const carat_model *model = models[size];
        carat_grammar *g;
        int32_t prompt[9];
        struct buf answer = {0};
        draw_ids(TINY_SEED, prompt, 9);
        assert_int_equal(carat_grammar_open_gbnf(&g, model, text, sizeof text - 1, &err), CARAT_OK);
        carat_engine *e = open_small(model, 1);
        struct carat_request request = request_for(g, prompt, 9, size % 2);
        request.bias = &no_thoughts;
        request.n_bias = 1;
        struct answer a = ask(e, &request);
        write_answer(model, &a, &answer);
        assert_int_equal(a.done.finish, CARAT_FINISH_STOP);
        const char *rest = strchr(buf_text(&answer), ',');
        assert_non_null(rest);
        assert_true(strncmp(answer.data, "yes,", 4) == 0 || strncmp(answer.data, "no,", 3) == 0);
        assert_in_range(strlen(rest), 5, 7);
        buf_deinit(&answer);
        carat_engine_close(e);
        carat_grammar_close(g);
    }
}

static void ban_all(void *user, const int32_t *ids, size_t n_ids, float *logits, int32_t n_vocab)
{
    (void)user;
    (void)ids;
    (void)n_ids;
    for (int32_t i = 0; i < n_vocab; i++)
        if (i % 2) logits[i] = -1e30f;
}

/* on_logits changes the row before the grammar masks it; what it leaves is what can come. */
static void on_logits_works_with_a_grammar(void **state)
{
    (void)state;
    struct carat_error err;
    carat_grammar *g;
    int32_t prompt[9];
    draw_ids(TINY_SEED, prompt, 9);
    assert_int_equal(carat_grammar_open_gbnf(&g, models[0], "root ::= [a-z]{3}", 17, &err),
                     CARAT_OK);
    carat_engine *e = open_small(models[0], 1);
    struct carat_request request = request_for(g, prompt, 9, 0);
    request.on_logits = ban_all;
    request.bias = &no_thoughts;
    request.n_bias = 1;
    struct answer a = ask(e, &request);
    struct buf text = {0};
    write_answer(models[0], &a, &text);
    assert_int_equal(a.done.finish, CARAT_FINISH_STOP);
    assert_int_equal(text.length, 3);
    buf_deinit(&text);
    carat_engine_close(e);
    carat_grammar_close(g);
}

/* The model itself may not end the thought here, and begins no other one. */
static void a_thought_ends_after_max_thinking_tokens(void **state)
{
    (void)state;
    struct carat_error err;
    carat_grammar *g;
    const struct vocab *v = models[0]->vocab;
    int32_t end = vocab_special(v, VOCAB_CHANNEL_END), prompt[9];
    draw_ids(TINY_SEED, prompt, 9);
    struct carat_logit_bias bias[] = {
        {end, -INFINITY},
        {vocab_special(v, VOCAB_CHANNEL_BEGIN), -INFINITY},
        {vocab_special(v, VOCAB_CALL_BEGIN), -INFINITY},
        {vocab_special(v, VOCAB_RESPONSE_BEGIN), -INFINITY},
    };
    assert_int_equal(carat_grammar_open_gbnf(&g, models[0], "root ::= [a-z]{3}", 17, &err),
                     CARAT_OK);
    carat_engine *e = open_small(models[0], 1);
    for (int i = 0; i < 8; i++) {
        bool has_grammar = i & 1, has_logprobs = i & 2;
        int32_t budget = i & 4 ? 1 : 6;
        struct carat_request request = request_for(has_grammar ? g : NULL, prompt, 9, 0);
        prompt[8] = vocab_special(v, VOCAB_CHANNEL_BEGIN);
        request.bias = bias;
        request.n_bias = sizeof bias / sizeof *bias;
        request.max_tokens = 20;
        request.ignore_stop = !has_grammar;
        request.max_thinking = budget;
        request.want_logprob = has_logprobs;
        request.n_top_logprobs = has_logprobs ? 2 : 0;
        struct answer a = ask(e, &request);
        assert_true(a.n > budget);
        for (int k = 0; k < a.n; k++) assert_int_equal(a.ids[k] == end, k == budget);
        assert_int_equal(a.done.n_thinking, budget);
        if (has_logprobs) assert_true(a.logprobs[budget] < 0 && a.logprobs[budget] > -100);
        assert_int_equal(a.done.finish, has_grammar ? CARAT_FINISH_STOP : CARAT_FINISH_LENGTH);
        prompt[8] = 5; /* no thought: no limit */
        a = ask(e, &request);
        for (int k = 0; k < a.n; k++) assert_int_not_equal(a.ids[k], end);
        assert_int_equal(a.done.n_thinking, 0);
    }
    carat_engine_close(e);
    carat_grammar_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_json_and_depend_neither_on_company_nor_on_guesses),
        cmocka_unit_test(gbnf_holds_on_every_model),
        cmocka_unit_test(on_logits_works_with_a_grammar),
        cmocka_unit_test(a_thought_ends_after_max_thinking_tokens),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
