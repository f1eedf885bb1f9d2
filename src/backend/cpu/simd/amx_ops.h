/* Operations on the tile registers of Intel's AMX, by literal numbers 0 to 7, and on vectors in
 * bf16. A register holds up to 16 rows of up to 64 bytes, as `amx_shapes` says.
 *
 * GCC's intrinsics do not say that loads and the configuration read memory, so earlier writes have
 * to be kept in order here. */
#include <immintrin.h>

#define KEEP_ORDER() __asm__ volatile("" ::: "memory")

static inline void amx_shapes(const struct amx_config *config)
{
    KEEP_ORDER();
    _tile_loadconfig(config);
}

/* Also lets the system switch threads without saving 8 KB. */
static inline void amx_release(void)
{
    _tile_release();
}

/* Rows in memory are `stride` bytes apart. */
#define amx_load(reg, memory, stride)                                                              \
    do {                                                                                           \
        KEEP_ORDER();                                                                              \
        _tile_loadd(reg, memory, stride);                                                          \
    } while (0)
/* The same for what is not needed again soon: it does not drive other lines out of the cache. */
#define amx_load_once(reg, memory, stride)                                                         \
    do {                                                                                           \
        KEEP_ORDER();                                                                              \
        _tile_stream_loadd(reg, memory, stride);                                                   \
    } while (0)
#define amx_store(reg, memory, stride) _tile_stored(reg, memory, stride)
#define amx_zero(reg) _tile_zero(reg)

/* Of numbers in bf16: sum[m][n] += the products of row m of `a` and of column n of `b`, whose row k
 * holds numbers 2 k and 2 k + 1 of each column. Sums are fp32; very small numbers count as 0. */
#define amx_dot(sum, a, b) _tile_dpbf16ps(sum, a, b)

/* x as bf16 holds it. */
static inline fvec f_bf16(fvec x)
{
    __m256i words = (__m256i)_mm512_cvtneps_pbh(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

static inline void bf_store(uint16_t *p, fvec x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh(x));
}

/* The 16 numbers of a, then those of b. */
static inline bvec bf_pack(fvec a, fvec b)
{
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}

/* Number i of `even` and number i of `odd`, then those of i + 1. */
static inline void bf_store_pairs(uint16_t *p, fvec even, fvec odd)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, bf_pack(even, odd)));
}

/* 16 rows of 16 numbers of 4 bytes: rows become columns. First within squares of 4 by 4, then the
 * squares. */
static inline void b_transpose(bvec row[16])
{
    bvec four[16];
    for (int i = 0; i < 16; i += 4) {
        bvec a = _mm512_unpacklo_epi32(row[i], row[i + 1]);
        bvec b = _mm512_unpacklo_epi32(row[i + 2], row[i + 3]);
        bvec c = _mm512_unpackhi_epi32(row[i], row[i + 1]);
        bvec d = _mm512_unpackhi_epi32(row[i + 2], row[i + 3]);
        four[i] = _mm512_unpacklo_epi64(a, b); /* columns 0, 4, 8, 12 of four rows */
        four[i + 1] = _mm512_unpackhi_epi64(a, b);
        four[i + 2] = _mm512_unpacklo_epi64(c, d);
        four[i + 3] = _mm512_unpackhi_epi64(c, d);
    }
    for (int i = 0; i < 4; i++) {
        bvec a = _mm512_shuffle_i32x4(four[i], four[i + 4], 0x88); /* columns i and i + 8 */
        bvec b = _mm512_shuffle_i32x4(four[i], four[i + 4], 0xdd); /* columns i + 4 and i + 12 */
        bvec c = _mm512_shuffle_i32x4(four[i + 8], four[i + 12], 0x88);
        bvec d = _mm512_shuffle_i32x4(four[i + 8], four[i + 12], 0xdd);
        row[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        row[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        row[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        row[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}
