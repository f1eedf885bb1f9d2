/* What one or several JSON schemas say together about a value: each keyword has been read once, and
 * what several say about the same thing is joined. Nothing here knows what an answer looks like. */
#ifndef GRAMMAR_SCHEMA_VIEW_H
#define GRAMMAR_SCHEMA_VIEW_H

#include "base/arena.h"
#include "carat.h"
#include "grammar/digits.h"

enum {
    SCHEMA_PROPERTIES_MAX = 2000, /* of one object */
    SCHEMA_PARTS_MAX = 64,        /* schemas that hold together for one value */
    /* Of all combinations together: a short schema can have billions. */
    SCHEMA_BYTES_MAX = 1 << 25,
    SCHEMA_COMPARISONS_MAX = 1 << 27,
};

enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* numbers that are not integers */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127,
};

/* Where something is in the schema: "#/properties/name". */
struct schema_path {
    const struct schema_path *parent; /* NULL: the root, whose text is "#" */
    const char *text;
    size_t length;
};

/* Keywords of a part to skip: what their schemas say was added as parts of their own. */
enum schema_skip { SKIP_ANY_OF = 1, SKIP_ONE_OF = 2, SKIP_ADDED = 4 /* allOf, $ref */ };

/* A schema that holds for a value, and where it is. */
struct schema_part {
    const struct carat_value *schema;
    const struct schema_path *path;
    unsigned skip;
};

struct schema_parts {
    struct schema_part *items;
    size_t n;
};

struct schema_property {
    const char *key;
    size_t length;
    size_t position;           /* among the properties, before they are sorted */
    struct schema_parts parts; /* none: any value */
    const struct schema_path *path;
    bool is_listed; /* under "properties", not only under "required" */
    bool is_required;
    bool is_forbidden; /* by a part that does not list it and allows no others */
};

struct schema_view {
    unsigned types;
    bool has_types;
    /* Values that are listed; NULL: any. */
    const struct carat_value **values;
    size_t n_values;
    bool has_values;
    struct decimal low, high;
    uint32_t length_least, length_most; /* of strings */
    const struct carat_value *pattern, *format;
    const struct schema_path *pattern_path, *format_path, *length_path;
    /* Arrays: first `prefix`, then `rest`. */
    struct schema_parts *prefix; /* n_prefix */
    size_t n_prefix;
    struct schema_parts rest;
    bool has_rest, is_rest_forbidden;
    uint32_t items_least, items_most;
    /* Objects. */
    struct schema_property *properties; /* n_properties */
    size_t n_properties;
    struct schema_parts additional;
    bool has_properties, has_additional, is_additional_forbidden;
    const struct carat_member *pattern_property; /* the only one */
    const struct schema_path *pattern_property_path;
    unsigned kinds; /* types about which keywords other than "type" say something */
    /* The first choice that is still open. */
    const struct carat_value *choice; /* an array of schemas; NULL: none */
    const struct schema_path *choice_path;
    size_t choice_part; /* the part that it belongs to */
    enum schema_skip choice_kind;
    struct schema_parts all; /* the given parts, and those that allOf and $ref have added */
    bool is_impossible;      /* a part is the schema false */
};

struct schema_reader {
    struct arena *arena;
    const struct carat_value *root;
    uint64_t n_comparisons; /* of names and listed values, so far */
    struct carat_error *err;
};

/* Fails with "json schema: PATH: what". */
int schema_fail(const struct schema_reader *r, enum carat_status status,
                const struct schema_path *path, const char *what);

/* Joins the parts. CARAT_EUSAGE: a keyword's value is wrong; CARAT_EUNSUPPORTED: a keyword, or a
 * combination, that cannot be enforced. */
int schema_view_read(struct schema_reader *r, const struct schema_part *parts, size_t n,
                     struct schema_view *out);

/* The schema of a branch of the view's choice. */
int schema_branch(struct schema_reader *r, const struct schema_view *v, size_t index,
                  struct schema_part *out);

/* The schema that a reference within the document means. */
int schema_resolve(struct schema_reader *r, const struct carat_value *ref,
                   const struct schema_path *path, struct schema_part *out);

/* The reference of a schema that says nothing else, or NULL. */
const struct carat_value *schema_only_ref(const struct carat_value *schema);

/* A path one step further. NULL: out of memory. */
const struct schema_path *schema_path_to(struct schema_reader *r, const struct schema_path *parent,
                                         const char *text, size_t length);

/* False also when the reader has compared too much. */
bool schema_values_equal(struct schema_reader *r, const struct carat_value *a,
                         const struct carat_value *b);
unsigned schema_type_of(const struct carat_value *value); /* one bit of enum schema_type */

#endif
