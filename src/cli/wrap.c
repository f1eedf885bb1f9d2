#include "cli/wrap.h"

#include <string.h>
#include <wchar.h>

#include "base/utf8.h"

enum { TAB = 8, JOINER = 0x200D };

static int width_of(uint32_t c)
{
    int width = wcwidth((wchar_t)c);
    return width < 0 ? 1 : width; /* unknown to the C library: probably a new letter */
}

/* Writes the held blanks and word. If the line has no room, a newline replaces the blanks. */
static void place_word(struct wrap *w, int columns, struct buf *out)
{
    if (w->word.length == 0) return;
    int end = w->column + w->blank_width + w->word_width;
    if (end <= columns || w->column == 0) {
        buf_add(out, buf_text(&w->blanks), w->blanks.length);
        w->column = end <= columns ? end : (end - 1) % columns + 1;
    } else {
        buf_add_char(out, '\n');
        w->column = w->word_width;
    }
    buf_add(out, buf_text(&w->word), w->word.length);
    buf_clear(&w->blanks);
    buf_clear(&w->word);
    w->blank_width = w->word_width = 0;
}

static void add_blank(struct wrap *w, int columns, char c, struct buf *out)
{
    place_word(w, columns, out);
    w->is_long = false;
    w->last = 0;
    int column = w->column + w->blank_width;
    w->blank_width += c == '\t' ? TAB - column % TAB : 1;
    buf_add_char(&w->blanks, c);
}

/* A line may break between wide characters, but not within one emoji of several. */
static bool may_break_before(const struct wrap *w, uint32_t c, int width)
{
    bool is_skin_tone = c >= 0x1F3FB && c <= 0x1F3FF;
    if (w->last == 0 || width == 0 || w->last == JOINER || is_skin_tone) return false;
    return width == 2 || width_of(w->last) == 2;
}

static void add_letter(struct wrap *w, int columns, const char *bytes, size_t n, uint32_t c,
                       struct buf *out)
{
    int width = width_of(c);
    if (may_break_before(w, c, width)) {
        place_word(w, columns, out);
        w->is_long = false;
    }
    if (width > 0 || c == JOINER) w->last = c;
    if (w->is_long) {
        buf_add(out, bytes, n);
        w->column = w->column + width > columns ? width : w->column + width;
        return;
    }
    buf_add(&w->word, bytes, n);
    w->word_width += width;
    if (w->word_width >= columns) {
        place_word(w, columns, out);
        w->is_long = true;
    }
}

void wrap_add(struct wrap *w, int columns, const char *text, size_t length, struct buf *out)
{
    if (w->column > columns) w->column = (w->column - 1) % columns + 1; /* a narrower window */
    for (size_t i = 0; i < length;) {
        uint32_t c = 0;
        int n = utf8_read(text + i, length - i, &c);
        if (n == 0) n = 1;
        if (c == '\n') {
            wrap_flush(w, columns, out);
            buf_add_char(out, '\n');
            w->column = 0;
        } else if (c == ' ' || c == '\t') {
            add_blank(w, columns, (char)c, out);
        } else {
            add_letter(w, columns, text + i, (size_t)n, c, out);
        }
        i += (size_t)n;
    }
}

void wrap_flush(struct wrap *w, int columns, struct buf *out)
{
    place_word(w, columns, out);
    buf_add(out, buf_text(&w->blanks), w->blanks.length);
    w->column += w->blank_width;
    buf_clear(&w->blanks);
    w->blank_width = 0;
    w->is_long = false;
    w->last = 0;
}

void wrap_note(struct wrap *w, const char *text, size_t length)
{
    const char *newline = length ? memrchr(text, '\n', length) : NULL;
    if (newline) w->column = 0;
    for (size_t i = newline ? (size_t)(newline + 1 - text) : 0; i < length;) {
        uint32_t c = 0;
        int n = utf8_read(text + i, length - i, &c);
        w->column += width_of(c);
        i += n > 0 ? (size_t)n : 1;
    }
}

void wrap_deinit(struct wrap *w)
{
    buf_deinit(&w->blanks);
    buf_deinit(&w->word);
}
