/* AVX2 with FMA and F16C: products of bytes by way of 16 bits. See kernels_body.h for what the
 * names mean. */
#include "backend/cpu/simd/lanes_256.h"

enum { WEIGHT_BIAS = 0, FEW_ROWS = 2 };
#define SHORT_SUMS 1
enum { PANEL_TILES = 1, PANEL_ROWS = 4, PANEL_FROM = 12, PANEL_BLOCKS = 16, PANEL_CHUNK = 128 };
#define PANEL_PRODUCTS "backend/cpu/simd/panel_pairs_body.h"

/* The byte product adds two 16-bit products with saturation: full-range weights are made signed and
 * multiplied as |w| * (a with w's sign), at most 128 * 127 * 2, which fits. */
static inline bvec b_wide(bvec w)
{
    __m256i flip = _mm256_set1_epi8((char)0x80);
    return (bvec){_mm256_xor_si256(w.a, flip), _mm256_xor_si256(w.b, flip)};
}
static inline __m256i add_pairs(__m256i sum, __m256i pairs)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline __m256i signed_dot(__m256i sum, __m256i w, __m256i a)
{
    return add_pairs(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w)));
}
static inline ivec dot_wide(ivec sum, bvec w, ivec a)
{
    return (ivec){signed_dot(sum.a, w.a, a.a), signed_dot(sum.b, w.b, a.b)};
}
static inline ivec dot_small(ivec sum, bvec w, ivec a)
{
    return (ivec){add_pairs(sum.a, _mm256_maddubs_epi16(w.a, a.a)),
                  add_pairs(sum.b, _mm256_maddubs_epi16(w.b, a.b))};
}

/* A sum that is complete here. Else compilers compute all products of a block before they add any,
 * and have no registers for them. */
static inline __m256i settled(__m256i sum)
{
    __asm__ volatile("" : "+x"(sum));
    return sum;
}
static inline ivec dot_short(bvec w, ivec a)
{
    return (ivec){_mm256_maddubs_epi16(w.a, a.a), _mm256_maddubs_epi16(w.b, a.b)};
}
static inline ivec add_short(ivec sum, ivec x)
{
    return (ivec){settled(_mm256_add_epi16(sum.a, x.a)), settled(_mm256_add_epi16(sum.b, x.b))};
}
static inline ivec add_short_sum(ivec sum, ivec x)
{
    return (ivec){add_pairs(sum.a, x.a), add_pairs(sum.b, x.b)};
}
/* An eighth of 16-bit numbers that are multiples of 8. */
static inline ivec eighth_short(ivec x)
{
    return (ivec){_mm256_srai_epi16(x.a, 3), _mm256_srai_epi16(x.b, 3)};
}
/* Factors of 16 rows as 16-bit numbers, each twice: for both numbers of a lane. */
static inline ivec short_factors(const int8_t *p)
{
    __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    x = _mm256_permute4x64_epi64(x, 0xD8);
    return (ivec){_mm256_unpacklo_epi16(x, x), _mm256_unpackhi_epi16(x, x)};
}
static inline ivec multiply_short(ivec x, ivec factor)
{
    return (ivec){_mm256_madd_epi16(x.a, factor.a), _mm256_madd_epi16(x.b, factor.b)};
}
