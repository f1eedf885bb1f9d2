/* Building carat_value trees, for what translates a request into another form.
 *
 *     struct tree t = {.arena = arena};
 *     struct tree_object o = {0};
 *     tree_put(&t, &o, "role", tree_text("user"));
 *     struct carat_value message = tree_object_value(&o);
 *
 * Texts are borrowed. What grows comes from the arena. A failure shows in `failed`, and what
 * follows is dropped, so that a builder checks once, with tree_check. */
#ifndef API_TREE_H
#define API_TREE_H

#include "base/arena.h"
#include "carat.h"

struct tree {
    struct arena *arena;
    bool failed;
};

struct tree_object { /* zeroed: empty */
    struct carat_member *members;
    size_t count, capacity;
};
struct tree_array { /* zeroed: empty */
    struct carat_value *items;
    size_t count, capacity;
};

/* Adds a member, or replaces it. */
void tree_put(struct tree *t, struct tree_object *object, const char *key,
              struct carat_value value);
/* All members of `from` whose keys are not in `except` (ends with NULL). Keys of `object` that are
 * there already stay as they are and come first. */
void tree_put_all(struct tree *t, struct tree_object *object, const struct carat_value *from,
                  const char *const *except);
void tree_push(struct tree *t, struct tree_array *array, struct carat_value value);

struct carat_value tree_object_value(const struct tree_object *object);
struct carat_value tree_array_value(const struct tree_array *array);
struct carat_value tree_text(const char *text);
struct carat_value tree_string(const char *data, size_t length);
struct carat_value tree_bool(bool value);
struct carat_value tree_int(int64_t value);
struct carat_value tree_null(void);
struct carat_value tree_copy(struct tree *t, const char *data, size_t length); /* with a NUL */
/* Two texts as one, with `between` between them. If one is empty, the other one alone. */
struct carat_value tree_join(struct tree *t, struct carat_value a, const char *between,
                             struct carat_value b);

int tree_check(const struct tree *t, struct carat_error *err);

#endif
