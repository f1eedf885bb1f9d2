/* Sixteen lanes in one register: AVX-512 with VNNI. See kernels_body.h for what the names mean. */
#include <immintrin.h>
#include <stdint.h>

typedef __m512 fvec;
typedef __m512i ivec;
typedef __m512i bvec;
enum { WEIGHT_BIAS = 128, FEW_ROWS = 8 };
enum { PANEL_TILES = 2, PANEL_ROWS = 6, PANEL_FROM = 30, PANEL_BLOCKS = 24, PANEL_CHUNK = 256 };
#define PANEL_ROWS_HALVES 5
#define PANEL_PRODUCTS "backend/cpu/simd/panel_fours_body.h"

/* clang-format off */
static inline fvec f_set(float x) { return _mm512_set1_ps(x); }
static inline fvec f_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void f_store(float *p, fvec x) { _mm512_storeu_ps(p, x); }
static inline fvec f_add(fvec a, fvec b) { return _mm512_add_ps(a, b); }
static inline fvec f_sub(fvec a, fvec b) { return _mm512_sub_ps(a, b); }
static inline fvec f_mul(fvec a, fvec b) { return _mm512_mul_ps(a, b); }
static inline fvec f_div(fvec a, fvec b) { return _mm512_div_ps(a, b); }
static inline fvec f_fma(fvec a, fvec b, fvec c) { return _mm512_fmadd_ps(a, b, c); }
static inline fvec f_max(fvec a, fvec b) { return _mm512_max_ps(a, b); }
static inline fvec f_min(fvec a, fvec b) { return _mm512_min_ps(a, b); }
static inline fvec f_abs(fvec a) { return _mm512_abs_ps(a); }
static inline fvec f_round(fvec a) { return _mm512_roundscale_ps(a, 8); }
static inline fvec f_exp2_int(fvec n) { return _mm512_scalef_ps(_mm512_set1_ps(1.0f), n); }
static inline fvec f_of_int(ivec a) { return _mm512_cvtepi32_ps(a); }
static inline fvec f_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
/* clang-format on */
static inline void f_store_f16(uint16_t *p, fvec x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, 0));
}
static inline fvec f_load_i8(const int8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
static inline fvec f_load_bf16(const uint16_t *p)
{
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
static inline void f_store_i8(int8_t *p, fvec x) /* whole numbers within -128 .. 127 */
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}

static inline fvec f_set_f16(const uint8_t *p)
{
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}

static inline float f_sum(fvec x)
{
    return _mm512_reduce_add_ps(x);
}
static inline float f_most(fvec x)
{
    return _mm512_reduce_max_ps(x);
}
static inline void f_sum4(const fvec x[4], float out[4])
{
    fvec ab = _mm512_add_ps(_mm512_shuffle_f32x4(x[0], x[1], 0x44),
                            _mm512_shuffle_f32x4(x[0], x[1], 0xee));
    fvec cd = _mm512_add_ps(_mm512_shuffle_f32x4(x[2], x[3], 0x44),
                            _mm512_shuffle_f32x4(x[2], x[3], 0xee));
    fvec four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                              _mm512_shuffle_f32x4(ab, cd, 0xdd)); /* of each in 128 bits */
    fvec two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4e));
    fvec one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xb1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, one)));
}

static inline ivec i_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static inline ivec i_add(ivec a, ivec b)
{
    return _mm512_add_epi32(a, b);
}
static inline ivec i_sub(ivec a, ivec b)
{
    return _mm512_sub_epi32(a, b);
}
#define i_shl(x, n) _mm512_slli_epi32((x), (n))
static inline bvec b_load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}
/* A load that stays one instruction, however often its value is used: compilers would fold it into
 * every use. */
static inline bvec b_load_once(const uint8_t *p)
{
    bvec x = b_load(p);
    __asm__("" : "+v"(x));
    return x;
}
#define b_load_once b_load_once
static inline void b_store(uint8_t *p, bvec x)
{
    _mm512_storeu_si512(p, x);
}
static inline bvec b_and(bvec a, uint8_t mask)
{
    return _mm512_and_si512(a, _mm512_set1_epi8((char)mask));
}
static inline bvec b_or(bvec a, bvec b)
{
    return _mm512_or_si512(a, b);
}
/* Shifts of 16-bit units: bits that cross a byte are for the caller to mask out. The count is
 * an int for gcc and unsigned for clang. */
#define b_shr(a, n) _mm512_srli_epi16((a), (uint8_t)(n))

typedef __m512i tvec;
static inline tvec t_load(const int8_t *levels, int offset)
{
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)levels);
    return _mm512_broadcast_i32x4(_mm_add_epi8(table, _mm_set1_epi8((char)offset)));
}
static inline bvec b_look_up(tvec table, bvec index)
{
    return _mm512_shuffle_epi8(table, index);
}

/* clang-format off */
static inline bvec b_wide(bvec w) { return w; }
static inline ivec dot_wide(ivec sum, bvec w, ivec a) { return _mm512_dpbusd_epi32(sum, w, a); }
static inline ivec dot_small(ivec sum, bvec w, ivec a) { return _mm512_dpbusd_epi32(sum, w, a); }
/* clang-format on */
