#include "grammar/schema_view.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/pointer.h"
#include "base/status.h"
#include "grammar/expr.h"
#include "json/json_tree.h"

/* ---- Paths and errors ------------------------------------------------------------------- */

static void write_path(struct buf *out, const struct schema_path *path)
{
    enum { SHOWN_MAX = 40 };
    const struct schema_path *steps[SHOWN_MAX];
    size_t n = 0, depth = 0;
    for (const struct schema_path *p = path; p && p->parent; p = p->parent) {
        if (n < SHOWN_MAX) steps[n++] = p;
        depth++;
    }
    buf_add_text(out, depth > n ? "#/..." : "#");
    while (n-- > 0) {
        buf_add_char(out, '/');
        for (size_t i = 0; i < steps[n]->length && i < 64; i++) {
            unsigned char c = (unsigned char)steps[n]->text[i];
            if (c == '~' || c == '/')
                buf_add_text(out, c == '~' ? "~0" : "~1");
            else
                buf_add_char(out, c < 0x20 || c == 0x7F ? '?' : (char)c);
        }
    }
}

int schema_fail(const struct schema_reader *r, enum carat_status status,
                const struct schema_path *path, const char *what)
{
    struct buf text = {0};
    write_path(&text, path);
    err_set(r->err, status, "json schema: %s: %s", buf_text(&text), what);
    buf_deinit(&text);
    return status;
}

static int no_memory(const struct schema_reader *r)
{
    return err_no_memory(r->err, "json schema", r->arena->bytes);
}

const struct schema_path *schema_path_to(struct schema_reader *r, const struct schema_path *parent,
                                         const char *text, size_t length)
{
    struct schema_path *path = arena_take(r->arena, 1, sizeof *path);
    if (path) *path = (struct schema_path){.parent = parent, .text = text, .length = length};
    return path;
}

/* ---- Values ----------------------------------------------------------------------------- */

static bool is_integral(double x)
{
    return x >= -9e15 && x <= 9e15 && (double)(int64_t)x == x;
}

unsigned schema_type_of(const struct carat_value *v)
{
    switch (v->kind) {
    case CARAT_NULL: return TYPE_NULL;
    case CARAT_BOOL: return TYPE_BOOLEAN;
    case CARAT_INT: return TYPE_INTEGER;
    case CARAT_REAL: return is_integral(v->as.real) ? TYPE_INTEGER : TYPE_FRACTION;
    case CARAT_STRING: return TYPE_STRING;
    case CARAT_ARRAY: return TYPE_ARRAY;
    case CARAT_OBJECT: return TYPE_OBJECT;
    }
    return 0;
}

static double number_of(const struct carat_value *v)
{
    return v->kind == CARAT_INT ? (double)v->as.integer : v->as.real;
}

static bool objects_equal(struct schema_reader *r, const struct carat_value *a,
                          const struct carat_value *b)
{
    if (a->as.object.count != b->as.object.count) return false;
    for (size_t i = 0; i < a->as.object.count; i++) {
        const struct carat_member *m = &a->as.object.members[i], *other = NULL;
        for (size_t k = 0; k < b->as.object.count && !other; k++) {
            const struct carat_member *n = &b->as.object.members[k];
            if (++r->n_comparisons > SCHEMA_COMPARISONS_MAX) return false;
            if (n->key.length == m->key.length &&
                memcmp(n->key.data, m->key.data, m->key.length) == 0)
                other = n;
        }
        if (!other || !schema_values_equal(r, &m->value, &other->value)) return false;
    }
    return true;
}

bool schema_values_equal(struct schema_reader *r, const struct carat_value *a,
                         const struct carat_value *b)
{
    if (++r->n_comparisons > SCHEMA_COMPARISONS_MAX) return false;
    unsigned numbers = TYPE_INTEGER | TYPE_FRACTION;
    if ((schema_type_of(a) & numbers) && (schema_type_of(b) & numbers)) {
        if (a->kind == CARAT_INT && b->kind == CARAT_INT) return a->as.integer == b->as.integer;
        return number_of(a) == number_of(b);
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case CARAT_BOOL: return a->as.boolean == b->as.boolean;
    case CARAT_STRING:
        return a->as.string.length == b->as.string.length &&
               memcmp(a->as.string.data, b->as.string.data, a->as.string.length) == 0;
    case CARAT_ARRAY:
        if (a->as.array.count != b->as.array.count) return false;
        for (size_t i = 0; i < a->as.array.count; i++)
            if (!schema_values_equal(r, &a->as.array.items[i], &b->as.array.items[i])) return false;
        return true;
    case CARAT_OBJECT: return objects_equal(r, a, b);
    default: return true;
    }
}

/* ---- Reading keywords ------------------------------------------------------------------- */

/* What a keyword's function needs. */
struct keyword {
    struct schema_reader *r;
    struct schema_view *view;
    const struct schema_part *part;
    size_t part_index;
    const struct carat_value *value;
    const struct schema_path *path;
    struct schema_part *parts; /* all that hold together; allOf and $ref add to them */
    size_t *n_parts;
};

static int wrong(const struct keyword *k, const char *what)
{
    return schema_fail(k->r, CARAT_EUSAGE, k->path, what);
}

static int unsupported(const struct keyword *k, const char *what)
{
    return schema_fail(k->r, CARAT_EUNSUPPORTED, k->path, what);
}

static bool is_text(const struct carat_value *v, const char *text)
{
    return v->kind == CARAT_STRING && v->as.string.length == strlen(text) &&
           memcmp(v->as.string.data, text, v->as.string.length) == 0;
}

static bool is_key(const struct carat_member *m, const char *name)
{
    return m->key.length == strlen(name) && memcmp(m->key.data, name, m->key.length) == 0;
}

static unsigned type_named(const struct carat_value *v)
{
    return is_text(v, "null")      ? TYPE_NULL
           : is_text(v, "boolean") ? TYPE_BOOLEAN
           : is_text(v, "integer") ? TYPE_INTEGER
           : is_text(v, "number")  ? TYPE_INTEGER | TYPE_FRACTION
           : is_text(v, "string")  ? TYPE_STRING
           : is_text(v, "array")   ? TYPE_ARRAY
           : is_text(v, "object")  ? TYPE_OBJECT
                                   : 0;
}

static int read_type(struct keyword *k)
{
    const struct carat_value *items = k->value;
    size_t n = 1;
    unsigned types = 0;
    if (k->value->kind == CARAT_ARRAY) {
        items = k->value->as.array.items;
        n = k->value->as.array.count;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned type = type_named(&items[i]);
        if (!type)
            return wrong(k, "\"null\", \"boolean\", \"integer\", \"number\", \"string\", \"array\" "
                            "or \"object\" expected, or an array of them");
        types |= type;
    }
    const struct carat_value *nullable = json_member(k->part->schema, "nullable");
    if (nullable->kind == CARAT_BOOL && nullable->as.boolean) types |= TYPE_NULL;
    k->view->types &= types;
    k->view->has_types = true;
    return CARAT_OK;
}

/* Keeps only those values that are also among items[0..n). */
static int join_values(struct keyword *k, const struct carat_value *items, size_t n)
{
    struct schema_view *v = k->view;
    size_t kept = 0;
    if (!v->has_values) {
        v->values = arena_take(k->r->arena, n, sizeof *v->values);
        if (!v->values) return no_memory(k->r);
        for (; v->n_values < n; v->n_values++) v->values[v->n_values] = &items[v->n_values];
        v->has_values = true;
        return CARAT_OK;
    }
    if (v->n_values * n > 1 << 20) return unsupported(k, "too many values to compare");
    for (size_t i = 0; i < v->n_values; i++) {
        bool is_both = false;
        for (size_t j = 0; j < n && !is_both; j++)
            is_both = schema_values_equal(k->r, v->values[i], &items[j]);
        if (is_both) v->values[kept++] = v->values[i];
    }
    v->n_values = kept;
    if (k->r->n_comparisons > SCHEMA_COMPARISONS_MAX)
        return unsupported(k, "too many values to compare");
    return CARAT_OK;
}

static int read_const(struct keyword *k)
{
    return join_values(k, k->value, 1);
}

static int read_enum(struct keyword *k)
{
    if (k->value->kind != CARAT_ARRAY) return wrong(k, "an array expected");
    return join_values(k, k->value->as.array.items, k->value->as.array.count);
}

/* ---- Numbers ---------------------------------------------------------------------------- */

/* A bound of 1e18 or more. Numbers that are written are within int64_t, so a bound beyond its end
 * on the far side is that end. */
static bool decimal_from_large(double value, bool is_low, struct decimal *out)
{
    const double end = 9223372036854775808.0;
    if (!(fabs(value) >= 1e18) || (is_low ? value >= end : value < -end)) return false;
    int64_t whole = value >= end ? INT64_MAX : value < -end ? INT64_MIN : (int64_t)value;
    decimal_from_int(whole, out);
    return true;
}

static int read_bound(struct keyword *k, bool is_low, bool is_exclusive)
{
    struct decimal bound = {.is_given = true, .is_exclusive = is_exclusive};
    struct decimal *old = is_low ? &k->view->low : &k->view->high;
    k->view->kinds |= TYPE_INTEGER | TYPE_FRACTION;
    if (k->value->kind == CARAT_INT)
        decimal_from_int(k->value->as.integer, &bound);
    else if (k->value->kind != CARAT_REAL)
        return wrong(k, "a number expected");
    else if (!decimal_from_real(k->value->as.real, &bound) &&
             !decimal_from_large(k->value->as.real, is_low, &bound))
        return unsupported(k, "a number below 2^63 with at most 23 decimals expected");
    int order = old->is_given ? decimal_compare(&bound, old) : 0;
    if (!old->is_given || (is_low ? order > 0 : order < 0) || (order == 0 && is_exclusive))
        *old = bound;
    return CARAT_OK;
}

/* In draft 4 exclusiveMinimum and exclusiveMaximum are flags of minimum and maximum. */
static bool has_flag(const struct keyword *k, const char *name)
{
    const struct carat_value *flag = json_member(k->part->schema, name);
    return flag->kind == CARAT_BOOL && flag->as.boolean;
}

static int read_minimum(struct keyword *k)
{
    return read_bound(k, true, has_flag(k, "exclusiveMinimum"));
}

static int read_maximum(struct keyword *k)
{
    return read_bound(k, false, has_flag(k, "exclusiveMaximum"));
}

static int read_exclusive_minimum(struct keyword *k)
{
    return k->value->kind == CARAT_BOOL ? CARAT_OK : read_bound(k, true, true);
}

static int read_exclusive_maximum(struct keyword *k)
{
    return k->value->kind == CARAT_BOOL ? CARAT_OK : read_bound(k, false, true);
}

static int read_multiple_of(struct keyword *k)
{
    bool is_one = (k->value->kind == CARAT_INT && k->value->as.integer == 1) ||
                  (k->value->kind == CARAT_REAL && k->value->as.real == 1.0);
    if (!is_one) return unsupported(k, "multiples of other numbers than 1 are not supported");
    k->view->types &= ~(unsigned)TYPE_FRACTION;
    return CARAT_OK;
}

/* ---- Strings and arrays ----------------------------------------------------------------- */

static int read_count(struct keyword *k, uint32_t *out)
{
    int64_t count = -1;
    if (k->value->kind == CARAT_INT) count = k->value->as.integer;
    if (k->value->kind == CARAT_REAL && is_integral(k->value->as.real))
        count = (int64_t)k->value->as.real;
    if (count < 0) return wrong(k, "a whole number, 0 or more, expected");
    if (count > 1 << 24) return unsupported(k, "at most 16777216 expected");
    *out = (uint32_t)count;
    return CARAT_OK;
}

static int read_least(struct keyword *k, uint32_t *least)
{
    uint32_t count = 0;
    TRY(read_count(k, &count));
    if (count > *least) *least = count;
    return CARAT_OK;
}

static int read_most(struct keyword *k, uint32_t *most)
{
    uint32_t count = 0;
    TRY(read_count(k, &count));
    if (count < *most) *most = count;
    return CARAT_OK;
}

static int read_length(struct keyword *k)
{
    k->view->kinds |= TYPE_STRING;
    k->view->length_path = k->path;
    return k->path->text[1] == 'i' ? read_least(k, &k->view->length_least)
                                   : read_most(k, &k->view->length_most);
}

static int read_items_count(struct keyword *k)
{
    k->view->kinds |= TYPE_ARRAY;
    return k->path->text[1] == 'i' ? read_least(k, &k->view->items_least)
                                   : read_most(k, &k->view->items_most);
}

static int read_pattern(struct keyword *k)
{
    struct schema_view *v = k->view;
    if (k->value->kind != CARAT_STRING) return wrong(k, "a string expected");
    if (v->pattern && !schema_values_equal(k->r, v->pattern, k->value))
        return unsupported(k, "two patterns for one string are not supported");
    v->kinds |= TYPE_STRING;
    v->pattern = k->value;
    v->pattern_path = k->path;
    return CARAT_OK;
}

static int read_format(struct keyword *k)
{
    struct schema_view *v = k->view;
    if (k->value->kind != CARAT_STRING) return wrong(k, "a string expected");
    if (v->format && !schema_values_equal(k->r, v->format, k->value))
        return unsupported(k, "two formats for one string are not supported");
    v->format = k->value;
    v->format_path = k->path;
    return CARAT_OK;
}

static int one_part(const struct keyword *k, const struct carat_value *schema,
                    const struct schema_path *path, struct schema_parts *out)
{
    out->items = arena_take(k->r->arena, 1, sizeof *out->items);
    if (!out->items || !path) return no_memory(k->r);
    out->items[0] = (struct schema_part){.schema = schema, .path = path};
    out->n = 1;
    return CARAT_OK;
}

static const struct schema_path *index_path(struct schema_reader *r,
                                            const struct schema_path *array, size_t index)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%zu", index);
    const char *copy = arena_copy_text(r->arena, text, (size_t)n);
    return copy ? schema_path_to(r, array, copy, (size_t)n) : NULL;
}

static int read_prefix(struct keyword *k)
{
    enum { PREFIX_MAX = 100 };
    struct schema_view *v = k->view;
    if (k->value->kind != CARAT_ARRAY) return wrong(k, "an array of schemas expected");
    if (v->prefix) return unsupported(k, "two lists of items for one array are not supported");
    size_t n = k->value->as.array.count;
    if (n > PREFIX_MAX) return unsupported(k, "at most 100 items expected");
    v->kinds |= TYPE_ARRAY;
    v->prefix = arena_take(k->r->arena, n, sizeof *v->prefix);
    if (!v->prefix) return no_memory(k->r);
    for (; v->n_prefix < n; v->n_prefix++)
        TRY(one_part(k, &k->value->as.array.items[v->n_prefix],
                     index_path(k->r, k->path, v->n_prefix), &v->prefix[v->n_prefix]));
    return CARAT_OK;
}

static int read_rest(struct keyword *k)
{
    struct schema_view *v = k->view;
    v->kinds |= TYPE_ARRAY;
    if (v->has_rest)
        return unsupported(k, "two schemas for the items of one array are not "
                              "supported");
    v->has_rest = true;
    if (k->value->kind == CARAT_BOOL) {
        v->is_rest_forbidden = !k->value->as.boolean;
        return CARAT_OK;
    }
    return one_part(k, k->value, k->path, &v->rest);
}

static int read_items(struct keyword *k)
{
    return k->value->kind == CARAT_ARRAY ? read_prefix(k) : read_rest(k);
}

static int read_additional_items(struct keyword *k)
{
    if (json_member(k->part->schema, "items")->kind != CARAT_ARRAY) return CARAT_OK;
    return read_rest(k);
}

static int read_false_only(struct keyword *k)
{
    if (k->value->kind == CARAT_BOOL && !k->value->as.boolean) return CARAT_OK;
    return unsupported(k, "the keyword is not supported");
}

/* ---- Objects ---------------------------------------------------------------------------- */

static struct schema_property *find_property(struct schema_view *v, const char *key, size_t length)
{
    for (size_t i = 0; i < v->n_properties; i++)
        if (v->properties[i].length == length && memcmp(v->properties[i].key, key, length) == 0)
            return &v->properties[i];
    return NULL;
}

/* The property of that name, which is added if it is new. */
static int get_property(struct keyword *k, const char *key, size_t length,
                        struct schema_property **out)
{
    struct schema_view *v = k->view;
    *out = find_property(v, key, length);
    k->r->n_comparisons += v->n_properties;
    if (*out) return CARAT_OK;
    if (v->n_properties == SCHEMA_PROPERTIES_MAX)
        return unsupported(k, "at most 2000 properties of one object expected");
    /* Room grows in powers of two; the arena keeps the old pieces. */
    if ((v->n_properties & (v->n_properties - 1)) == 0) {
        size_t larger = v->n_properties ? v->n_properties * 2 : 1;
        struct schema_property *grown = arena_take(k->r->arena, larger, sizeof *grown);
        if (!grown) return no_memory(k->r);
        if (v->n_properties) memcpy(grown, v->properties, v->n_properties * sizeof *grown);
        v->properties = grown;
    }
    const struct schema_path *path = schema_path_to(k->r, k->path, key, length);
    if (!path) return no_memory(k->r);
    *out = &v->properties[v->n_properties];
    **out = (struct schema_property){
        .key = key, .length = length, .position = v->n_properties++, .path = path};
    return CARAT_OK;
}

static int add_part(const struct keyword *k, struct schema_parts *parts,
                    const struct carat_value *schema, const struct schema_path *path)
{
    struct schema_part *grown = arena_take(k->r->arena, parts->n + 1, sizeof *grown);
    if (!grown || !path) return no_memory(k->r);
    if (parts->n == SCHEMA_PARTS_MAX) return unsupported(k, "at most 64 parts of allOf expected");
    if (parts->n) memcpy(grown, parts->items, parts->n * sizeof *grown);
    grown[parts->n++] = (struct schema_part){.schema = schema, .path = path};
    parts->items = grown;
    return CARAT_OK;
}

static int read_properties(struct keyword *k)
{
    if (k->value->kind != CARAT_OBJECT) return wrong(k, "an object of schemas expected");
    k->view->kinds |= TYPE_OBJECT;
    k->view->has_properties = true;
    for (size_t i = 0; i < k->value->as.object.count; i++) {
        const struct carat_member *m = &k->value->as.object.members[i];
        struct schema_property *property;
        TRY(get_property(k, m->key.data, m->key.length, &property));
        property->is_listed = true;
        TRY(add_part(k, &property->parts, &m->value,
                     schema_path_to(k->r, k->path, m->key.data, m->key.length)));
    }
    return CARAT_OK;
}

static int read_required(struct keyword *k)
{
    if (k->value->kind == CARAT_BOOL) return CARAT_OK; /* draft 3 */
    if (k->value->kind != CARAT_ARRAY) return wrong(k, "an array of names expected");
    k->view->kinds |= TYPE_OBJECT;
    for (size_t i = 0; i < k->value->as.array.count; i++) {
        const struct carat_value *name = &k->value->as.array.items[i];
        struct schema_property *property;
        if (name->kind != CARAT_STRING) return wrong(k, "an array of names expected");
        TRY(get_property(k, name->as.string.data, name->as.string.length, &property));
        property->is_required = true;
    }
    return CARAT_OK;
}

static int read_additional(struct keyword *k)
{
    struct schema_view *v = k->view;
    v->kinds |= TYPE_OBJECT;
    v->has_additional = true;
    if (k->value->kind == CARAT_BOOL) {
        if (!k->value->as.boolean) v->is_additional_forbidden = true;
        return CARAT_OK;
    }
    return add_part(k, &v->additional, k->value, k->path);
}

/* Property names are always strings. Only a schema that says no more than that is supported. */
static int read_property_names(struct keyword *k)
{
    const struct carat_value *names = k->value;
    bool is_text = json_text_is(json_member(names, "type"), "string");
    bool says_nothing = names->kind == CARAT_BOOL ? names->as.boolean
                                                  : names->kind == CARAT_OBJECT &&
                                                        names->as.object.count == (is_text ? 1 : 0);
    if (!says_nothing) return unsupported(k, "only {\"type\": \"string\"} is supported");
    k->view->kinds |= TYPE_OBJECT;
    return CARAT_OK;
}

static int read_pattern_properties(struct keyword *k)
{
    struct schema_view *v = k->view;
    if (k->value->kind != CARAT_OBJECT) return wrong(k, "an object of schemas expected");
    if (k->value->as.object.count == 0) return CARAT_OK;
    if (v->pattern_property || k->value->as.object.count > 1)
        return unsupported(k, "more than one pattern is not supported");
    v->kinds |= TYPE_OBJECT;
    v->pattern_property = &k->value->as.object.members[0];
    v->pattern_property_path = k->path;
    return CARAT_OK;
}

/* Applies what a part says about properties that it does not list itself, but other parts do. */
static int join_properties(struct keyword *k)
{
    const struct carat_value *own = json_member(k->part->schema, "properties");
    const struct carat_value *others = json_member(k->part->schema, "additionalProperties");
    bool is_schema = others->kind == CARAT_OBJECT;
    bool is_false = others->kind == CARAT_BOOL && !others->as.boolean;
    if (!is_schema && !is_false) return CARAT_OK;
    k->path = schema_path_to(k->r, k->part->path, "additionalProperties", 20);
    /* Keys that a pattern of another part names are others too. */
    const struct carat_value *patterns = json_member(k->part->schema, "patternProperties");
    if (k->view->pattern_property && (patterns->kind != CARAT_OBJECT ||
                                      patterns->as.object.members != k->view->pattern_property))
        return unsupported(k, "together with \"patternProperties\" of another schema this is not "
                              "supported");
    for (size_t i = 0; i < k->view->n_properties; i++) {
        struct schema_property *p = &k->view->properties[i];
        bool is_own = false;
        for (size_t j = 0; own->kind == CARAT_OBJECT && j < own->as.object.count && !is_own; j++) {
            const struct carat_member *m = &own->as.object.members[j];
            is_own = m->key.length == p->length && memcmp(m->key.data, p->key, p->length) == 0;
        }
        if (is_own) continue;
        if (is_false) p->is_forbidden = true;
        if (is_schema) TRY(add_part(k, &p->parts, others, k->path));
    }
    return CARAT_OK;
}

/* Without a list of its own, "items" of a part holds for those that other parts list, too. */
static int join_items(struct keyword *k)
{
    const struct carat_value *items = json_member(k->part->schema, "items");
    const struct carat_value *prefix = json_member(k->part->schema, "prefixItems");
    if ((items->kind != CARAT_OBJECT && items->kind != CARAT_BOOL) || prefix->kind == CARAT_ARRAY)
        return CARAT_OK;
    k->path = schema_path_to(k->r, k->part->path, "items", 5);
    for (size_t i = 0; i < k->view->n_prefix; i++)
        TRY(add_part(k, &k->view->prefix[i], items, k->path));
    return CARAT_OK;
}

/* ---- Several schemas -------------------------------------------------------------------- */

static int push_part(struct keyword *k, struct schema_part part)
{
    if (*k->n_parts == SCHEMA_PARTS_MAX)
        return unsupported(k,
                           "at most 64 schemas for one value expected: does it refer to itself?");
    k->parts[(*k->n_parts)++] = part;
    return CARAT_OK;
}

static int read_all_of(struct keyword *k)
{
    if (k->part->skip & SKIP_ADDED) return CARAT_OK;
    if (k->value->kind != CARAT_ARRAY) return wrong(k, "an array of schemas expected");
    for (size_t i = 0; i < k->value->as.array.count; i++) {
        const struct schema_path *path = index_path(k->r, k->path, i);
        if (!path) return no_memory(k->r);
        TRY(push_part(k,
                      (struct schema_part){.schema = &k->value->as.array.items[i], .path = path}));
    }
    return CARAT_OK;
}

static int read_choice(struct keyword *k, enum schema_skip kind)
{
    if (k->value->kind != CARAT_ARRAY || k->value->as.array.count == 0)
        return wrong(k, "an array of schemas expected");
    if ((k->part->skip & (unsigned)kind) || k->view->choice) return CARAT_OK;
    k->view->choice = k->value;
    k->view->choice_path = k->path;
    k->view->choice_part = k->part_index;
    k->view->choice_kind = kind;
    return CARAT_OK;
}

static int read_any_of(struct keyword *k)
{
    return read_choice(k, SKIP_ANY_OF);
}

static int read_one_of(struct keyword *k)
{
    return read_choice(k, SKIP_ONE_OF);
}

static int read_ref(struct keyword *k)
{
    struct schema_part part;
    if (k->part->skip & SKIP_ADDED) return CARAT_OK;
    TRY(schema_resolve(k->r, k->value, k->path, &part));
    return push_part(k, part);
}

static int read_nothing(struct keyword *k)
{
    (void)k;
    return CARAT_OK;
}

static int read_id(struct keyword *k)
{
    if (!k->part->path->parent) return CARAT_OK;
    return unsupported(k, "a name of its own inside of the schema is not supported");
}

static const struct {
    const char *name;
    int (*read)(struct keyword *k);
} keywords[] = {
    {"$comment", read_nothing},
    {"$defs", read_nothing},
    {"$id", read_id},
    {"$ref", read_ref},
    {"$schema", read_nothing},
    {"additionalItems", read_additional_items},
    {"additionalProperties", read_additional},
    {"allOf", read_all_of},
    {"anyOf", read_any_of},
    {"const", read_const},
    {"contentEncoding", read_nothing},
    {"contentMediaType", read_nothing},
    {"default", read_nothing},
    {"definitions", read_nothing},
    {"deprecated", read_nothing},
    {"description", read_nothing},
    {"discriminator", read_nothing},
    {"enum", read_enum},
    {"example", read_nothing},
    {"examples", read_nothing},
    {"exclusiveMaximum", read_exclusive_maximum},
    {"exclusiveMinimum", read_exclusive_minimum},
    {"format", read_format},
    {"items", read_items},
    {"maxItems", read_items_count},
    {"maxLength", read_length},
    {"maximum", read_maximum},
    {"minItems", read_items_count},
    {"minLength", read_length},
    {"minimum", read_minimum},
    {"multipleOf", read_multiple_of},
    {"nullable", read_nothing},
    {"oneOf", read_one_of},
    {"pattern", read_pattern},
    {"patternProperties", read_pattern_properties},
    {"prefixItems", read_prefix},
    {"properties", read_properties},
    {"propertyNames", read_property_names},
    {"readOnly", read_nothing},
    {"required", read_nothing}, /* later: see join_required */
    {"title", read_nothing},
    {"type", read_type},
    {"uniqueItems", read_false_only},
    {"writeOnly", read_nothing},
};

static int read_keyword(struct keyword *k, const struct carat_member *m)
{
    k->value = &m->value;
    k->path = schema_path_to(k->r, k->part->path, m->key.data, m->key.length);
    if (!k->path) return no_memory(k->r);
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (is_key(m, keywords[i].name)) return keywords[i].read(k);
    if (m->key.length > 2 && memcmp(m->key.data, "x-", 2) == 0) return CARAT_OK;
    return unsupported(k, "the keyword is not supported");
}

static int read_part(struct keyword *k)
{
    const struct carat_value *schema = k->part->schema;
    if (schema->kind == CARAT_BOOL) {
        k->view->is_impossible |= !schema->as.boolean;
        return CARAT_OK;
    }
    if (schema->kind != CARAT_OBJECT)
        return schema_fail(k->r, CARAT_EUSAGE, k->part->path,
                           "a schema expected: an object, true "
                           "or false");
    for (size_t i = 0; i < schema->as.object.count; i++)
        TRY(read_keyword(k, &schema->as.object.members[i]));
    return CARAT_OK;
}

/* After the properties of all parts, so that these come in their own order. */
static int join_required(struct keyword *k)
{
    const struct carat_value *schema = k->part->schema;
    for (size_t i = 0; schema->kind == CARAT_OBJECT && i < schema->as.object.count; i++) {
        const struct carat_member *m = &schema->as.object.members[i];
        if (!is_key(m, "required")) continue;
        k->value = &m->value;
        k->path = schema_path_to(k->r, k->part->path, m->key.data, m->key.length);
        return k->path ? read_required(k) : no_memory(k->r);
    }
    return CARAT_OK;
}

int schema_view_read(struct schema_reader *r, const struct schema_part *parts, size_t n,
                     struct schema_view *out)
{
    struct schema_part all[SCHEMA_PARTS_MAX];
    *out = (struct schema_view){
        .types = TYPE_ANY, .length_most = EXPR_NO_LIMIT, .items_most = EXPR_NO_LIMIT};
    struct keyword k = {.r = r, .view = out, .parts = all, .n_parts = &n};
    if (r->arena->bytes > SCHEMA_BYTES_MAX || r->n_comparisons > SCHEMA_COMPARISONS_MAX)
        return schema_fail(r, CARAT_EUNSUPPORTED, parts[0].path,
                           "the schemas in it have too many combinations");
    if (n > SCHEMA_PARTS_MAX)
        return schema_fail(r, CARAT_EUNSUPPORTED, parts[0].path,
                           "at most 64 schemas for one value "
                           "expected");
    if (n) memcpy(all, parts, n * sizeof *all);
    for (k.part_index = 0; k.part_index < n; k.part_index++) {
        k.part = &all[k.part_index];
        TRY(read_part(&k));
    }
    for (size_t i = 0; i < n; i++) {
        k.part = &all[i];
        TRY(join_required(&k));
    }
    for (size_t i = 0; i < n; i++) {
        k.part = &all[i];
        TRY(join_properties(&k));
        TRY(join_items(&k));
    }
    struct schema_part *kept = arena_take(r->arena, n, sizeof *kept);
    if (!kept) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        kept[i] = all[i];
        kept[i].skip |= SKIP_ADDED;
    }
    out->all = (struct schema_parts){.items = kept, .n = n};
    return CARAT_OK;
}

int schema_branch(struct schema_reader *r, const struct schema_view *v, size_t index,
                  struct schema_part *out)
{
    const struct schema_path *path = index_path(r, v->choice_path, index);
    *out = (struct schema_part){.schema = &v->choice->as.array.items[index], .path = path};
    return path ? CARAT_OK : no_memory(r);
}

/* ---- References ------------------------------------------------------------------------- */

/* The member of an object or the item of an array; NULL: there is none. */
static const struct carat_value *take_step(const struct carat_value *v, const char *step)
{
    if (v->kind == CARAT_OBJECT) {
        const struct carat_value *member = json_member(v, step);
        for (size_t i = 0; i < v->as.object.count; i++)
            if (&v->as.object.members[i].value == member) return member;
        return NULL;
    }
    if (v->kind != CARAT_ARRAY) return NULL;
    size_t index = pointer_index(step);
    return index < v->as.array.count ? &v->as.array.items[index] : NULL;
}

int schema_resolve(struct schema_reader *r, const struct carat_value *ref,
                   const struct schema_path *path, struct schema_part *out)
{
    static const struct schema_path root = {.text = "#", .length = 1};
    if (ref->kind != CARAT_STRING || ref->as.string.length == 0 || ref->as.string.data[0] != '#')
        return schema_fail(r, CARAT_EUNSUPPORTED, path,
                           "only references within the schema are "
                           "supported: \"#/...\"");
    const char *at = ref->as.string.data + 1, *end = at - 1 + ref->as.string.length;
    *out = (struct schema_part){.schema = r->root, .path = &root};
    if (at < end && *at != '/')
        return schema_fail(r, CARAT_EUNSUPPORTED, path, "\"#/...\" expected");
    while (at < end && out->schema) {
        char step[POINTER_STEP_BYTES];
        int n = pointer_step(&at, end, step);
        out->schema = n < 0 ? NULL : take_step(out->schema, step);
        const char *copy = n < 0 ? "" : arena_copy_text(r->arena, step, (size_t)n);
        out->path = copy ? schema_path_to(r, out->path, copy, n < 0 ? 0 : (size_t)n) : NULL;
        if (!out->path) return no_memory(r);
    }
    if (!out->schema) return schema_fail(r, CARAT_EUSAGE, path, "there is nothing at this place");
    return CARAT_OK;
}

const struct carat_value *schema_only_ref(const struct carat_value *schema)
{
    static const char *const harmless[] = {"$ref",     "title",    "description", "default",
                                           "$comment", "examples", "$defs",       "definitions"};
    if (schema->kind != CARAT_OBJECT) return NULL;
    for (size_t i = 0; i < schema->as.object.count; i++) {
        bool is_known = false;
        for (size_t k = 0; k < sizeof harmless / sizeof *harmless; k++)
            is_known |= is_key(&schema->as.object.members[i], harmless[k]);
        if (!is_known) return NULL;
    }
    const struct carat_value *ref = json_member(schema, "$ref");
    return ref->kind == CARAT_STRING ? ref : NULL;
}
