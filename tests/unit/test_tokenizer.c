/* Encoding and decoding: rules on a made-up vocabulary, round trips, worst cases and time. */
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
#include "support/cost.h"
#include "support/text_fixture.h"
#include "text/tokenizer.h"

static size_t encode(const char *text, size_t length, enum carat_special special, bool add_bos,
                     int32_t **ids)
{
    struct carat_error err;
    size_t count;
    assert_int_equal(
        tokenizer_encode(shared_vocab(), text, length, special, add_bos, ids, &count, &err),
        CARAT_OK);
    return count;
}

/* The ids as words of decimal numbers. */
static void check(const char *text, enum carat_special special, bool add_bos, const char *expected)
{
    int32_t *ids;
    size_t count = encode(text, strlen(text), special, add_bos, &ids);
    struct buf found = {0};
    for (size_t i = 0; i < count; i++) buf_printf(&found, i ? " %d" : "%d", ids[i]);
    assert_string_equal(buf_text(&found), expected);
    buf_deinit(&found);
    mem_free(ids);
}

static int32_t id_of(const char *text)
{
    int32_t id = vocab_find(shared_vocab(), text, strlen(text));
    assert_true(id >= 0);
    return id;
}

static void test_specials(void **state)
{
    (void)state;
    char expected[200];
    check("", CARAT_SPECIAL_ALL, false, "");
    check("", CARAT_SPECIAL_NONE, true, "2");
    check("<bos>", CARAT_SPECIAL_ALL, true, "2"); /* not a second one */
    check("<bos>", CARAT_SPECIAL_ALL, false, "2");
    check("<bos><bos>", CARAT_SPECIAL_ALL, true, "2 2");
    check("<|turn><turn|><|\"|>", CARAT_SPECIAL_ALL, false, "105 106 52");
    snprintf(expected, sizeof expected, "%d %d 52", id_of("\xE2\x96\x81"), id_of("<"));
    check(" <<|\"|>", CARAT_SPECIAL_USER_DEFINED, false, expected);
    snprintf(expected, sizeof expected, "%d %d 100", id_of("<"), id_of("|"));
    check("<|<|channel>", CARAT_SPECIAL_USER_DEFINED, false, expected);
    snprintf(expected, sizeof expected, "2 %d %d %d %d", id_of("<"), id_of("|"), id_of("\""),
             id_of("|"));
    check("<|\"|", CARAT_SPECIAL_ALL, true, expected);
}

static const char *special_text(enum vocab_special which)
{
    size_t length;
    return vocab_piece(shared_vocab(), vocab_special(shared_vocab(), which), &length);
}

/* Text of a user, whatever it is, gives plain tokens and byte tokens. */
static void test_none_gives_no_special(void **state)
{
    (void)state;
    struct buf all = {0};
    for (int i = 0; i < VOCAB_SPECIAL_COUNT; i++) {
        buf_add_text(&all, special_text((enum vocab_special)i));
        buf_add_text(&all, i % 2 ? " x" : "");
    }
    int32_t *ids;
    size_t count = encode(all.data, all.length, CARAT_SPECIAL_NONE, false, &ids);
    for (size_t i = 0; i < count; i++) assert_false(vocab_is_special(shared_vocab(), ids[i]));
    assert_true(count > 50);
    mem_free(ids);
    buf_deinit(&all);
}

static void test_runs(void **state)
{
    (void)state;
    char text[64], expected[64];
    for (int n = 1; n <= 31; n++) { /* newlines are whole runs */
        memset(text, '\n', (size_t)n);
        text[n] = '\0';
        snprintf(expected, sizeof expected, "%d", 106 + n);
        check(text, CARAT_SPECIAL_NONE, false, expected);
    }
    check("  ", CARAT_SPECIAL_NONE, false, "138");
    check("   ", CARAT_SPECIAL_NONE, false, "139");
    /* 33 newlines: pairs from the left, then the last newline joins a pair. */
    memset(text, '\n', 33);
    text[33] = '\0';
    int32_t *ids;
    size_t count = encode(text, 33, CARAT_SPECIAL_NONE, false, &ids);
    assert_int_equal(count, 16);
    for (size_t i = 0; i + 1 < count; i++) assert_int_equal(ids[i], 108);
    assert_int_equal(ids[15], 109);
    mem_free(ids);
    /* Lines are separate words: nothing merges over a newline. */
    count = encode("a\nb", 3, CARAT_SPECIAL_NONE, false, &ids);
    assert_int_equal(count, 3);
    assert_int_equal(ids[1], 107);
    mem_free(ids);
}

static void test_bytes(void **state)
{
    (void)state;
    check("\t", CARAT_SPECIAL_NONE, false, "247");                   /* 238 + 9 */
    check("\xE6\x97\xA5", CARAT_SPECIAL_NONE, false, "468 389 403"); /* not in the vocabulary */
    check("\xFF\x80", CARAT_SPECIAL_NONE, false, "493 366");         /* not UTF-8 */
    check("\xE6\x97", CARAT_SPECIAL_NONE, false, "468 389");         /* cut short */
}

static void test_spans(void **state)
{
    (void)state;
    struct carat_error err;
    const char *text = "<|turn>aa\n\nbb<|turn>cc<turn|>";
    /* Template, message with newlines and a mark, template. */
    const struct text_span spans[] = {
        {8, CARAT_SPECIAL_ALL}, {20, CARAT_SPECIAL_NONE}, {29, CARAT_SPECIAL_ALL}};
    int32_t *ids, *whole;
    size_t count, n_whole;
    assert_int_equal(
        tokenizer_encode_spans(shared_vocab(), text, spans, 3, true, &ids, &count, &err), CARAT_OK);
    n_whole = encode("aa\n\nbb<|turn>cc", 15, CARAT_SPECIAL_NONE, false, &whole);
    assert_int_equal(count, n_whole + 3);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 105);
    assert_memory_equal(ids + 2, whole, n_whole * sizeof *ids);
    assert_int_equal(ids[count - 1], 106);
    mem_free(ids);
    mem_free(whole);
    assert_int_equal(
        tokenizer_encode_spans(shared_vocab(), NULL, NULL, 0, false, &ids, &count, &err), CARAT_OK);
    assert_int_equal(count, 0);
    mem_free(ids);
}

/* ---- Round trips ---- */

static void check_round_trip(const char *text, size_t length, enum carat_special special)
{
    int32_t *ids;
    size_t count = encode(text, length, special, false, &ids), given;
    struct buf all = {0}, pieces = {0};
    struct carat_decoder *d;
    struct carat_error err;
    assert_int_equal(decoder_open(&d, shared_vocab(), true, &err), CARAT_OK);
    for (size_t i = 0; i < count; i++) {
        tokenizer_decode_one(shared_vocab(), ids[i], true, &all);
        const char *piece = decoder_push(d, ids[i], &given);
        buf_add(&pieces, piece, given);
    }
    const char *rest = decoder_finish(d, &given);
    buf_add(&pieces, rest, given);
    decoder_finish(d, &given);
    assert_int_equal(given, 0);
    assert_int_equal(all.length, length);
    assert_memory_equal(buf_text(&all), text, length);
    assert_int_equal(pieces.length, length);
    assert_memory_equal(buf_text(&pieces), text, length);
    assert_false(decoder_failed(d));
    decoder_close(d);
    char *whole;
    assert_int_equal(tokenizer_decode(shared_vocab(), ids, count, true, &whole, &given, &err),
                     CARAT_OK);
    assert_int_equal(given, length);
    assert_memory_equal(whole, text, length);
    assert_int_equal(whole[length], '\0');
    mem_free(whole);
    buf_deinit(&all);
    buf_deinit(&pieces);
    mem_free(ids);
}

static void test_round_trips(void **state)
{
    (void)state;
    static const char *const bits[] = {" ",
                                       "  ",
                                       "\n",
                                       "\n\n\n\n",
                                       "\t",
                                       "abc",
                                       "the cat",
                                       "<|turn>",
                                       "<bos>",
                                       "<|\"|>",
                                       "\xC3\xA9",
                                       "\xE2\x82\xAC",
                                       "\xF0\x9F\xA6\x99",
                                       "\xFF",
                                       "\xE2",
                                       "<0x41>",
                                       "</s>",
                                       "<unused7>",
                                       "\r\n",
                                       "<|tool_call>"};
    const uint64_t seed = 20260709;
    struct rng r = {seed};
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3000; round++) {
        char text[600];
        size_t length = 0, parts = rng_below(&r, 40);
        for (size_t i = 0; i < parts; i++) {
            const char *bit = bits[rng_below(&r, sizeof bits / sizeof *bits)];
            memcpy(text + length, bit, strlen(bit));
            length += strlen(bit);
        }
        check_round_trip(text, length, (enum carat_special)(round % 3));
    }
    char bytes[256];
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    check_round_trip(bytes, sizeof bytes, CARAT_SPECIAL_NONE);
}

/* Nothing incomplete is shown, and nothing complete is held back. */
static void test_hold_back(void **state)
{
    (void)state;
    struct carat_decoder *d;
    struct carat_error err;
    size_t n;
    assert_int_equal(decoder_open(&d, shared_vocab(), false, &err), CARAT_OK);
    const unsigned char llama[] = {0xF0, 0x9F, 0xA6, 0x99};
    for (int i = 0; i < 3; i++) {
        decoder_push(d, vocab_byte(shared_vocab(), llama[i]), &n);
        assert_int_equal(n, 0);
    }
    const char *text = decoder_push(d, vocab_byte(shared_vocab(), llama[3]), &n);
    assert_int_equal(n, 4);
    assert_memory_equal(text, llama, 4);
    decoder_push(d, 106, &n); /* control: nothing */
    assert_int_equal(n, 0);
    text = decoder_push(d, 52, &n); /* user-defined: its text */
    assert_int_equal(n, 5);
    decoder_push(d, vocab_byte(shared_vocab(), 0xE2), &n);
    assert_int_equal(n, 0);
    text = decoder_push(d, id_of("a"), &n); /* it can no longer be completed */
    assert_int_equal(n, 2);
    assert_memory_equal(text,
                        "\xE2"
                        "a",
                        2);
    decoder_close(d);
}

/* ---- Words ---- */

enum { LINE_MAX = 40 };

/* The definition: of all pairs of a line the one of the lowest rank merges, the leftmost first. */
static size_t merge_naively(const struct vocab *v, const char *line, int32_t ids[LINE_MAX])
{
    size_t n = 0;
    for (size_t at = 0; line[at];) {
        size_t bytes = (unsigned char)line[at] == 0xE2 ? 3 : 1;
        ids[n++] = line[at] == ' ' ? vocab_find_plain(v, "\xE2\x96\x81", 3)
                                   : vocab_find_plain(v, line + at, bytes);
        at += bytes;
    }
    for (;;) {
        size_t best = n;
        int32_t lowest = INT32_MAX, product = -1;
        for (size_t i = 0; i + 1 < n; i++) {
            int32_t joined, rank = vocab_merge(v, ids[i], ids[i + 1], &joined);
            if (rank >= 0 && rank < lowest) best = i, lowest = rank, product = joined;
        }
        if (best == n) return n;
        ids[best] = product;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
    }
}

static void words_that_merge_apart_have_the_ids_of_whole_lines(void **state)
{
    (void)state;
    static const char *const pieces[] = {" ", " ", "  ", "\xE2\x96\x81", "a",  "b",
                                         "c", "d", "z",  "aa",           "ba", "1"};
    struct rng r = {.state = 31};
    size_t n_merged = 0;
    print_message("seed 31\n");
    assert_false(vocab_joins_words(shared_vocab()));
    for (int round = 0; round < 20000; round++) {
        char line[LINE_MAX] = "";
        int32_t expected[LINE_MAX], *ids;
        while (strlen(line) + 4 < LINE_MAX && rng_below(&r, 12) > 0) {
            const char *piece = pieces[rng_below(&r, sizeof pieces / sizeof *pieces)];
            memcpy(line + strlen(line), piece, strlen(piece) + 1);
        }
        size_t n = merge_naively(shared_vocab(), line, expected);
        size_t count = encode(line, strlen(line), CARAT_SPECIAL_NONE, false, &ids);
        assert_int_equal(count, n);
        if (n) assert_memory_equal(ids, expected, n * sizeof *ids);
        n_merged += strlen(line) - n;
        mem_free(ids);
    }
    assert_true(n_merged > 20000);
}

/* A vocabulary that joins words with the space after them is not cut there. */
static void words_that_merge_with_a_space_are_not_cut(void **state)
{
    (void)state;
    struct text_fixture f;
    struct gguf_string *tokens = mem_alloc(1024, sizeof *tokens);
    static const char joined[] = "a\xE2\x96\x81", merge[] = "a \xE2\x96\x81";
    const struct gguf_string merges[] = {{merge, sizeof merge - 1}};
    int32_t id = id_of("aa"), *ids;
    size_t count;
    struct carat_error err;
    for (int32_t i = 0; i < 1024; i++)
        tokens[i].data = vocab_piece(shared_vocab(), i, &tokens[i].length);
    tokens[id] = (struct gguf_string){joined, sizeof joined - 1};
    text_fixture_init(&f, 1024);
    gguf_put_strings(&f.writer, "tokenizer.ggml.tokens", tokens, 1024);
    gguf_put_strings(&f.writer, "tokenizer.ggml.merges", merges, 1);
    text_fixture_parse(&f);
    assert_int_equal(vocab_open(&f.v, f.g, &err), CARAT_OK);
    assert_true(vocab_joins_words(f.v));
    assert_int_equal(tokenizer_encode(f.v, "a b", 3, CARAT_SPECIAL_NONE, false, &ids, &count, &err),
                     CARAT_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], id);
    mem_free(ids);
    mem_free(tokens);
    text_fixture_deinit(&f);
}

/* ---- Worst cases ---- */

static void check_time(const char *name, const char *text, size_t length)
{
    int32_t *ids;
    double begin = cost_cpu_seconds();
    size_t count = encode(text, length, CARAT_SPECIAL_ALL, false, &ids);
    double seconds = cost_cpu_seconds() - begin;
    print_message("%-28s %8zu bytes %8zu tokens %7.1f ms\n", name, length, count, seconds * 1e3);
    assert_true(seconds < 10.0); /* far above what is measured: sanitizers, slow machines */
    mem_free(ids);
}

static void test_long_lines(void **state)
{
    (void)state;
    const size_t n = 1000000;
    char *text = mem_alloc(n, 1);
    assert_non_null(text);
    struct rng r = {7};
    for (size_t i = 0; i < n; i++) text[i] = "abcdefghijklmnopqrstuvwxyz  ,."[rng_below(&r, 30)];
    check_time("one line of words", text, n);
    memset(text, 'a', n);
    check_time("one character", text, n);
    memset(text, ' ', n);
    check_time("only spaces", text, n);
    memset(text, '<', n);
    check_time("only <", text, n);
    for (size_t i = 0; i + 7 <= n; i += 7) memcpy(text + i, "<|turn>", 7);
    check_time("only marks", text, n);
    memset(text, 0x80, n);
    check_time("no UTF-8", text, n);
    memset(text, '\n', n);
    check_time("40,000 newlines", text, 40000);
    check_time("1,000,000 newlines", text, n);
    mem_free(text);
}

static void test_too_long(void **state)
{
    (void)state;
    struct carat_error err;
    int32_t *ids;
    size_t count;
    assert_int_equal(tokenizer_encode(shared_vocab(), "x", (size_t)1 << 31, CARAT_SPECIAL_NONE,
                                      false, &ids, &count, &err),
                     CARAT_EUSAGE);
    assert_null(ids);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct carat_error err;
    long before = mem_blocks_live();
    char text[3000];
    memset(text, 'a', sizeof text);
    memcpy(text + 1500, "\n\n<|turn>", 9);
    for (long n = 0;; n++) {
        int32_t *ids;
        size_t count;
        struct carat_decoder *d = NULL;
        mem_fail_after(n);
        int status = tokenizer_encode(shared_vocab(), text, sizeof text, CARAT_SPECIAL_ALL, true,
                                      &ids, &count, &err);
        if (status == CARAT_OK) status = decoder_open(&d, shared_vocab(), true, &err);
        bool failed = mem_fail_after(-1);
        decoder_close(d);
        mem_free(ids);
        assert_int_equal(mem_blocks_live(), before);
        if (!failed) {
            assert_int_equal(status, CARAT_OK);
            break;
        }
        assert_int_equal(status, CARAT_EMEMORY);
        assert_true(n < 200);
    }
}

/* A text is whole, or there is none. */
static void test_ids_without_memory_for_their_text(void **state)
{
    (void)state;
    enum { IDS = 400 };
    int32_t ids[IDS];
    struct carat_error err;
    long before = mem_blocks_live();
    for (int i = 0; i < IDS; i++) ids[i] = vocab_byte(shared_vocab(), 'a');
    for (long n = 0;; n++) {
        char *text;
        size_t length;
        mem_fail_after(n);
        int status = tokenizer_decode(shared_vocab(), ids, IDS, true, &text, &length, &err);
        bool failed = mem_fail_after(-1);
        assert_int_equal(status, failed ? CARAT_EMEMORY : CARAT_OK);
        assert_int_equal(length, failed ? 0 : IDS);
        assert_true(!failed == (text != NULL));
        mem_free(text);
        assert_int_equal(mem_blocks_live(), before);
        if (!failed) break;
        assert_true(n < 20);
    }
}

static void test_ids_that_are_not_in_the_vocabulary_are_refused(void **state)
{
    (void)state;
    const int32_t wrong[] = {-1, vocab_count(shared_vocab()), INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct carat_error err = {0};
        char *text;
        size_t length;
        assert_int_equal(tokenizer_decode(shared_vocab(), &wrong[i], 1, true, &text, &length, &err),
                         CARAT_EUSAGE);
        assert_null(text);
        assert_non_null(strstr(err.message, "the vocabulary ends at"));
    }
    char *text;
    size_t length;
    assert_int_equal(tokenizer_decode(shared_vocab(), NULL, 0, true, &text, &length, NULL),
                     CARAT_OK);
    assert_string_equal(text, "");
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_none_gives_no_special),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_hold_back),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(words_that_merge_apart_have_the_ids_of_whole_lines),
        cmocka_unit_test(words_that_merge_with_a_space_are_not_cut),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_ids_without_memory_for_their_text),
        cmocka_unit_test(test_ids_that_are_not_in_the_vocabulary_are_refused),
    };
    return cmocka_run_group_tests(tests, shared_vocab_open, shared_vocab_close);
}
