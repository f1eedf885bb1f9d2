#include "grammar/json_schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/formats.h"
#include "grammar/regex.h"
#include "grammar/schema_choice.h"
#include "grammar/schema_view.h"
#include "grammar/values.h"

enum {
    DEPTH_MAX = 160,      /* schemas inside each other; the reader of JSON allows 128 */
    REFERENCES_MAX = 4096 /* different ones */
};

/* A schema that is referred to: a rule, which is compiled after the rest. */
struct reference {
    struct schema_part part;
    int32_t rule;
};

struct compiler {
    struct value_writer w;
    struct schema_reader r;
    struct reference *references; /* REFERENCES_MAX */
    size_t n_references;
};

static int compile(struct compiler *c, const struct schema_part *parts, size_t n, int depth,
                   const struct expr **out);

/* Compiles what a value must fit; no parts: any value. */
static int compile_parts(struct compiler *c, const struct schema_parts *parts, int depth,
                         const struct expr **out)
{
    if (parts->n) return compile(c, parts->items, parts->n, depth + 1, out);
    *out = write_any(&c->w);
    return CARAT_OK;
}

/* ---- Strings and numbers ---------------------------------------------------------------- */

static int fail_within(const struct compiler *c, int status, const struct schema_path *path)
{
    char what[sizeof c->r.err->message];
    if (!c->r.err) return status;
    memcpy(what, c->r.err->message, sizeof what);
    return schema_fail(&c->r, (enum carat_status)status, path, what);
}

/* The texts of a regular expression whose lengths are within the bounds. *is_exact: whether it can
 * be told. */
static const struct expr *limit_lengths(struct compiler *c, const struct schema_view *v,
                                        const struct regex *regex, bool *is_exact)
{
    uint32_t least = regex->least > v->length_least ? regex->least : v->length_least;
    uint32_t most = regex->most < v->length_most ? regex->most : v->length_most;
    *is_exact = true;
    if (least > most) return expr_never(c->w.b);
    if (least == regex->least && most == regex->most) return regex->expr;
    *is_exact = regex->class != NULL;
    if (!regex->class) return regex->expr;
    if (most != EXPR_NO_LIMIT) most -= regex->fixed;
    const struct expr *all[] = {
        regex->before, expr_repeat(c->w.b, regex->class, least - regex->fixed, most), regex->after};
    return expr_seq(c->w.b, all, 3);
}

/* Strings that a pattern matches, of lengths within the bounds. */
static int compile_pattern(struct compiler *c, const struct schema_view *v, const char *pattern,
                           size_t length, const struct schema_path *path, const struct expr **out,
                           bool *is_exact)
{
    struct regex regex;
    int status = regex_read(c->w.b, chars_form(&c->w), pattern, length, &regex, c->r.err);
    if (status) return status == CARAT_EMEMORY ? status : fail_within(c, status, path);
    *out = write_quoted(&c->w, limit_lengths(c, v, &regex, is_exact));
    return CARAT_OK;
}

static int compile_string(struct compiler *c, const struct schema_view *v, const struct expr **out)
{
    const struct carat_value *pattern = v->pattern;
    const char *format =
        v->format ? format_pattern(v->format->as.string.data, v->format->as.string.length) : NULL;
    bool is_exact = false;
    if (pattern) {
        TRY(compile_pattern(c, v, pattern->as.string.data, pattern->as.string.length,
                            v->pattern_path, out, &is_exact));
        if (is_exact) return CARAT_OK;
        return schema_fail(&c->r, CARAT_EUNSUPPORTED, v->length_path,
                           "together with a pattern that allows other lengths this is not "
                           "supported");
    }
    /* Next to a pattern, or to lengths that it does not keep, a format is an annotation: who writes
     * a pattern too means the pattern by it, and lengths are what must not be exceeded. */
    if (format) TRY(compile_pattern(c, v, format, strlen(format), v->format_path, out, &is_exact));
    if (is_exact) return CARAT_OK;
    if (v->length_least == 0 && v->length_most == EXPR_NO_LIMIT) {
        *out = write_any_string(&c->w);
        return CARAT_OK;
    }
    if (v->length_least > v->length_most) {
        *out = expr_never(c->w.b);
        return CARAT_OK;
    }
    *out = write_quoted(&c->w, expr_repeat(c->w.b, chars_any(c->w.b, chars_form(&c->w)),
                                           v->length_least, v->length_most));
    return CARAT_OK;
}

static const struct expr *compile_number(struct compiler *c, const struct schema_view *v)
{
    bool is_bound = v->low.is_given || v->high.is_given;
    if (!(v->types & TYPE_FRACTION)) return digits_integer(c->w.b, &v->low, &v->high);
    return is_bound ? digits_number(c->w.b, &v->low, &v->high) : write_any_number(&c->w);
}

/* ---- Arrays ----------------------------------------------------------------------------- */

/* The items after the n_prefix first ones, each with its separator. */
static int compile_rest(struct compiler *c, const struct schema_view *v, int depth,
                        const struct expr **out)
{
    uint32_t n = (uint32_t)v->n_prefix;
    uint32_t least = v->items_least > n ? v->items_least - n : 0;
    uint32_t most = v->items_most == EXPR_NO_LIMIT ? EXPR_NO_LIMIT
                    : v->items_most > n            ? v->items_most - n
                                                   : 0;
    const struct expr *item[2] = {write_mark(&c->w, ',')};
    bool is_closed = v->is_rest_forbidden || (!v->has_rest && least == 0);
    if (is_closed || most == 0) {
        *out = least ? expr_never(c->w.b) : expr_empty(c->w.b);
        return CARAT_OK;
    }
    TRY(compile_parts(c, &v->rest, depth, &item[1]));
    *out = expr_repeat(c->w.b, expr_seq(c->w.b, item, 2), least, most);
    return CARAT_OK;
}

/* Built from the end: an item of the prefix, then maybe a separator and the next ones. */
static int compile_prefix(struct compiler *c, const struct schema_view *v, int depth,
                          const struct expr **out)
{
    struct expr_builder *b = c->w.b;
    const struct expr *tail;
    TRY(compile_rest(c, v, depth, &tail));
    for (size_t i = v->n_prefix; i-- > 0;) {
        const struct expr *all[3] = {write_mark(&c->w, ','), NULL, tail};
        if (i >= v->items_most) {
            tail = expr_empty(b);
            continue;
        }
        TRY(compile_parts(c, &v->prefix[i], depth, &all[1]));
        if (i == 0)
            tail = expr_seq(b, all + 1, 2);
        else
            tail = expr_seq(b, all, 3);
        if (i > 0 && i >= v->items_least) tail = expr_optional(b, tail);
    }
    *out = tail;
    return CARAT_OK;
}

static int compile_array(struct compiler *c, const struct schema_view *v, int depth,
                         const struct expr **out)
{
    struct expr_builder *b = c->w.b;
    const struct expr *content = NULL, *item;
    uint32_t least = v->items_least > 0 ? v->items_least : 1;
    if (v->items_least > v->items_most) {
        content = expr_never(b);
    } else if (v->n_prefix) {
        TRY(compile_prefix(c, v, depth, &content));
    } else if (!v->is_rest_forbidden && v->items_most > 0) {
        TRY(compile_parts(c, &v->rest, depth, &item));
        content = expr_list(b, item, write_mark(&c->w, ','), least, v->items_most);
    }
    *out = write_container(&c->w, '[', content, v->items_least == 0);
    return CARAT_OK;
}

/* ---- Objects ---------------------------------------------------------------------------- */

/* Keys that match the pattern, any number of them. */
static int compile_pattern_property(struct compiler *c, const struct schema_view *v, int depth,
                                    const struct expr **out)
{
    struct expr_builder *b = c->w.b;
    const struct carat_member *m = v->pattern_property;
    const struct schema_path *path =
        schema_path_to(&c->r, v->pattern_property_path, m->key.data, m->key.length);
    struct schema_part part = {.schema = &m->value, .path = path};
    struct regex regex;
    const struct expr *pair[3];
    if (!path) return err_no_memory(c->r.err, "json schema", sizeof *path);
    if (v->n_properties || (v->has_additional && !v->is_additional_forbidden) ||
        !writes_json(&c->w))
        return schema_fail(&c->r, CARAT_EUNSUPPORTED, v->pattern_property_path,
                           "this is supported only without \"properties\", \"required\" and "
                           "\"additionalProperties\"");
    int status = regex_read(b, CHARS_JSON, m->key.data, m->key.length, &regex, c->r.err);
    if (status) return status == CARAT_EMEMORY ? status : fail_within(c, status, path);
    pair[0] = write_quoted(&c->w, regex.expr);
    pair[1] = write_mark(&c->w, ':');
    TRY(compile(c, &part, 1, depth + 1, &pair[2]));
    *out = expr_list(b, expr_seq(b, pair, 3), write_mark(&c->w, ','), 1, EXPR_NO_LIMIT);
    return CARAT_OK;
}

/* Pairs with keys that are not among the properties. */
static int compile_additional(struct compiler *c, const struct schema_view *v, int depth,
                              const struct expr **out)
{
    struct expr_builder *b = c->w.b;
    const struct expr *pair[2];
    const char **keys = mem_alloc(v->n_properties, sizeof *keys);
    size_t *lengths = mem_alloc(v->n_properties, sizeof *lengths);
    if (!keys || !lengths) b->has_no_memory = true;
    for (size_t i = 0; keys && lengths && i < v->n_properties; i++) {
        keys[i] = v->properties[i].key;
        lengths[i] = v->properties[i].length;
    }
    pair[0] = keys && lengths ? write_other_key(&c->w, keys, lengths, v->n_properties) : NULL;
    mem_free(keys);
    mem_free(lengths);
    TRY(compile_parts(c, &v->additional, depth, &pair[1]));
    *out = expr_list(b, expr_seq(b, pair, 2), write_mark(&c->w, ','), 1, EXPR_NO_LIMIT);
    return CARAT_OK;
}

/* Whether the schema false stands for the value. */
static bool is_false(const struct schema_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        if (parts->items[i].schema->kind == CARAT_BOOL && !parts->items[i].schema->as.boolean)
            return true;
    return false;
}

static int compile_property(struct compiler *c, const struct schema_view *v,
                            const struct schema_property *p, int depth, struct expr_member *out)
{
    const struct schema_parts *parts = &p->parts;
    const struct expr *pair[2];
    bool is_forbidden = p->is_forbidden || is_false(parts);
    out->is_required = p->is_required;
    out->item = NULL;
    if (!p->is_listed && v->is_additional_forbidden) is_forbidden = true;
    if (is_forbidden && p->is_required)
        return schema_fail(&c->r, CARAT_EUNSUPPORTED, p->path,
                           "the property is required, but may not be "
                           "there");
    if (is_forbidden) return CARAT_OK;
    if (!p->is_listed && parts->n == 0) parts = &v->additional;
    pair[0] = write_key(&c->w, p->key, p->length);
    TRY(compile_parts(c, parts, depth, &pair[1]));
    out->item = expr_seq(c->w.b, pair, 2);
    return builder_check(c->w.b, c->r.err);
}

static int compare_properties(const void *left, const void *right)
{
    const struct schema_property *a = left, *b = right;
    int order = utf8_compare_lower(a->key, a->length, b->key, b->length);
    return order ? order : (a->position > b->position) - (a->position < b->position);
}

static int compile_members(struct compiler *c, const struct schema_view *v, int depth,
                           struct expr_member *members, size_t *n, bool *is_required)
{
    *n = 0;
    *is_required = false;
    if (!writes_json(&c->w) && v->n_properties)
        qsort(v->properties, v->n_properties, sizeof *v->properties, compare_properties);
    for (size_t i = 0; i < v->n_properties; i++) {
        TRY(compile_property(c, v, &v->properties[i], depth, &members[*n]));
        if (!members[*n].item) continue;
        *is_required |= members[*n].is_required;
        ++*n;
    }
    bool is_open = v->has_additional ? !v->is_additional_forbidden : !v->has_properties;
    if (!is_open || v->pattern_property) return CARAT_OK;
    members[*n].is_required = false;
    TRY(compile_additional(c, v, depth, &members[*n].item));
    ++*n;
    return CARAT_OK;
}

static int compile_object(struct compiler *c, const struct schema_view *v, int depth,
                          const struct expr **out)
{
    struct expr_builder *b = c->w.b;
    const struct expr *content = NULL;
    bool is_required = false;
    size_t n = 0;
    if (v->pattern_property) {
        TRY(compile_pattern_property(c, v, depth, &content));
    } else if (v->n_properties == 0 && !v->has_additional && !v->has_properties) {
        *out = write_any_object(&c->w);
        return CARAT_OK;
    } else {
        struct expr_member *members = mem_alloc(v->n_properties + 1, sizeof *members);
        if (!members) return err_no_memory(c->r.err, "json schema", v->n_properties);
        int status = compile_members(c, v, depth, members, &n, &is_required);
        if (!status && n) content = expr_members(b, members, n, write_mark(&c->w, ','));
        mem_free(members);
        TRY(status);
    }
    *out = write_container(&c->w, '{', content, !is_required);
    return CARAT_OK;
}

/* ---- Listed values ---------------------------------------------------------------------- */

static size_t count_chars(const struct carat_value *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->as.string.length; i++) n += (v->as.string.data[i] & 0xC0) != 0x80;
    return n;
}

static bool is_within(const struct schema_view *v, const struct carat_value *value)
{
    struct decimal d = {.is_given = true};
    if (value->kind == CARAT_STRING) {
        size_t n = count_chars(value);
        return n >= v->length_least && n <= v->length_most;
    }
    if (value->kind == CARAT_INT)
        decimal_from_int(value->as.integer, &d);
    else if (value->kind != CARAT_REAL)
        return true;
    else if (!decimal_from_real(value->as.real, &d)) /* cannot be compared exactly: left out */
        return !v->low.is_given && !v->high.is_given;
    int low = v->low.is_given ? decimal_compare(&d, &v->low) : 1;
    int high = v->high.is_given ? decimal_compare(&d, &v->high) : -1;
    return (low > 0 || (low == 0 && !v->low.is_exclusive)) &&
           (high < 0 || (high == 0 && !v->high.is_exclusive));
}

static int compile_values(struct compiler *c, const struct schema_view *v, const struct expr **out)
{
    struct expr_stack s = {0};
    int status = CARAT_OK;
    for (size_t i = 0; i < v->n_values && !status; i++) {
        unsigned type = schema_type_of(v->values[i]);
        if (!(v->types & type) || !is_within(v, v->values[i])) continue;
        bool is_checked = !(v->kinds & type) || !(type & (TYPE_ARRAY | TYPE_OBJECT));
        if (!is_checked || (type == TYPE_STRING && v->pattern))
            status = schema_fail(&c->r, CARAT_EUNSUPPORTED, v->all.items[0].path,
                                 "\"enum\" or \"const\" together with \"pattern\" or keywords of "
                                 "arrays and objects is not supported");
        expr_push(c->w.b, &s, write_value(&c->w, v->values[i]));
    }
    *out = expr_pop_either(c->w.b, &s, 0);
    expr_stack_deinit(&s);
    return status;
}

/* ---- Choices ---------------------------------------------------------------------------- */

/* oneOf is treated as anyOf, if no value can fit two branches. */
static int check_one_of(struct compiler *c, const struct schema_view *v)
{
    enum { BRANCHES_MAX = 64 };
    size_t n = v->choice->as.array.count;
    bool is_alone = v->all.n == 1 && !v->has_properties && !v->n_properties && !v->has_additional;
    if (n > BRANCHES_MAX)
        return schema_fail(&c->r, CARAT_EUNSUPPORTED, v->choice_path,
                           "at most 64 branches expected; \"anyOf\" may have more");
    struct schema_view *views = arena_take(c->r.arena, n, sizeof *views);
    if (!views) return err_no_memory(c->r.err, "json schema", n * sizeof *views);
    for (size_t i = 0; i < n; i++) {
        struct schema_part branch;
        TRY(schema_branch(&c->r, v, i, &branch));
        TRY(schema_view_read(&c->r, &branch, 1, &views[i]));
        for (size_t k = 0; k < i; k++) {
            bool is_disjoint = false;
            TRY(schema_is_disjoint(&c->r, &views[i], &views[k], is_alone, &is_disjoint));
            if (!is_disjoint)
                return schema_fail(
                    &c->r, CARAT_EUNSUPPORTED, v->choice_path,
                    "a value might fit two of the branches: \"anyOf\" is supported, or "
                    "a required property whose values differ");
        }
    }
    return CARAT_OK;
}

static int compile_choice(struct compiler *c, const struct schema_view *v, int depth,
                          const struct expr **out)
{
    struct schema_part parts[SCHEMA_PARTS_MAX];
    struct expr_stack s = {0};
    size_t n = v->all.n;
    int status = CARAT_OK;
    if (n == SCHEMA_PARTS_MAX)
        return schema_fail(&c->r, CARAT_EUNSUPPORTED, v->choice_path,
                           "too many schemas for one "
                           "value");
    if (v->choice_kind == SKIP_ONE_OF) TRY(check_one_of(c, v));
    memcpy(parts, v->all.items, n * sizeof *parts);
    parts[v->choice_part].skip |= (unsigned)v->choice_kind;
    /* Where the rest says nothing, a branch stands for itself and a reference stays one. */
    bool is_bare = n == 1 && !v->has_types && !v->kinds && !v->has_values && !v->format &&
                   parts[0].skip == (SKIP_ADDED | (unsigned)v->choice_kind);
    for (size_t i = 0; i < v->choice->as.array.count && !status; i++) {
        const struct expr *branch = NULL;
        struct schema_view other = {0};
        status = schema_branch(&c->r, v, i, &parts[n]);
        if (!status && is_bare) status = schema_view_read(&c->r, parts, 1, &other);
        bool is_single = is_bare && !status && !other.choice;
        if (!status)
            status = is_single ? compile(c, parts + n, 1, depth + 1, &branch)
                               : compile(c, parts, n + 1, depth + 1, &branch);
        expr_push(c->w.b, &s, branch);
    }
    *out = expr_pop_either(c->w.b, &s, 0);
    expr_stack_deinit(&s);
    return status;
}

/* ---- Everything ------------------------------------------------------------------------- */

static int compile_types(struct compiler *c, const struct schema_view *v, int depth,
                         const struct expr **out)
{
    struct expr_builder *b = c->w.b;
    unsigned types = v->types;
    struct expr_stack s = {0};
    const struct expr *e = NULL;
    int status = CARAT_OK;
    if (!v->has_types && v->kinds) types &= v->kinds;
    if (!v->has_types && !v->kinds && v->format &&
        format_pattern(v->format->as.string.data, v->format->as.string.length))
        types = TYPE_STRING;
    if (types == TYPE_ANY && !v->kinds) {
        *out = write_any(&c->w);
        return CARAT_OK;
    }
    if (types & TYPE_OBJECT) status = compile_object(c, v, depth, &e), expr_push(b, &s, e);
    if (!status && (types & TYPE_ARRAY))
        status = compile_array(c, v, depth, &e), expr_push(b, &s, e);
    if (!status && (types & TYPE_STRING)) status = compile_string(c, v, &e), expr_push(b, &s, e);
    if (types & (TYPE_INTEGER | TYPE_FRACTION)) expr_push(b, &s, compile_number(c, v));
    if (types & TYPE_BOOLEAN) {
        expr_push(b, &s, expr_text(b, "true"));
        expr_push(b, &s, expr_text(b, "false"));
    }
    if (types & TYPE_NULL) expr_push(b, &s, expr_text(b, "null"));
    *out = expr_pop_either(b, &s, 0);
    expr_stack_deinit(&s);
    return status;
}

/* The rule of a schema that is referred to. */
static int refer(struct compiler *c, const struct schema_part *part, const struct carat_value *ref,
                 const struct expr **out)
{
    struct schema_part target;
    TRY(schema_resolve(&c->r, ref, part->path, &target));
    for (size_t i = 0; i < c->n_references; i++) {
        if (c->references[i].part.schema != target.schema) continue;
        *out = expr_rule(c->w.b, c->references[i].rule);
        return CARAT_OK;
    }
    if (c->n_references == REFERENCES_MAX)
        return schema_fail(&c->r, CARAT_EUNSUPPORTED, part->path,
                           "at most 4096 different references expected");
    int32_t rule = rule_add(c->w.b, target.path->text, target.path->length);
    if (rule < 0) return builder_check(c->w.b, c->r.err);
    c->references[c->n_references++] = (struct reference){.part = target, .rule = rule};
    *out = expr_rule(c->w.b, rule);
    return CARAT_OK;
}

static int compile(struct compiler *c, const struct schema_part *parts, size_t n, int depth,
                   const struct expr **out)
{
    struct schema_view v;
    const struct carat_value *ref =
        n == 1 && !parts[0].skip ? schema_only_ref(parts[0].schema) : NULL;
    *out = NULL;
    if (depth > DEPTH_MAX)
        return schema_fail(&c->r, CARAT_EUNSUPPORTED, parts[0].path,
                           "at most 160 schemas inside each other expected");
    if (ref) return refer(c, parts, ref, out);
    TRY(schema_view_read(&c->r, parts, n, &v));
    if (v.is_impossible)
        *out = expr_never(c->w.b);
    else if (v.choice)
        TRY(compile_choice(c, &v, depth, out));
    else if (v.has_values)
        TRY(compile_values(c, &v, out));
    else
        TRY(compile_types(c, &v, depth, out));
    return builder_check(c->w.b, c->r.err);
}

int json_schema_expr(struct expr_builder *b, const struct carat_value *schema,
                     const struct value_syntax *syntax, const struct expr **out,
                     struct carat_error *err)
{
    static const struct schema_path root = {.text = "#", .length = 1};
    struct arena arena = {0};
    struct compiler c = {
        .w = {.b = b, .syntax = *syntax, .any_rule = -1, .string_rule = -1},
        .r = {.arena = &arena, .root = schema, .err = err},
        .references = mem_alloc(REFERENCES_MAX, sizeof *c.references),
    };
    struct schema_part part = {.schema = schema, .path = &root};
    int status = c.references ? compile(&c, &part, 1, 0, out)
                              : err_no_memory(err, "json schema", REFERENCES_MAX);
    for (size_t i = 0; i < c.n_references && !status; i++) {
        const struct expr *body;
        struct schema_part target = c.references[i].part;
        status = compile(&c, &target, 1, 0, &body);
        rule_set(b, c.references[i].rule, body);
    }
    mem_free(c.references);
    arena_deinit(&arena);
    return status;
}
