/* Formats of strings that are enforced, as patterns. All others are annotations. */
#ifndef GRAMMAR_FORMATS_H
#define GRAMMAR_FORMATS_H

#include <stddef.h>

/* The pattern of a format, or NULL. */
const char *format_pattern(const char *name, size_t length);

#endif
