/* Requests of any API in tests, written with apostrophes for quotes. */
#ifndef SUPPORT_ASKS_H
#define SUPPORT_ASKS_H

#include "api/ask.h"

extern const struct carat_sampling asks_defaults;
extern const struct ask_limits asks_limits;

/* Fails the test when the request is refused. The caller closes it. */
struct ask asks_taken(enum api api, const char *text);
/* Fails the test unless the request is refused with a message that begins with `words`, and nothing
 * is left of it. */
void asks_expect_refused(enum api api, enum carat_status code, const char *text, const char *words);

/* Reads the request with each of its allocations failing in turn. Fails the test unless that is
 * CARAT_EMEMORY, and nothing is left. */
void asks_expect_memory_reported(enum api api, const char *text);

/* The prompt of a chat; the caller frees it with carat_free. */
char *asks_prompt(const struct ask *ask);
/* Fails the test unless the root's member has this value, in JSON with apostrophes; "null": it is
 * absent. */
void asks_expect(const struct ask *ask, const char *key, const char *json);

#endif
