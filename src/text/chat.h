/* Chat requests to prompts: the canonical Gemma 4 template of July 2026, written out in C.
 *
 * Rules
 * 1. `request` has the form of an OpenAI chat request (see carat.h). What the template cannot
 *    render is CARAT_EUSAGE and names the field, e.g. "messages[2].role".
 * 2. Text of the request never becomes a special token; text of the template does.
 * 3. `arguments` of a call are an object, as the template wants them. Whoever reads JSON decodes
 *    the string that OpenAI's API puts there; a string that is not blank is refused. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "carat.h"
#include "text/vocab.h"

/* *out (with a closing NUL) and *ids are freed with mem_free. */
int chat_text(enum carat_size size, const struct carat_value *request, char **out, size_t *length,
              struct carat_error *err);
/* CARAT_ECONTEXT when the text alone shows that it does not fit into n_ctx positions. */
int chat_tokenize(const struct vocab *v, enum carat_size size, const struct carat_value *request,
                  int32_t n_ctx, int32_t **ids, size_t *count, struct carat_error *err);

#endif
