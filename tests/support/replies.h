/* Replies of any API in tests: the same short answers, and what was said, to compare with. */
#ifndef SUPPORT_REPLIES_H
#define SUPPORT_REPLIES_H

#include "api/reply.h"

extern const struct reply_usage replies_usage; /* 10 tokens, 4 cached; 5 generated, 2 of thoughts */

/* Facts: id "r1", model "m", created 7, 10 tokens in the prompt. */
struct reply *replies_open(const struct ask *ask);
void replies_part(struct reply *r, enum carat_part_kind kind, const char *text, struct buf *out);
/* Calls the tool of that name; `arguments` with apostrophes. */
void replies_call(struct reply *r, const char *name, const char *arguments, bool is_complete,
                  struct buf *out);
void replies_done(struct reply *r, enum reply_end end, const char *stop, struct buf *out);

/* Fails the test unless `out` is this, with apostrophes for quotes. Empties `out`. */
void replies_expect(struct buf *out, const char *text);

#endif
