/* Chat requests: what each member does, and what is refused, by name. Requests are written with
 * apostrophes for quotes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "json/chat_request.h"
#include "json/sampling_fields.h"

#ifdef CARAT_HAVE_JSON

static const struct carat_sampling defaults = {
    .temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .repeat_last_n = 64};

/* Reads {"messages": [one], ...}. */
static int read_with(const char *members, struct chat_request *r, struct carat_error *err)
{
    char text[2048];
    snprintf(text, sizeof text, "{'messages':[{'role':'user','content':'Hi'}]%s%s}",
             members[0] ? "," : "", members);
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    return chat_request_read(r, text, strlen(text), &defaults, err);
}

static void expect_refused(const char *members, const char *words)
{
    struct chat_request r;
    struct carat_error err = {0};
    long before = mem_blocks_live();
    int status = read_with(members, &r, &err);
    bool is_refused = status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED;
    if (!is_refused || !strstr(err.message, words))
        fail_msg("%s: status %d, \"%s\"; \"%s\" expected", members, status, err.message, words);
    assert_int_equal(mem_blocks_live(), before);
}

static void nothing_said_leaves_the_defaults(void **state)
{
    (void)state;
    static const char *const same[] = {
        "", "'temperature':null,'stop':null,'n':null,'tools':null,'seed':null,'logit_bias':null",
        "'model':'gpt-x','stream':true,'user':'u','metadata':{'a':1},'store':false,'n':1",
        "'mirostat':0,'typical_p':null,'dry_sequence_breakers':null",
        "'modalities':['text'],'functions':[],'seed':-1"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct chat_request r;
        struct carat_error err;
        assert_int_equal(read_with(same[i], &r, &err), CARAT_OK);
        assert_memory_equal(&r.sampling, &defaults, sizeof defaults);
        assert_false(r.has_seed || r.want_logprobs);
        assert_int_equal(r.max_tokens, -1);
        assert_int_equal(r.n_stops + r.n_bias, 0);
        assert_int_equal(json_member(&r.root, "enable_thinking")->kind, CARAT_NULL);
        chat_request_close(&r);
    }
}

static void every_member_is_taken(void **state)
{
    (void)state;
    struct chat_request r;
    struct carat_error err;
    assert_int_equal(
        read_with("'temperature':0,'top_p':0.5,'top_k':-1,'min_p':0.25,'presence_penalty':-2,"
                  "'frequency_penalty':2,'repeat_penalty':1.5,'repeat_last_n':0,'seed':-7,"
                  "'max_tokens':9,'max_completion_tokens':5,'stop':['a','\\u00e9'],"
                  "'logit_bias':{'3':-100,'12':1.5},'logprobs':true,'top_logprobs':20",
                  &r, &err),
        CARAT_OK);
    assert_true(r.sampling.temperature == 0 && r.sampling.top_p == 0.5f);
    assert_true(r.sampling.min_p == 0.25f && r.sampling.presence_penalty == -2);
    assert_true(r.sampling.frequency_penalty == 2 && r.sampling.repeat_penalty == 1.5f);
    assert_int_equal(r.sampling.top_k, 0);
    assert_int_equal(r.sampling.repeat_last_n, 0);
    assert_true(r.has_seed && r.sampling.seed == (uint64_t)-7);
    assert_int_equal(r.max_tokens, 5); /* the newer name wins */
    assert_int_equal(r.n_stops, 2);
    assert_string_equal(r.stops[0], "a");
    assert_string_equal(r.stops[1], "\xC3\xA9");
    assert_int_equal(r.n_bias, 2);
    assert_int_equal(r.bias[0].id, 3);
    assert_true(r.bias[0].bias < -1e30f); /* banned */
    assert_true(r.bias[1].id == 12 && r.bias[1].bias == 1.5f);
    assert_true(r.want_logprobs);
    assert_int_equal(r.n_top_logprobs, 20);
    chat_request_close(&r);
    assert_int_equal(read_with("'stop':'END'", &r, &err), CARAT_OK);
    assert_int_equal(r.n_stops, 1);
    assert_string_equal(r.stops[0], "END");
    chat_request_close(&r);
}

static void samplers_are_taken_in_the_words_of_llama_server(void **state)
{
    (void)state;
    struct chat_request r;
    struct carat_error err;
    assert_int_equal(
        read_with("'typical_p':0.5,'top_n_sigma':-1,'xtc_probability':0.25,'xtc_threshold':0.125,"
                  "'dynatemp_range':2,'dynatemp_exponent':1.5,'dry_multiplier':0.75,'dry_base':3,"
                  "'dry_allowed_length':4,'dry_penalty_last_n':0,"
                  "'dry_sequence_breakers':['\\n','\u00e9 x'],'mirostat':2,'mirostat_tau':6,"
                  "'mirostat_eta':0.5,'samplers':['top_p','top_k','temperature']",
                  &r, &err),
        CARAT_OK);
    const struct carat_sampling *p = &r.sampling;
    assert_true(p->typical_p == 0.5f && p->top_n_sigma == -1);
    assert_true(p->xtc_probability == 0.25f && p->xtc_threshold == 0.125f);
    assert_true(p->dynatemp_range == 2 && p->dynatemp_exponent == 1.5f);
    assert_true(p->dry_multiplier == 0.75f && p->dry_base == 3);
    assert_int_equal(p->dry_allowed_length, 4);
    assert_int_equal(p->dry_penalty_last_n, 0);
    assert_true(sampling_literal(*p).dry_multiplier == 0); /* looks at none */
    assert_int_equal(p->n_dry_breakers, 2);
    assert_string_equal(p->dry_breakers[0], "\n");
    assert_string_equal(p->dry_breakers[1], "\xC3\xA9 x");
    assert_true(p->mirostat == 2 && p->mirostat_tau == 6 && p->mirostat_eta == 0.5f);
    assert_string_equal(p->samplers, "pkt");
    chat_request_close(&r);
    assert_int_equal(read_with("'samplers':'mx'", &r, &err), CARAT_OK);
    assert_string_equal(r.sampling.samplers, "mx");
    chat_request_close(&r);
    assert_int_equal(read_with("'samplers':[]", &r, &err), CARAT_OK);
    assert_string_equal(r.sampling.samplers, "-");
    chat_request_close(&r);
    assert_int_equal(read_with("'dry_sequence_breakers':[],'xtc_threshold':0", &r, &err), CARAT_OK);
    assert_true(p->dry_breakers && p->n_dry_breakers == 0);
    float threshold = sampling_literal(*p).xtc_threshold;
    assert_true(threshold > 0 && threshold < 1e-30f); /* 0 is no default there */
    chat_request_close(&r);
}

/* -1: not said. */
static void expect_thinking(const char *members, int thinks)
{
    struct chat_request r;
    struct carat_error err;
    assert_int_equal(read_with(members, &r, &err), CARAT_OK);
    const struct carat_value *value = json_member(&r.root, "enable_thinking");
    int found = value->kind == CARAT_BOOL ? value->as.boolean : -1;
    if (found != thinks) fail_msg("%s: %d found, %d expected", members, found, thinks);
    chat_request_close(&r);
}

static void thinking_is_decided(void **state)
{
    (void)state;
    expect_thinking("", -1);
    expect_thinking("'reasoning_effort':'none'", 0);
    expect_thinking("'reasoning_effort':'low'", 1);
    expect_thinking("'reasoning_effort':'none','enable_thinking':true", 1);
    expect_thinking("'reasoning_effort':'high','chat_template_kwargs':{'enable_thinking':false}",
                    0);
    expect_thinking("'enable_thinking':true,'chat_template_kwargs':{'enable_thinking':false}", 1);
    expect_thinking("'chat_template_kwargs':{'other':3}", -1);
}

static void what_would_change_the_meaning_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *members, *words;
    } cases[] = {
        {"'n':2", "n: 1 expected"},
        {"'n':1000000000", "n: 1 expected"},
        {"'n':'1'", "n: 1 expected"},
        {"'messages':[{'role':'user','content':[{'type':'text','text':'x'},"
         "{'type':'image_url','image_url':{'url':'u'}}]}]",
         "messages[0].content[1].type: \"image_url\" is not supported"},
        {"'messages':[{'role':'user','content':[{'type':'input_audio'}]}]",
         "messages[0].content[0].type"},
        {"'messages':[{'role':'user','content':[{'type':'file'}]}]", "\"file\" is not supported"},
        {"'messages':[{'role':'user','content':'x'},{'role':'assistant','content':null}]",
         "messages[1]: content or tool_calls expected"},
        {"'messages':[{'role':'assistant','tool_calls':[]}]", "messages[0]: content or"},
        {"'modalities':['text','audio']", "modalities[1]"},
        {"'tools':[{'type':'custom','custom':{}}]", "tools[0].type: \"function\" expected"},
        {"'functions':[{'name':'f'}]", "functions: not supported"},
        {"'guided_json':{'type':'object'}", "guided_json"},
        {"'samplers':7", "samplers: an array of names or a string of letters expected"},
        {"'samplers':['xtc',7]", "samplers[1]: a string expected"},
        {"'samplers':['xtc','xtcc']", "samplers[1]: no sampler is called \"xtcc\""},
        {"'mirostat':1", "mirostat: 0 (off) or 2 expected, 1 found"},
        {"'mirostat':3", "mirostat: 0 (off) or 2 expected, 3 found"},
        {"'typical_p':1.5", "typical_p: 0 to 1 expected, 1.5 found"},
        {"'top_n_sigma':-2", "top_n_sigma: -1 to 100"},
        {"'xtc_probability':'a'", "xtc_probability: a number expected, a string found"},
        {"'dry_base':0.5", "dry_base: 1 to 100"},
        {"'dry_allowed_length':0", "dry_allowed_length: 1 to 1048576"},
        {"'dry_penalty_last_n':-2", "dry_penalty_last_n: -1 to 1048576"},
        {"'dry_sequence_breakers':'x'", "dry_sequence_breakers: an array expected"},
        {"'dry_sequence_breakers':['x',7]", "dry_sequence_breakers[1]: a string expected"},
        {"'dry_sequence_breakers':['']", "dry_sequence_breakers[0]: 1 to 40 bytes expected"},
        {"'dry_sequence_breakers':['a\\u0000b']", "dry_sequence_breakers[0]: a text without NUL"},
        {"'dry_sequence_breakers':['12345678901234567890123456789012345678901']",
         "dry_sequence_breakers[0]: 1 to 40 bytes expected, 41 found"},
        {"'dry_sequence_breakers':[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
         "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]",
         "dry_sequence_breakers: at most 32 strings expected, 33 found"},
        {"'temperature':-1", "temperature: 0 to 100 expected, -1 found"},
        {"'temperature':'hot'", "temperature: a number expected, a string found"},
        {"'top_p':1.5", "top_p: 0 to 1"},
        {"'top_k':1.5", "top_k: an integer expected, 1.5 found"},
        {"'presence_penalty':3", "presence_penalty: -2 to 2"},
        {"'seed':1.5", "seed: an integer"},
        {"'max_tokens':-2", "max_tokens: -1 to"},
        {"'max_completion_tokens':99999999999", "max_completion_tokens"},
        {"'stop':''", "stop: 1 to 256 bytes expected, 0 found"},
        {"'stop':['a','']", "stop[1]: 1 to 256"},
        {"'stop':['a\\u0000b']", "stop[0]"},
        {"'stop':[1]", "stop[0]: a string expected"},
        {"'stop':7", "stop: a string or an array"},
        {"'logit_bias':{'x':1}", "logit_bias: token ids expected"},
        {"'logit_bias':{'-1':1}", "logit_bias: token ids expected"},
        {"'logit_bias':{'5':'a'}", "logit_bias.5: a number of at most 10000"},
        {"'logit_bias':{'5':10001}", "logit_bias.5: a number of at most 10000"},
        {"'logit_bias':[1]", "logit_bias: an object"},
        {"'logprobs':1", "logprobs: a boolean"},
        {"'top_logprobs':3", "top_logprobs: \"logprobs\": true"},
        {"'logprobs':true,'top_logprobs':21", "top_logprobs: 0 to 20"},
        {"'reasoning_effort':'much'", "reasoning_effort"},
        {"'enable_thinking':1", "enable_thinking: a boolean"},
        {"'chat_template_kwargs':[]", "chat_template_kwargs: an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i].members, cases[i].words);
}

static void what_is_no_request_is_refused(void **state)
{
    (void)state;
    struct chat_request r;
    struct carat_error err;
    static const char *const texts[] = {"", "{", "[]", "3", "\"x\"", "{\"request\":4}", "nul"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(chat_request_read(&r, texts[i], strlen(texts[i]), &defaults, &err),
                         CARAT_EUSAGE);
}

static void a_member_is_put_once(void **state)
{
    (void)state;
    struct chat_request r;
    struct carat_error err;
    struct carat_value yes = {.kind = CARAT_BOOL, .as.boolean = true};
    assert_int_equal(read_with("'a':1", &r, &err), CARAT_OK);
    size_t count = r.root.as.object.count;
    assert_int_equal(chat_request_put(&r, "a", yes, &err), CARAT_OK);
    assert_int_equal(r.root.as.object.count, count);
    assert_int_equal(chat_request_put(&r, "b", yes, &err), CARAT_OK);
    assert_int_equal(r.root.as.object.count, count + 1);
    assert_int_equal(json_member(&r.root, "a")->kind, CARAT_BOOL);
    assert_int_equal(json_member(&r.root, "b")->kind, CARAT_BOOL);
    assert_int_equal(json_member(&r.root, "messages")->kind, CARAT_ARRAY);
    chat_request_close(&r);
}

static void memory_that_is_out_is_reported(void **state)
{
    (void)state;
    const char *members = "'stop':['a','b'],'logit_bias':{'1':1},'reasoning_effort':'low',"
                          "'chat_template_kwargs':{'preserve_thinking':true}";
    for (long n = 0; n < 100; n++) {
        struct chat_request r;
        struct carat_error err;
        long before = mem_blocks_live();
        mem_fail_after(n);
        int status = read_with(members, &r, &err);
        bool has_failed = mem_fail_after(-1);
        if (status == CARAT_OK) chat_request_close(&r);
        assert_int_equal(mem_blocks_live(), before);
        if (!has_failed) return;
        assert_int_equal(status, CARAT_EMEMORY);
    }
    fail_msg("memory never sufficed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_said_leaves_the_defaults),
        cmocka_unit_test(every_member_is_taken),
        cmocka_unit_test(samplers_are_taken_in_the_words_of_llama_server),
        cmocka_unit_test(thinking_is_decided),
        cmocka_unit_test(what_would_change_the_meaning_is_refused),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(a_member_is_put_once),
        cmocka_unit_test(memory_that_is_out_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else
#include "support/without_jansson.h"
#endif
