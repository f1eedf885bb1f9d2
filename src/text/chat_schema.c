/* Schemas of tool parameters contain references and unions that the template cannot show: it
 * would print nothing for them, or fail. Here a flattened copy is made.
 *
 * - A local $ref is replaced by what it names; keys next to it win. A cycle becomes a string.
 * - allOf: keys of all parts, properties and required lists joined.
 * - anyOf, oneOf: the first variant that is not null; a null variant makes it nullable.
 * - A list of types: the first that is not null, and nullable. Inside `items` the template
 *   shows such lists itself, so they stay.
 *
 * Work is bounded by depth and, over all tools of a request, by the numbers of copies and
 * look-ups, however references are nested. Members of a schema under construction
 * are found by a keyed hash. */
#include <stdio.h>
#include <string.h>

#include "base/pointer.h"
#include "text/chat_internal.h"

enum { FEW = 8 }; /* this many members need no table */

struct flattener {
    struct arena *arena;
    const struct carat_value *root;
    struct schema_work *work;
    const struct carat_value *open[CHAT_DEPTH_MAX]; /* $ref targets being replaced */
    int n_open;
    struct carat_error *err;
};

/* Members of the schema being built. */
struct node {
    struct carat_member *members;
    size_t count, capacity;
    uint32_t *slots; /* index + 1, 0: free; twice the capacity, when that is more than FEW */
};

static const struct carat_value string_type = {.kind = CARAT_STRING, .as.string = {"string", 6}};

static int flatten(struct flattener *f, const struct carat_value *in, int depth, bool is_items,
                   struct carat_value *out);

/* Counts what is about to be written, so that no schema makes endless work. */
static int spend(struct flattener *f, size_t count)
{
    size_t left = SCHEMA_COPIES_MAX - f->work->n_copies;
    if (count > left) {
        err_set(f->err, CARAT_EUSAGE, "at most %d keys expected in all tools of a request",
                SCHEMA_COPIES_MAX);
        err_hint(f->err, "a key counts each time that $ref or allOf repeats it");
        return CARAT_EUSAGE;
    }
    f->work->n_copies += count;
    return CARAT_OK;
}

/* The slot of a key, or the free one where it belongs. */
static uint32_t *find_slot(const struct flattener *f, const struct node *n, const char *key,
                           size_t length)
{
    size_t mask = 2 * n->capacity - 1, i = hash_bytes(f->work->key, key, length) & mask;
    for (; n->slots[i]; i = (i + 1) & mask) {
        const struct carat_member *m = &n->members[n->slots[i] - 1];
        if (m->key.length == length && memcmp(m->key.data, key, length) == 0) break;
    }
    return &n->slots[i];
}

static struct carat_member *find_member(const struct flattener *f, const struct node *n,
                                        const char *key, size_t length)
{
    if (n->slots) {
        uint32_t found = *find_slot(f, n, key, length);
        return found ? &n->members[found - 1] : NULL;
    }
    for (size_t i = 0; i < n->count; i++)
        if (n->members[i].key.length == length && memcmp(n->members[i].key.data, key, length) == 0)
            return &n->members[i];
    return NULL;
}

static int grow_members(struct flattener *f, struct node *n)
{
    size_t larger = n->capacity ? n->capacity * 2 : FEW;
    struct carat_member *members = arena_take(f->arena, larger, sizeof *members);
    uint32_t *slots = larger > FEW ? arena_take(f->arena, 2 * larger, sizeof *slots) : NULL;
    if (!members || (larger > FEW && !slots))
        return err_no_memory(f->err, "schema", larger * sizeof *members);
    if (n->count) memcpy(members, n->members, n->count * sizeof *members);
    n->members = members;
    n->capacity = larger;
    n->slots = slots;
    for (uint32_t i = 0; slots && i < n->count; i++)
        *find_slot(f, n, members[i].key.data, members[i].key.length) = i + 1;
    return CARAT_OK;
}

static int put_member(struct flattener *f, struct node *n, const char *key, size_t length,
                      const struct carat_value *value)
{
    struct carat_member *m = find_member(f, n, key, length);
    if (!m) {
        if (n->count == n->capacity) TRY(grow_members(f, n));
        if (n->slots) *find_slot(f, n, key, length) = (uint32_t)n->count + 1;
        m = &n->members[n->count++];
        m->key.data = key;
        m->key.length = length;
    }
    m->value = *value;
    return CARAT_OK;
}

static int put(struct flattener *f, struct node *n, const char *key,
               const struct carat_value *value)
{
    return put_member(f, n, key, strlen(key), value);
}

static int put_true(struct flattener *f, struct node *n, const char *key)
{
    struct carat_value yes = {.kind = CARAT_BOOL, .as.boolean = true};
    return put(f, n, key, &yes);
}

/* ---- References ------------------------------------------------------------------------- */

static const struct carat_value *step_into(const struct carat_value *at, const char *step)
{
    if (!value_is(at, CARAT_ARRAY)) return value_get(at, step);
    size_t index = pointer_index(step);
    return index < at->as.array.count ? &at->as.array.items[index] : NULL;
}

/* Finds what a pointer names; *out is NULL if that is nothing. */
static int find_target(struct flattener *f, struct text pointer, const struct carat_value **out)
{
    const struct carat_value *value = pointer.length && pointer.data[0] == '#' ? f->root : NULL;
    const char *at = pointer.data + 1, *end = pointer.data + pointer.length;
    while (value && at < end) {
        char step[POINTER_STEP_BYTES];
        size_t n_looks = value_is(value, CARAT_OBJECT) ? value->as.object.count : 0;
        if (n_looks > SCHEMA_LOOKS_MAX - f->work->n_looks)
            return err_set(f->err, CARAT_EUSAGE, "$ref: too many, into objects of too many keys");
        f->work->n_looks += n_looks;
        value = pointer_step(&at, end, step) < 0 ? NULL : step_into(value, step);
    }
    *out = value;
    return CARAT_OK;
}

/* Adds the keys of `part` that the node does not have yet. */
static int merge(struct flattener *f, struct node *n, const struct carat_value *part);

static int merge_reference(struct flattener *f, struct node *n, const struct carat_value *ref,
                           int depth)
{
    struct text pointer = value_text(ref);
    const struct carat_value *target = NULL;
    TRY(find_target(f, pointer, &target));
    if (!target) {
        char shown[SHOWN_MAX];
        return err_set(f->err, CARAT_EUSAGE,
                       "$ref: a schema inside the parameters expected, \"%s\" found",
                       text_shown(pointer, shown));
    }
    bool is_cycle = false;
    for (int i = 0; i < f->n_open; i++) is_cycle = is_cycle || f->open[i] == target;
    if (is_cycle || f->n_open == CHAT_DEPTH_MAX) {
        if (find_member(f, n, "type", 4)) return CARAT_OK;
        return put(f, n, "type", &string_type);
    }
    f->open[f->n_open++] = target;
    struct carat_value flat;
    int status = flatten(f, target, depth + 1, false, &flat);
    f->n_open--;
    TRY(status);
    return merge(f, n, &flat);
}

/* ---- Unions ----------------------------------------------------------------------------- */

static int join_properties(struct flattener *f, struct carat_value *into,
                           const struct carat_value *more)
{
    struct node n = {0};
    TRY(spend(f, into->as.object.count));
    TRY(spend(f, more->as.object.count));
    for (size_t i = 0; i < into->as.object.count; i++) {
        const struct carat_member *m = &into->as.object.members[i];
        TRY(put_member(f, &n, m->key.data, m->key.length, &m->value));
    }
    for (size_t i = 0; i < more->as.object.count; i++) {
        const struct carat_member *m = &more->as.object.members[i];
        if (!find_member(f, &n, m->key.data, m->key.length))
            TRY(put_member(f, &n, m->key.data, m->key.length, &m->value));
    }
    into->as.object.members = n.members;
    into->as.object.count = n.count;
    return CARAT_OK;
}

static int join_required(struct flattener *f, struct carat_value *into,
                         const struct carat_value *more)
{
    size_t count = into->as.array.count, total = count + more->as.array.count;
    TRY(spend(f, total));
    struct carat_value *items = arena_take(f->arena, total, sizeof *items);
    if (!items) return err_no_memory(f->err, "schema", total * sizeof *items);
    if (count) memcpy(items, into->as.array.items, count * sizeof *items);
    if (more->as.array.count)
        memcpy(items + count, more->as.array.items, more->as.array.count * sizeof *items);
    into->as.array.items = items;
    into->as.array.count = total;
    return CARAT_OK;
}

static int merge(struct flattener *f, struct node *n, const struct carat_value *part)
{
    for (size_t i = 0; part->kind == CARAT_OBJECT && i < part->as.object.count; i++) {
        const struct carat_member *m = &part->as.object.members[i];
        struct text key = {m->key.data, m->key.length};
        struct carat_member *own = find_member(f, n, key.data, key.length);
        if (!own)
            TRY(put_member(f, n, key.data, key.length, &m->value));
        else if (text_is(key, "properties") && value_is(&own->value, CARAT_OBJECT) &&
                 value_is(&m->value, CARAT_OBJECT))
            TRY(join_properties(f, &own->value, &m->value));
        else if (text_is(key, "required") && value_is(&own->value, CARAT_ARRAY) &&
                 value_is(&m->value, CARAT_ARRAY))
            TRY(join_required(f, &own->value, &m->value));
    }
    return CARAT_OK;
}

static bool is_null_type(const struct carat_value *schema)
{
    return text_is(value_text(value_get(schema, "type")), "null");
}

static int merge_union(struct flattener *f, struct node *n, const struct carat_value *variants,
                       int depth)
{
    bool is_taken = false;
    for (size_t i = 0; i < variants->as.array.count; i++) {
        const struct carat_value *variant = &variants->as.array.items[i];
        TRY(spend(f, 1 + (variant->kind == CARAT_OBJECT ? variant->as.object.count : 0)));
        if (is_null_type(variant)) {
            TRY(put_true(f, n, "nullable"));
        } else if (!is_taken) {
            struct carat_value flat;
            TRY(flatten(f, variant, depth + 1, false, &flat));
            TRY(merge(f, n, &flat));
            is_taken = true;
        }
    }
    return CARAT_OK;
}

static int merge_all(struct flattener *f, struct node *n, const struct carat_value *parts,
                     int depth)
{
    TRY(spend(f, parts->as.array.count));
    for (size_t i = 0; i < parts->as.array.count; i++) {
        struct carat_value flat;
        TRY(flatten(f, &parts->as.array.items[i], depth + 1, false, &flat));
        TRY(merge(f, n, &flat));
    }
    return CARAT_OK;
}

static int pick_type(struct flattener *f, struct node *n)
{
    struct carat_member *type = find_member(f, n, "type", 4);
    if (!type || !value_is(&type->value, CARAT_ARRAY)) return CARAT_OK;
    const struct carat_value *list = type->value.as.array.items;
    size_t count = type->value.as.array.count;
    TRY(spend(f, count));
    const struct carat_value *picked = NULL;
    bool has_null = false;
    for (size_t i = 0; i < count; i++) {
        bool is_null = text_is(value_text(&list[i]), "null");
        has_null = has_null || is_null;
        if (!is_null && !picked) picked = &list[i];
    }
    type->value = picked ? *picked : string_type;
    return has_null ? put_true(f, n, "nullable") : CARAT_OK;
}

/* ---- Walk ------------------------------------------------------------------------------- */

static int flatten_properties(struct flattener *f, const struct carat_value *in, int depth,
                              struct carat_value *out)
{
    size_t count = in->as.object.count;
    TRY(spend(f, count));
    struct carat_member *members = arena_take(f->arena, count, sizeof *members);
    if (!members) return err_no_memory(f->err, "schema", count * sizeof *members);
    for (size_t i = 0; i < count; i++) {
        const struct carat_member *m = &in->as.object.members[i];
        members[i].key = m->key;
        if (flatten(f, &m->value, depth + 1, false, &members[i].value))
            return schema_within(f->err, "properties.", (struct text){m->key.data, m->key.length});
    }
    *out = (struct carat_value){.kind = CARAT_OBJECT};
    out->as.object.members = members;
    out->as.object.count = count;
    return CARAT_OK;
}

/* Copies the plain keys; those that hold schemas are flattened. */
static int copy_keys(struct flattener *f, struct node *n, const struct carat_value *in, int depth)
{
    for (size_t i = 0; i < in->as.object.count; i++) {
        const struct carat_member *m = &in->as.object.members[i];
        struct text key = {m->key.data, m->key.length};
        struct carat_value value = m->value;
        bool is_list = value.kind == CARAT_ARRAY;
        if (text_is(key, "$ref") ||
            (is_list && (text_is(key, "anyOf") || text_is(key, "oneOf") || text_is(key, "allOf"))))
            continue;
        if (text_is(key, "properties") && value.kind == CARAT_OBJECT)
            TRY(flatten_properties(f, &m->value, depth, &value));
        else if (text_is(key, "items") && value.kind == CARAT_OBJECT &&
                 flatten(f, &m->value, depth + 1, true, &value))
            return schema_within(f->err, "", key);
        TRY(put_member(f, n, key.data, key.length, &value));
    }
    return CARAT_OK;
}

static int flatten(struct flattener *f, const struct carat_value *in, int depth, bool is_items,
                   struct carat_value *out)
{
    *out = *in;
    if (in->kind != CARAT_OBJECT) return CARAT_OK;
    if (depth > CHAT_DEPTH_MAX)
        return err_set(f->err, CARAT_EUSAGE, "nesting of at most %d expected", CHAT_DEPTH_MAX);
    TRY(spend(f, 1 + in->as.object.count));
    struct node n = {0};
    TRY(copy_keys(f, &n, in, depth));
    const struct carat_value *ref = value_get(in, "$ref"), *part;
    if (ref) TRY(merge_reference(f, &n, ref, depth));
    if (value_is(part = value_get(in, "allOf"), CARAT_ARRAY)) TRY(merge_all(f, &n, part, depth));
    if (value_is(part = value_get(in, "anyOf"), CARAT_ARRAY)) TRY(merge_union(f, &n, part, depth));
    if (value_is(part = value_get(in, "oneOf"), CARAT_ARRAY)) TRY(merge_union(f, &n, part, depth));
    if (!is_items) TRY(pick_type(f, &n));
    out->as.object.members = n.members;
    out->as.object.count = n.count;
    return CARAT_OK;
}

int schema_flatten(const struct carat_value *schema, struct schema_work *work, struct arena *arena,
                   struct carat_value *out, struct carat_error *err)
{
    struct flattener f = {.arena = arena, .root = schema, .work = work, .err = err};
    return flatten(&f, schema, 0, false, out);
}
