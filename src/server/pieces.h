/* The bytes that a token adds to a text. */
#ifndef SERVER_PIECES_H
#define SERVER_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "carat.h"

enum { PIECE_BYTES_MAX = 512 }; /* longer ones are cut */

/* U+2581 gives a space, "<0xE2>" one byte, and a special token its name. Returns how many bytes. */
size_t piece_bytes(const carat_model *model, int32_t id, char out[PIECE_BYTES_MAX]);

#endif
