/* Names and letters of samplers: llama.cpp's. Versions of Mirostat.
 *
 * Samplers in an order are a text of letters, each at most once; "-" stands for none of them. */
#ifndef BASE_SAMPLERS_H
#define BASE_SAMPLERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SAMPLERS_SIZE = 16 }; /* bytes of such a text with its end, as in carat_sampling */

/* What a letter is called, or NULL. */
const char *sampler_name(char letter);

/* CARAT_EUSAGE: not such a text, or one of more bytes. `where` begins each message. */
int samplers_check(const char letters[SAMPLERS_SIZE], const char *where, struct carat_error *err);

/* Reads "top_k;temperature" or "none", or letters; an empty text is "-". CARAT_EUSAGE lists what
 * there is. */
int samplers_read_names(char out[SAMPLERS_SIZE], const char *text, size_t length, const char *where,
                        struct carat_error *err);
int samplers_read_letters(char out[SAMPLERS_SIZE], const char *text, size_t length,
                          const char *where, struct carat_error *err);

/* CARAT_EUSAGE: Mirostat has no such version here. */
int mirostat_check(int64_t version, const char *where, struct carat_error *err);

/* Adds one by its name; begin with "-". */
int samplers_add(char letters[SAMPLERS_SIZE], const char *name, size_t length, const char *where,
                 struct carat_error *err);

#endif
