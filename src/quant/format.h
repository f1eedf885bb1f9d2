/* Number formats of weights: one list, one file a format. C and CUDA common subset.
 *
 * A row of n values is n / block_elements blocks, one after the other. n is a multiple of
 * block_elements (the loader checks). */
#ifndef QUANT_FORMAT_H
#define QUANT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
/* Kinds of codes. A code is a quantised value, taken out of its block. Several formats share a
 * kind, and backends write their products once for each kind. A code q of `bits` bits stands for
 * scale * (q - offset), or for scale * q + minimum where there is one; N4 and M4 for scale *
 * levels[q], with the levels of the format (levels.h). 16 or 32 columns share a scale and a
 * minimum. If it is 16, blocks of 256 columns have both as whole numbers of up to 8 bits (with
 * minima of 4), times a half each (M4: an eighth of it).
 *   NAME bits offset, has minimum, columns of a scale */
#define CODE_LIST(X)                                  \
    X(U2,   2,    0,  true,  16)                      \
    X(S3,   3,    4,  false, 16)                      \
    X(S4,   4,    8,  false, 32)                      \
    X(U4,   4,    0,  true,  32)                      \
    X(N4,   4,    0,  false, 32)                      \
    X(M4,   4,    0,  false, 16)                      \
    X(S5,   5,   16,  false, 32)                      \
    X(U5,   5,    0,  true,  32)                      \
    X(S6,   6,   32,  false, 16)                      \
    X(S8,   8,  128,  false, 32)

/* Quantised formats. `codes` is the byte of a block where the codes begin, or their low bits; with
 * grids (grid_blocks.h) the low bytes of indices. The codes of MXFP4 (floats, doubled) fit in those
 * of their kind.
 * `budget` is the largest relative L2 error of encode-then-decode on normal random values: about
 * 5 % above the error of a million values, so that 16 384 values do not exceed it.
 *   NAME    name    GGUF block elements, bytes  budget  kind codes */
#define BLOCK_FORMAT_LIST(X)                          \
    X(Q4_0,   q4_0,    2,  32,  18, 0.085,   S4,  2)  \
    X(Q4_1,   q4_1,    3,  32,  20, 0.074,   U4,  4)  \
    X(Q5_0,   q5_0,    6,  32,  22, 0.042,   S5,  6)  \
    X(Q5_1,   q5_1,    7,  32,  24, 0.0375,  U5,  8)  \
    X(Q8_0,   q8_0,    8,  32,  34, 0.0057,  S8,  2)  \
    X(Q2_K,   q2_k,   10, 256,  84, 0.277,   U2, 16)  \
    X(Q3_K,   q3_k,   11, 256, 110, 0.151,   S3, 32)  \
    X(Q4_K,   q4_k,   12, 256, 144, 0.075,   U4, 16)  \
    X(Q5_K,   q5_k,   13, 256, 176, 0.039,   U5, 48)  \
    X(Q6_K,   q6_k,   14, 256, 210, 0.0176,  S6,  0)  \
    X(IQ4_NL, iq4_nl, 20,  32,  18, 0.077,   N4,  2)  \
    X(IQ4_XS, iq4_xs, 23, 256, 136, 0.078,   N4,  8)  \
    X(MXFP4,  mxfp4,  39,  32,  17, 0.1175,  S5,  1)  \
    X(IQ3_XXS, iq3_xxs, 18, 256, 98, 0.186,  N4,  2)  \
    X(IQ3_S,  iq3_s,  21, 256, 110, 0.136,   N4,  2)  \
    X(IQ2_XXS, iq2_xxs, 16, 256, 66, 0.344,  N4,  2)  \
    X(IQ2_XS, iq2_xs, 17, 256,  74, 0.299,   M4,  2)  \
    X(IQ2_S,  iq2_s,  22, 256,  82, 0.250,   M4,  2)  \
    X(IQ1_S,  iq1_s,  19, 256,  50, 0.466,   N4,  2)  \
    X(IQ1_M,  iq1_m,  29, 256,  56, 0.433,   M4,  0)

/* All formats. Floats have no codes. */
#define FORMAT_LIST(X)                                \
    X(F32,    f32,     0,   1,   4, 0.0,     NONE, 0) \
    X(F16,    f16,     1,   1,   2, 2.2e-4,  NONE, 0) \
    BLOCK_FORMAT_LIST(X)                              \
    X(BF16,   bf16,   30,   1,   2, 1.75e-3, NONE, 0)
/* clang-format on */

enum code_kind {
#define X(NAME, ...) CODE_##NAME,
    CODE_LIST(X)
#undef X
        CODE_COUNT,
    CODE_NONE = CODE_COUNT
};

/* A row of CODE_LIST. */
struct code_facts {
    int bits, offset;
    bool has_min;
    int scale_cols;
};

enum format {
#define X(NAME, ...) FORMAT_##NAME,
    FORMAT_LIST(X)
#undef X
        FORMAT_COUNT
};

struct format_traits {
    const char *name; /* "Q8_0" */
    uint32_t gguf_type;
    int block_elements, block_bytes;
    enum code_kind codes; /* CODE_NONE: a float */
    int codes_at;         /* byte of the block */
    double budget;
    /* n values (a multiple of block_elements) from or to src/dst, which need no alignment. Encoding
     * makes the sum of squared errors small, each times the importance of its value: n finite
     * numbers from 0 on, about 1 on average. NULL: all values count alike. */
    void (*decode)(const void *src, float *dst, int64_t n);
    void (*encode)(const float *src, const float *importance, void *dst, int64_t n);
};

/* Never NULL for 0 <= format < FORMAT_COUNT. */
const struct format_traits *format_traits(enum format format);

/* Floats of 16 or 32 bits: no blocks, no scales. */
static inline bool format_is_float(enum format format)
{
    return format == FORMAT_F32 || format == FORMAT_F16 || format == FORMAT_BF16;
}

/* The format of a GGUF type number or of a name in any case ("q8_0"); false if we have none. */
bool format_from_gguf(uint32_t gguf_type, enum format *out);
bool format_from_name(const char *name, enum format *out);

/* Bytes of a row of n values. n must be a multiple of the block (assertion). */
size_t format_row_bytes(enum format format, int64_t n);

/* The two half formats: rounded to nearest, ties to even; NaN stays NaN. */
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

#endif
