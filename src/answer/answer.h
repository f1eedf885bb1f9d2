/* An answer as it comes, in parts and up to a stop string: see carat.h. */
#ifndef ANSWER_ANSWER_H
#define ANSWER_ANSWER_H

#include "carat.h"
#include "text/vocab.h"

/* The vocabulary must outlive the answer; prompt and options are copied. CARAT_EUSAGE: the options;
 * CARAT_EMEMORY. *out is NULL then. */
int answer_open(carat_answer **out, const struct vocab *v, const int32_t *prompt, size_t n_prompt,
                const struct carat_answer_options *options, struct carat_error *err);
/* Parts are the answer's, until the next call for it. CARAT_EMEMORY, then and from then on: text
 * was lost, there are no parts. */
int answer_push(carat_answer *a, const int32_t *ids, size_t count, const struct carat_part **parts,
                size_t *n_parts, struct carat_error *err);
int answer_finish(carat_answer *a, const struct carat_part **parts, size_t *n_parts,
                  struct carat_error *err);
const char *answer_stop(const carat_answer *a);
bool answer_is_thinking(const carat_answer *a);
void answer_close(carat_answer *a); /* NULL is fine */

#endif
