#include "server/pieces.h"

#include <string.h>

#include "base/hex.h"

/* "<0xE2>": -1 if it is no such name. */
static int byte_named(const char *piece, size_t length)
{
    if (length != 6 || memcmp(piece, "<0x", 3) != 0 || piece[5] != '>') return -1;
    int high = hex_value(piece[3]), low = hex_value(piece[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

size_t piece_bytes(const carat_model *model, int32_t id, char out[PIECE_BYTES_MAX])
{
    static const char space[] = "\xE2\x96\x81";
    size_t length, n = 0;
    const char *piece = carat_token_piece(model, id, &length);
    int byte = byte_named(piece, length);
    if (byte >= 0) {
        out[0] = (char)byte;
        return 1;
    }
    for (size_t i = 0; i < length && n < PIECE_BYTES_MAX; n++) {
        bool is_space = length - i >= 3 && memcmp(piece + i, space, 3) == 0;
        out[n] = is_space ? ' ' : piece[i];
        i += is_space ? 3 : 1;
    }
    return n;
}
