/* Sizes of files for people. */
#ifndef CLI_SIZE_TEXT_H
#define CLI_SIZE_TEXT_H

#include <stdint.h>

enum { SIZE_TEXT_MAX = 24 };

/* "7.5 MiB", or "2.89 GiB" from there on. */
const char *size_text(uint64_t bytes, char out[SIZE_TEXT_MAX]);

#endif
