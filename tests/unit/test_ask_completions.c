/* OpenAI's completions requests as the server reads them. Requests are written with apostrophes for
 * quotes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/ask.h"
#include "support/asks.h"

#ifdef CARAT_HAVE_JSON

static struct ask taken(const char *text)
{
    return asks_taken(API_COMPLETIONS, text);
}

static void expect_refused(const char *text, const char *words)
{
    asks_expect_refused(API_COMPLETIONS, CARAT_EUSAGE, text, words);
}

static void prompts_come_in_four_shapes(void **state)
{
    (void)state;
    struct ask ask = taken("{'prompt':'one'}");
    assert_int_equal(ask.n_prompts, 1);
    assert_memory_equal(ask.prompts[0].text, "one", 3);
    assert_int_equal(ask.prompts[0].length, 3);
    assert_true(ask.prompts[0].has_special);
    assert_null(ask.prompts[0].ids);
    assert_int_equal(ask.request.max_tokens, 16);
    ask_close(&ask);
    ask = taken("{'prompt':['one','','three'],'max_tokens':5,'n':2}");
    assert_int_equal(ask.n_prompts, 3);
    assert_int_equal(ask.prompts[1].length, 0);
    assert_int_equal(ask.request.max_tokens, 5);
    assert_int_equal(ask.n, 2);
    ask_close(&ask);
    ask = taken("{'prompt':[2,7],'max_completion_tokens':3}");
    assert_int_equal(ask.n_prompts, 1);
    assert_int_equal(ask.prompts[0].n_ids, 2);
    assert_int_equal(ask.prompts[0].ids[1], 7);
    assert_int_equal(ask.request.max_tokens, 3);
    ask_close(&ask);
    ask = taken("{'prompt':[[2,7],[5]],'n_predict':9}");
    assert_int_equal(ask.n_prompts, 2);
    assert_int_equal(ask.prompts[1].ids[0], 5);
    assert_int_equal(ask.request.max_tokens, 9);
    ask_close(&ask);
}

static void old_log_probabilities_are_a_number_of_tokens(void **state)
{
    (void)state;
    struct ask ask = taken("{'prompt':'a','logprobs':3}");
    assert_true(ask.request.want_logprobs);
    assert_int_equal(ask.request.n_top_logprobs, 3);
    ask_close(&ask);
    ask = taken("{'prompt':'a','logprobs':0}");
    assert_true(ask.request.want_logprobs);
    assert_int_equal(ask.request.n_top_logprobs, 0);
    ask_close(&ask);
    ask = taken("{'prompt':'a','logprobs':null,'echo':true,'suffix':'','best_of':1,'stream':true,"
                "'ignore_eos':true}");
    assert_false(ask.request.want_logprobs);
    assert_true(ask.wants_echo && ask.is_stream && ask.request.ignores_stop);
    ask_close(&ask);
}

static void grammars_stay_and_what_only_chats_have_goes(void **state)
{
    (void)state;
    struct ask ask = taken("{'prompt':'a','grammar':'root ::= [a]','tools':[{}],'messages':7,"
                           "'enable_thinking':true}");
    assert_int_equal(json_member(&ask.request.root, "grammar")->kind, CARAT_STRING);
    assert_int_equal(json_member(&ask.request.root, "tools")->kind, CARAT_NULL);
    assert_int_equal(json_member(&ask.request.root, "messages")->kind, CARAT_NULL);
    assert_int_equal(json_member(&ask.request.root, "enable_thinking")->kind, CARAT_NULL);
    ask_close(&ask);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    expect_refused("{}", "prompt: a string or an array of token ids expected, null found");
    expect_refused("{'prompt':7}", "prompt: a string");
    expect_refused("{'prompt':[]}", "prompt: 1 to 8 prompts expected, 0 found");
    expect_refused("{'prompt':['a',7]}", "prompt[1]: a string");
    expect_refused("{'prompt':[[1],[]]}", "prompt[1]: a string");
    expect_refused("{'prompt':[1,-1]}", "prompt[1]: 0 to 2147483647 expected, -1 found");
    expect_refused("{'prompt':[1.5]}", "prompt[0]: an integer expected, 1.5 found");
    expect_refused("{'prompt':[[1],[2147483648]]}", "prompt[1][0]: 0 to 2147483647 expected");
    expect_refused("{'prompt':['','','','','','','','','']}", "prompt: 1 to 8 prompts");
    expect_refused("{'prompt':['a','b','c'],'n':3}", "n: at most 8 answers expected, 3 to each");
    expect_refused("{'prompt':'a','suffix':'b'}", "suffix: not supported");
    expect_refused("{'prompt':'a','best_of':2}", "best_of: as much as n expected, 2 and 1 found");
    expect_refused("{'prompt':'a','echo':true,'logprobs':0}", "echo: false expected");
    expect_refused("{'prompt':'a','logprobs':21}", "logprobs: 0 to 20 expected, 21 found");
    expect_refused("{'prompt':'a','logprobs':'x'}", "logprobs: an integer expected");
    expect_refused("{'prompt':'a','n':1000000000}", "n: 1 to 8 expected");
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    asks_expect_memory_reported(API_COMPLETIONS,
                                "{'prompt':[[1],[2]],'n':2,'logprobs':1,'user':'u'}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_come_in_four_shapes),
        cmocka_unit_test(old_log_probabilities_are_a_number_of_tokens),
        cmocka_unit_test(grammars_stay_and_what_only_chats_have_goes),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
