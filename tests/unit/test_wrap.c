/* Line breaks between words, whatever pieces the text comes in. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cli/wrap.h"

enum { SEED = 3 };

/* The text in pieces of `piece` bytes, or in random ones, cut between characters. */
static struct buf wrapped(const char *text, int columns, size_t piece, struct rng *rng)
{
    struct wrap w = {0};
    struct buf out = {0};
    size_t length = strlen(text);
    for (size_t i = 0; i < length;) {
        size_t n = piece ? piece : 1 + rng_below(rng, 12);
        if (n > length - i) n = length - i;
        while (i + n < length && ((unsigned char)text[i + n] & 0xC0) == 0x80) n++;
        wrap_add(&w, columns, text + i, n, &out);
        i += n;
    }
    wrap_flush(&w, columns, &out);
    wrap_deinit(&w);
    return out;
}

static void expect_wrapped(const char *text, int columns, const char *wanted)
{
    for (size_t piece = 1; piece < 40; piece += 3) {
        struct buf out = wrapped(text, columns, piece, NULL);
        assert_string_equal(buf_text(&out), wanted);
        buf_deinit(&out);
    }
}

static void words_stay_whole(void **state)
{
    (void)state;
    expect_wrapped("the quick brown fox", 10, "the quick\nbrown fox");
    expect_wrapped("the quick brown fox", 9, "the quick\nbrown fox");
    expect_wrapped("the quick brown fox", 8, "the\nquick\nbrown\nfox");
    expect_wrapped("exactly ten", 11, "exactly ten");
    expect_wrapped("", 10, "");
}

static void what_fits_is_as_it_was(void **state)
{
    (void)state;
    expect_wrapped("  if x:\n\tgo  on \n\n   \nend\n", 20, "  if x:\n\tgo  on \n\n   \nend\n");
    expect_wrapped("        deep text here", 14, "        deep\ntext here");
    expect_wrapped("a\tb c", 10, "a\tb\nc");
}

static void a_word_wider_than_a_line_goes_on_as_it_is(void **state)
{
    (void)state;
    /* In rows of 10 columns the 24 columns end in column 4. */
    expect_wrapped("see http://example.org/a/b/c for ever", 10,
                   "see\nhttp://example.org/a/b/c for\never");
    expect_wrapped("0123456789012 45 7890", 10, "0123456789012 45\n7890");
}

static void wide_characters_count_twice_and_break_anywhere(void **state)
{
    (void)state;
    /* Three kanji of two columns each, in lines of seven; then a word right after them. */
    expect_wrapped("\u65e5\u672c\u8a9e\u65e5\u672c\u8a9e", 7,
                   "\u65e5\u672c\u8a9e\n\u65e5\u672c\u8a9e");
    expect_wrapped("\u65e5\u672cabcd", 7, "\u65e5\u672c\nabcd");
    expect_wrapped("abc \u65e5\u672c", 7, "abc \u65e5\n\u672c");
}

static void marks_have_no_width_and_stay_with_their_letter(void **state)
{
    (void)state;
    expect_wrapped("cafe\u0301 au lait", 7, "cafe\u0301 au\nlait");
    expect_wrapped("\u200f\u05d0\u05d1 \u05d2\u05d3", 5, "\u200f\u05d0\u05d1 \u05d2\u05d3");
    expect_wrapped("ab \U0001f468\u200d\U0001f469", 5, "ab\n\U0001f468\u200d\U0001f469");
}

static void no_line_is_wider_and_no_letter_is_lost(void **state)
{
    (void)state;
    struct rng rng = {SEED};
    for (int round = 0; round < 300; round++) {
        char text[400];
        size_t n = 0;
        int columns = 12 + (int)rng_below(&rng, 30), word = 0;
        while (n + 4 < sizeof text) { /* words of up to 11 columns */
            bool is_end = word > 0 && (word > 9 || rng_below(&rng, 5) == 0);
            text[n++] = is_end ? (rng_below(&rng, 12) ? ' ' : '\n') : 'a';
            word = is_end ? 0 : word + 1;
        }
        text[n] = '\0';
        struct buf out = wrapped(text, columns, 0, &rng);
        size_t line = 0;
        assert_int_equal(out.length, n); /* blanks became newlines */
        for (size_t i = 0; i < n; i++) {
            bool is_break = text[i] == ' ' && out.data[i] == '\n';
            assert_true(is_break || text[i] == out.data[i]);
            line = out.data[i] == '\n' ? 0 : line + 1;
            assert_true(line <= (size_t)columns || out.data[i] == ' ');
        }
        buf_deinit(&out);
    }
}

static void another_width_counts_from_the_next_piece_on(void **state)
{
    (void)state;
    struct wrap w = {0};
    struct buf out = {0};
    wrap_add(&w, 40, "one two three four ", 19, &out);
    wrap_add(&w, 10, "five six seven", 14, &out);
    wrap_flush(&w, 10, &out);
    /* The 18 columns are two rows of a window of 10; the cursor is in column 8. */
    assert_string_equal(buf_text(&out), "one two three four\nfive six\nseven");
    buf_clear(&out);
    wrap_add(&w, 30, " eight nine", 11, &out);
    wrap_flush(&w, 30, &out);
    assert_string_equal(buf_text(&out), " eight nine");
    wrap_note(&w, "carat: note\n\u65e5", 15);
    assert_int_equal(w.column, 2);
    buf_deinit(&out);
    wrap_deinit(&w);
}

int main(void)
{
    if (!setlocale(LC_CTYPE, "C.UTF-8")) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_stay_whole),
        cmocka_unit_test(what_fits_is_as_it_was),
        cmocka_unit_test(a_word_wider_than_a_line_goes_on_as_it_is),
        cmocka_unit_test(wide_characters_count_twice_and_break_anywhere),
        cmocka_unit_test(marks_have_no_width_and_stay_with_their_letter),
        cmocka_unit_test(no_line_is_wider_and_no_letter_is_lost),
        cmocka_unit_test(another_width_counts_from_the_next_piece_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
