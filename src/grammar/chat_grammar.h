/* What a chat request demands of its answer, as one grammar. */
#ifndef GRAMMAR_CHAT_GRAMMAR_H
#define GRAMMAR_CHAT_GRAMMAR_H

#include "grammar/grammar.h"

/* See carat_grammar_open_chat. *out is NULL when nothing is constrained. */
int chat_grammar_open(carat_grammar **out, const struct vocab *v, const struct token_index *index,
                      const struct carat_value *request, struct carat_error *err);

#endif
