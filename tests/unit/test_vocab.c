/* Vocabularies: what a good one holds, and every way in which one may be malformed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "support/cost.h"
#include "support/text_fixture.h"
#include "text/sampling_defaults.h"

enum { N = 1024 };

/* ---- A good one ---- */

static int count_stops(const struct vocab *v)
{
    int n = 0;
    for (int32_t id = 0; id < vocab_count(v); id++) n += vocab_is_stop(v, id);
    return n;
}

static void test_specials(void **state)
{
    (void)state;
    struct text_fixture f;
    text_fixture_open(&f, N);
    assert_int_equal(vocab_count(f.v), N);
    assert_int_equal(vocab_special(f.v, VOCAB_BOS), 2);
    assert_int_equal(vocab_special(f.v, VOCAB_TURN_BEGIN), 105);
    assert_int_equal(vocab_special(f.v, VOCAB_QUOTE), 52);
    assert_int_equal(vocab_special(f.v, VOCAB_IMAGE), -1); /* beyond 1024 */
    assert_int_equal(vocab_class(f.v, 1), TOKEN_CONTROL);
    assert_int_equal(vocab_class(f.v, 100), TOKEN_USER_DEFINED);
    assert_int_equal(vocab_class(f.v, 212), TOKEN_PLAIN); /* </s> is an HTML tag */
    assert_int_equal(vocab_class(f.v, 238 + 65), TOKEN_BYTE);
    assert_int_equal(vocab_byte(f.v, 65), 238 + 65);
    assert_int_equal(vocab_byte_value(f.v, 238 + 65), 65);
    assert_int_equal(vocab_class(f.v, -1), TOKEN_CONTROL);
    assert_int_equal(vocab_class(f.v, N), TOKEN_CONTROL);
    size_t length;
    assert_string_equal(vocab_piece(f.v, N, &length), "");
    assert_int_equal(length, 0);
    assert_memory_equal(vocab_piece(f.v, 106, &length), "<turn|>", 7);
    assert_int_equal(length, 7);
    assert_true(vocab_is_stop(f.v, 1) && vocab_is_stop(f.v, 106) && vocab_is_stop(f.v, 50));
    assert_false(vocab_is_stop(f.v, 212) || vocab_is_stop(f.v, 2));
    assert_int_equal(count_stops(f.v), 3);
    assert_string_equal(vocab_note(f.v), "");
    text_fixture_deinit(&f);
}

static void test_lookup(void **state)
{
    (void)state;
    struct text_fixture f;
    text_fixture_open(&f, N);
    for (int32_t id = 0; id < N; id++) {
        size_t length;
        const char *text = vocab_piece(f.v, id, &length);
        assert_int_equal(vocab_find(f.v, text, length), id);
        assert_int_equal(vocab_find_plain(f.v, text, length),
                         vocab_class(f.v, id) == TOKEN_PLAIN ? id : -1);
    }
    assert_int_equal(vocab_find(f.v, "no such token", 13), -1);
    int32_t product = -1;
    int32_t newline = vocab_find(f.v, "\n", 1);
    assert_int_equal(vocab_merge(f.v, newline, newline, &product), 0);
    assert_int_equal(product, vocab_find(f.v, "\n\n", 2));
    assert_int_equal(vocab_merge(f.v, newline, 5, &product), -1);
    assert_int_equal(vocab_merge(f.v, -1, newline, &product), -1);
    text_fixture_deinit(&f);
}

static void test_matching(void **state)
{
    (void)state;
    struct text_fixture f;
    text_fixture_open(&f, N);
    size_t n = 0;
    assert_int_equal(vocab_match_special(f.v, CARAT_SPECIAL_ALL, "<|tool_call>x", 13, &n), 48);
    assert_int_equal(n, 12);
    assert_int_equal(vocab_match_special(f.v, CARAT_SPECIAL_ALL, "<|tool>_call>", 13, &n), 46);
    assert_int_equal(n, 7);
    assert_int_equal(vocab_match_special(f.v, CARAT_SPECIAL_ALL, "<|tool", 6, &n), -1);
    assert_int_equal(vocab_match_special(f.v, CARAT_SPECIAL_USER_DEFINED, "<|tool>", 7, &n), -1);
    assert_int_equal(vocab_match_special(f.v, CARAT_SPECIAL_USER_DEFINED, "<|\"|>", 5, &n), 52);
    assert_int_equal(vocab_match_special(f.v, CARAT_SPECIAL_NONE, "<|\"|>", 5, &n), -1);
    text_fixture_deinit(&f);
}

/* Types add nothing to the texts: without them the vocabulary is the same. */
static void test_without_types(void **state)
{
    (void)state;
    struct text_fixture f;
    struct carat_error err;
    text_fixture_init(&f, N);
    gguf_drop_key(&f.writer, "tokenizer.ggml.token_type");
    gguf_drop_key(&f.writer, "tokenizer.ggml.scores");
    gguf_put_text(&f.writer, "tokenizer.ggml.model", "llama");
    gguf_put_text(&f.writer, "tokenizer.ggml.pre", "gemma4");
    int32_t stops[] = {1, 106, 50, 7}, suppressed[] = {9, 11};
    gguf_put_array(&f.writer, "tokenizer.ggml.eos_token_ids", GGUF_I32, stops, 4);
    gguf_put_array(&f.writer, "tokenizer.ggml.suppress_tokens", GGUF_I32, suppressed, 2);
    text_fixture_parse(&f);
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    assert_int_equal(vocab_class(f.v, 106), TOKEN_CONTROL);
    assert_int_equal(vocab_class(f.v, 240), TOKEN_BYTE);
    assert_int_equal(count_stops(f.v), 4);
    assert_true(vocab_is_stop(f.v, 7));
    size_t n;
    const int32_t *ids = vocab_suppressed(f.v, &n);
    assert_int_equal(n, 2);
    assert_memory_equal(ids, suppressed, sizeof suppressed);
    text_fixture_deinit(&f);
}

/* ---- Malformed ones ---- */

static struct gguf_string tokens[N];
static int32_t types[N];

static void set_token(struct text_fixture *f, int32_t id, const char *text, size_t length)
{
    struct text_fixture good;
    text_fixture_open(&good, N);
    for (int32_t i = 0; i < N; i++) tokens[i].data = vocab_piece(good.v, i, &tokens[i].length);
    tokens[id] = (struct gguf_string){text, length};
    gguf_put_strings(&f->writer, "tokenizer.ggml.tokens", tokens, N);
    text_fixture_deinit(&good);
}

static void set_merge(struct text_fixture *f, const char *text)
{
    struct gguf_string merges[] = {{"\n \n", 3}, {text, strlen(text)}};
    gguf_put_strings(&f->writer, "tokenizer.ggml.merges", merges, 2);
}

/* clang-format off */
static void no_tokens(struct text_fixture *f) {
    gguf_drop_key(&f->writer, "tokenizer.ggml.tokens");
}
static void zero_tokens(struct text_fixture *f)
{
    gguf_put_strings(&f->writer, "tokenizer.ggml.tokens", tokens, 0);
}
static void one_token(struct text_fixture *f)
{
    struct gguf_string one = {"<bos>", 5};
    gguf_put_strings(&f->writer, "tokenizer.ggml.tokens", &one, 1);
}
static void tokens_of_numbers(struct text_fixture *f)
{
    gguf_put_array(&f->writer, "tokenizer.ggml.tokens", GGUF_I32, types, N);
}
static void short_scores(struct text_fixture *f)
{
    gguf_put_array(&f->writer, "tokenizer.ggml.scores", GGUF_F32, types, N - 1);
}
static void byte_scores(struct text_fixture *f)
{
    gguf_put_array(&f->writer, "tokenizer.ggml.scores", GGUF_U8, types, N);
}
static void long_types(struct text_fixture *f)
{
    static int32_t more[N + 1];
    gguf_put_array(&f->writer, "tokenizer.ggml.token_type", GGUF_I32, more, N + 1);
}
static void byte_types(struct text_fixture *f)
{
    gguf_put_array(&f->writer, "tokenizer.ggml.token_type", GGUF_U8, types, N);
}
static void empty_token(struct text_fixture *f) { set_token(f, 600, "", 0); }
static void huge_token(struct text_fixture *f)
{
    static char huge[1 << 20];
    memset(huge, 'a', sizeof huge);
    set_token(f, 601, huge, sizeof huge);
}
static void bad_utf8_token(struct text_fixture *f) { set_token(f, 602, "ab\xFF", 3); }
static void bad_byte_minus(struct text_fixture *f) { set_token(f, 238, "<0x-1>", 6); }
static void bad_byte_digits(struct text_fixture *f) { set_token(f, 239, "<0xGG>", 6); }
static void bad_byte_large(struct text_fixture *f) { set_token(f, 240, "<0x100>", 7); }
static void missing_byte(struct text_fixture *f)
{
    set_token(f, 241, "plain", 5);
    gguf_drop_key(&f->writer, "tokenizer.ggml.token_type");
}
static void missing_turn(struct text_fixture *f) { set_token(f, 105, "<|nothing>", 10); }
static void missing_turn_end(struct text_fixture *f) { set_token(f, 106, "<nothing|>", 10); }
static void missing_bos(struct text_fixture *f) { set_token(f, 2, "<nobos>", 7); }
static void missing_channel(struct text_fixture *f) { set_token(f, 100, "<|chan>", 7); }
static void bos_out_of_range(struct text_fixture *f)
{
    gguf_put_u32(&f->writer, "tokenizer.ggml.bos_token_id", N);
}
static void eos_negative(struct text_fixture *f)
{
    gguf_put_i32(&f->writer, "tokenizer.ggml.eos_token_id", -1);
}
static void stop_out_of_range(struct text_fixture *f)
{
    int32_t ids[] = {1, N};
    gguf_put_array(&f->writer, "tokenizer.ggml.eos_token_ids", GGUF_I32, ids, 2);
}
static void suppressed_negative(struct text_fixture *f)
{
    int32_t ids[] = {5, -7};
    gguf_put_array(&f->writer, "tokenizer.ggml.suppress_tokens", GGUF_I32, ids, 2);
}
static void suppressed_text(struct text_fixture *f)
{
    gguf_put_text(&f->writer, "tokenizer.ggml.suppress_tokens", "5");
}
static void no_merges(struct text_fixture *f) {
    gguf_drop_key(&f->writer, "tokenizer.ggml.merges");
}
static void merge_without_space(struct text_fixture *f) { set_merge(f, "abc"); }
static void merge_of_one(struct text_fixture *f) { set_merge(f, "abc "); }
static void merge_unknown(struct text_fixture *f) { set_merge(f, "a \xE6\x97\xA5"); }
static void merge_without_product(struct text_fixture *f) { set_merge(f, "\n a"); }
static void add_bos_as_text(struct text_fixture *f)
{
    gguf_put_text(&f->writer, "tokenizer.ggml.add_bos_token", "yes");
}
/* clang-format on */
static void no_model(struct text_fixture *f)
{
    gguf_drop_key(&f->writer, "tokenizer.ggml.model");
}
static void model_gpt2(struct text_fixture *f)
{
    gguf_put_text(&f->writer, "tokenizer.ggml.model", "gpt2");
}
static void model_override(struct text_fixture *f)
{
    gguf_put_text(&f->writer, "tokenizer.ggml.model", "a\xe2\x80\xae\xc2\x9b\xff");
}
static void model_llama(struct text_fixture *f)
{
    gguf_put_text(&f->writer, "tokenizer.ggml.model", "llama");
}

static const struct malformed {
    void (*change)(struct text_fixture *f);
    const char *message; /* a part of it */
} malformed_list[] = {
    {no_tokens, "tokenizer.ggml.tokens: missing"},
    {zero_tokens, "tokenizer.ggml.tokens: 2 to"},
    {one_token, "tokenizer.ggml.tokens: 2 to"},
    {tokens_of_numbers, "tokenizer.ggml.tokens: an array of string"},
    {short_scores, "tokenizer.ggml.scores: 1024 elements"},
    {byte_scores, "tokenizer.ggml.scores: an array of f32"},
    {long_types, "tokenizer.ggml.token_type: 1024 elements"},
    {byte_types, "tokenizer.ggml.token_type: an array of i32"},
    {empty_token, "tokenizer.ggml.tokens[600]"},
    {huge_token, "tokenizer.ggml.tokens[601]"},
    {bad_utf8_token, "tokenizer.ggml.tokens[602]: no valid UTF-8 at byte 2"},
    {bad_byte_minus, "tokenizer.ggml.tokens[238]: a byte token"},
    {bad_byte_digits, "tokenizer.ggml.tokens[239]: a byte token"},
    {bad_byte_large, "tokenizer.ggml.tokens[240]: a byte token"},
    {missing_byte, "the byte token <0x03> is missing"},
    {missing_turn, "<|turn> is missing"},
    {missing_turn_end, "<turn|> is missing"},
    {missing_bos, "<bos> is missing"},
    {missing_channel, "<|channel> is missing"},
    {bos_out_of_range, "tokenizer.ggml.bos_token_id"},
    {eos_negative, "tokenizer.ggml.eos_token_id"},
    {stop_out_of_range, "tokenizer.ggml.eos_token_ids[1]"},
    {suppressed_negative, "tokenizer.ggml.suppress_tokens[1]"},
    {suppressed_text, "tokenizer.ggml.suppress_tokens"},
    {no_merges, "tokenizer.ggml.merges: missing"},
    {merge_without_space, "tokenizer.ggml.merges[1]"},
    {merge_of_one, "tokenizer.ggml.merges[1]"},
    {merge_unknown, "tokenizer.ggml.merges[1]"},
    {merge_without_product, "tokenizer.ggml.merges[1]"},
    {add_bos_as_text, "tokenizer.ggml.add_bos_token"},
    {no_model, "tokenizer.ggml.model"},
    {model_gpt2, "tokenizer.ggml.model"},
    {model_override, "expected, \"a\\xe2\\x80\\xae\\xc2\\x9b\\xff\" found"},
    {model_llama, "tokenizer.ggml.model"},
};

static void test_malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof malformed_list / sizeof *malformed_list; i++) {
        struct text_fixture f;
        struct carat_error err = {0};
        text_fixture_init(&f, N);
        malformed_list[i].change(&f);
        text_fixture_parse(&f);
        assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_EFORMAT);
        assert_null(f.v);
        if (!strstr(err.message, malformed_list[i].message))
            fail_msg("\"%s\" expected in \"%s\"", malformed_list[i].message, err.message);
        text_fixture_deinit(&f);
    }
}

/* Legal: a text twice (the first id wins), and a NUL inside a text. */
static void test_odd_but_legal(void **state)
{
    (void)state;
    static const char with_nul[] = "a\0b";
    static const struct {
        const char *text;
        size_t length;
        int32_t found;
    } odd[] = {{"<turn|>", 7, 106}, {"!", 1, 495}, {with_nul, 3, 700}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct text_fixture f;
        struct carat_error err;
        text_fixture_init(&f, N);
        set_token(&f, 700, odd[i].text, odd[i].length);
        gguf_put_strings(&f.writer, "tokenizer.ggml.merges", NULL, 0);
        text_fixture_parse(&f);
        assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
        assert_int_equal(vocab_find(f.v, odd[i].text, odd[i].length), odd[i].found);
        text_fixture_deinit(&f);
    }
}

/* A merge that would make a special token out of text is left out. */
static void test_merge_to_special(void **state)
{
    (void)state;
    struct text_fixture f;
    struct carat_error err;
    text_fixture_init(&f, N);
    set_token(&f, 700, "<turn|", 6);
    set_merge(&f, "<turn| >");
    text_fixture_parse(&f);
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    int32_t product;
    assert_int_equal(vocab_merge(f.v, 700, vocab_find(f.v, ">", 1), &product), -1);
    text_fixture_deinit(&f);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct text_fixture f;
    struct carat_error err;
    text_fixture_init(&f, N);
    int32_t suppressed[] = {9, 11};
    gguf_put_array(&f.writer, "tokenizer.ggml.suppress_tokens", GGUF_I32, suppressed, 2);
    text_fixture_parse(&f);
    long before = mem_blocks_live();
    for (long n = 0;; n++) {
        mem_fail_after(n);
        int status = vocab_open(&f.v, f.g, &err);
        bool failed = mem_fail_after(-1);
        if (!failed) {
            assert_int_equal(status, CARAT_OK);
            break;
        }
        assert_int_equal(status, CARAT_EMEMORY);
        assert_int_equal(mem_blocks_live(), before);
        assert_true(n < 100);
    }
    text_fixture_deinit(&f);
}

/* The real size, with as many merges as there are words. Bound: far above what is measured, for
 * slow machines and sanitizers. */
static void test_load_time(void **state)
{
    (void)state;
    struct text_fixture f;
    struct carat_error err;
    text_fixture_init(&f, 262144);
    text_fixture_parse(&f);
    double begin = cost_cpu_seconds();
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    double seconds = cost_cpu_seconds() - begin;
    print_message("vocabulary of 262144 tokens, %llu merges: %.0f ms\n",
                  (unsigned long long)gguf_find(f.g, "tokenizer.ggml.merges")->count,
                  seconds * 1e3);
    assert_true(seconds < 5.0);
    assert_true(vocab_special(f.v, VOCAB_VIDEO) >= 0);
    text_fixture_deinit(&f);
}

/* ---- Made to be slow ---- */

enum { MORE = 16384 };
static struct gguf_string many_tokens[N + MORE];
static int32_t many_types[N + MORE];
static char many_bytes[2][8 * MORE];

/* The good vocabulary and `n` more tokens, which are in many_tokens and many_types from N on. */
static void init_with_more(struct text_fixture *f, size_t n)
{
    struct text_fixture good;
    text_fixture_open(&good, N);
    for (int32_t i = 0; i < N; i++)
        many_tokens[i].data = vocab_piece(good.v, i, &many_tokens[i].length);
    text_fixture_init(f, N);
    gguf_drop_key(&f->writer, "tokenizer.ggml.scores");
    gguf_put_array(&f->writer, "tokenizer.ggml.token_type", GGUF_I32, many_types, N + n);
    gguf_put_strings(&f->writer, "tokenizer.ggml.tokens", many_tokens, N + n);
    text_fixture_parse(f);
    text_fixture_deinit(&good);
}

/* A hash without a key, as an earlier version used it to find tokens. */
static uint64_t hash_without_key(const char *text)
{
    const uint64_t factor = 0x9FB21C651E98DF25u;
    uint64_t word, hash;
    memcpy(&word, text, 8);
    hash = (0x9E3779B97F4A7C15u ^ 8 * factor ^ word) * factor;
    hash = (hash ^ hash >> 32) * factor;
    return (hash ^ hash >> 29) * factor;
}

/* Texts of eight characters; `collide`: with slots that lie close together. */
static void make_texts(char *bytes, bool collide)
{
    struct rng r = {11};
    for (size_t made = 0; made < MORE;) {
        char *text = bytes + 8 * made;
        uint64_t x = rng_next(&r);
        for (int i = 0; i < 8; i++) text[i] = (char)('0' + (x >> 6 * i & 63));
        if (!collide || (hash_without_key(text) >> 32 & 4095) < 4) made++;
    }
}

static void open_with_texts(void *user, size_t which)
{
    (void)user;
    struct text_fixture f;
    struct carat_error err;
    for (size_t i = 0; i < MORE; i++)
        many_tokens[N + i] = (struct gguf_string){many_bytes[which] + 8 * i, 8};
    init_with_more(&f, MORE);
    cost_begin();
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    cost_end();
    text_fixture_deinit(&f);
}

static void test_texts_made_to_collide_cost_no_more_than_others(void **state)
{
    (void)state;
    memset(many_types, 0, sizeof many_types);
    make_texts(many_bytes[0], false);
    make_texts(many_bytes[1], true);
    assert_true(cost_ratio(open_with_texts, NULL, 0, 1) < 3);
}

/* 40 special tokens that begin with "<" repeated n times, and a text made of that. */
static void match_long_specials(void *user, size_t n)
{
    (void)user;
    enum { TEXT = 20000, SPECIALS = 40 };
    static char special[SPECIALS][4096], text[TEXT];
    struct text_fixture f;
    struct carat_error err;
    for (size_t i = 0; i < SPECIALS; i++) {
        memset(special[i], '<', n - i);
        special[i][n - i] = 'y';
        many_tokens[N + i] = (struct gguf_string){special[i], n - i + 1};
        many_types[N + i] = 3;
    }
    init_with_more(&f, SPECIALS);
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    memset(text, '<', sizeof text);
    cost_begin();
    for (size_t i = 0; i < TEXT; i++) {
        size_t matched;
        vocab_match_special(f.v, CARAT_SPECIAL_ALL, text + i, TEXT - i, &matched);
    }
    cost_end();
    text_fixture_deinit(&f);
}

static void test_long_special_tokens_cost_no_more_than_short_ones(void **state)
{
    (void)state;
    assert_true(cost_ratio(match_long_specials, NULL, 100, 4000) < 4);
}

/* n special tokens with one text. */
static void match_equal_specials(void *user, size_t n)
{
    (void)user;
    struct text_fixture f;
    struct carat_error err;
    for (size_t i = 0; i < n; i++) {
        many_tokens[N + i] = (struct gguf_string){"<|same|>", 8};
        many_types[N + i] = 3;
    }
    init_with_more(&f, n);
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    cost_begin();
    for (size_t i = 0; i < 10000; i++) {
        size_t matched;
        assert_int_equal(vocab_match_special(f.v, CARAT_SPECIAL_ALL, "<|same|>", 8, &matched), N);
        assert_int_equal(matched, 8);
    }
    cost_end();
    text_fixture_deinit(&f);
}

static void test_equal_special_tokens_cost_no_more_than_one(void **state)
{
    (void)state;
    assert_true(cost_ratio(match_equal_specials, NULL, 1, 4000) < 8);
}

/* ---- Sampling defaults ---- */

static void test_sampling_defaults(void **state)
{
    (void)state;
    struct text_fixture f;
    struct carat_error err;
    struct carat_sampling s;
    struct buf note = {0};
    text_fixture_init(&f, N);
    text_fixture_parse(&f);
    assert_int_equal(sampling_defaults_read(f.g, &s, &note, &err), CARAT_OK);
    assert_true(s.temperature == 1.0f && s.top_k == 64 && s.top_p == 0.95f && s.min_p == 0.0f);
    assert_true(s.repeat_penalty == 1.0f && s.presence_penalty == 0.0f);
    assert_true(s.xtc_probability == 0.0f && s.dry_multiplier == 0.0f && s.dynatemp_range == 0.0f);
    assert_true(s.typical_p == 1.0f && s.top_n_sigma < 0.0f && s.mirostat == 0);
    text_fixture_deinit(&f);

    text_fixture_init(&f, N);
    gguf_put_f32(&f.writer, "general.sampling.temp", 0.5f);
    gguf_put_i32(&f.writer, "general.sampling.top_k", 40);
    gguf_put_f32(&f.writer, "general.sampling.top_p", 0.5f);
    gguf_put_f32(&f.writer, "general.sampling.xtc_probability", 0.25f);
    gguf_put_f32(&f.writer, "general.sampling.xtc_threshold", 0.2f);
    gguf_put_f32(&f.writer, "general.sampling.min_p", 0.125f);
    gguf_put_f32(&f.writer, "general.sampling.penalty_repeat", 1.25f);
    gguf_put_i32(&f.writer, "general.sampling.penalty_last_n", -1);
    gguf_put_i32(&f.writer, "general.sampling.mirostat", 2);
    gguf_put_f32(&f.writer, "general.sampling.mirostat_tau", 4);
    gguf_put_f32(&f.writer, "general.sampling.mirostat_eta", 0.5f);
    gguf_put_text(&f.writer, "general.sampling.sequence", "penalties;top-k;temp");
    text_fixture_parse(&f);
    assert_int_equal(sampling_defaults_read(f.g, &s, &note, &err), CARAT_OK);
    assert_true(s.min_p == 0.125f && s.repeat_penalty == 1.25f && s.repeat_last_n == -1);
    assert_true(s.mirostat == 2 && s.mirostat_tau == 4.0f && s.mirostat_eta == 0.5f);
    assert_string_equal(s.samplers, "ekt");
    assert_int_equal(note.length, 0);
    assert_true(s.xtc_probability == 0.25f && s.xtc_threshold == 0.2f);
    assert_true(s.temperature == 0.5f && s.top_k == 40 && s.top_p == 0.5f);
    text_fixture_deinit(&f);
}

/* What llama.cpp does otherwise or does not have is noted: the file can still be used. */
static void test_sampling_defaults_that_differ(void **state)
{
    (void)state;
    static const struct {
        const char *order, *letters, *note;
        int32_t last_n, top_k;
    } cases[] = {
        {"top_k;infill;mystery", "k", "no sampler is called \"infill\"", 0, -1},
        {"xtc;;xtc;", "x", "xtc is there twice", 7, 0},
        {"\x1b[2J", "-", "no sampler is called \"\"", -1, 3},
        {"adaptive_p", "-", NULL, 1 << 20, INT32_MIN},
        {"", CARAT_SAMPLERS, NULL, 5, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_fixture f;
        struct carat_error err;
        struct carat_sampling s;
        struct buf note = {0};
        text_fixture_init(&f, N);
        gguf_put_text(&f.writer, "general.sampling.sequence", cases[i].order);
        gguf_put_i32(&f.writer, "general.sampling.penalty_last_n", cases[i].last_n);
        gguf_put_f32(&f.writer, "general.sampling.penalty_repeat", 1.5f);
        gguf_put_i32(&f.writer, "general.sampling.top_k", cases[i].top_k);
        gguf_put_u8(&f.writer, "general.sampling.mirostat", i == 0);
        text_fixture_parse(&f);
        assert_int_equal(sampling_defaults_read(f.g, &s, &note, &err), CARAT_OK);
        assert_string_equal(s.samplers, cases[i].letters);
        if (cases[i].note) assert_non_null(strstr(buf_text(&note), cases[i].note));
        assert_int_equal(note.length > 0, cases[i].note != NULL);
        assert_null(strstr(buf_text(&note), "mystery"));
        assert_int_equal(strstr(buf_text(&note), "Mirostat 2") != NULL, i == 0);
        assert_int_equal(s.mirostat, i == 0 ? 2 : 0);
        assert_true(s.repeat_penalty == (cases[i].last_n ? 1.5f : 1.0f));
        assert_int_equal(s.repeat_last_n, cases[i].last_n ? cases[i].last_n : 64);
        assert_int_equal(s.top_k, cases[i].top_k < 0 ? 0 : cases[i].top_k);
        buf_deinit(&note);
        text_fixture_deinit(&f);
    }
}

static void put_long_order(struct gguf_writer *w, const char *key)
{
    char text[2000];
    memset(text, ';', sizeof text);
    gguf_put_string(w, key, text, sizeof text);
}

static void test_wrong_sampling_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
    } reals[] = {
        {"temp", -1},
        {"temp", (double)NAN},
        {"temp", 101},
        {"top_p", 7},
        {"min_p", -0.5},
        {"xtc_probability", 2},
        {"xtc_threshold", -1},
        {"penalty_repeat", 0},
        {"penalty_repeat", 1e300},
        {"mirostat_tau", -1},
        {"mirostat_eta", (double)INFINITY},
        {"top_k", 40},
        {"penalty_last_n", 64},
        {"mirostat", 2},
        {"sequence", 1},
    };
    static const struct {
        const char *key;
        int64_t value;
    } wholes[] = {
        {"temp", 1},     {"top_k", INT64_MAX},        {"top_k", INT64_MIN}, {"penalty_last_n", -2},
        {"mirostat", 3}, {"penalty_last_n", 1 << 21}, {"mirostat", -1},     {"sequence", 1},
    };
    enum { REALS = sizeof reals / sizeof *reals, WHOLES = sizeof wholes / sizeof *wholes };
    for (size_t i = 0; i < REALS + WHOLES + 2; i++) {
        struct text_fixture f;
        struct carat_error err;
        struct carat_sampling s;
        struct buf note = {0};
        char key[64];
        const char *last = i < REALS            ? reals[i].key
                           : i < REALS + WHOLES ? wholes[i - REALS].key
                           : i & 1              ? "sequence"
                                                : "top_k";
        snprintf(key, sizeof key, "general.sampling.%s", last);
        text_fixture_init(&f, N);
        if (i < REALS)
            gguf_put_f64(&f.writer, key, reals[i].value);
        else if (i < REALS + WHOLES)
            gguf_put_i64(&f.writer, key, wholes[i - REALS].value);
        else if (i & 1)
            put_long_order(&f.writer, key);
        else
            gguf_put_u64(&f.writer, key, UINT64_MAX);
        text_fixture_parse(&f);
        assert_int_equal(sampling_defaults_read(f.g, &s, &note, &err), CARAT_EFORMAT);
        assert_non_null(strstr(err.message, key));
        buf_deinit(&note);
        text_fixture_deinit(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_matching),
        cmocka_unit_test(test_without_types),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_odd_but_legal),
        cmocka_unit_test(test_merge_to_special),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_load_time),
        cmocka_unit_test(test_sampling_defaults),
        cmocka_unit_test(test_sampling_defaults_that_differ),
        cmocka_unit_test(test_wrong_sampling_defaults),
        cmocka_unit_test(test_texts_made_to_collide_cost_no_more_than_others),
        cmocka_unit_test(test_long_special_tokens_cost_no_more_than_short_ones),
        cmocka_unit_test(test_equal_special_tokens_cost_no_more_than_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
