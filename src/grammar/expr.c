#include "grammar/expr.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

void builder_deinit(struct expr_builder *b)
{
    mem_free(b->rules);
    arena_deinit(&b->arena);
    *b = (struct expr_builder){0};
}

int builder_check(const struct expr_builder *b, struct carat_error *err)
{
    if (b->has_no_memory) return err_no_memory(err, "grammar", b->arena.bytes);
    if (!b->bound) return CARAT_OK;
    return err_set(err, CARAT_EUNSUPPORTED, "the grammar is too large: %s", b->bound);
}

static void *take(struct expr_builder *b, size_t count, size_t size)
{
    if (b->has_no_memory || b->bound) return NULL;
    if (b->arena.bytes > BUILDER_BYTES_MAX || count > BUILDER_BYTES_MAX) {
        b->bound = "at most 32 MiB of expressions expected";
        return NULL;
    }
    void *memory = arena_take(&b->arena, count, size);
    if (!memory) b->has_no_memory = true;
    return memory;
}

static struct expr *new_expr(struct expr_builder *b, enum expr_kind kind, unsigned depth)
{
    if (depth > EXPR_DEPTH_MAX) b->bound = "nesting of at most 400 expected";
    struct expr *e = take(b, 1, sizeof *e);
    if (!e) return NULL;
    e->kind = (uint8_t)kind;
    e->depth = (uint16_t)depth;
    return e;
}

const struct expr *expr_empty(struct expr_builder *b)
{
    return new_expr(b, EXPR_EMPTY, 0);
}

const struct expr *expr_never(struct expr_builder *b)
{
    return new_expr(b, EXPR_NEVER, 0);
}

const struct expr *expr_bytes(struct expr_builder *b, const char *bytes, size_t length)
{
    if (length == 0) return expr_empty(b);
    struct expr *e = new_expr(b, EXPR_BYTES, 0);
    char *copy = take(b, length, 1);
    if (!e || !copy) return NULL;
    memcpy(copy, bytes, length);
    e->as.bytes = copy;
    e->n = (uint32_t)length;
    return e;
}

const struct expr *expr_text(struct expr_builder *b, const char *text)
{
    return expr_bytes(b, text, strlen(text));
}

static int compare_ranges(const void *left, const void *right)
{
    const struct char_range *a = left, *b = right;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* Sorts the ranges and joins those that touch. Returns how many are left. */
static size_t join_ranges(struct char_range *r, size_t n)
{
    size_t kept = 0;
    qsort(r, n, sizeof *r, compare_ranges);
    for (size_t i = 0; i < n; i++) {
        if (kept && r[i].first <= r[kept - 1].last + 1) {
            if (r[i].last > r[kept - 1].last) r[kept - 1].last = r[i].last;
        } else {
            r[kept++] = r[i];
        }
    }
    return kept;
}

/* The code points outside of n sorted ranges; `out` has room for n + 1. */
static size_t invert_ranges(const struct char_range *r, size_t n, struct char_range *out)
{
    uint32_t next = 0;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].first > next)
            out[count++] = (struct char_range){.first = next, .last = r[i].first - 1};
        next = r[i].last + 1;
    }
    if (next <= CODE_POINT_MAX)
        out[count++] = (struct char_range){.first = next, .last = CODE_POINT_MAX};
    return count;
}

const struct expr *expr_class(struct expr_builder *b, const struct char_range *ranges, size_t n,
                              bool is_negated)
{
    static const struct char_range surrogates = {.first = 0xD800, .last = 0xDFFF};
    struct expr *e = new_expr(b, EXPR_CLASS, 0);
    struct char_range *given = take(b, n + 2, sizeof *given);
    struct char_range *other = take(b, n + 3, sizeof *other);
    if (!e || !given || !other) return NULL;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].first > ranges[i].last || ranges[i].first > CODE_POINT_MAX) continue;
        given[count] = ranges[i];
        if (given[count].last > CODE_POINT_MAX) given[count].last = CODE_POINT_MAX;
        count++;
    }
    count = join_ranges(given, count);
    /* What is inverted last includes the surrogates, so that neither form has them. */
    if (!is_negated) {
        count = invert_ranges(given, count, other);
        memcpy(given, other, count * sizeof *given);
    }
    given[count++] = surrogates;
    count = join_ranges(given, count);
    count = invert_ranges(given, count, other);
    e->as.ranges = other;
    e->n = (uint32_t)count;
    if (count == 0) e->kind = EXPR_NEVER;
    return e;
}

static const struct expr *token(struct expr_builder *b, enum expr_kind kind, int32_t id)
{
    struct expr *e = new_expr(b, kind, 0);
    if (e) e->as.id = id;
    return e;
}

const struct expr *expr_token(struct expr_builder *b, int32_t id)
{
    return id < 0 ? expr_never(b) : token(b, EXPR_TOKEN, id);
}

const struct expr *expr_not_token(struct expr_builder *b, int32_t id)
{
    return token(b, EXPR_NOT_TOKEN, id);
}

static struct expr *with_items(struct expr_builder *b, enum expr_kind kind,
                               const struct expr *const *items, size_t n)
{
    unsigned depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (!items[i]) return NULL;
        if (items[i]->depth > depth) depth = items[i]->depth;
    }
    struct expr *e = new_expr(b, kind, depth + 1);
    const struct expr **copy = take(b, n, sizeof *copy);
    if (!e || !copy) return NULL;
    if (n) memcpy(copy, items, n * sizeof *copy);
    e->as.items = copy;
    e->n = (uint32_t)n;
    return e;
}

const struct expr *expr_seq(struct expr_builder *b, const struct expr *const *items, size_t n)
{
    return n == 1 ? items[0] : n == 0 ? expr_empty(b) : with_items(b, EXPR_SEQ, items, n);
}

const struct expr *expr_then(struct expr_builder *b, const struct expr *first,
                             const struct expr *second)
{
    const struct expr *both[] = {first, second};
    return expr_seq(b, both, 2);
}

const struct expr *expr_either(struct expr_builder *b, const struct expr *const *items, size_t n)
{
    return n == 1 ? items[0] : n == 0 ? expr_never(b) : with_items(b, EXPR_EITHER, items, n);
}

static const struct expr *repeated(struct expr_builder *b, enum expr_kind kind,
                                   const struct expr *item, const struct expr *separator,
                                   uint32_t least, uint32_t most)
{
    const struct expr *items[2] = {item, separator};
    struct expr *e = with_items(b, kind, items, separator ? 2 : 1);
    if (!e) return NULL;
    e->n = 1;
    e->separator = separator;
    e->least = least;
    e->most = most;
    if (least > most) e->kind = EXPR_NEVER;
    return e;
}

const struct expr *expr_repeat(struct expr_builder *b, const struct expr *item, uint32_t least,
                               uint32_t most)
{
    if (most == 0) return item ? expr_empty(b) : NULL;
    if (least == 1 && most == 1) return item;
    return repeated(b, EXPR_REPEAT, item, NULL, least, most);
}

const struct expr *expr_optional(struct expr_builder *b, const struct expr *item)
{
    return expr_repeat(b, item, 0, 1);
}

const struct expr *expr_list(struct expr_builder *b, const struct expr *item,
                             const struct expr *separator, uint32_t least, uint32_t most)
{
    if (!separator || !item) return NULL;
    if (most == 0) return expr_empty(b);
    if (least <= 1 && most == EXPR_NO_LIMIT)
        return repeated(b, EXPR_LIST, item, separator, least, most);
    if (item->kind != EXPR_RULE) {
        int32_t rule = rule_add(b, "item", 4);
        rule_set(b, rule, item);
        item = expr_rule(b, rule);
    }
    const struct expr *later[2] = {separator, item};
    const struct expr *all[2] = {item,
                                 expr_repeat(b, expr_seq(b, later, 2), least ? least - 1 : 0,
                                             most == EXPR_NO_LIMIT ? EXPR_NO_LIMIT : most - 1)};
    const struct expr *list = expr_seq(b, all, 2);
    return least ? list : expr_optional(b, list);
}

const struct expr *expr_members(struct expr_builder *b, const struct expr_member *members, size_t n,
                                const struct expr *separator)
{
    const struct expr **items = take(b, n + 1, sizeof *items);
    bool *is_required = take(b, n + 1, sizeof *is_required);
    if (!items || !is_required || !separator) return NULL;
    for (size_t i = 0; i < n; i++) {
        items[i] = members[i].item;
        is_required[i] = members[i].is_required;
    }
    items[n] = separator;
    struct expr *e = with_items(b, EXPR_MEMBERS, items, n + 1);
    if (!e) return NULL;
    e->n = (uint32_t)n;
    e->separator = separator;
    e->is_required = is_required;
    return e;
}

/* ---- Stacks ----------------------------------------------------------------------------- */

void expr_push(struct expr_builder *b, struct expr_stack *s, const struct expr *item)
{
    if (s->n == s->capacity) {
        size_t larger = s->capacity ? s->capacity * 2 : 64;
        void *items = mem_resize(s->items, larger, sizeof *s->items);
        if (!items) {
            b->has_no_memory = true;
            return;
        }
        s->items = items;
        s->capacity = larger;
    }
    s->items[s->n++] = item;
}

const struct expr *expr_pop_seq(struct expr_builder *b, struct expr_stack *s, size_t begin)
{
    const struct expr *e = s->items ? expr_seq(b, s->items + begin, s->n - begin) : expr_empty(b);
    s->n = begin;
    return e;
}

const struct expr *expr_pop_either(struct expr_builder *b, struct expr_stack *s, size_t begin)
{
    const struct expr *e =
        s->items ? expr_either(b, s->items + begin, s->n - begin) : expr_never(b);
    s->n = begin;
    return e;
}

void expr_stack_deinit(struct expr_stack *s)
{
    mem_free(s->items);
    *s = (struct expr_stack){0};
}

/* ---- Rules ------------------------------------------------------------------------------ */

static bool grow_rules(struct expr_builder *b)
{
    if (b->n_rules == GRAMMAR_RULES_MAX) {
        b->bound = "at most 16384 rules expected";
        return false;
    }
    if (b->n_rules < b->rules_capacity) return true;
    int32_t larger = b->rules_capacity ? b->rules_capacity * 2 : 64;
    void *rules = mem_resize(b->rules, (size_t)larger, sizeof *b->rules);
    if (!rules) {
        b->has_no_memory = true;
        return false;
    }
    b->rules = rules;
    b->rules_capacity = larger;
    return true;
}

int32_t rule_add(struct expr_builder *b, const char *name, size_t length)
{
    if (!grow_rules(b)) return -1;
    char *copy = take(b, length + 1, 1);
    if (!copy) return -1;
    if (length) memcpy(copy, name, length);
    b->rules[b->n_rules] = (struct rule_body){.name = copy};
    return b->n_rules++;
}

void rule_set(struct expr_builder *b, int32_t rule, const struct expr *body)
{
    if (rule >= 0 && rule < b->n_rules) b->rules[rule].body = body;
}

const struct expr *expr_rule(struct expr_builder *b, int32_t rule)
{
    if (rule < 0) return NULL;
    struct expr *e = new_expr(b, EXPR_RULE, 0);
    if (e) e->as.rule = rule;
    return e;
}
