/* Number formats of weights: one list, one file a format.
 *
 * A row of n values is n / block_elements blocks, back to back. n is a multiple of
 * block_elements (the loader checks). */
#ifndef QUANT_FORMAT_H
#define QUANT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, name, GGUF type number, elements a block, bytes a block,
 *   budget: largest relative L2 error of encode-then-decode on normal random values; about
 *   5 % above what a million values gave, which 16 384 values do not exceed) */
#define FORMAT_LIST(X)                                                                             \
    X(F32, f32, 0, 1, 4, 0.0)                                                                      \
    X(F16, f16, 1, 1, 2, 2.2e-4)                                                                   \
    X(Q4_0, q4_0, 2, 32, 18, 0.085)                                                                \
    X(Q4_1, q4_1, 3, 32, 20, 0.074)                                                                \
    X(Q5_0, q5_0, 6, 32, 22, 0.042)                                                                \
    X(Q5_1, q5_1, 7, 32, 24, 0.0375)                                                               \
    X(Q8_0, q8_0, 8, 32, 34, 0.0057)                                                               \
    X(Q4_K, q4_k, 12, 256, 144, 0.075)                                                             \
    X(Q5_K, q5_k, 13, 256, 176, 0.039)                                                             \
    X(Q6_K, q6_k, 14, 256, 210, 0.0176)                                                            \
    X(IQ4_NL, iq4_nl, 20, 32, 18, 0.077)                                                           \
    X(BF16, bf16, 30, 1, 2, 1.75e-3)

enum format {
#define X(NAME, name, type, elements, bytes, budget) FORMAT_##NAME,
    FORMAT_LIST(X)
#undef X
        FORMAT_COUNT
};

struct format_traits {
    const char *name; /* "Q8_0" */
    uint32_t gguf_type;
    int block_elements, block_bytes;
    double budget;
    /* n values (a multiple of block_elements) from or to src/dst, which need no alignment. */
    void (*decode)(const void *src, float *dst, int64_t n);
    void (*encode)(const float *src, void *dst, int64_t n);
};

/* Never NULL for 0 <= format < FORMAT_COUNT. */
const struct format_traits *format_of(enum format format);

/* Whether values stand alone, as floats of 16 or 32 bits: no blocks, no scales. */
static inline bool format_is_float(enum format format)
{
    return format == FORMAT_F32 || format == FORMAT_F16 || format == FORMAT_BF16;
}

/* The format of a GGUF type number or of a name in any case ("q8_0"); false if we have none. */
bool format_from_gguf(uint32_t gguf_type, enum format *out);
bool format_from_name(const char *name, enum format *out);

/* Bytes of a row of n values. n must be a multiple of the block (assertion). */
size_t format_row_bytes(enum format format, int64_t n);

/* The two half formats, exact both ways (round to nearest even, NaN stays NaN). */
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

#endif
