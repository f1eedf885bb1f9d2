/* A jansson tree as the carat_value tree that include/carat.h takes.
 *
 * Rules
 * 1. Strings are borrowed from the jansson tree, which must outlive the value.
 * 2. Nesting deeper than JSON_VALUE_DEPTH_MAX is CARAT_EUSAGE. */
#ifndef JSON_VALUE_H
#define JSON_VALUE_H

#ifdef CARAT_HAVE_JSON

#include <jansson.h>

#include "base/arena.h"
#include "carat.h"

/* A value of two bytes takes 130 while it is read. So values are counted before any memory is taken
 * for them; the most allow for four prompts of 262,144 ids. */
enum { JSON_VALUE_DEPTH_MAX = 128, JSON_VALUES_MAX = 1 << 20 };

/* At least as many as a text has members and items, if it is JSON: commas outside strings, and one.
 * What is nested without a comma is bounded by its depth. */
size_t json_count_values(const char *text, size_t length);

/* json_loadb, but for whole numbers beyond int64_t, which it refuses: each becomes the nearest real
 * number, as in JavaScript. NULL with an empty failure->text: out of memory. */
json_t *json_value_load(const char *text, size_t length, json_error_t *failure);

int json_value_from(const json_t *json, struct arena *arena, struct carat_value *out,
                    struct carat_error *err);

/* The same for a chat request. OpenAI's API gives the arguments of a tool call as a string of JSON,
 * but the template wants an object. So messages[].tool_calls[].function.arguments that hold valid
 * JSON are replaced by its value in `request`. Others stay, and rendering refuses them; if
 * `forgives`, a string that holds no object becomes an empty one. The values in these strings are
 * added to *n_values; more than JSON_VALUES_MAX are CARAT_EUSAGE. */
int json_value_from_chat(json_t *request, bool forgives, size_t *n_values, struct arena *arena,
                         struct carat_value *out, struct carat_error *err);

#endif
#endif
