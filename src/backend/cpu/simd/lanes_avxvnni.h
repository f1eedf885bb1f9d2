/* AVX-VNNI: AVX2 with a product of bytes, without AVX-512. See kernels_body.h for what the names
 * mean. */
#include "backend/cpu/simd/lanes_256.h"

enum { WEIGHT_BIAS = 128, FEW_ROWS = 4 };
enum { PANEL_TILES = 1, PANEL_ROWS = 4, PANEL_FROM = 12, PANEL_BLOCKS = 24, PANEL_CHUNK = 256 };
#define PANEL_PRODUCTS "backend/cpu/simd/panel_fours_body.h"

/* Tests use the same instruction in its AVX-512 encoding, so that machines that have only that one
 * run everything else here. */
static inline __m256i add_products(__m256i sum, __m256i w, __m256i a)
{
#ifdef LANES_EVEX
    __asm__("vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(a));
    return sum;
#else
    return _mm256_dpbusd_avx_epi32(sum, w, a);
#endif
}

/* clang-format off */
static inline bvec b_wide(bvec w) { return w; }
/* clang-format on */
static inline ivec dot_wide(ivec sum, bvec w, ivec a)
{
    return (ivec){add_products(sum.a, w.a, a.a), add_products(sum.b, w.b, a.b)};
}
static inline ivec dot_small(ivec sum, bvec w, ivec a)
{
    return dot_wide(sum, w, a);
}
