/* One reader for each API. It sets ask->request.root to a request in the form of OpenAI's chat API
 * (its arena: ask->request.json.arena), or ask->prompts, and of the rest of `ask` what has no
 * member in that form. What the form has, ask_take takes from the root afterwards.
 *
 * `body` is the client's object. Messages of errors name members as the client wrote them: so a
 * reader checks whatever it moves or renames. */
#ifndef API_ASK_READERS_H
#define API_ASK_READERS_H

#include "api/ask.h"

typedef int ask_reader(struct ask *ask, const struct carat_value *body,
                       const struct ask_limits *limits, struct carat_error *err);

ask_reader completions_read, messages_read, responses_read, ollama_chat_read, ollama_generate_read;

#endif
