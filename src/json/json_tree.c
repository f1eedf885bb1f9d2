#include "json/json_tree.h"

#include <string.h>

#include "base/status.h"
#include "json/json_memory.h"
#include "json/json_value.h"

#ifdef CARAT_HAVE_JSON

/* Reads a document, which the tree then owns. */
static int add_document(struct json_tree *tree, const char *text, size_t length, json_t **out,
                        struct carat_error *err)
{
    json_error_t failure;
    if (!tree->documents) tree->documents = json_array();
    if (!tree->documents) return err_no_memory(err, "JSON", length);
    *out = json_value_load(text, length, &failure);
    if (!*out && !failure.text[0]) return err_no_memory(err, "JSON", length); /* nothing is wrong */
    if (!*out)
        return err_set(err, CARAT_EUSAGE, "not valid JSON: line %d, column %d: %s", failure.line,
                       failure.column, failure.text);
    if (json_array_append_new(tree->documents, *out)) return err_no_memory(err, "JSON", length);
    return CARAT_OK;
}

static int read_tree(struct json_tree *tree, const char *text, size_t length,
                     enum json_purpose purpose, struct carat_error *err)
{
    json_t *document;
    TRY(add_document(tree, text, length, &document, err));
    json_t *request = json_object_get(document, "request");
    bool is_file = purpose == JSON_CHAT_FILE || purpose == JSON_CHAT_REQUEST;
    bool forgives = purpose != JSON_CHAT_REQUEST;
    if (is_file && request) document = request;
    return is_file || purpose == JSON_CHAT
               ? json_value_from_chat(document, forgives, &tree->n_values, &tree->arena,
                                      &tree->root, err)
               : json_value_from(document, &tree->arena, &tree->root, err);
}

/* The values of one more text, before any memory is taken for them. */
static int add_values(struct json_tree *tree, const char *text, size_t length,
                      struct carat_error *err)
{
    tree->n_values += json_count_values(text, length);
    tree->is_full = tree->n_values > JSON_VALUES_MAX;
    if (!tree->is_full) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "JSON: at most %d values expected, %zu found",
                   JSON_VALUES_MAX, tree->n_values);
}

/* What was read without memory is not what was sent, whatever jansson says of it. */
static int check_memory(int status, size_t length, struct carat_error *err)
{
    return json_memory_failed() ? err_no_memory(err, "JSON", length) : status;
}

int json_tree_read(struct json_tree *tree, const char *text, size_t length,
                   enum json_purpose purpose, struct carat_error *err)
{
    *tree = (struct json_tree){0};
    if (length > JSON_BYTES_MAX && purpose != JSON_OWN)
        return err_set(err, CARAT_EUSAGE, "JSON: at most %d bytes expected, %zu found",
                       JSON_BYTES_MAX, length);
    if (purpose != JSON_OWN) TRY(add_values(tree, text, length, err));
    json_memory_begin();
    int status = check_memory(read_tree(tree, text, length, purpose, err), length, err);
    if (status != CARAT_OK) json_tree_free(tree);
    return status;
}

int json_tree_add(struct json_tree *tree, const char *text, size_t length, struct carat_value *out,
                  struct carat_error *err)
{
    json_t *document;
    TRY(add_values(tree, text, length, err));
    json_memory_begin();
    TRY(check_memory(add_document(tree, text, length, &document, err), length, err));
    return json_value_from(document, &tree->arena, out, err);
}

void json_tree_free(struct json_tree *tree)
{
    if (tree->documents) json_decref(tree->documents);
    arena_deinit(&tree->arena);
    *tree = (struct json_tree){0};
}

#else

int json_tree_read(struct json_tree *tree, const char *text, size_t length,
                   enum json_purpose purpose, struct carat_error *err)
{
    (void)text;
    (void)length;
    (void)purpose;
    *tree = (struct json_tree){0};
    err_set(err, CARAT_EUNSUPPORTED, "JSON cannot be read: carat was built without jansson");
    err_hint(err, "install libjansson-dev and build again");
    return CARAT_EUNSUPPORTED;
}

int json_tree_add(struct json_tree *tree, const char *text, size_t length, struct carat_value *out,
                  struct carat_error *err)
{
    struct json_tree none;
    (void)tree;
    *out = (struct carat_value){.kind = CARAT_NULL};
    return json_tree_read(&none, text, length, JSON_PLAIN, err);
}

void json_tree_free(struct json_tree *tree)
{
    arena_deinit(&tree->arena);
}

#endif

const struct carat_value *json_member(const struct carat_value *object, const char *key)
{
    static const struct carat_value null = {.kind = CARAT_NULL};
    size_t length = strlen(key);
    if (object->kind != CARAT_OBJECT) return &null;
    for (size_t i = 0; i < object->as.object.count; i++) {
        const struct carat_member *m = &object->as.object.members[i];
        if (m->key.length == length && memcmp(m->key.data, key, length) == 0) return &m->value;
    }
    return &null;
}

bool json_text_is(const struct carat_value *value, const char *text)
{
    size_t length = strlen(text);
    return value->kind == CARAT_STRING && value->as.string.length == length &&
           memcmp(value->as.string.data, text, length) == 0;
}

const char *json_kind_name(const struct carat_value *value)
{
    static const char *const names[] = {
        [CARAT_NULL] = "null",       [CARAT_BOOL] = "a boolean",  [CARAT_INT] = "an integer",
        [CARAT_REAL] = "a number",   [CARAT_STRING] = "a string", [CARAT_ARRAY] = "an array",
        [CARAT_OBJECT] = "an object"};
    return names[value->kind];
}

const char *json_shown(const struct carat_value *text, char out[JSON_SHOWN_MAX])
{
    size_t length = text->kind == CARAT_STRING ? text->as.string.length : 0;
    size_t n = length < JSON_SHOWN_MAX ? length : JSON_SHOWN_MAX - 1;
    for (size_t i = 0; i < n; i++) {
        char c = text->as.string.data[i];
        out[i] = c >= ' ' && c < 127 ? c : '?';
    }
    out[n] = '\0';
    return out;
}
