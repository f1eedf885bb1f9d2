/* What several readers put into the root of a request in the form of OpenAI's chat API, made of
 * members that have other names and places in the client's API. */
#ifndef API_ROOT_H
#define API_ROOT_H

#include "api/place.h"
#include "api/tree.h"

/* Members of `from` that have the same name in both; null ones are left out. */
void root_put_same(struct tree *t, struct tree_object *root, const struct carat_value *from,
                   const char *const *names);

/* "stop" of an array of texts, or of one text; null: nothing. */
int root_put_stops(struct tree *t, struct tree_object *root, const struct place *stops, size_t most,
                   struct carat_error *err);

/* "response_format" that asks for JSON of this schema. */
int root_put_schema(struct tree *t, struct tree_object *root, const struct place *schema,
                    struct carat_error *err);

/* "response_format" that asks for any JSON object. */
void root_put_json(struct tree *t, struct tree_object *root);

/* One of the levels of "reasoning_effort". */
int root_check_effort(const struct place *effort, struct carat_error *err);

/* {"type": "function", "function": ..}: an item of "tools". */
struct carat_value root_function(struct tree *t, const struct tree_object *function);

/* "tool_choice", after "tools" has been put. `word`: "auto", "required" or "none". Without tools
 * there is no choice: "required" is refused then, the others are left out. */
int root_put_choice(struct tree *t, struct tree_object *root, const struct place *where,
                    const char *word, struct carat_error *err);
/* The tool of that name, which has to be in "tools". */
int root_put_named_choice(struct tree *t, struct tree_object *root, const struct place *name,
                          struct carat_error *err);

#endif
