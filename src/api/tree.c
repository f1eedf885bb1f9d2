#include "api/tree.h"

#include <string.h>

#include "base/status.h"

/* Room for one more. Items move to twice the room; the old room stays in the arena. */
static void *grow(struct tree *t, void *items, size_t count, size_t *capacity, size_t size)
{
    if (t->failed) return NULL;
    if (count < *capacity) return items;
    size_t more = *capacity ? 2 * *capacity : 8;
    void *grown = arena_take(t->arena, more, size);
    if (!grown) {
        t->failed = true;
        return NULL;
    }
    if (count) memcpy(grown, items, count * size);
    *capacity = more;
    return grown;
}

static void append(struct tree *t, struct tree_object *object, struct carat_member member)
{
    struct carat_member *members =
        grow(t, object->members, object->count, &object->capacity, sizeof *members);
    if (!members) return;
    object->members = members;
    members[object->count++] = member;
}

static bool key_is(const struct carat_member *member, const char *key, size_t length)
{
    return member->key.length == length && memcmp(member->key.data, key, length) == 0;
}

void tree_put(struct tree *t, struct tree_object *object, const char *key, struct carat_value value)
{
    struct carat_member member = {.key = {key, strlen(key)}, .value = value};
    for (size_t i = 0; i < object->count; i++) {
        if (!key_is(&object->members[i], key, member.key.length)) continue;
        object->members[i] = member;
        return;
    }
    append(t, object, member);
}

static bool is_left_out(const struct carat_member *member, const char *const *except)
{
    for (; *except; except++)
        if (key_is(member, *except, strlen(*except))) return true;
    return false;
}

void tree_put_all(struct tree *t, struct tree_object *object, const struct carat_value *from,
                  const char *const *except)
{
    size_t own = object->count;
    for (size_t i = 0; i < from->as.object.count; i++) {
        const struct carat_member *member = &from->as.object.members[i];
        bool is_there = is_left_out(member, except);
        for (size_t k = 0; k < own && !is_there; k++)
            is_there = key_is(&object->members[k], member->key.data, member->key.length);
        if (!is_there) append(t, object, *member);
    }
}

void tree_push(struct tree *t, struct tree_array *array, struct carat_value value)
{
    struct carat_value *items =
        grow(t, array->items, array->count, &array->capacity, sizeof *items);
    if (!items) return;
    array->items = items;
    items[array->count++] = value;
}

struct carat_value tree_object_value(const struct tree_object *object)
{
    return (struct carat_value){.kind = CARAT_OBJECT,
                                .as.object = {object->members, object->count}};
}

struct carat_value tree_array_value(const struct tree_array *array)
{
    return (struct carat_value){.kind = CARAT_ARRAY, .as.array = {array->items, array->count}};
}

struct carat_value tree_text(const char *text)
{
    return tree_string(text, strlen(text));
}

struct carat_value tree_string(const char *data, size_t length)
{
    return (struct carat_value){.kind = CARAT_STRING, .as.string = {data, length}};
}

struct carat_value tree_copy(struct tree *t, const char *data, size_t length)
{
    const char *copy = t->failed ? NULL : arena_copy_text(t->arena, data, length);
    t->failed |= !copy;
    return copy ? tree_string(copy, length) : tree_null();
}

struct carat_value tree_bool(bool value)
{
    return (struct carat_value){.kind = CARAT_BOOL, .as.boolean = value};
}

struct carat_value tree_int(int64_t value)
{
    return (struct carat_value){.kind = CARAT_INT, .as.integer = value};
}

struct carat_value tree_null(void)
{
    return (struct carat_value){.kind = CARAT_NULL};
}

struct carat_value tree_join(struct tree *t, struct carat_value a, const char *between,
                             struct carat_value b)
{
    size_t first = a.as.string.length, middle = strlen(between), last = b.as.string.length;
    if (first == 0) return b;
    if (last == 0) return a;
    char *joined = t->failed ? NULL : arena_take(t->arena, first + middle + last, 1);
    if (!joined) {
        t->failed = true;
        return tree_null();
    }
    memcpy(joined, a.as.string.data, first);
    memcpy(joined + first, between, middle);
    memcpy(joined + first + middle, b.as.string.data, last);
    return tree_string(joined, first + middle + last);
}

int tree_check(const struct tree *t, struct carat_error *err)
{
    return t->failed ? err_no_memory(err, "request", t->arena->bytes) : CARAT_OK;
}
