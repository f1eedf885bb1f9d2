/* Formats: decoding of bytes whose values were worked out by hand, both half formats over all
 * bit patterns, and the error budget of encoding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "quant/format.h"

static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format_traits *t = format_traits((enum format)i);
        enum format found = FORMAT_COUNT;
        assert_true(format_from_gguf(t->gguf_type, &found));
        assert_int_equal(found, i);
        assert_true(format_from_name(t->name, &found));
        assert_int_equal(found, i);
        assert_int_equal(format_row_bytes((enum format)i, 512),
                         512 / t->block_elements * t->block_bytes);
    }
    enum format unused;
    assert_true(format_from_name("q4_k", &unused));
    assert_int_equal(unused, FORMAT_Q4_K);
    assert_false(format_from_name("q4", &unused));
    assert_false(format_from_gguf(4, &unused));
    assert_false(format_from_gguf(UINT32_MAX, &unused));
}

/* The value of a half by its definition. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -value : value;
}

static void test_half_decode(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        double expected = half_value((uint16_t)h);
        if (isnan(expected)) {
            assert_true(isnan(f));
            assert_true(isnan(f16_to_f32(f32_to_f16(f))));
            continue;
        }
        assert_true((double)f == expected);
        assert_true(!signbit(f) == !signbit(expected));
        assert_int_equal(f32_to_f16(f), h);
    }
}

/* Between any two neighbours the middle goes to the even one, everything else to the nearer one. */
static void test_half_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h);
        double high = h == 0x7bff ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(f32_to_f16(middle), even);
        assert_int_equal(f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(f32_to_f16(-middle), even | 0x8000);
    }
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(1e-30f), 0);
}

static void test_bfloat(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        float f = bf16_to_f32((uint16_t)b);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        assert_int_equal(bits, b << 16);
        if (isnan(f))
            assert_true(isnan(bf16_to_f32(f32_to_bf16(f))));
        else
            assert_int_equal(f32_to_bf16(f), b);
    }
    assert_int_equal(f32_to_bf16(1.00390625f), 0x3f80); /* a tie: to even, down */
    assert_int_equal(f32_to_bf16(1.01171875f), 0x3f82); /* a tie: to even, up */
    assert_int_equal(f32_to_bf16(1.00390637f), 0x3f81);
    assert_int_equal(f32_to_bf16(3.4028235e38f), 0x7f80); /* carries into infinity */
}

/* ---- Decoding of known blocks ----------------------------------------------------------- */

static void decode_one(enum format format, const uint8_t *block, float *out)
{
    const struct format_traits *t = format_traits(format);
    t->decode(block, out, t->block_elements);
}

static void test_decode_32(void **state)
{
    (void)state;
    float x[32];
    uint8_t q4_0[18] = {0x00, 0x38, 0x0f, 0x80}; /* d = 0.5; byte 0: 15, 0; byte 1: 0, 8 */
    decode_one(FORMAT_Q4_0, q4_0, x);
    assert_float_equal(x[0], 3.5f, 0);
    assert_float_equal(x[16], -4.0f, 0);
    assert_float_equal(x[1], -4.0f, 0);
    assert_float_equal(x[17], 0.0f, 0);

    uint8_t q4_1[20] = {0x00, 0x38, 0x00, 0xbc, 0x2f}; /* d = 0.5, m = -1; byte 0: 15, 2 */
    decode_one(FORMAT_Q4_1, q4_1, x);
    assert_float_equal(x[0], 6.5f, 0);
    assert_float_equal(x[16], 0.0f, 0);
    assert_float_equal(x[1], -1.0f, 0);

    /* d = 2; fifth bits of values 0 and 17; byte 0: 1, 0; byte 1: 3, 5 */
    uint8_t q5_0[22] = {0x00, 0x40, 0x01, 0x00, 0x02, 0x00, 0x01, 0x53};
    decode_one(FORMAT_Q5_0, q5_0, x);
    assert_float_equal(x[0], 2.0f, 0);
    assert_float_equal(x[16], -32.0f, 0);
    assert_float_equal(x[1], -26.0f, 0);
    assert_float_equal(x[17], 10.0f, 0);

    /* d = 2, m = 0.25 */
    uint8_t q5_1[24] = {0x00, 0x40, 0x00, 0x34, 0x01, 0x00, 0x02, 0x80, 0x01, 0x53};
    q5_1[4 + 4 + 15] = 0xf0;
    decode_one(FORMAT_Q5_1, q5_1, x);
    assert_float_equal(x[0], 34.25f, 0);
    assert_float_equal(x[17], 42.25f, 0);
    assert_float_equal(x[31], 62.25f, 0);
    assert_float_equal(x[15], 0.25f, 0);

    uint8_t q8_0[34] = {0x00, 0x2c, 0x7f, 0x80, 0xff}; /* d = 1/16: 127, -128, -1 */
    decode_one(FORMAT_Q8_0, q8_0, x);
    assert_float_equal(x[0], 7.9375f, 0);
    assert_float_equal(x[1], -8.0f, 0);
    assert_float_equal(x[2], -0.0625f, 0);

    uint8_t iq4_nl[18] = {0x00, 0x3c, 0xf0, 0x87}; /* d = 1: levels 0, 15; 7, 8 */
    decode_one(FORMAT_IQ4_NL, iq4_nl, x);
    assert_float_equal(x[0], -127.0f, 0);
    assert_float_equal(x[16], 113.0f, 0);
    assert_float_equal(x[1], -10.0f, 0);
    assert_float_equal(x[17], 1.0f, 0);
}

static void test_decode_mxfp4(void **state)
{
    (void)state;
    static const float floats[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    float x[32];
    uint8_t block[17] = {127}; /* exponents are biased by 127: floats as they are */
    for (int i = 0; i < 16; i++) block[1 + i] = (uint8_t)(i | (15 - i) << 4);
    decode_one(FORMAT_MXFP4, block, x);
    for (int i = 0; i < 16; i++) {
        float expected = i < 8 ? floats[i] : -floats[i - 8];
        assert_float_equal(x[i], expected, 0);
        assert_float_equal(x[16 + 15 - i], expected, 0);
    }
    for (int exponent = 0; exponent < 255; exponent++) { /* 0 and 1: subnormal factors */
        block[0] = (uint8_t)exponent;
        decode_one(FORMAT_MXFP4, block, x);
        assert_float_equal(x[1], ldexpf(0.5f, exponent - 127), 0);
        assert_true(x[15] == ldexpf(-6.0f, exponent - 127));
    }
}

/* Scales: group 0 has 0b111010 - 32 = 26, group 5 0b000001 - 32 = -31, group 6 0b101111 - 32 = 15,
 * the others -32. */
static void test_decode_iq4_xs(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[136] = {0x00, 0x38, 0x03, 0x20, 0x0a, 0, 0x10, 0x0f}; /* d = 0.5 */
    block[8] = 0xf0;               /* group 0: level 0 first, 15 in the middle */
    block[8 + 5 * 16 + 15] = 0x78; /* group 5: level 8 before the middle, 7 last */
    block[8 + 6 * 16] = 0x0c;
    decode_one(FORMAT_IQ4_XS, block, x);
    assert_float_equal(x[0], 13 * -127, 0);
    assert_float_equal(x[16], 13 * 113, 0);
    assert_float_equal(x[32], -16 * -127, 0);
    assert_float_equal(x[5 * 32 + 15], -15.5, 0);
    assert_float_equal(x[5 * 32 + 31], -15.5 * -10, 0);
    assert_float_equal(x[6 * 32], 7.5 * 53, 0);
    assert_float_equal(x[255], -16 * -127, 0);
}

/* Groups 0, 7 and 13 have scales 11, 15 and 0 and minima 3, 0 and 15; those of the others are 0. */
static void test_decode_q2_k(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[84] = {0}, *q = block + 16;
    block[0] = 0x3b;
    block[7] = 0x0f;
    block[13] = 0xf0;
    q[0] = 0x02;       /* value 0 */
    q[31] = 0xc0;      /* 3 * 32 + 31 */
    q[32 + 31] = 0x10; /* 6 * 32 + 31 */
    block[81] = 0x40;  /* d = 2 */
    block[83] = 0x38;  /* dmin = 0.5 */
    decode_one(FORMAT_Q2_K, block, x);
    assert_float_equal(x[0], 2 * 11 * 2 - 1.5, 0);
    assert_float_equal(x[1], -1.5, 0);
    assert_float_equal(x[16], 0, 0);
    assert_float_equal(x[3 * 32 + 31], 2 * 15 * 3, 0);
    assert_float_equal(x[3 * 32 + 30], 0, 0);
    assert_float_equal(x[6 * 32 + 31], -7.5, 0);
}

/* Scales: group 0 has 0b111010 - 32 = 26, group 7 0b010011 - 32 = -13, group 13 0b100101 - 32 = 5,
 * the others -32. */
static void test_decode_q3_k(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[110] = {0}, *low = block + 32, *scales = block + 96;
    block[0] = 0x01;      /* third bits: of value 0 */
    block[31] = 0x48;     /* of 3 * 32 + 31 and 6 * 32 + 31 */
    low[0] = 0x02;        /* value 0: 2 + 4 */
    low[31] = 0xc0;       /* 3 * 32 + 31: 3 + 4 */
    low[32 + 31] = 0x10;  /* 6 * 32 + 31: 1 + 4 for the top bit of group 13 */
    scales[0] = 0x0a;     /* low four bits of group 0, and of 8 */
    scales[7] = 0x03;     /* of 7, and of 15 */
    scales[5] = 0x50;     /* of 5, and of 13 */
    scales[8] = 0x03;     /* top pairs of 0, 4, 8, 12 */
    scales[8 + 3] = 0x04; /* of 3, 7, 11, 15 */
    scales[8 + 1] = 0x80; /* of 1, 5, 9, 13 */
    block[109] = 0x40;    /* d = 2 */
    decode_one(FORMAT_Q3_K, block, x);
    assert_float_equal(x[0], 2 * 26 * (6 - 4), 0);
    assert_float_equal(x[1], 2 * 26 * -4, 0);
    assert_float_equal(x[16], 2 * -32 * -4, 0);
    assert_float_equal(x[3 * 32 + 31], 2 * -13 * (7 - 4), 0);
    assert_float_equal(x[3 * 32 + 30], 2 * -13 * -4, 0);
    assert_float_equal(x[6 * 32 + 31], 2 * 5 * (5 - 4), 0);
    assert_float_equal(x[7 * 32 + 31], 2 * -32 * -4, 0);
}

/* Scales of the 4 and 5 bit K-quants: group 0 scale 33, minimum 2; group 5 scale 0b101001 = 41,
 * minimum 0b110010 = 50; all others 0. */
static const uint8_t k_scales[12] = {33, 0x80, 0, 0, 2, 0xc0, 0, 0, 0, 0x29, 0, 0};

static void test_decode_q4_k(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[144] = {0x00, 0x3c, 0x00, 0x38}; /* d = 1, dmin = 0.5 */
    memcpy(block + 4, k_scales, sizeof k_scales);
    block[16] = 0x7a;               /* value 0 of group 0: 10; of group 1: 7 */
    block[16 + 2 * 32 + 31] = 0xc3; /* value 31 of group 4: 3; of group 5: 12 */
    decode_one(FORMAT_Q4_K, block, x);
    assert_float_equal(x[0], 33 * 10 - 1, 0);
    assert_float_equal(x[1], -1, 0);
    assert_float_equal(x[32], 0, 0);
    assert_float_equal(x[4 * 32 + 31], 0, 0);
    assert_float_equal(x[5 * 32 + 31], 41 * 12 - 25, 0);
    assert_float_equal(x[5 * 32], -25, 0);
}

static void test_decode_q5_k(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[176] = {0x00, 0x3c, 0x00, 0x38};
    memcpy(block + 4, k_scales, sizeof k_scales);
    block[16] = 0x01;      /* value 0: fifth bit of group 0 */
    block[16 + 31] = 0x20; /* value 31: of group 5 */
    block[48] = 0x7a;
    block[48 + 2 * 32 + 31] = 0xc3;
    decode_one(FORMAT_Q5_K, block, x);
    assert_float_equal(x[0], 33 * 26 - 1, 0);
    assert_float_equal(x[5 * 32 + 31], 41 * 28 - 25, 0);
    assert_float_equal(x[5 * 32 + 30], -25, 0);
}

static void test_decode_q6_k(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[210] = {0};
    block[0] = 0x5f;             /* values 0 (low 15) and 64 (low 5) */
    block[64 + 32 + 17] = 0x21;  /* second half: values 128+32+17 (1) and 128+96+17 (2) */
    block[128] = 0x93;           /* top bits of 0: 3, of 32: 0, of 64: 1, of 96: 2 */
    block[128 + 32 + 17] = 0xc4; /* of 145: 0, of 177: 1, of 209: 0, of 241: 3 */
    for (int g = 0; g < 16; g++) block[192 + g] = (uint8_t)(g - 8);
    block[209] = 0x40; /* d = 2 */
    decode_one(FORMAT_Q6_K, block, x);
    assert_float_equal(x[0], 2 * -8 * (63 - 32), 0);
    assert_float_equal(x[64], 2 * -4 * (16 + 5 - 32), 0);
    assert_float_equal(x[32], 2 * -6 * -32, 0);
    assert_float_equal(x[96], 2 * -2 * (32 - 32), 0);
    assert_float_equal(x[128 + 32 + 17], 2 * 3 * (16 + 1 - 32), 0);
    assert_float_equal(x[128 + 96 + 17], 2 * 7 * (48 + 2 - 32), 0);
}

/* ---- Decoding of grids ------------------------------------------------------------------ */

static bool has_grid(const struct format_traits *t)
{
    return t->block_elements == 256 && t->gguf_type != 23 &&
           (t->codes == CODE_N4 || t->codes == CODE_M4);
}

static void test_decode_iq3_s(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[110] = {0x00, 0x40}; /* d = 2 */
    block[2] = 1;                      /* point 1: 3, 1, 1, 1 */
    block[2 + 63] = 255;               /* point 511 */
    block[66 + 7] = 0x80;
    block[74] = 0x82;      /* negative: values 1 and 7 */
    block[106] = 0x03;     /* group 0: factor 7, group 1: 1 */
    block[106 + 3] = 0xf0; /* group 7: 31 */
    decode_one(FORMAT_IQ3_S, block, x);
    assert_float_equal(x[0], 2 * 7 * 3, 0);
    assert_float_equal(x[1], 2 * 7 * -1, 0);
    assert_float_equal(x[4], 2 * 7, 0);
    assert_float_equal(x[7], 2 * 7 * -1, 0);
    assert_float_equal(x[32], 2, 0);
    assert_float_equal(x[255], 2 * 31 * 15, 0);
}

/* The eighth sign is that which makes their number even. */
static void test_decode_iq2_xs(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[74] = {0x00, 0x48}; /* d = 8, an eighth of which is the unit */
    block[2] = 1;                     /* point 1: 43, then 8 */
    block[3] = 0x02;                  /* negative: value 0, so 7 too */
    block[2 + 63] = 0x01;             /* point 256 */
    block[66] = 0x2f;                 /* factors 31 and 5 */
    decode_one(FORMAT_IQ2_XS, block, x);
    assert_float_equal(x[0], 31 * -43, 0);
    assert_float_equal(x[1], 31 * 8, 0);
    assert_float_equal(x[7], 31 * -8, 0);
    assert_float_equal(x[16], 5 * 8, 0);
    assert_float_equal(x[32], 8, 0);
}

/* Scales of the first block are 1. */
static void test_decode_iq1_m(void **state)
{
    (void)state;
    float x[256];
    uint8_t block[56] = {0}; /* point 0 has eight times -1 */
    block[32] = 0x08;        /* group 0: an eighth less for values 0 to 7 */
    block[33] = 0x70;        /* values 24 to 31: point 0x700 */
    block[48] = 0x38;        /* factors of group 0: 1 and 15 */
    block[49] = 0x0e;        /* of group 1: 1 and 15 */
    block[53] = 0xc0;        /* d = 1: 0x3c00 */
    block[55] = 0x30;
    decode_one(FORMAT_IQ1_M, block, x);
    assert_float_equal(x[0], -1.125f, 0);
    assert_float_equal(x[8], -0.875f, 0);
    assert_float_equal(x[16], 15 * -0.875f, 0);
    assert_float_equal(x[32], -0.875f, 0);
    assert_float_equal(x[48], 15 * -0.875f, 0);
}

/* Random blocks whose scale is 1: sums over the bits of their values, as llama.cpp's functions
 * decode them. Every point of every grid is among them. */
static void test_grids(void **state)
{
    (void)state;
    enum { BLOCKS = 1024 };
    static const struct {
        enum format format;
        uint64_t sum;
    } known[] = {
        {FORMAT_IQ3_XXS, UINT64_C(0x56a3f79907d5bf98)},
        {FORMAT_IQ3_S, UINT64_C(0x52b575c936110a25)},
        {FORMAT_IQ2_XXS, UINT64_C(0xe5eabd8e7919933c)},
        {FORMAT_IQ2_XS, UINT64_C(0xa46bab0f5e70a63f)},
        {FORMAT_IQ2_S, UINT64_C(0x9d698566e4e1c566)},
        {FORMAT_IQ1_S, UINT64_C(0x08f6d4ee4cd80eac)},
        {FORMAT_IQ1_M, UINT64_C(0xb67c362668546850)},
    };
    static uint8_t raw[BLOCKS * 128];
    static float x[BLOCKS * 256];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct format_traits *t = format_traits(known[i].format);
        int n = t->block_bytes;
        struct rng r = {.state = 7};
        uint64_t sum = UINT64_C(0xcbf29ce484222325);
        for (int k = 0; k < BLOCKS * n; k++) raw[k] = (uint8_t)rng_next(&r);
        for (int b = 0; b < BLOCKS; b++) {
            static const uint8_t nibbles[4] = {0, 0, 0xc0, 0x30}; /* IQ1_M: of the half */
            uint8_t *block = raw + b * n, *words = block + 48;
            for (int k = 0; k < 4 && known[i].format == FORMAT_IQ1_M; k++)
                words[k * 2 + 1] = (uint8_t)((words[k * 2 + 1] & 15) | nibbles[k]);
            if (known[i].format != FORMAT_IQ1_M) block[0] = 0, block[1] = 0x3c;
        }
        t->decode(raw, x, BLOCKS * 256);
        for (int k = 0; k < BLOCKS * 256; k++) {
            uint32_t bits;
            memcpy(&bits, x + k, sizeof bits);
            sum = (sum ^ bits) * UINT64_C(0x100000001b3);
            sum ^= sum >> 32;
        }
        if (sum != known[i].sum) fail_msg("%s: other values", t->name);
    }
}

/* ---- Encoding --------------------------------------------------------------------------- */

enum { N = 16384 };

/* Encodes x with `given`. Returns the error, with squares times `importance`. Both may be NULL: all
 * values count alike. */
static double weighted_error(enum format format, const float *x, const float *given,
                             const float *importance)
{
    static uint8_t bytes[N * 4];
    static float y[N];
    const struct format_traits *t = format_traits(format);
    t->encode(x, given, bytes, N);
    t->decode(bytes, y, N);
    double error = 0.0, sum = 0.0;
    for (int i = 0; i < N; i++) {
        double weight = importance ? (double)importance[i] : 1.0;
        error += weight * ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        sum += weight * (double)x[i] * x[i];
    }
    return sqrt(error / sum);
}

static double relative_error(enum format format, const float *x)
{
    return weighted_error(format, x, NULL, NULL);
}

static void test_budget(void **state)
{
    (void)state;
    static float x[N];
    for (uint64_t seed = 1; seed <= 4; seed++) {
        for (int f = 0; f < FORMAT_COUNT; f++) {
            struct rng r = {.state = seed};
            float spread = seed % 2 ? 1.0f : 0.02f;
            for (int i = 0; i < N; i++) x[i] = spread * rng_normal(&r);
            const struct format_traits *t = format_traits((enum format)f);
            double error = relative_error((enum format)f, x);
            if (error > t->budget)
                fail_msg("%s: error %.5f, budget %.5f (seed %d)", t->name, error, t->budget,
                         (int)seed);
        }
    }
}

/* Importance that differs by factors of up to some hundreds in a block, about 1 on average. */
static void draw_importance(struct rng *r, float *importance)
{
    for (int i = 0; i < N; i++) importance[i] = expf(1.5f * rng_normal(r) - 1.125f);
}

static void test_importance_lowers_the_error_that_counts(void **state)
{
    (void)state;
    static float x[N], importance[N], even[N];
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct rng r = {.state = seed};
        for (int i = 0; i < N; i++) x[i] = 0.02f * rng_normal(&r);
        for (int i = 0; i < N; i++) even[i] = 1.0f;
        draw_importance(&r, importance);
        for (int f = 0; f < FORMAT_COUNT; f++) {
            const struct format_traits *t = format_traits((enum format)f);
            double with = weighted_error((enum format)f, x, importance, importance);
            double without = weighted_error((enum format)f, x, NULL, importance);
            double equal = weighted_error((enum format)f, x, even, even);
            double plain = weighted_error((enum format)f, x, NULL, even);
            /* Floats have no choice, MXFP4 that of an exponent; others gain a tenth at least. */
            double share = format_is_float((enum format)f) ? 1.0 : f == FORMAT_MXFP4 ? 0.995 : 0.9;
            if (with > share * without)
                fail_msg("%s: error %.5f with importance, %.5f without", t->name, with, without);
            if (equal > plain)
                fail_msg("%s: error %.5f with equal importance, %.5f without", t->name, equal,
                         plain);
        }
    }
}

/* Columns that do not count at all, and one that counts far more than the others. */
static void test_odd_importance(void **state)
{
    (void)state;
    static float x[N], y[N], importance[N];
    static uint8_t bytes[N * 4];
    struct rng r = {.state = 5};
    for (int i = 0; i < N; i++) x[i] = rng_normal(&r);
    for (int i = 0; i < N; i++) importance[i] = i < 512 || i % 3 == 0 ? 0.0f : 1.0f;
    importance[N - 7] = 1e6f;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct format_traits *t = format_traits((enum format)f);
        t->encode(x, importance, bytes, N);
        t->decode(bytes, y, N);
        for (int i = 0; i < N; i++)
            if (!(fabsf(y[i]) < 10.0f))
                fail_msg("%s: %g for %g", t->name, (double)y[i], (double)x[i]);
    }
}

/* Values that a format holds exactly, zeros among them, must survive. */
static void test_exact(void **state)
{
    (void)state;
    float x[256], y[256];
    uint8_t bytes[1024];
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct format_traits *t = format_traits((enum format)f);
        memset(x, 0, sizeof x);
        t->encode(x, NULL, bytes, 256);
        t->decode(bytes, y, 256);
        for (int i = 0; i < 256; i++) assert_true(y[i] == 0.0f);
        if (has_grid(t)) continue; /* they have no zero among other values */
        for (int i = 0; i < 256; i++) x[i] = i % 2 ? -1.0f : 0.0f; /* two levels */
        t->encode(x, NULL, bytes, 256);
        t->decode(bytes, y, 256);
        for (int i = 0; i < 256; i++) assert_float_equal(x[i], y[i], 2e-2);
    }
}

/* What blocks with grids hold is nearly found again. */
static void test_again(void **state)
{
    (void)state;
    static float x[N], y[N];
    static uint8_t bytes[N];
    struct rng r = {.state = 3};
    for (int i = 0; i < N; i++) x[i] = rng_normal(&r);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct format_traits *t = format_traits((enum format)f);
        if (!has_grid(t)) continue;
        t->encode(x, NULL, bytes, N);
        t->decode(bytes, y, N);
        double error = relative_error((enum format)f, y);
        if (error > 0.04) fail_msg("%s: error %.5f", t->name, error);
    }
}

/* Caches in q8_0 hold what a model computed: values that are not finite stay so. */
static void test_q8_0_keeps_what_is_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        float x[64] = {[7] = bad[i], [40] = 1}, y[64];
        uint8_t bytes[68];
        format_traits(FORMAT_Q8_0)->encode(x, NULL, bytes, 64);
        format_traits(FORMAT_Q8_0)->decode(bytes, y, 64);
        assert_true(!isfinite(y[7]));
        assert_true(y[40] > 0.99f);
    }
}

/* No bytes of a file and no values of a caller may do worse than give non-finite values. */
static void test_odd_input(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, -0.0f};
    float x[256], y[256];
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct format_traits *t = format_traits((enum format)f);
        size_t bytes = format_row_bytes((enum format)f, 256);
        uint8_t *block = malloc(bytes + 1);
        assert_non_null(block);
        for (size_t o = 0; o < sizeof odd / sizeof *odd; o++) {
            for (int i = 0; i < 256; i++) x[i] = (float)i;
            x[7] = odd[o];
            t->encode(x, NULL, block + 1, 256); /* + 1: no alignment is promised */
            t->decode(block + 1, y, 256);
        }
        for (int fill = 0; fill < 256; fill++) {
            memset(block, fill, bytes + 1);
            t->decode(block + 1, y, 256);
        }
        free(block);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_half_decode),
        cmocka_unit_test(test_half_rounding),
        cmocka_unit_test(test_bfloat),
        cmocka_unit_test(test_decode_32),
        cmocka_unit_test(test_decode_mxfp4),
        cmocka_unit_test(test_decode_iq4_xs),
        cmocka_unit_test(test_decode_q2_k),
        cmocka_unit_test(test_decode_q3_k),
        cmocka_unit_test(test_decode_q4_k),
        cmocka_unit_test(test_decode_q5_k),
        cmocka_unit_test(test_decode_q6_k),
        cmocka_unit_test(test_decode_iq3_s),
        cmocka_unit_test(test_decode_iq2_xs),
        cmocka_unit_test(test_decode_iq1_m),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_importance_lowers_the_error_that_counts),
        cmocka_unit_test(test_odd_importance),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_odd_input),
        cmocka_unit_test(test_q8_0_keeps_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
