/* How a request samples, in the words of OpenAI, vLLM and llama-server. */
#ifndef JSON_SAMPLING_FIELDS_H
#define JSON_SAMPLING_FIELDS_H

#include "json/json_tree.h"

/* Reads all members except the seed. A member that is absent or null changes nothing in *p. Texts
 * of breakers are copied to the arena. CARAT_EUSAGE names the member, its range and what was
 * found. */
int sampling_fields_read(struct carat_sampling *p, const struct carat_value *root,
                         struct arena *arena, struct carat_error *err);

/* The settings for carat_submit. Zeros of a request or of the command line mean what they say,
 * those of carat.h mean defaults. */
struct carat_sampling sampling_literal(struct carat_sampling p);

#endif
