/* Model output, id by id, into answer text, reasoning and tool calls: see carat.h.
 *
 * Rules
 * 1. The start state follows from the prompt's ids: inside a thought, inside a call, or text.
 * 2. The concatenation of the parts is the same however ids are grouped.
 * 3. Marks (channel, call, string and turn tokens) are never shown, wherever the model puts them:
 *    neither in text nor in calls. A text that only spells one, with other tokens, is a text.
 * 4. What is malformed is repaired as well as possible and marked. Besides marks nothing is dropped
 *    silently, except what follows <|tool_response>, where the model speaks for the tool. */
#ifndef TEXT_PARSER_H
#define TEXT_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carat.h"
#include "text/vocab.h"

struct carat_parser;

/* The vocabulary must outlive the parser; the prompt is only read. CARAT_EMEMORY: *out is NULL. */
int parser_open(struct carat_parser **out, const struct vocab *v, const int32_t *prompt,
                size_t n_prompt, struct carat_error *err);
/* Calls come as CALL_BEGIN, CALL_ARGUMENTS and CALL_END from now on. */
void parser_stream_calls(struct carat_parser *p);
/* Hands out the parts that these ids complete, and at the end what was held back; the parser's,
 * until the next call for it. CARAT_EMEMORY, then and from then on: text was lost, there are no
 * parts. */
int parser_push(struct carat_parser *p, const int32_t *ids, size_t count,
                const struct carat_part **parts, size_t *n_parts, struct carat_error *err);
int parser_finish(struct carat_parser *p, const struct carat_part **parts, size_t *n_parts,
                  struct carat_error *err);
bool parser_is_thinking(const struct carat_parser *p);
void parser_close(struct carat_parser *p); /* NULL is fine */

#endif
