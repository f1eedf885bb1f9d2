/* Shared by the chat files: the prompt under construction and questions to carat_value trees. */
#ifndef TEXT_CHAT_INTERNAL_H
#define TEXT_CHAT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"
#include "carat.h"
#include "text/tokenizer.h"

enum {
    CHAT_DEPTH_MAX = 64,  /* nesting of arguments and schemas */
    SCHEMA_NODES_MAX = 5000,
    CALLS_MAX = 1024, /* of one message */
};

struct text {
    const char *data;
    size_t length;
};

/* A prompt: text and who wrote which part of it. Memory failures are found at the end. */
struct prompt {
    struct buf text;
    struct text_span *spans;
    size_t n_spans, capacity;
    bool failed;
};

void prompt_mark(struct prompt *p, const char *template_text);
void prompt_text(struct prompt *p, const char *data, size_t length); /* of the request */
void prompt_deinit(struct prompt *p);

/* ---- Values ---- */

/* A member of an object, the last of equal keys; NULL when it is absent or `value` no object. */
const struct carat_value *value_get(const struct carat_value *value, const char *key);
/* As Jinja and Python see it: NULL, null, false, 0 and empty things are false. */
bool value_is_true(const struct carat_value *value);
bool value_is(const struct carat_value *value, enum carat_value_kind kind); /* NULL: false */
struct text value_text(const struct carat_value *value); /* "" unless a string */
bool text_is(struct text a, const char *text);
const char *value_kind_name(const struct carat_value *value); /* "a string", "nothing", ... */

/* Members ordered by key without regard to case, equal keys as they came. Free with mem_free. */
int value_sorted(const struct carat_value *object, const struct carat_member ***out,
                 struct carat_error *err);

struct text text_trim(struct text t); /* Unicode white space, as Python's strip */

/* What Python's str() gives for a number. */
enum { NUMBER_TEXT_MAX = 40 };
size_t number_text(const struct carat_value *number, char out[NUMBER_TEXT_MAX]);

/* A printable beginning of a text for messages. */
enum { SHOWN_MAX = 48 };
const char *text_shown(struct text t, char out[SHOWN_MAX]);

/* ---- Tools ---- */

/* <|tool> declarations <tool|> of all tools. */
int chat_declare_tools(struct prompt *p, const struct carat_value *tools, struct carat_error *err);

/* A value in the model's syntax: <|"|>text<|"|>, 1.0, {key:value}, [a,b]. */
int chat_argument(struct prompt *p, const struct carat_value *value, bool quote_keys, int depth,
                  struct carat_error *err);
/* key:value,... of an object, without braces. */
int chat_members(struct prompt *p, const struct carat_value *object, bool quote_keys, int depth,
                 struct carat_error *err);

/* A schema with local $ref, allOf, anyOf, oneOf and lists of types replaced by one plain type:
 * what the template can show. Memory comes from the arena. */
int schema_flatten(const struct carat_value *schema, struct arena *arena, struct carat_value *out,
                   struct carat_error *err);

#endif
