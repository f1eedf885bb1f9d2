#include "server/otlp_reply.h"

#include <string.h>

#include "json/json_tree.h"

static size_t read_digits(const char *text, size_t length, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        n = n * 10 + (size_t)(text[i] - '0');
        if (n > most) n = most;
    }
    return n;
}

size_t otlp_reply_rejected(const char *text, size_t length, size_t n)
{
    struct json_tree tree = {0};
    size_t rejected = 0;
    if (length == 0 || length > OTLP_REPLY_MAX) return 0;
    if (json_tree_read(&tree, text, length, JSON_PLAIN, NULL) == CARAT_OK) {
        const struct carat_value *v =
            json_member(json_member(&tree.root, "partialSuccess"), "rejectedSpans");
        if (v->kind == CARAT_STRING)
            rejected = read_digits(v->as.string.data, v->as.string.length, n);
        if (v->kind == CARAT_INT && v->as.integer > 0)
            rejected = v->as.integer < (int64_t)n ? (size_t)v->as.integer : n;
    }
    json_tree_free(&tree);
    return rejected;
}
