/* Shared by the chat files: the prompt under construction, and how to look into carat_value
 * trees. */
#ifndef TEXT_CHAT_INTERNAL_H
#define TEXT_CHAT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/status.h"
#include "carat.h"
#include "text/tokenizer.h"

enum {
    CHAT_DEPTH_MAX = 64,  /* nesting of arguments and schemas */
    CALLS_MAX = 1024,     /* of one message */
    NAME_BYTES_MAX = 256, /* of a function: it is repeated with each result */
    /* Limits of one request, because references and results repeat what it says once. */
    PROMPT_BYTES_MAX = 1 << 25,  /* texts, spans, and members of schemas that were looked at */
    SCHEMA_COPIES_MAX = 1 << 14, /* schemas, members and items written */
    SCHEMA_LOOKS_MAX = 1 << 22,  /* members looked at to find what a $ref names */
};

struct text {
    const char *data;
    size_t length;
};

/* A prompt: text and who wrote which part of it. Text beyond the limit is left out; so loops that
 * can write more bytes than the request has call prompt_check in each round. */
struct prompt {
    struct buf text;
    struct text_span *spans;
    size_t n_spans, capacity;
    size_t n_spent; /* of PROMPT_BYTES_MAX */
    bool failed;    /* memory is out */
};

void prompt_mark(struct prompt *p, const char *template_text);
void prompt_text(struct prompt *p, const char *data, size_t length); /* of the request */
void prompt_spend(struct prompt *p, size_t count);                   /* work without text */
int prompt_check(const struct prompt *p, struct carat_error *err);
void prompt_deinit(struct prompt *p);

/* ---- Values ---- */

/* A member of an object, the last of equal keys; NULL if it is absent or `value` is no object. */
const struct carat_value *value_get(const struct carat_value *value, const char *key);
/* As Jinja and Python see it: NULL, null, false, 0 and empty things are false. */
bool value_is_true(const struct carat_value *value);
bool value_is(const struct carat_value *value, enum carat_value_kind kind); /* NULL: false */
struct text value_text(const struct carat_value *value);                    /* "" unless a string */
bool text_is(struct text a, const char *text);
const char *value_kind_name(const struct carat_value *value); /* "a string", "nothing", ... */
int name_check(const struct carat_value *name, struct carat_error *err); /* its length */

/* Members ordered by key without regard to case, equal keys in their order. Free with mem_free. */
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

/* Puts the name of a member of a schema, after `before`, in front of what is wrong in it. Outer
 * names of a long path are left out. Returns the code. */
int schema_within(struct carat_error *err, const char *before, struct text key);

/* What flattening the schemas of one request has taken so far. */
struct schema_work {
    struct hash_key key;
    size_t n_copies, n_looks;
};

/* A copy of a schema in which one plain type, which the template can show, replaces each local
 * $ref, allOf, anyOf, oneOf and list of types. Memory comes from the arena. */
int schema_flatten(const struct carat_value *schema, struct schema_work *work, struct arena *arena,
                   struct carat_value *out, struct carat_error *err);

#endif
