/* What messages say of a file: names of types, and texts from the file, made harmless. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "gguf/gguf.h"

const char *gguf_type_name(enum gguf_type type)
{
    static const char *const names[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = "u8",         [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
        [GGUF_U32] = "u32",       [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
        [GGUF_STRING] = "string", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
        [GGUF_F64] = "f64"};
    carat_assert((unsigned)type < GGUF_TYPE_COUNT);
    return names[type];
}

const char *gguf_printable(char out[GGUF_PRINTABLE_BYTES], const char *text, size_t length)
{
    size_t used = 0;
    for (size_t i = 0; i < length;) {
        uint32_t code_point;
        int n = utf8_read(text + i, length - i, &code_point);
        bool as_it_is = n > 0 && !utf8_is_unprintable(code_point);
        if (n == 0) n = 1;
        size_t needed = as_it_is ? (size_t)n : (size_t)n * 4;
        if (used + needed + sizeof "..." > GGUF_PRINTABLE_BYTES) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (as_it_is) memcpy(out + used, text + i, needed);
        for (int k = 0; !as_it_is && k < n; k++)
            snprintf(out + used + 4 * k, 5, "\\x%02x", (unsigned)(uint8_t)text[i + (size_t)k]);
        used += needed;
        i += (size_t)n;
    }
    out[used] = '\0';
    return out;
}
