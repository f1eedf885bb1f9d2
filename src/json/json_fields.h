/* Reading members of an object, with the sentences that say what is wrong with them. A member that
 * is absent or null leaves `out` as it is. `key` names the member in `object` and in messages. */
#ifndef JSON_FIELDS_H
#define JSON_FIELDS_H

#include "json/json_tree.h"

bool json_is_number(const struct carat_value *value);
double json_number(const struct carat_value *value); /* of a number */
/* Whether it is a whole number, also one that is written as 40.0 or 4e1, from `low` to `high`: then
 * it is *out. Else CARAT_EUSAGE: "KEY: an integer expected, 40.5 found". */
int json_whole(const struct carat_value *value, const char *key, int64_t low, int64_t high,
               int64_t *out, struct carat_error *err);

/* "KEY: EXPECTED expected, a string found". Returns CARAT_EUSAGE. */
int json_wrong_kind(const char *key, const char *expected, const struct carat_value *found,
                    struct carat_error *err);

int json_read_flag(const struct carat_value *object, const char *key, bool *out,
                   struct carat_error *err);
int json_read_whole(const struct carat_value *object, const char *key, int64_t low, int64_t high,
                    int32_t *out, struct carat_error *err);
/* A copy in `arena`, with a NUL at its end. More than `most` bytes are wrong, and any NUL is. */
int json_read_text(const struct carat_value *object, const char *key, size_t most,
                   struct arena *arena, const char **out, struct carat_error *err);

#endif
