/* JSON text as a carat_value tree with one owner. A build without jansson answers with
 * CARAT_EUNSUPPORTED. */
#ifndef JSON_TREE_H
#define JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "carat.h"

struct json_tree {
    struct carat_value root; /* borrows from the next two members */
    struct arena arena;
    void *documents;
    size_t n_values; /* of all texts that were read */
    bool is_full;    /* a text was refused because there are too many */
};

enum json_purpose {
    JSON_PLAIN,
    JSON_OWN,          /* made by carat itself: of any length */
    JSON_CHAT,         /* decodes the arguments of messages[].tool_calls[]; broken ones are none */
    JSON_CHAT_FILE,    /* the same in the "request" member, if there is one */
    JSON_CHAT_REQUEST, /* the same; broken ones stay */
};

enum { JSON_BYTES_MAX = 1 << 25 };

/* A zeroed tree is a valid empty one. CARAT_EUSAGE names line and column, the length of a text that
 * is too long, or the number of values if they are too many. */
int json_tree_read(struct json_tree *tree, const char *text, size_t length,
                   enum json_purpose purpose, struct carat_error *err);
/* One more text, e.g. one that a string of the first holds; `out` borrows from the tree. Its values
 * count together with those that were read before. */
int json_tree_add(struct json_tree *tree, const char *text, size_t length, struct carat_value *out,
                  struct carat_error *err);
void json_tree_free(struct json_tree *tree);

/* The member of that name, or a null value. */
const struct carat_value *json_member(const struct carat_value *object, const char *key);

bool json_text_is(const struct carat_value *value, const char *text);

/* For messages: "null", "a string"; the printable beginning of a text. */
const char *json_kind_name(const struct carat_value *value);
enum { JSON_SHOWN_MAX = 48 };
const char *json_shown(const struct carat_value *text, char out[JSON_SHOWN_MAX]);

#endif
