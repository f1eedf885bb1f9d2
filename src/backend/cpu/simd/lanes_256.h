/* Sixteen lanes in two registers of 256 bits: all but products of bytes, which sets have in
 * different forms. AVX2 with FMA and F16C. See kernels_body.h for what the names mean. */
#include <immintrin.h>
#include <stdint.h>

typedef struct {
    __m256 a, b;
} fvec;
typedef struct {
    __m256i a, b;
} ivec;
typedef ivec bvec;

#define PAIR_F(name, call)                                                                         \
    static inline fvec name(fvec x, fvec y)                                                        \
    {                                                                                              \
        return (fvec){call(x.a, y.a), call(x.b, y.b)};                                             \
    }
PAIR_F(f_add, _mm256_add_ps)
PAIR_F(f_sub, _mm256_sub_ps)
PAIR_F(f_mul, _mm256_mul_ps)
PAIR_F(f_div, _mm256_div_ps)
PAIR_F(f_max, _mm256_max_ps)
PAIR_F(f_min, _mm256_min_ps)

static inline fvec f_set(float x)
{
    return (fvec){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline fvec f_load(const float *p)
{
    return (fvec){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void f_store(float *p, fvec x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline fvec f_fma(fvec x, fvec y, fvec z)
{
    return (fvec){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline fvec f_abs(fvec x)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (fvec){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
static inline fvec f_round(fvec x)
{
    return (fvec){_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)};
}
static inline __m256 exp2_whole(__m256 n)
{
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}
static inline fvec f_exp2_int(fvec n)
{
    return (fvec){exp2_whole(n.a), exp2_whole(n.b)};
}
static inline fvec f_of_int(ivec x)
{
    return (fvec){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
static inline __m256 halves_at(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline fvec f_load_f16(const uint16_t *p)
{
    return (fvec){halves_at(p), halves_at(p + 8)};
}
static inline void f_store_f16(uint16_t *p, fvec x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x.a, 0));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(x.b, 0));
}
static inline __m256 bytes_at(const int8_t *p)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
static inline fvec f_load_i8(const int8_t *p)
{
    return (fvec){bytes_at(p), bytes_at(p + 8)};
}
static inline __m256 bf16_at(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline fvec f_load_bf16(const uint16_t *p)
{
    return (fvec){bf16_at(p), bf16_at(p + 8)};
}
static inline void f_store_i8(int8_t *p, fvec x) /* whole numbers within -128 .. 127 */
{
    __m256i pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    pairs = _mm256_permute4x64_epi64(pairs, 0xD8);
    __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storeu_si128((__m128i *)(void *)p, bytes);
}

static inline __m256 set_half(const uint8_t *p)
{
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}

/* One of the two registers: see float_body.h. */
#define REGISTERS 2
typedef __m256 rvec;
#define r_set _mm256_set1_ps
#define r_load _mm256_loadu_ps
#define r_store _mm256_storeu_ps
#define r_mul _mm256_mul_ps
#define r_fma _mm256_fmadd_ps
#define r_load_f16 halves_at
#define r_load_bf16 bf16_at
#define r_load_i8 bytes_at
#define r_set_f16 set_half
#define f_put(x, i, r) (*((i) ? &(x)->b : &(x)->a) = (r))
#define f_get(x, i) ((i) ? (x)->b : (x)->a)

static inline float f_sum(fvec x)
{
    __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
static inline void f_sum4(const fvec x[4], float out[4])
{
    __m256 a = _mm256_add_ps(x[0].a, x[0].b), b = _mm256_add_ps(x[1].a, x[1].b);
    __m256 c = _mm256_add_ps(x[2].a, x[2].b), d = _mm256_add_ps(x[3].a, x[3].b);
    __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
    __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    __m256 one = _mm256_add_ps(two, _mm256_permute_ps(two, 0xb1)); /* a, a, c, c, b, b, d, d */
    __m128 ac = _mm256_castps256_ps128(one), bd = _mm256_extractf128_ps(one, 1);
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm_shuffle_ps(ac, ac, 0x88), _mm_shuffle_ps(bd, bd, 0x88)));
}
static inline float f_most(fvec x)
{
    __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline ivec i_set(int32_t x)
{
    return (ivec){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
static inline ivec i_add(ivec x, ivec y)
{
    return (ivec){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
static inline ivec i_sub(ivec x, ivec y)
{
    return (ivec){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
#define i_shl(x, n) ((ivec){_mm256_slli_epi32((x).a, (n)), _mm256_slli_epi32((x).b, (n))})
static inline bvec b_load(const uint8_t *p)
{
    return (bvec){_mm256_loadu_si256((const __m256i *)(const void *)p),
                  _mm256_loadu_si256((const __m256i *)(const void *)(p + 32))};
}
static inline void b_store(uint8_t *p, bvec x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x.a);
    _mm256_storeu_si256((__m256i *)(void *)(p + 32), x.b);
}
static inline bvec b_and(bvec x, uint8_t mask)
{
    __m256i m = _mm256_set1_epi8((char)mask);
    return (bvec){_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
static inline bvec b_or(bvec x, bvec y)
{
    return (bvec){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
/* Shifts of 16-bit units: bits that cross a byte are for the caller to mask out. */
#define b_shr(x, n) ((bvec){_mm256_srli_epi16((x).a, (n)), _mm256_srli_epi16((x).b, (n))})

typedef __m256i tvec;
static inline tvec t_load(const int8_t *levels, int offset)
{
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)levels);
    return _mm256_broadcastsi128_si256(_mm_add_epi8(table, _mm_set1_epi8((char)offset)));
}
static inline bvec b_look_up(tvec table, bvec index)
{
    return (bvec){_mm256_shuffle_epi8(table, index.a), _mm256_shuffle_epi8(table, index.b)};
}
