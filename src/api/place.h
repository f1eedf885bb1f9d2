/* A value of the client's body and its path there, so that errors name the value as the client
 * wrote it: "messages[1].content[0].text: a string expected, null found". */
#ifndef API_PLACE_H
#define API_PLACE_H

#include "carat.h"

enum { PLACE_PATH_MAX = 160 };

struct place {
    const struct carat_value *value; /* null when it is absent */
    char path[PLACE_PATH_MAX];       /* "": the body itself; longer ones are cut */
};

struct place place_body(const struct carat_value *body);
struct place place_member(const struct place *object, const char *key);
struct place place_item(const struct place *array, size_t i);

bool place_is_null(const struct place *p);
/* CARAT_EUSAGE: "PATH: EXPECTED expected, a number found". A string is shown as it is. */
int place_wrong(const struct place *p, const char *expected, struct carat_error *err);
int place_expect(const struct place *p, enum carat_value_kind kind, struct carat_error *err);
/* The same, and null is fine. */
int place_expect_or_null(const struct place *p, enum carat_value_kind kind,
                         struct carat_error *err);
/* A string of 1 to `most` bytes; a name has no control characters. */
int place_expect_text(const struct place *p, size_t most, struct carat_error *err);
int place_expect_name(const struct place *p, size_t most, struct carat_error *err);
/* An array of `least` to `most` items. */
int place_expect_count(const struct place *p, size_t least, size_t most, struct carat_error *err);
/* A whole number from `low` to `high`, as json_whole takes it; out may be NULL. */
int place_read_whole(const struct place *p, int64_t low, int64_t high, int64_t *out,
                     struct carat_error *err);
int place_expect_real(const struct place *p, double low, double high, struct carat_error *err);
/* Nothing in it is deeper than `most`. */
int place_expect_depth(const struct place *p, int most, struct carat_error *err);
/* CARAT_EUNSUPPORTED: "PATH: not supported", with what to do. A string is shown. */
int place_refuse(const struct place *p, const char *hint, struct carat_error *err);

#endif
