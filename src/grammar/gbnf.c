#include "grammar/gbnf.h"

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"

struct name {
    const char *text; /* in the grammar's text */
    size_t length;
    int32_t rule;
};

struct reader {
    struct expr_builder *b;
    const struct vocab *vocab;
    const char *text, *at, *end;
    struct expr_stack stack;
    struct buf bytes;          /* of the text that is read */
    struct char_range *ranges; /* of the class that is read */
    size_t n_ranges, ranges_capacity;
    struct name *names; /* open addressing; names_size is a power of two */
    size_t names_size;
    struct hash_key key;
    struct carat_error *err;
};

static int fail(struct reader *r, const char *at, const char *what)
{
    int line = 1, column = 1;
    for (const char *p = r->text; p < at; p++) {
        if ((*p & 0xC0) != 0x80) column++;
        if (*p != '\n') continue;
        line++;
        column = 1;
    }
    return err_set(r->err, CARAT_EUSAGE, "grammar: line %d, column %d: %s", line, column, what);
}

/* ---- Characters ------------------------------------------------------------------------- */

static bool is_next(const struct reader *r, char c)
{
    return r->at < r->end && *r->at == c;
}

static bool skip(struct reader *r, char c)
{
    if (!is_next(r, c)) return false;
    r->at++;
    return true;
}

/* Blanks and comments; line ends too if `lines`. */
static void skip_space(struct reader *r, bool lines)
{
    while (r->at < r->end) {
        char c = *r->at;
        if (c == '#') {
            while (r->at < r->end && *r->at != '\n' && *r->at != '\r') r->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            r->at++;
        } else {
            return;
        }
    }
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static int read_hex(struct reader *r, int digits, uint32_t *out)
{
    const char *begin = r->at - 2;
    *out = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        int value = r->at < r->end ? hex_value(*r->at) : -1;
        if (value < 0)
            return fail(r, begin,
                        "an escape with two (\\x), four (\\u) or eight (\\U) "
                        "hexadecimal digits expected");
        *out = *out << 4 | (uint32_t)value;
    }
    if (*out > CODE_POINT_MAX || (*out >= 0xD800 && *out <= 0xDFFF))
        return fail(r, begin, "a code point up to 10FFFF expected, and no surrogate");
    return CARAT_OK;
}

/* One code point, as itself or escaped. */
static int read_char(struct reader *r, uint32_t *out)
{
    const char *begin = r->at;
    int n = utf8_read(r->at, (size_t)(r->end - r->at), out);
    if (n == 0) return fail(r, begin, "UTF-8 expected");
    r->at += n;
    if (*out != '\\') return CARAT_OK;
    if (r->at == r->end) return fail(r, begin, "a character expected after the backslash");
    char c = *r->at++;
    switch (c) {
    case 'x': return read_hex(r, 2, out);
    case 'u': return read_hex(r, 4, out);
    case 'U': return read_hex(r, 8, out);
    case 'n': *out = '\n'; break;
    case 'r': *out = '\r'; break;
    case 't': *out = '\t'; break;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^': *out = (unsigned char)c; break;
    default:
        return fail(r, begin,
                    "no such escape: \\x, \\u, \\U, \\n, \\r, \\t, \\\\, \\\", "
                    "\\[, \\], \\-, \\^ expected");
    }
    return CARAT_OK;
}

/* ---- Rules ------------------------------------------------------------------------------ */

static struct name *name_slot(struct reader *r, const char *text, size_t length)
{
    size_t i = hash_bytes(r->key, text, length) & (r->names_size - 1);
    while (r->names[i].text &&
           (r->names[i].length != length || memcmp(r->names[i].text, text, length) != 0))
        i = (i + 1) & (r->names_size - 1);
    return &r->names[i];
}

/* The rule of that name, which may be defined later; -1: out of memory or over a bound. */
static int32_t find_rule(struct reader *r, const char *text, size_t length)
{
    struct name *slot = name_slot(r, text, length);
    if (!slot->text) {
        int32_t rule = rule_add(r->b, text, length);
        if (rule < 0) return -1;
        *slot = (struct name){.text = text, .length = length, .rule = rule};
    }
    return slot->rule;
}

static size_t read_name(struct reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && is_name_char(*r->at)) r->at++;
    return (size_t)(r->at - begin);
}

/* ---- Items ------------------------------------------------------------------------------ */

static int read_alternatives(struct reader *r, int depth);

static int read_text(struct reader *r)
{
    const char *begin = r->at++;
    buf_clear(&r->bytes);
    while (!skip(r, '"')) {
        uint32_t c = 0;
        char bytes[4];
        if (r->at == r->end || *r->at == '\n')
            return fail(r, begin, "the text does not end: \" expected on the same line");
        TRY(read_char(r, &c));
        buf_add(&r->bytes, bytes, (size_t)utf8_write(c, bytes));
    }
    if (r->bytes.failed) return err_no_memory(r->err, "grammar", r->bytes.length);
    expr_push(r->b, &r->stack, expr_bytes(r->b, buf_text(&r->bytes), r->bytes.length));
    return CARAT_OK;
}

static int add_range(struct reader *r, uint32_t first, uint32_t last)
{
    if (r->n_ranges == r->ranges_capacity) {
        size_t larger = r->ranges_capacity ? r->ranges_capacity * 2 : 64;
        void *ranges = mem_resize(r->ranges, larger, sizeof *r->ranges);
        if (!ranges) return err_no_memory(r->err, "grammar", larger * sizeof *r->ranges);
        r->ranges = ranges;
        r->ranges_capacity = larger;
    }
    r->ranges[r->n_ranges++] = (struct char_range){.first = first, .last = last};
    return CARAT_OK;
}

static int read_class(struct reader *r)
{
    const char *begin = r->at++;
    bool is_negated = skip(r, '^');
    r->n_ranges = 0;
    while (!skip(r, ']')) {
        uint32_t first = 0, last;
        const char *at = r->at;
        if (r->at == r->end) return fail(r, begin, "the class does not end: ] expected");
        TRY(read_char(r, &first));
        last = first;
        if (is_next(r, '-') && r->end - r->at > 1 && r->at[1] != ']') {
            r->at++;
            TRY(read_char(r, &last));
        }
        if (last < first) return fail(r, at, "a range from a lower to a higher character expected");
        TRY(add_range(r, first, last));
    }
    expr_push(r->b, &r->stack, expr_class(r->b, r->ranges, r->n_ranges, is_negated));
    return CARAT_OK;
}

static int read_number(struct reader *r, uint32_t most, uint32_t *out)
{
    const char *begin = r->at;
    *out = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        *out = *out * 10 + (uint32_t)(*r->at - '0');
        if (*out > most) return fail(r, begin, "the number is too large");
    }
    return r->at > begin ? CARAT_OK : fail(r, begin, "a number expected");
}

/* <[48]> or <name>, where name is the token's text with its < and >. */
static int read_token(struct reader *r)
{
    const char *begin = r->at;
    bool is_negated = skip(r, '!');
    const char *name = r->at;
    uint32_t id = 0;
    if (!skip(r, '<')) return fail(r, begin, "a token expected after !: <[id]> or <name>");
    if (skip(r, '[')) {
        TRY(read_number(r, (uint32_t)vocab_count(r->vocab) - 1, &id));
        if (!skip(r, ']') || !skip(r, '>')) return fail(r, begin, "a token expected: <[id]>");
    } else {
        while (r->at < r->end && *r->at != '>' && *r->at != '\n') r->at++;
        if (!skip(r, '>')) return fail(r, begin, "the token does not end: > expected");
        int32_t found = vocab_find(r->vocab, name, (size_t)(r->at - name));
        if (found < 0) return fail(r, begin, "the model has no token of this text");
        id = (uint32_t)found;
    }
    expr_push(r->b, &r->stack,
              is_negated ? expr_not_token(r->b, (int32_t)id) : expr_token(r->b, (int32_t)id));
    return CARAT_OK;
}

static int read_group(struct reader *r, int depth)
{
    const char *begin = r->at++;
    if (depth == GBNF_DEPTH_MAX)
        return fail(r, begin, "at most 100 parentheses inside each other expected");
    TRY(read_alternatives(r, depth + 1));
    return skip(r, ')') ? CARAT_OK : fail(r, begin, "the group does not end: ) expected");
}

/* Puts an item on the stack. *is_item: there was one. */
static int read_item(struct reader *r, int depth, bool *is_item)
{
    *is_item = true;
    char c = r->at < r->end ? *r->at : '\0';
    if (c == '"') return read_text(r);
    if (c == '[') return read_class(r);
    if (c == '(') return read_group(r, depth);
    if (c == '<' || c == '!') return read_token(r);
    if (c == '.') {
        r->at++;
        expr_push(r->b, &r->stack, expr_class(r->b, NULL, 0, true));
        return CARAT_OK;
    }
    if (is_name_char(c)) {
        const char *name = r->at;
        size_t length = read_name(r);
        expr_push(r->b, &r->stack, expr_rule(r->b, find_rule(r, name, length)));
        return CARAT_OK;
    }
    *is_item = false;
    return CARAT_OK;
}

/* {m}, {m,}, {,n} or {m,n} */
static int read_times(struct reader *r, uint32_t *least, uint32_t *most)
{
    const char *begin = r->at++;
    skip_space(r, true);
    *least = 0;
    if (!is_next(r, ',')) TRY(read_number(r, GBNF_TIMES_MAX, least));
    *most = *least;
    skip_space(r, true);
    if (skip(r, ',')) {
        *most = EXPR_NO_LIMIT;
        skip_space(r, true);
        if (!is_next(r, '}')) TRY(read_number(r, GBNF_TIMES_MAX, most));
        skip_space(r, true);
    }
    if (!skip(r, '}')) return fail(r, begin, "the repetition does not end: } expected");
    if (*most < *least) return fail(r, begin, "{m,n}: m up to n expected");
    return CARAT_OK;
}

/* What follows an item: any number of *, +, ?, {m,n}. */
static int read_repetitions(struct reader *r, bool lines)
{
    for (;;) {
        uint32_t least = 0, most = EXPR_NO_LIMIT;
        skip_space(r, lines);
        if (is_next(r, '{')) {
            TRY(read_times(r, &least, &most));
        } else if (skip(r, '+')) {
            least = 1;
        } else if (skip(r, '?')) {
            most = 1;
        } else if (!skip(r, '*')) {
            return CARAT_OK;
        }
        if (r->b->has_no_memory || r->b->bound) return builder_check(r->b, r->err);
        const struct expr **top = &r->stack.items[r->stack.n - 1];
        *top = expr_repeat(r->b, *top, least, most);
    }
}

/* Items up to something else; one expression on the stack. */
static int read_sequence(struct reader *r, int depth)
{
    size_t first = r->stack.n;
    bool is_item = true;
    for (;;) {
        skip_space(r, depth > 0);
        TRY(read_item(r, depth, &is_item));
        if (!is_item) break;
        TRY(read_repetitions(r, depth > 0));
        if (r->b->has_no_memory || r->b->bound) return builder_check(r->b, r->err);
    }
    if (r->at < r->end && memchr("*+?{", *r->at, 4))
        return fail(r, r->at, "there is nothing to repeat");
    expr_push(r->b, &r->stack, expr_pop_seq(r->b, &r->stack, first));
    return CARAT_OK;
}

/* Whether a | follows; outside of parentheses it may stand at the beginning of the next line. */
static bool skip_bar(struct reader *r)
{
    const char *begin = r->at;
    skip_space(r, true);
    if (skip(r, '|')) return true;
    r->at = begin;
    return false;
}

static int read_alternatives(struct reader *r, int depth)
{
    size_t first = r->stack.n;
    do {
        skip_space(r, true);
        TRY(read_sequence(r, depth));
    } while (skip_bar(r));
    if (depth > 0) skip_space(r, true);
    expr_push(r->b, &r->stack, expr_pop_either(r->b, &r->stack, first));
    return CARAT_OK;
}

/* ---- The whole text --------------------------------------------------------------------- */

static int read_rule(struct reader *r)
{
    const char *name = r->at;
    size_t length = read_name(r);
    if (length == 0) return fail(r, name, "the name of a rule expected");
    skip_space(r, false);
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3) != 0) return fail(r, r->at, "::= expected");
    r->at += 3;
    int32_t rule = find_rule(r, name, length);
    if (rule >= 0 && r->b->rules[rule].body) return fail(r, name, "the rule is defined twice");
    TRY(read_alternatives(r, 0));
    TRY(builder_check(r->b, r->err));
    rule_set(r->b, rule, r->stack.items[--r->stack.n]);
    skip_space(r, false);
    if (r->at == r->end || *r->at == '\n' || *r->at == '\r') return CARAT_OK;
    return fail(r, r->at,
                *r->at == ')' ? "this ) closes no ("
                              : "an item, | or the end of the "
                                "line expected");
}

static int check_rules(struct reader *r)
{
    const char *first = NULL;
    for (size_t i = 0; i < r->names_size; i++) {
        const struct name *name = &r->names[i];
        if (!name->text || r->b->rules[name->rule].body) continue;
        if (!first || name->text < first) first = name->text;
    }
    return first ? fail(r, first, "the rule is not defined") : CARAT_OK;
}

static int read_all(struct reader *r, int32_t *root)
{
    skip_space(r, true);
    if (r->at == r->end) return fail(r, r->at, "a rule expected: root ::= ...");
    while (r->at < r->end) {
        TRY(read_rule(r));
        skip_space(r, true);
    }
    const struct name *name = name_slot(r, "root", 4);
    if (!name->text) return fail(r, r->text, "there is no rule of the name root");
    *root = name->rule;
    TRY(check_rules(r));
    return builder_check(r->b, r->err);
}

int gbnf_read(struct expr_builder *b, const struct vocab *vocab, const char *text, size_t length,
              int32_t *root, struct carat_error *err)
{
    struct reader r = {.b = b,
                       .vocab = vocab,
                       .text = text,
                       .at = text,
                       .end = text + length,
                       .names_size = 4 * GRAMMAR_RULES_MAX,
                       .key = hash_key_random(),
                       .err = err};
    *root = -1;
    if (length > GBNF_BYTES_MAX)
        return err_set(err, CARAT_EUNSUPPORTED, "grammar: at most %d bytes expected, %zu found",
                       GBNF_BYTES_MAX, length);
    r.names = mem_alloc(r.names_size, sizeof *r.names);
    if (!r.names) return err_no_memory(err, "grammar", r.names_size * sizeof *r.names);
    int status = read_all(&r, root);
    buf_deinit(&r.bytes);
    mem_free(r.names);
    mem_free(r.ranges);
    expr_stack_deinit(&r.stack);
    return status;
}
