#include "grammar/chars.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

static const char short_names[] = "\b\f\n\r\t";
static const char short_escapes[] = "bfnrt";

/* How JSON writes a code point that may not stand as it is; 0: it may. */
static int escape(uint32_t c, char out[8])
{
    const char *name = c ? memchr(short_names, (int)c, sizeof short_names - 1) : NULL;
    if (c >= 0x20 && c != '"' && c != '\\') return 0;
    if (name) return snprintf(out, 8, "\\%c", short_escapes[name - short_names]);
    if (c >= 0x20) return snprintf(out, 8, "\\%c", (int)c);
    return snprintf(out, 8, "\\u%04x", c);
}

static const struct expr *hex(struct expr_builder *b, char first, char last, char first_letter,
                              char last_letter)
{
    struct char_range r[3];
    size_t n = 0;
    if (first <= last) r[n++] = (struct char_range){(unsigned char)first, (unsigned char)last};
    if (first_letter <= last_letter) {
        r[n++] = (struct char_range){(unsigned char)first_letter, (unsigned char)last_letter};
        r[n++] = (struct char_range){(unsigned char)(first_letter - 'a' + 'A'),
                                     (unsigned char)(last_letter - 'a' + 'A')};
    }
    return expr_class(b, r, n, false);
}

/* \uXXXX: no surrogate, or a pair of them. */
static const struct expr *unicode_escape(struct expr_builder *b)
{
    const struct expr *any = hex(b, '0', '9', 'a', 'f'), *d = hex(b, '1', '0', 'd', 'd');
    const struct expr *plain[] = {hex(b, '0', '9', 'a', 'c'), any, any, any};
    const struct expr *above[] = {hex(b, '1', '0', 'e', 'f'), any, any, any};
    const struct expr *below[] = {d, hex(b, '0', '7', 'b', 'a'), any, any};
    const struct expr *pair[] = {d, hex(b, '8', '9', 'a', 'b'), any, any, expr_text(b, "\\u"),
                                 d, hex(b, '1', '0', 'c', 'f'), any, any};
    const struct expr *either[] = {expr_seq(b, plain, 4), expr_seq(b, above, 4),
                                   expr_seq(b, below, 4), expr_seq(b, pair, 9)};
    const struct expr *all[] = {expr_text(b, "u"), expr_either(b, either, 4)};
    return expr_seq(b, all, 2);
}

const struct expr *chars_any(struct expr_builder *b, enum chars_form form)
{
    static const struct char_range escaped[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    static const struct char_range letters[] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'},
                                                {'f', 'f'}, {'n', 'n'},   {'r', 'r'}, {'t', 't'}};
    if (form == CHARS_RAW) return expr_class(b, NULL, 0, true);
    const struct expr *after[] = {expr_class(b, letters, 8, false), unicode_escape(b)};
    const struct expr *escapes[] = {expr_text(b, "\\"), expr_either(b, after, 2)};
    const struct expr *all[] = {expr_class(b, escaped, 3, true), expr_seq(b, escapes, 2)};
    return expr_either(b, all, 2);
}

static bool has(const struct expr *class, uint32_t c)
{
    for (uint32_t i = 0; i < class->n; i++)
        if (c >= class->as.ranges[i].first && c <= class->as.ranges[i].last) return true;
    return false;
}

const struct expr *chars_class(struct expr_builder *b, enum chars_form form,
                               const struct char_range *ranges, size_t n, bool is_negated)
{
    enum { N_ESCAPED = 0x20 + 2 };
    static const struct char_range whole[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, CODE_POINT_MAX}};
    const struct expr *class = expr_class(b, ranges, n, is_negated);
    if (!class || form == CHARS_RAW || class->kind == EXPR_NEVER) return class;
    const struct expr *ways[N_ESCAPED + 1];
    size_t n_ways = 0;
    for (uint32_t c = 0; c < 0x80; c++) {
        char text[8];
        if (has(class, c) && escape(c, text)) ways[n_ways++] = expr_text(b, text);
    }
    /* What may stand as it is: the class and `whole`. */
    struct char_range kept[512];
    size_t n_kept = 0;
    const struct expr *as_is = NULL;
    bool fits = class->n <= sizeof kept / sizeof *kept / 3;
    for (uint32_t i = 0; fits && i < class->n; i++) {
        for (unsigned k = 0; k < 3; k++) {
            struct char_range r = class->as.ranges[i];
            if (r.first < whole[k].first) r.first = whole[k].first;
            if (r.last > whole[k].last) r.last = whole[k].last;
            if (r.first <= r.last) kept[n_kept++] = r;
        }
    }
    if (!fits) {
        b->bound = "at most 170 ranges in a class of a pattern expected";
        return NULL;
    }
    as_is = expr_class(b, kept, n_kept, false);
    if (n_kept) ways[n_ways++] = as_is;
    return expr_either(b, ways, n_ways);
}

const struct expr *chars_text(struct expr_builder *b, enum chars_form form, const char *text,
                              size_t length)
{
    struct buf out = {0};
    if (form == CHARS_JSON) buf_add_char(&out, '"');
    for (size_t i = 0; i < length; i++) {
        char escaped[8];
        int n = form == CHARS_JSON ? escape((unsigned char)text[i], escaped) : 0;
        buf_add(&out, n ? escaped : text + i, n ? (size_t)n : 1);
    }
    if (form == CHARS_JSON) buf_add_char(&out, '"');
    if (out.failed) b->has_no_memory = true;
    const struct expr *e = expr_bytes(b, buf_text(&out), out.length);
    buf_deinit(&out);
    return e;
}
