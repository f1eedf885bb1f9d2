/* DRY against a definition that takes quadratic time, over random histories and with breakers of
 * real token texts; its limits, its cost. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/dry.h"
#include "engine/model_file.h"
#include "support/cost.h"
#include "text/tokenizer.h"

#define DEMO CARAT_SOURCE_DIR "/models/demo.gguf"

enum { IDS_MAX = 4096, N_VOCAB_MAX = 262144 };

static struct carat_sampling settings(int32_t allowed, int32_t last_n)
{
    return (struct carat_sampling){.dry_multiplier = 0.5f,
                                   .dry_base = 2.0f,
                                   .dry_allowed_length = allowed,
                                   .dry_penalty_last_n = last_n};
}

static struct dry *open_dry(const struct carat_sampling *p, int32_t n_vocab, const struct vocab *v,
                            int64_t n_tokens)
{
    struct dry *d;
    struct carat_error err;
    const struct dry_options o = {
        .sampling = p, .n_vocab = n_vocab, .vocab = v, .n_tokens = n_tokens};
    assert_int_equal(dry_open(&d, &o, &err), CARAT_OK);
    return d;
}

/* ---- The definition ---- */

struct history {
    int32_t ids[IDS_MAX], n;
};

/* longest[id]: the longest repetition that id would go on with, among the last `window` tokens, of
 * the last `most` at most; 0: none of the allowed length. */
static void define(const struct history *h, int32_t window, int32_t most, int32_t allowed,
                   int32_t *longest, int32_t n_vocab)
{
    const int32_t *ids = h->ids + (h->n > window ? h->n - window : 0);
    int32_t n = h->n > window ? window : h->n;
    for (int32_t id = 0; id < n_vocab; id++) longest[id] = 0;
    for (int32_t end = 1; end < n; end++) {
        int32_t length = 0;
        while (length < end && length < most && ids[end - 1 - length] == ids[n - 1 - length])
            length++;
        if (length >= allowed && length > longest[ids[end]]) longest[ids[end]] = length;
    }
}

static void check_penalties(const struct dry *d, const struct carat_sampling *p,
                            const int32_t *longest, int32_t n_vocab)
{
    int32_t n_listed, n_lowered = 0;
    const int32_t *listed = dry_ids(d, &n_listed);
    for (int32_t id = 0; id < n_vocab; id++) {
        double penalty = longest[id]
                             ? (double)p->dry_multiplier *
                                   pow((double)p->dry_base, longest[id] - p->dry_allowed_length)
                             : 0.0;
        if (penalty > 1e30) penalty = 1e30;
        assert_true(dry_penalty(d, id) == (float)penalty);
        n_lowered += penalty > 0;
    }
    for (int32_t i = 0; i < n_listed; i++) n_lowered -= dry_penalty(d, listed[i]) > 0;
    assert_int_equal(n_lowered, 0);
}

static void the_penalties_of_a_small_history_are_those_by_hand(void **state)
{
    (void)state;
    enum { A, B, C, Y, N };
    static const int32_t ids[] = {A, B, C, C, B, C, Y, A, B, C};
    struct carat_sampling p = settings(1, -1);
    struct dry *d = open_dry(&p, N, NULL, 100);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) dry_accept(d, ids[i]);
    dry_find(d);
    assert_true(dry_penalty(d, C) == 2.0f); /* a b c (3 of them) came before c: 0.5 * 2^2 */
    assert_true(dry_penalty(d, Y) == 1.0f); /* b c: 0.5 * 2^1 */
    assert_true(dry_penalty(d, B) == 0.5f); /* c: 0.5 * 2^0 */
    assert_true(dry_penalty(d, A) == 0.0f);
    dry_accept(d, Y);
    dry_find(d);
    assert_true(dry_penalty(d, A) == 2.0f); /* b c y, then a */
    assert_true(dry_penalty(d, C) == 0.0f);
    dry_close(d);
}

/* Tokens come one by one and in bunches, as a prompt and forced tokens do; windows are smaller and
 * larger than the history. */
static void random_histories_are_lowered_as_defined(void **state)
{
    (void)state;
    static struct history h;
    int32_t longest[8];
    struct rng r = {5};
    for (int round = 0; round < 400; round++) {
        int32_t n_vocab = 1 + (int32_t)rng_below(&r, 4);
        int32_t last_n = round % 3 ? 1 + (int32_t)rng_below(&r, 90) : -1;
        int32_t n_tokens = 20 + (int32_t)rng_below(&r, 300);
        struct carat_sampling p = settings(1 + (int32_t)rng_below(&r, 4), last_n);
        struct dry *d = open_dry(&p, n_vocab, NULL, n_tokens);
        int32_t window = last_n < 0 || last_n > n_tokens ? n_tokens : last_n;
        for (h.n = 0; h.n < n_tokens;) {
            /* repeats an earlier stretch now and then */
            bool is_copy = h.n > 10 && rng_below(&r, 2);
            int32_t from = is_copy ? (int32_t)rng_below(&r, (uint32_t)h.n) : 0;
            int32_t bunch = 1 + (int32_t)rng_below(&r, is_copy ? 12 : 3);
            bool at_once = rng_below(&r, 3) == 0;
            for (; bunch > 0 && h.n < n_tokens; bunch--) {
                int32_t id = is_copy ? h.ids[from++] : (int32_t)rng_below(&r, (uint32_t)n_vocab);
                h.ids[h.n++] = id;
                dry_accept(d, id);
                if (at_once && bunch > 1) continue;
                dry_find(d);
                dry_find(d); /* again changes nothing */
                define(&h, window, h.n, p.dry_allowed_length, longest, n_vocab);
                check_penalties(d, &p, longest, n_vocab);
            }
        }
        dry_close(d);
    }
}

/* ---- Breakers ---- */

static carat_model *model;

static int open_model(void **state)
{
    (void)state;
    return carat_model_open(&model, DEMO, NULL);
}

static int close_model(void **state)
{
    (void)state;
    carat_model_close(model);
    return 0;
}

/* Whether a breaker begins in token `at`, and how many tokens after it belong to it: by the texts.
 * -1: none. */
static int32_t break_by_definition(const struct history *h, int32_t at, const char *breaker)
{
    struct buf text = {0};
    int32_t longest = -1;
    size_t length = strlen(breaker);
    tokenizer_decode_one(model->vocab, h->ids[at], true, &text);
    buf_add_char(&text, '\0');
    if (strstr(buf_text(&text), breaker)) longest = 0;
    for (size_t cut = 1; longest != 0 && cut < length && cut < text.length; cut++) {
        if (strncmp(buf_text(&text) + text.length - 1 - cut, breaker, cut) != 0) continue;
        int32_t *ids, left = h->n - at - 1;
        size_t n;
        assert_int_equal(tokenizer_encode(model->vocab, breaker + cut, length - cut,
                                          CARAT_SPECIAL_NONE, false, &ids, &n, NULL),
                         CARAT_OK);
        if (n > 20) n = 20;
        if ((int32_t)n <= left && memcmp(ids, h->ids + at + 1, n * sizeof *ids) == 0 &&
            (int32_t)n > longest)
            longest = (int32_t)n;
        mem_free(ids);
    }
    buf_deinit(&text);
    return longest;
}

static int32_t after_newest_break(const struct history *h, int32_t window, const char *const *texts,
                                  size_t n_texts)
{
    for (int32_t at = h->n - 1; at >= 0 && at >= h->n - window; at--) {
        int32_t longest = -1;
        for (size_t i = 0; i < n_texts; i++) {
            int32_t tail = break_by_definition(h, at, texts[i]);
            if (tail > longest) longest = tail;
        }
        if (longest >= 0) return h->n - 1 - at - longest;
    }
    return h->n < window ? h->n : window;
}

static void breakers_of_one_and_of_several_tokens_end_repetitions(void **state)
{
    (void)state;
    static const char *const texts[] = {"\n",       ": ", "the little dog",  "e was",
                                        " a small", "e",  "\xE2\x82\xAC uro"};
    static const char story[] = "The little dog was small. He saw the little dog: he was happy.\n";
    static struct history h;
    static int32_t longest[N_VOCAB_MAX];
    struct rng r = {9};
    int32_t n_vocab = vocab_count(model->vocab), n_breaks = 0, n_tails = 0;
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(model->vocab, story, strlen(story), CARAT_SPECIAL_NONE, false,
                                      &ids, &n, NULL),
                     CARAT_OK);
    for (int round = 0; round < 60; round++) {
        const char *const *some = texts + round % 7;
        size_t n_some = 1 + rng_below(&r, (uint32_t)(7 - round % 7));
        int32_t last_n = round % 4 == 0 ? 17 : round % 4 == 1 ? 45 : -1;
        struct carat_sampling p = settings(1, last_n);
        p.dry_breakers = some;
        p.n_dry_breakers = n_some;
        struct dry *d = open_dry(&p, n_vocab, model->vocab, 300);
        int32_t window = last_n < 0 ? 300 : last_n;
        for (h.n = 0; h.n < 250;) {
            size_t begin = rng_below(&r, (uint32_t)n), end = begin + 1 + rng_below(&r, 8);
            for (size_t i = begin; i < end && i < n; i++) {
                h.ids[h.n++] = ids[i];
                dry_accept(d, ids[i]);
                if (rng_below(&r, 4) == 0) continue;
                dry_find(d);
                int32_t most = after_newest_break(&h, window, some, n_some);
                define(&h, window, most, 1, longest, n_vocab);
                for (size_t k = 0; k < n; k++)
                    for (size_t t = 0; t < n_some; t++) {
                        struct history one = {.ids = {ids[k]}, .n = 1};
                        if (break_by_definition(&one, 0, some[t]) == 0) longest[ids[k]] = 0;
                    }
                check_penalties(d, &p, longest, n_vocab);
                n_breaks += most < window && most < h.n;
                n_tails += break_by_definition(&h, h.n > 1 ? h.n - 2 : 0, some[0]) > 0;
            }
        }
        dry_close(d);
    }
    mem_free(ids);
    print_message("%d breaks, %d that take two tokens\n", n_breaks, n_tails);
    assert_true(n_breaks > 500 && n_tails > 20);
}

/* Lines of 33 tokens and a window of 40: the newest break is often older than any breaker is long,
 * and older tokens are dropped. */
static void a_break_counts_as_long_as_it_is_looked_at(void **state)
{
    (void)state;
    enum { WINDOW = 40, LINE = 33, TOKENS = 1000 };
    static const char *const newline[] = {"\n"};
    static struct history h;
    static int32_t longest[N_VOCAB_MAX];
    int32_t n_vocab = vocab_count(model->vocab), *ids;
    size_t n;
    struct carat_sampling p = settings(1, WINDOW);
    struct dry *d = open_dry(&p, n_vocab, model->vocab, TOKENS);
    assert_int_equal(
        tokenizer_encode(model->vocab, "\na b", 4, CARAT_SPECIAL_NONE, false, &ids, &n, NULL),
        CARAT_OK);
    assert_int_equal(n, 3);
    for (h.n = 0; h.n < TOKENS;) {
        int32_t id = h.n % LINE ? ids[1 + h.n % 2] : ids[0];
        h.ids[h.n++] = id;
        dry_accept(d, id);
        dry_find(d);
        define(&h, WINDOW, after_newest_break(&h, WINDOW, newline, 1), 1, longest, n_vocab);
        longest[ids[0]] = 0;
        check_penalties(d, &p, longest, n_vocab);
    }
    dry_close(d);
    mem_free(ids);
}

static void the_usual_breakers_end_a_repetition(void **state)
{
    (void)state;
    static const char *const texts[] = {"a story", "a\nstory", "a: story", "a \"story", "a *story"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t *ids;
        size_t n;
        assert_int_equal(tokenizer_encode(model->vocab, texts[i], strlen(texts[i]),
                                          CARAT_SPECIAL_NONE, false, &ids, &n, NULL),
                         CARAT_OK);
        for (int with = 0; with < 2; with++) {
            struct carat_sampling p = settings((int32_t)n, -1);
            if (!with) p.dry_breakers = texts; /* none of them */
            struct dry *d = open_dry(&p, vocab_count(model->vocab), model->vocab, 100);
            for (int round = 0; round < 3; round++)
                for (size_t k = 0; k < n; k++) dry_accept(d, ids[k]);
            dry_find(d);
            bool is_lowered = dry_penalty(d, ids[0]) > 0;
            assert_int_equal(is_lowered, !with || i == 0);
            dry_close(d);
        }
        mem_free(ids);
    }
}

/* ---- Limits ---- */

/* A character that the vocabulary lacks is in byte tokens: what counts are the bytes, not the names
 * of the tokens. */
static void breakers_are_found_in_byte_tokens(void **state)
{
    (void)state;
    static const char text[] = "a\xE2\x82\xAC"
                               "b";
    static const struct {
        const char *breaker;
        bool ends;
    } cases[] = {{"\xE2\x82\xAC", true}, {"\xAC", true},    {"a\xE2\x82", true},
                 {"\x82\xE2", false},    {"<0xE2>", false}, {"x", false}};
    int32_t *ids, n_bytes = 0;
    size_t n;
    assert_int_equal(tokenizer_encode(model->vocab, text, strlen(text), CARAT_SPECIAL_NONE, false,
                                      &ids, &n, NULL),
                     CARAT_OK);
    for (size_t k = 0; k < n; k++) n_bytes += vocab_class(model->vocab, ids[k]) == TOKEN_BYTE;
    assert_int_equal(n_bytes, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct carat_sampling p = settings((int32_t)n, -1);
        p.dry_breakers = &cases[i].breaker;
        p.n_dry_breakers = 1;
        struct dry *d = open_dry(&p, vocab_count(model->vocab), model->vocab, 100);
        for (int round = 0; round < 3; round++)
            for (size_t k = 0; k < n; k++) dry_accept(d, ids[k]);
        dry_find(d);
        assert_int_equal(dry_penalty(d, ids[0]) > 0, !cases[i].ends);
        dry_close(d);
    }
    mem_free(ids);
}

static void a_long_repetition_leaves_logits_finite(void **state)
{
    (void)state;
    struct carat_sampling p = settings(2, -1);
    p.dry_multiplier = 100.0f;
    p.dry_base = 100.0f;
    struct dry *d = open_dry(&p, 4, NULL, 3000);
    for (int i = 0; i < 3000; i++) dry_accept(d, 1);
    dry_find(d);
    assert_true(isfinite(3.0f - dry_penalty(d, 1)) && dry_penalty(d, 1) > 1e20f);
    dry_close(d);
}

static void too_many_or_long_breakers_are_refused_by_number(void **state)
{
    (void)state;
    static const char *many[CARAT_DRY_BREAKERS_MAX + 1];
    static char longest[CARAT_DRY_BREAKER_BYTES_MAX + 2];
    struct carat_error err;
    for (size_t i = 0; i <= CARAT_DRY_BREAKERS_MAX; i++) many[i] = "x";
    struct carat_sampling p = {.dry_breakers = many, .n_dry_breakers = CARAT_DRY_BREAKERS_MAX};
    assert_int_equal(dry_check_breakers(&p, &err), CARAT_OK);
    p.n_dry_breakers++;
    assert_int_equal(dry_check_breakers(&p, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "dry_sequence_breakers: at most 32 texts expected, 33 found");
    p.n_dry_breakers = 2;
    memset(longest, 'y', CARAT_DRY_BREAKER_BYTES_MAX);
    many[1] = longest;
    assert_int_equal(dry_check_breakers(&p, &err), CARAT_OK);
    longest[CARAT_DRY_BREAKER_BYTES_MAX] = 'y';
    assert_int_equal(dry_check_breakers(&p, &err), CARAT_EUSAGE);
    assert_string_equal(err.message, "dry_sequence_breakers[1]: 1 to 40 bytes expected, 41 found");
    many[1] = "";
    assert_int_equal(dry_check_breakers(&p, &err), CARAT_EUSAGE);
}

static void missing_memory_is_reported_and_nothing_is_left(void **state)
{
    (void)state;
    static const char *const texts[] = {"a b", "\n"};
    long before = mem_blocks_live();
    struct carat_sampling p = settings(2, 50);
    p.dry_breakers = texts;
    p.n_dry_breakers = 2;
    const struct dry_options o = {
        .sampling = &p, .n_vocab = 1000, .vocab = model->vocab, .n_tokens = 500};
    for (long n = 0;; n++) {
        struct dry *d;
        struct carat_error err;
        mem_fail_after(n);
        int status = dry_open(&d, &o, &err);
        bool failed = mem_fail_after(-1);
        assert_int_equal(status, failed ? CARAT_EMEMORY : CARAT_OK);
        dry_close(d);
        assert_int_equal(mem_blocks_live(), before);
        if (!failed) break;
        assert_true(n < 200);
    }
}

/* ---- Cost ---- */

/* A history of n tokens that repeats itself after `period`; then 16 tokens come. */
static void read_and_answer(int32_t period, size_t n)
{
    enum { ANSWER = 16 };
    struct carat_sampling p = settings(2, -1);
    struct dry *d = open_dry(&p, 1000, NULL, (int64_t)n + ANSWER);
    for (size_t i = 0; i < n; i++) dry_accept(d, (int32_t)(i % (size_t)period));
    cost_begin();
    for (size_t i = 0; i < ANSWER; i++) {
        dry_find(d);
        dry_accept(d, (int32_t)((n + i) % (size_t)period));
    }
    cost_end();
    dry_close(d);
}

static void answer_one_token_again(void *user, size_t n)
{
    (void)user;
    read_and_answer(1, n);
}

static void answer_a_sentence_again(void *user, size_t n)
{
    (void)user;
    read_and_answer(13, n);
}

static void the_cost_is_linear_in_the_history(void **state)
{
    (void)state;
    assert_true(cost_ratio(answer_one_token_again, NULL, 50000, 200000) < LINEAR_MAX);
    assert_true(cost_ratio(answer_a_sentence_again, NULL, 50000, 200000) < LINEAR_MAX);
}

/* Words of a text are about as frequent as one over their rank. */
static int32_t some_word(struct rng *r, int32_t n_vocab)
{
    return (int32_t)(pow((double)n_vocab, rng_unit(r)) - 1.0);
}

static void cost_of_a_token(void **state)
{
    (void)state;
    enum { ANSWER = 200, N_VOCAB = 5000 };
    static const int32_t sizes[] = {1024, 8192, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct rng r = {3};
        struct carat_sampling p = settings(2, -1);
        int32_t n_vocab = vocab_count(model->vocab) < N_VOCAB ? vocab_count(model->vocab) : N_VOCAB;
        struct dry *d = open_dry(&p, n_vocab, model->vocab, sizes[i] + ANSWER);
        for (int32_t k = 0; k < sizes[i]; k++) dry_accept(d, some_word(&r, n_vocab));
        double begin = cost_cpu_seconds();
        dry_find(d);
        double first = cost_cpu_seconds() - begin;
        begin = cost_cpu_seconds();
        for (int k = 0; k < ANSWER; k++) {
            dry_accept(d, some_word(&r, n_vocab));
            dry_find(d);
        }
        double each = (cost_cpu_seconds() - begin) / ANSWER;
        print_message("%6d tokens: %7.1f us for the first one, %5.1f us for each later one\n",
                      sizes[i], first * 1e6, each * 1e6);
        assert_true(each < 0.01);
        dry_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_penalties_of_a_small_history_are_those_by_hand),
        cmocka_unit_test(random_histories_are_lowered_as_defined),
        cmocka_unit_test(breakers_of_one_and_of_several_tokens_end_repetitions),
        cmocka_unit_test(a_break_counts_as_long_as_it_is_looked_at),
        cmocka_unit_test(the_usual_breakers_end_a_repetition),
        cmocka_unit_test(breakers_are_found_in_byte_tokens),
        cmocka_unit_test(a_long_repetition_leaves_logits_finite),
        cmocka_unit_test(too_many_or_long_breakers_are_refused_by_number),
        cmocka_unit_test(missing_memory_is_reported_and_nothing_is_left),
        cmocka_unit_test(the_cost_is_linear_in_the_history),
        cmocka_unit_test(cost_of_a_token),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
