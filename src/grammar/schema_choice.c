#include "grammar/schema_choice.h"

#include <string.h>

#include "base/status.h"

enum { DEPTH_MAX = 4 }; /* properties inside each other that are compared */

static int excludes(struct schema_reader *r, const struct schema_view *a,
                    const struct schema_view *b, bool is_alone, int depth, bool *out);

/* The types of the values that are written for a view. */
static unsigned types_of(const struct schema_view *v)
{
    unsigned types = v->types;
    if (v->has_values) {
        unsigned listed = 0;
        for (size_t i = 0; i < v->n_values; i++) listed |= schema_type_of(v->values[i]);
        types &= listed;
    } else if (!v->has_types && v->kinds) {
        types &= v->kinds;
    }
    return types;
}

/* The types of the values that fit a view, whether they are written or not. */
static unsigned types_that_fit(const struct schema_view *v)
{
    return v->has_values ? types_of(v) : v->types;
}

static bool shares_value(struct schema_reader *r, const struct schema_view *a,
                         const struct schema_view *b)
{
    if (a->n_values * b->n_values > 1 << 20) return true;
    for (size_t i = 0; i < a->n_values; i++)
        for (size_t k = 0; k < b->n_values; k++)
            if (schema_values_equal(r, a->values[i], b->values[k])) return true;
    return r->n_comparisons > SCHEMA_COMPARISONS_MAX;
}

static const struct schema_property *find(const struct schema_view *v,
                                          const struct schema_property *p)
{
    for (size_t i = 0; i < v->n_properties; i++)
        if (v->properties[i].length == p->length &&
            memcmp(v->properties[i].key, p->key, p->length) == 0)
            return &v->properties[i];
    return NULL;
}

static int properties_exclude(struct schema_reader *r, const struct schema_property *a,
                              const struct schema_property *b, bool is_alone, int depth, bool *out)
{
    struct schema_view left, right;
    *out = false;
    if (a->parts.n == 0 || b->parts.n == 0) return CARAT_OK;
    TRY(schema_view_read(r, a->parts.items, a->parts.n, &left));
    TRY(schema_view_read(r, b->parts.items, b->parts.n, &right));
    return excludes(r, &left, &right, is_alone, depth + 1, out);
}

/* Objects: a property that one must have keeps them apart. */
static int objects_exclude(struct schema_reader *r, const struct schema_view *a,
                           const struct schema_view *b, bool is_alone, int depth, bool *out)
{
    /* Otherwise other schemas may list more properties, here and in the properties' values. */
    bool is_whole = is_alone && !a->choice;
    bool is_closed = is_whole && a->has_properties && !a->pattern_property &&
                     (!a->has_additional || a->is_additional_forbidden);
    for (size_t i = 0; i < b->n_properties && is_closed && !*out; i++)
        if (b->properties[i].is_required && !find(a, &b->properties[i])) *out = true;
    for (size_t i = 0; i < a->n_properties && !*out; i++) {
        const struct schema_property *other = find(b, &a->properties[i]);
        if (!a->properties[i].is_required || !other) continue;
        TRY(properties_exclude(r, &a->properties[i], other, is_whole, depth, out));
    }
    return CARAT_OK;
}

/* *out: no value that is written for `a` fits `b`. */
static int excludes(struct schema_reader *r, const struct schema_view *a,
                    const struct schema_view *b, bool is_alone, int depth, bool *out)
{
    unsigned common = types_of(a) & types_that_fit(b);
    *out = common == 0 || (a->has_values && b->has_values && !shares_value(r, a, b));
    if (*out || common != TYPE_OBJECT || depth >= DEPTH_MAX) return CARAT_OK;
    return objects_exclude(r, a, b, is_alone, depth, out);
}

int schema_is_disjoint(struct schema_reader *r, const struct schema_view *a,
                       const struct schema_view *b, bool is_alone, bool *out)
{
    TRY(excludes(r, a, b, is_alone, 0, out));
    return *out ? excludes(r, b, a, is_alone, 0, out) : CARAT_OK;
}
