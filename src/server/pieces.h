/* The bytes that a token adds to a text. */
#ifndef SERVER_PIECES_H
#define SERVER_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "carat.h"

enum { PIECE_BYTES_MAX = 512 }; /* longer ones are cut */

/* Spaces as they are, a byte for "<0xE2>", the name of a special token. Returns how many. */
size_t piece_bytes(const carat_model *model, int32_t id, char out[PIECE_BYTES_MAX]);

#endif
