/* JSON pointers as "$ref" has them, in a URI: "#/$defs/a~1b", "#/$defs/my%20type" (RFC 6901). One
 * reader for the prompt and the grammar, so that both find the same schema. */
#ifndef BASE_POINTER_H
#define BASE_POINTER_H

#include <stddef.h>
#include <stdint.h>

enum { POINTER_STEP_BYTES = 512 };

/* Reads one step, which begins with a slash at *at, and moves *at to the next one or to `end`.
 * Writes it without its escapes and ends it with a NUL. Returns its length, or -1: there is no
 * slash, an escape is broken, the step contains a NUL or does not fit. */
int pointer_step(const char **at, const char *end, char out[POINTER_STEP_BYTES]);

/* The index that a step into an array names; SIZE_MAX: it names none. */
size_t pointer_index(const char *step);

#endif
