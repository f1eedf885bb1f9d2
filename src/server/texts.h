/* Routes about text that compute something but ask no model: tokens of a text, the text of tokens,
 * a rendered prompt, how many tokens a request has. Any thread. */
#ifndef SERVER_TEXTS_H
#define SERVER_TEXTS_H

#include "api/ask.h"
#include "server/routes.h"

/* Appends the body of the reply, as JSON. */
int texts_answer(enum text_kind kind, const carat_model *model, const struct ask_limits *limits,
                 int32_t n_ctx, const struct buf *body, struct buf *out, struct carat_error *err);

#endif
