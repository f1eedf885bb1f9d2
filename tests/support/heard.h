/* What a client hears in a reply, of any API, whether it is a stream or one body: every line of it
 * has to be JSON, and what is said together is kept. */
#ifndef SUPPORT_HEARD_H
#define SUPPORT_HEARD_H

#include "api/ask.h"
#include "base/buf.h"

struct heard { /* of one answer; zeroed: nothing */
    struct buf text, thought;
    struct buf calls; /* "NAME(ARGUMENTS" of each call, in a row */
    size_t n_ids;     /* token_ids */
};

/* Adds what `reply` says to answers[index]. Asserts that it is well-formed. Calls in bodies of
 * Anthropic's and of ollama's API are objects: their arguments are written anew. */
void heard_add(struct heard *answers, enum api api, const struct buf *reply);
void heard_deinit(struct heard *answer);

#endif
