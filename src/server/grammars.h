/* Grammars of chats that came lately. Programs send the same tools and schemas with every request,
 * and a grammar gets faster as it is used, because it keeps what it has found out. Any thread. */
#ifndef SERVER_GRAMMARS_H
#define SERVER_GRAMMARS_H

#include "carat.h"

struct grammars;

int grammars_open(struct grammars **out, const carat_model *model, struct carat_error *err);
void grammars_close(struct grammars *s); /* after all were given back; NULL is fine */

/* As carat_grammar_open_chat. *out is NULL when the answer may be anything; otherwise it has to be
 * given back. */
int grammars_take(struct grammars *s, const struct carat_value *request, carat_grammar **out,
                  struct carat_error *err);
void grammars_give(struct grammars *s, carat_grammar *grammar); /* NULL is fine */

#endif
