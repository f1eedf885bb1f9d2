/* What every API's request says in the same words, once it is in the form of OpenAI's chat API. */
#ifndef API_ASK_TAKE_H
#define API_ASK_TAKE_H

#include "api/ask.h"

/* Reads ask->request.root. A member that is absent leaves in `ask` what is there. */
int ask_take(struct ask *ask, const struct carat_sampling *defaults,
             const struct ask_limits *limits, struct carat_error *err);

#endif
