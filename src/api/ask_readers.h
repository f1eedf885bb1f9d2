/* One reader for each API. It sets ask->request.root to a request in the form of OpenAI's chat API
 * (its arena: ask->request.json.arena), or it sets ask->prompts. It also sets the members of `ask`
 * that have no counterpart in that form. ask_take takes the others from the root afterwards.
 *
 * `body` is the client's object. Errors name members as the client wrote them: so a reader checks
 * whatever it moves or renames. */
#ifndef API_ASK_READERS_H
#define API_ASK_READERS_H

#include "api/ask.h"

typedef int ask_reader(struct ask *ask, const struct carat_value *body,
                       const struct ask_limits *limits, struct carat_error *err);

ask_reader completions_read, messages_read, responses_read, ollama_chat_read, ollama_generate_read;

#endif
