#include "grammar/regex.h"

#include <string.h>

#include "base/hex.h"
#include "base/status.h"
#include "base/utf8.h"

enum { RANGES_MAX = 160 }; /* of one class */

struct reader {
    struct expr_builder *b;
    enum chars_form form;
    const char *text, *at, *end;
    struct expr_stack stack;
    const struct expr *empty;
    struct char_range ranges[RANGES_MAX];
    size_t n_ranges;
    struct carat_error *err;
};

static int fail(struct reader *r, enum carat_status status, const char *at, const char *what)
{
    return err_set(r->err, status, "character %d: %s", (int)(at - r->text) + 1, what);
}

static uint32_t add_bounds(uint32_t a, uint32_t b)
{
    return a == EXPR_NO_LIMIT || b == EXPR_NO_LIMIT || a + b < a ? EXPR_NO_LIMIT : a + b;
}

static uint32_t multiply_bounds(uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0) return 0;
    if (a == EXPR_NO_LIMIT || b == EXPR_NO_LIMIT) return EXPR_NO_LIMIT;
    uint64_t product = (uint64_t)a * b;
    return product < EXPR_NO_LIMIT ? (uint32_t)product : EXPR_NO_LIMIT;
}

static bool skip(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* ---- Classes ---------------------------------------------------------------------------- */

static int add_range(struct reader *r, uint32_t first, uint32_t last)
{
    if (r->n_ranges == RANGES_MAX)
        return fail(r, CARAT_EUNSUPPORTED, r->at, "a class of at most 160 ranges expected");
    r->ranges[r->n_ranges++] = (struct char_range){.first = first, .last = last};
    return CARAT_OK;
}

/* Adds \d, \w, \s and their complements; *is_class: it was one of them. */
static int add_named(struct reader *r, char c, bool *is_class)
{
    static const struct char_range digits[] = {{'0', '9'}};
    static const struct char_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct char_range spaces[] = {
        {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const struct char_range *ranges = NULL;
    size_t n = 0;
    switch (c | 0x20) {
    case 'd': ranges = digits, n = 1; break;
    case 'w': ranges = words, n = 4; break;
    case 's': ranges = spaces, n = 10; break;
    default: break;
    }
    *is_class = ranges != NULL;
    if (!ranges) return CARAT_OK;
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (c >= 'a') TRY(add_range(r, ranges[i].first, ranges[i].last));
        if (c < 'a' && ranges[i].first > next) TRY(add_range(r, next, ranges[i].first - 1));
        next = ranges[i].last + 1;
    }
    return c < 'a' ? add_range(r, next, CODE_POINT_MAX) : CARAT_OK;
}

static int read_hex(struct reader *r, int digits, uint32_t *out)
{
    const char *begin = r->at;
    *out = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        int value = r->at < r->end ? hex_value(*r->at) : -1;
        if (value < 0) return fail(r, CARAT_EUSAGE, begin, "hexadecimal digits expected");
        *out = *out << 4 | (uint32_t)value;
    }
    return CARAT_OK;
}

/* After \u{: X...}. */
static int read_code_point(struct reader *r, const char *begin, uint32_t *out)
{
    *out = 0;
    for (; r->at < r->end && hex_value(*r->at) >= 0 && *out <= CODE_POINT_MAX; r->at++)
        *out = *out << 4 | (uint32_t)hex_value(*r->at);
    if (r->at > begin + 1 && *out <= CODE_POINT_MAX && skip(r, '}')) return CARAT_OK;
    return fail(r, CARAT_EUSAGE, begin, "a code point up to {10FFFF} expected");
}

/* After \u: XXXX, or two of them that are the halves of one character, or {X...}. */
static int read_unicode(struct reader *r, uint32_t *out)
{
    const char *begin = r->at;
    uint32_t low = 0;
    if (skip(r, '{')) return read_code_point(r, begin, out);
    TRY(read_hex(r, 4, out));
    bool is_half = *out >= 0xD800 && *out <= 0xDBFF && r->end - r->at > 2 &&
                   memcmp(r->at, "\\u", 2) == 0 && r->at[2] != '{';
    if (!is_half) return CARAT_OK;
    const char *second = r->at;
    r->at += 2;
    TRY(read_hex(r, 4, &low));
    uint32_t pair = utf16_pair(*out, low);
    if (pair) *out = pair;
    if (!pair) r->at = second;
    return CARAT_OK;
}

/* After a backslash: one character. */
static int read_escape(struct reader *r, bool in_class, uint32_t *out)
{
    const char *begin = r->at;
    if (r->at == r->end) return fail(r, CARAT_EUSAGE, begin, "a character expected after \\");
    char c = *r->at++;
    switch (c) {
    case 'n': *out = '\n'; return CARAT_OK;
    case 'r': *out = '\r'; return CARAT_OK;
    case 't': *out = '\t'; return CARAT_OK;
    case 'f': *out = '\f'; return CARAT_OK;
    case 'v': *out = '\v'; return CARAT_OK;
    case 'x': return read_hex(r, 2, out);
    case 'u': return read_unicode(r, out);
    case '0': *out = 0; return CARAT_OK;
    case 'b':
        if (!in_class) break;
        *out = '\b';
        return CARAT_OK;
    default: break;
    }
    bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_word || (unsigned char)c >= 0x80)
        return fail(r, CARAT_EUNSUPPORTED, begin, "this escape is not supported");
    *out = (unsigned char)c;
    return CARAT_OK;
}

static int read_char(struct reader *r, bool in_class, uint32_t *out)
{
    int n = utf8_read(r->at, (size_t)(r->end - r->at), out);
    if (n == 0) return fail(r, CARAT_EUSAGE, r->at, "UTF-8 expected");
    r->at += n;
    return *out == '\\' ? read_escape(r, in_class, out) : CARAT_OK;
}

/* A character of a class, or a named class; *is_class: the latter. */
static int read_class_item(struct reader *r, uint32_t *c, bool *is_class)
{
    *is_class = false;
    if (r->end - r->at > 1 && *r->at == '\\') TRY(add_named(r, r->at[1], is_class));
    if (!*is_class) return read_char(r, true, c);
    r->at += 2;
    return CARAT_OK;
}

static int read_class(struct reader *r, struct regex *out)
{
    const char *begin = r->at++;
    bool is_negated = skip(r, '^'), is_class;
    r->n_ranges = 0;
    while (!skip(r, ']')) {
        uint32_t first = 0, last;
        const char *at = r->at;
        if (r->at == r->end) return fail(r, CARAT_EUSAGE, begin, "the class does not end");
        TRY(read_class_item(r, &first, &is_class));
        if (is_class) continue;
        last = first;
        if (r->end - r->at > 1 && *r->at == '-' && r->at[1] != ']') {
            r->at++;
            TRY(read_class_item(r, &last, &is_class));
            if (is_class || last < first)
                return fail(r, CARAT_EUSAGE, at,
                            "a range from a lower to a higher character expected");
        }
        TRY(add_range(r, first, last));
    }
    out->class = chars_class(r->b, r->form, r->ranges, r->n_ranges, is_negated);
    return CARAT_OK;
}

/* ---- Parts ------------------------------------------------------------------------------ */

static int read_alternatives(struct reader *r, int depth, struct regex *out);

/* The <name> of a group, which changes nothing. */
static int skip_name(struct reader *r, const char *begin)
{
    if (!skip(r, '<') || r->at == r->end || *r->at == '=' || *r->at == '!')
        return fail(r, CARAT_EUNSUPPORTED, begin,
                    "groups that look around or have flags are not supported");
    const char *end = memchr(r->at, '>', (size_t)(r->end - r->at));
    if (!end) return fail(r, CARAT_EUSAGE, begin, "the group's name does not end");
    r->at = end + 1;
    return CARAT_OK;
}

static int read_group(struct reader *r, int depth, struct regex *out)
{
    const char *begin = r->at++;
    if (depth == REGEX_DEPTH_MAX)
        return fail(r, CARAT_EUNSUPPORTED, begin, "at most 100 groups inside each other expected");
    if (skip(r, '?') && !skip(r, ':')) TRY(skip_name(r, begin));
    TRY(read_alternatives(r, depth + 1, out));
    return skip(r, ')') ? CARAT_OK : fail(r, CARAT_EUSAGE, begin, "the group does not end");
}

static int read_atom(struct reader *r, int depth, struct regex *out)
{
    static const struct char_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    uint32_t c = 0;
    bool is_class = false;
    *out = (struct regex){.least = 1, .most = 1, .before = r->empty, .after = r->empty};
    if (*r->at == '(') return read_group(r, depth, out);
    if (*r->at == '^' || *r->at == '$')
        return fail(r, CARAT_EUNSUPPORTED, r->at,
                    "^ and $ are supported at the ends of the pattern and of its alternatives");
    if (memchr("*+?{", *r->at, 4))
        return fail(r, CARAT_EUSAGE, r->at, "there is nothing to repeat");
    if (*r->at == '[') {
        TRY(read_class(r, out));
    } else if (*r->at == '.') {
        r->at++;
        out->class = chars_class(r->b, r->form, line_ends, 3, true);
    } else {
        r->n_ranges = 0;
        if (*r->at == '\\' && r->end - r->at > 1) TRY(add_named(r, r->at[1], &is_class));
        if (is_class)
            r->at += 2;
        else
            TRY(read_char(r, false, &c));
        if (!is_class) TRY(add_range(r, c, c));
        out->class = chars_class(r->b, r->form, r->ranges, r->n_ranges, false);
    }
    out->expr = out->class;
    return CARAT_OK;
}

static int read_number(struct reader *r, uint32_t *out)
{
    const char *begin = r->at;
    *out = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        *out = *out * 10 + (uint32_t)(*r->at - '0');
        if (*out > REGEX_TIMES_MAX)
            return fail(r, CARAT_EUNSUPPORTED, begin, "a repetition of at most 1048576 expected");
    }
    return r->at > begin ? CARAT_OK : fail(r, CARAT_EUSAGE, begin, "a number expected");
}

/* *has: there was one. */
static int read_quantifier(struct reader *r, uint32_t *least, uint32_t *most, bool *has)
{
    const char *begin = r->at;
    *has = true;
    *least = 0;
    *most = EXPR_NO_LIMIT;
    if (skip(r, '+')) {
        *least = 1;
    } else if (skip(r, '?')) {
        *most = 1;
    } else if (skip(r, '{')) {
        TRY(read_number(r, least));
        *most = *least;
        if (skip(r, ',')) {
            *most = EXPR_NO_LIMIT;
            if (r->at < r->end && *r->at != '}') TRY(read_number(r, most));
        }
        if (!skip(r, '}')) return fail(r, CARAT_EUSAGE, begin, "the repetition does not end");
        if (*most < *least) return fail(r, CARAT_EUSAGE, begin, "{m,n}: m up to n expected");
    } else {
        *has = skip(r, '*');
    }
    if (*has) skip(r, '?'); /* lazy: the same texts */
    return CARAT_OK;
}

static int read_repeated(struct reader *r, int depth, struct regex *out)
{
    uint32_t least, most;
    bool has;
    TRY(read_atom(r, depth, out));
    TRY(read_quantifier(r, &least, &most, &has));
    if (!has) return CARAT_OK;
    if (out->least != 1 || out->most != 1) out->class = NULL;
    out->expr = expr_repeat(r->b, out->expr, least, most);
    out->least = multiply_bounds(out->least, least);
    out->most = multiply_bounds(out->most, most);
    return CARAT_OK;
}

static bool is_at_end(const struct reader *r)
{
    return r->at == r->end || *r->at == '|' || *r->at == ')';
}

/* Parts one after another, which are on the stack. */
struct sequence {
    size_t first, n_parts, n_varying;
    uint32_t least, most;
    struct regex one; /* the part whose length varies, or the first one */
    size_t at;
};

static void add_part(struct reader *r, struct sequence *s, const struct regex *part)
{
    bool varies = part->least != part->most;
    expr_push(r->b, &r->stack, part->expr);
    s->least = add_bounds(s->least, part->least);
    s->most = add_bounds(s->most, part->most);
    if (varies || s->n_parts == 0) {
        s->one = *part;
        s->at = r->stack.n - 1;
    }
    s->n_varying += varies;
    s->n_parts++;
}

/* What may stand before or after a pattern that is not anchored there. */
static void add_anything(struct reader *r, struct sequence *s)
{
    struct regex any = {.most = EXPR_NO_LIMIT, .before = r->empty, .after = r->empty};
    any.class = chars_any(r->b, r->form);
    any.expr = expr_repeat(r->b, any.class, 0, EXPR_NO_LIMIT);
    add_part(r, s, &any);
}

static int finish(struct reader *r, const struct sequence *s, struct regex *out)
{
    TRY(builder_check(r->b, r->err));
    *out = (struct regex){.least = s->least, .most = s->most};
    bool has_one = s->n_varying == 1 || s->n_parts == 1;
    if (has_one && s->one.class && s->least != EXPR_NO_LIMIT) {
        const struct expr *const *items = r->stack.items;
        const struct expr *before = expr_seq(r->b, items + s->first, s->at - s->first);
        const struct expr *after = expr_seq(r->b, items + s->at + 1, r->stack.n - s->at - 1);
        out->before = expr_then(r->b, before, s->one.before);
        out->class = s->one.class;
        out->after = expr_then(r->b, s->one.after, after);
        out->fixed = s->least - (s->one.least - s->one.fixed);
    }
    out->expr = expr_pop_seq(r->b, &r->stack, s->first);
    return builder_check(r->b, r->err);
}

static int read_sequence(struct reader *r, int depth, struct regex *out)
{
    struct sequence s = {.first = r->stack.n};
    bool is_bound = depth > 0 || skip(r, '^');
    struct regex part = {0};
    if (!is_bound) add_anything(r, &s);
    while (!is_at_end(r)) {
        if (depth == 0 && *r->at == '$' && (r->end - r->at == 1 || r->at[1] == '|')) break;
        TRY(read_repeated(r, depth, &part));
        add_part(r, &s, &part);
    }
    bool is_closed = depth > 0 || skip(r, '$');
    if (!is_closed) add_anything(r, &s);
    return finish(r, &s, out);
}

static int read_alternatives(struct reader *r, int depth, struct regex *out)
{
    size_t first = r->stack.n;
    struct regex part;
    TRY(read_sequence(r, depth, out));
    expr_push(r->b, &r->stack, out->expr);
    while (skip(r, '|')) {
        TRY(read_sequence(r, depth, &part));
        expr_push(r->b, &r->stack, part.expr);
        if (part.least < out->least) out->least = part.least;
        if (part.most > out->most) out->most = part.most;
        out->class = NULL;
    }
    out->expr = expr_pop_either(r->b, &r->stack, first);
    return CARAT_OK;
}

int regex_read(struct expr_builder *b, enum chars_form form, const char *pattern, size_t length,
               struct regex *out, struct carat_error *err)
{
    struct reader r = {
        .b = b, .form = form, .text = pattern, .at = pattern, .end = pattern + length, .err = err};
    struct regex all = {0};
    r.empty = expr_empty(b);
    if (length > REGEX_BYTES_MAX)
        return err_set(err, CARAT_EUNSUPPORTED, "at most %d bytes expected, %zu found",
                       REGEX_BYTES_MAX, length);
    int status = read_alternatives(&r, 0, &all);
    if (!status && r.at < r.end) status = fail(&r, CARAT_EUSAGE, r.at, "this ) closes no (");
    if (!status) status = builder_check(b, err);
    expr_stack_deinit(&r.stack);
    *out = all;
    return status;
}
