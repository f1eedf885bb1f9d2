#include "grammar/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/digits.h"

/* Between two tokens. */
static const struct expr *write_blank(struct value_writer *w)
{
    if (!writes_json(w)) return expr_empty(w->b);
    return expr_optional(w->b, expr_text(w->b, " "));
}

const struct expr *write_mark(struct value_writer *w, char mark)
{
    const struct expr *blank = write_blank(w);
    const struct expr *all[] = {blank, expr_bytes(w->b, &mark, 1), blank};
    if (strchr("{[", mark)) return expr_seq(w->b, all + 1, 2);
    return expr_seq(w->b, all, strchr("}]", mark) ? 2 : 3);
}

static const struct expr *quote(struct value_writer *w)
{
    return writes_json(w) ? expr_text(w->b, "\"") : expr_token(w->b, w->syntax.quote);
}

const struct expr *write_quoted(struct value_writer *w, const struct expr *content)
{
    const struct expr *all[] = {quote(w), content, quote(w)};
    return expr_seq(w->b, all, 3);
}

const struct expr *write_key(struct value_writer *w, const char *key, size_t length)
{
    return expr_then(w->b, chars_text(w->b, chars_form(w), key, length), write_mark(w, ':'));
}

static const struct expr *write_text(struct value_writer *w, const char *text, size_t length)
{
    const struct expr *e = chars_text(w->b, chars_form(w), text, length);
    return writes_json(w) ? e : write_quoted(w, e);
}

const struct expr *write_container(struct value_writer *w, char open, const struct expr *content,
                                   bool may_be_empty)
{
    char close = open == '{' ? '}' : ']';
    const struct expr *full[] = {write_mark(w, open), content, write_mark(w, close)};
    const struct expr *empty[] = {write_mark(w, open), expr_bytes(w->b, &close, 1)};
    const struct expr *either[2];
    size_t n = 0;
    if (content) either[n++] = expr_seq(w->b, full, 3);
    if (may_be_empty) either[n++] = expr_seq(w->b, empty, 2);
    return expr_either(w->b, either, n);
}

/* ---- Any value -------------------------------------------------------------------------- */

const struct expr *write_any_string(struct value_writer *w)
{
    struct expr_builder *b = w->b;
    if (w->string_rule < 0) {
        w->string_rule = rule_add(b, "string", 6);
        const struct expr *c = chars_any(b, chars_form(w));
        rule_set(b, w->string_rule, write_quoted(w, expr_repeat(b, c, 0, EXPR_NO_LIMIT)));
    }
    return expr_rule(b, w->string_rule);
}

const struct expr *write_any_number(struct value_writer *w)
{
    static const struct char_range digit = {'0', '9'}, first = {'1', '9'};
    static const struct char_range exponent[] = {{'E', 'E'}, {'e', 'e'}},
                                   sign[] = {{'+', '+'}, {'-', '-'}};
    struct expr_builder *b = w->b;
    const struct expr *one = expr_class(b, &digit, 1, false);
    const struct expr *digits = expr_repeat(b, one, 0, WHOLE_DIGITS - 1);
    const struct expr *some = expr_repeat(b, one, 1, WHOLE_DIGITS),
                      *few = expr_repeat(b, one, 1, 2);
    const struct expr *whole[] = {expr_text(b, "0"),
                                  expr_then(b, expr_class(b, &first, 1, false), digits)};
    const struct expr *power[] = {expr_class(b, exponent, 2, false),
                                  expr_optional(b, expr_class(b, sign, 2, false)), few};
    const struct expr *all[] = {expr_optional(b, expr_text(b, "-")), expr_either(b, whole, 2),
                                expr_optional(b, expr_then(b, expr_text(b, "."), some)),
                                expr_optional(b, expr_seq(b, power, 3))};
    return expr_seq(b, all, 4);
}

static const struct expr *write_any_array(struct value_writer *w)
{
    const struct expr *items = expr_list(w->b, write_any(w), write_mark(w, ','), 1, EXPR_NO_LIMIT);
    return write_container(w, '[', items, true);
}

const struct expr *write_any_object(struct value_writer *w)
{
    struct expr_builder *b = w->b;
    const struct expr *key = writes_json(w) ? expr_then(b, write_any_string(w), write_mark(w, ':'))
                                            : write_other_key(w, NULL, NULL, 0);
    const struct expr *members =
        expr_list(b, expr_then(b, key, write_any(w)), write_mark(w, ','), 1, EXPR_NO_LIMIT);
    return write_container(w, '{', members, true);
}

const struct expr *write_any(struct value_writer *w)
{
    struct expr_builder *b = w->b;
    if (w->any_rule < 0) {
        w->any_rule = rule_add(b, "value", 5);
        if (w->any_rule < 0) return NULL;
        const struct expr *all[] = {
            write_any_object(w),  write_any_array(w),    write_any_string(w), write_any_number(w),
            expr_text(b, "true"), expr_text(b, "false"), expr_text(b, "null")};
        rule_set(b, w->any_rule, expr_either(b, all, 7));
    }
    return expr_rule(b, w->any_rule);
}

/* ---- A given value ---------------------------------------------------------------------- */

static const struct expr *write_real(struct value_writer *w, double x)
{
    char text[40];
    int precision = 1;
    if (!isfinite(x)) return expr_never(w->b);
    do {
        snprintf(text, sizeof text, "%.*g", precision, x);
    } while (strtod(text, NULL) != x && ++precision <= 17);
    return expr_text(w->b, text);
}

static int compare_members(const void *left, const void *right)
{
    const struct carat_member *a = *(const struct carat_member *const *)left;
    const struct carat_member *b = *(const struct carat_member *const *)right;
    int order = utf8_compare_lower(a->key.data, a->key.length, b->key.data, b->key.length);
    return order ? order : (a > b) - (a < b); /* both are in one array */
}

static const struct expr *write_list(struct value_writer *w, const struct carat_value *v)
{
    struct expr_stack s = {0};
    size_t n = v->kind == CARAT_ARRAY ? v->as.array.count : v->as.object.count;
    const struct carat_member **members = mem_alloc(n, sizeof *members);
    if (!members) w->b->has_no_memory = true;
    for (size_t i = 0; members && v->kind == CARAT_OBJECT && i < n; i++)
        members[i] = &v->as.object.members[i];
    if (members && v->kind == CARAT_OBJECT && !writes_json(w))
        qsort(members, n, sizeof *members, compare_members);
    for (size_t i = 0; members && i < n; i++) {
        if (i > 0) expr_push(w->b, &s, write_mark(w, ','));
        if (v->kind == CARAT_ARRAY) {
            expr_push(w->b, &s, write_value(w, &v->as.array.items[i]));
        } else {
            expr_push(w->b, &s, write_key(w, members[i]->key.data, members[i]->key.length));
            expr_push(w->b, &s, write_value(w, &members[i]->value));
        }
    }
    const struct expr *content = n ? expr_pop_seq(w->b, &s, 0) : NULL;
    mem_free(members);
    expr_stack_deinit(&s);
    return write_container(w, v->kind == CARAT_ARRAY ? '[' : '{', content, n == 0);
}

const struct expr *write_value(struct value_writer *w, const struct carat_value *v)
{
    char text[32];
    switch (v->kind) {
    case CARAT_NULL: return expr_text(w->b, "null");
    case CARAT_BOOL: return expr_text(w->b, v->as.boolean ? "true" : "false");
    case CARAT_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->as.integer);
        return expr_text(w->b, text);
    case CARAT_REAL: return write_real(w, v->as.real);
    case CARAT_STRING: return write_text(w, v->as.string.data, v->as.string.length);
    case CARAT_ARRAY:
    case CARAT_OBJECT: return write_list(w, v);
    }
    return expr_never(w->b);
}

/* ---- Other keys ------------------------------------------------------------------------- */

struct text {
    const char *data;
    size_t length;
};

static int compare_texts(const void *left, const void *right)
{
    const struct text *a = left, *b = right;
    size_t n = a->length < b->length ? a->length : b->length;
    int order = n ? memcmp(a->data, b->data, n) : 0;
    return order ? order : a->length < b->length ? -1 : a->length > b->length;
}

/* Characters that keys without escapes may have. Bare keys of calls: what a name may have. */
static const struct char_range json_chars[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, CODE_POINT_MAX}};
static const struct char_range bare_chars[] = {
    {'-', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

static bool is_key_char(const struct value_writer *w, uint32_t c)
{
    const struct char_range *ranges = writes_json(w) ? json_chars : bare_chars;
    size_t n = writes_json(w) ? 3 : 5;
    for (size_t i = 0; i < n; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

/* A character that keys may have, except those in except[0..n) (which are sorted and in there). */
static const struct expr *key_char_except(struct value_writer *w, const uint32_t *except, size_t n)
{
    const struct char_range *ranges = writes_json(w) ? json_chars : bare_chars;
    size_t n_ranges = writes_json(w) ? 3 : 5, count = 0, at = 0;
    struct char_range *left = mem_alloc(n_ranges + n, sizeof *left);
    for (size_t i = 0; left && i < n_ranges; i++) {
        uint32_t next = ranges[i].first;
        while (at < n && except[at] <= ranges[i].last) {
            if (except[at] > next)
                left[count++] = (struct char_range){.first = next, .last = except[at] - 1};
            next = except[at++] + 1;
        }
        if (next <= ranges[i].last)
            left[count++] = (struct char_range){.first = next, .last = ranges[i].last};
    }
    if (!left) w->b->has_no_memory = true;
    const struct expr *e = left ? expr_class(w->b, left, count, false) : NULL;
    mem_free(left);
    return e;
}

/* What may follow the `depth` bytes that texts[0..n) have in common, so that the whole is none of
 * them. */
static const struct expr *other_texts(struct value_writer *w, const struct text *texts, size_t n,
                                      size_t depth, unsigned level)
{
    struct expr_builder *b = w->b;
    struct expr_stack s = {0};
    const struct expr *any = expr_repeat(b, key_char_except(w, NULL, 0), 0, EXPR_NO_LIMIT);
    uint32_t *firsts = mem_alloc(n, sizeof *firsts);
    size_t n_firsts = 0, i = 0;
    bool may_end = n == 0 || texts[0].length > depth;
    if (!writes_json(w) && depth == 0) may_end = false;
    if (level > EXPR_DEPTH_MAX / 4)
        b->bound = "keys of at most 100 characters expected next to "
                   "additionalProperties";
    if (!firsts) b->has_no_memory = true;
    while (i < n && texts[i].length == depth) i++;
    while (firsts && !b->bound && i < n) {
        uint32_t c = 0;
        int length = utf8_read(texts[i].data + depth, texts[i].length - depth, &c);
        size_t end = i + 1;
        if (length == 0) break; /* JSON has been read as UTF-8 */
        while (end < n && texts[end].length >= depth + (size_t)length &&
               memcmp(texts[i].data + depth, texts[end].data + depth, (size_t)length) == 0)
            end++;
        if (is_key_char(w, c)) {
            firsts[n_firsts++] = c;
            expr_push(
                b, &s,
                expr_then(b, expr_bytes(b, texts[i].data + depth, (size_t)length),
                          other_texts(w, texts + i, end - i, depth + (size_t)length, level + 1)));
        }
        i = end;
    }
    if (firsts) expr_push(b, &s, expr_then(b, key_char_except(w, firsts, n_firsts), any));
    if (may_end) expr_push(b, &s, expr_empty(b));
    const struct expr *e = b->bound || b->has_no_memory ? NULL : expr_pop_either(b, &s, 0);
    mem_free(firsts);
    expr_stack_deinit(&s);
    return e;
}

const struct expr *write_other_key(struct value_writer *w, const char *const *keys,
                                   const size_t *lengths, size_t n)
{
    struct text *texts = mem_alloc(n, sizeof *texts);
    if (!texts) {
        w->b->has_no_memory = true;
        return NULL;
    }
    for (size_t i = 0; i < n; i++) texts[i] = (struct text){.data = keys[i], .length = lengths[i]};
    qsort(texts, n, sizeof *texts, compare_texts);
    const struct expr *text = other_texts(w, texts, n, 0, 0);
    mem_free(texts);
    return expr_then(w->b, writes_json(w) ? write_quoted(w, text) : text, write_mark(w, ':'));
}
