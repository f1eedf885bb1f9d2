/* Tool calls in the model's own syntax, from the tools of a chat request:
 *
 *     <|tool_call>call:NAME{key:value,...}<tool_call|>
 *
 * where the arguments fit the tool's "parameters". A tool that is not "strict", and whose schema
 * cannot be enforced, may get any arguments: clients send schemas for the model to read. */
#ifndef GRAMMAR_CALL_GRAMMAR_H
#define GRAMMAR_CALL_GRAMMAR_H

#include "grammar/expr.h"
#include "text/vocab.h"

/* One call of the tool named `only`, or of any tool (NULL). CARAT_EUSAGE, CARAT_EUNSUPPORTED: a
 * name or a schema is wrong or cannot be enforced; the message has its path. `is_loose_kept` false:
 * all schemas together are too large, so only those of strict tools are enforced. */
int call_grammar_expr(const struct expr **out, struct expr_builder *b, const struct vocab *v,
                      const struct carat_value *tools, const struct carat_value *only,
                      bool is_loose_kept, struct carat_error *err);

#endif
