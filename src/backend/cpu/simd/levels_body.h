/* A few rows by a block of N4 on AVX2. Sums of products by levels, which have 8 bits, do not fit 16
 * bits; those by their nibbles do. Each nibble comes from a table of its own, so that no signs and
 * no absolute values are needed.
 *
 * Part of kernels_body.h. */

/* sum[r] += products of w and the bytes of row r. */
ALWAYS void add_nibbles(const int n, __m256i w, const __m256i a[FEW_ROWS], __m256i *sum)
{
    for (int r = 0; r < n; r++)
        sum[r] = settled(_mm256_add_epi16(sum[r], _mm256_maddubs_epi16(w, a[r])));
}

/* dot + low + 16 high - 128 times the sum of the block's codes: tables hold levels plus 128. */
ALWAYS __m256i join_nibbles(__m256i dot, __m256i low, __m256i high, const struct act_block *block)
{
    dot = _mm256_add_epi32(dot, _mm256_slli_epi32(_mm256_set1_epi32(block->minus), 7));
    return _mm256_add_epi32(add_pairs(dot, low), _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
}

/* A table of nibbles of the levels, plus 128: of the low ones, then of the high ones. */
ALWAYS bvec nibble_tables(tvec table)
{
    const __m256i nibbles = _mm256_set1_epi8(15);
    return (bvec){_mm256_and_si256(table, nibbles),
                  _mm256_and_si256(_mm256_srli_epi16(table, 4), nibbles)};
}

/* Adds the products of a block by n rows; packed: its nibbles as they lie in memory. The order is
 * that in which all sums stay in registers. */
ALWAYS void level_dots(const int n, const bvec packed[4], const bvec tables,
                       const struct act_block *const *rows, int64_t b, ivec *dots)
{
    const __m256i low_table = tables.a, high_table = tables.b;
    __m256i sum[4][FEW_ROWS], a[FEW_ROWS]; /* by low and high nibbles of 8 weight rows, twice */
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < n; r++) sum[i][r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int g = i / 2 + i % 2 * 4; /* groups of the same bytes follow each other */
        bvec index = b_and(g < 4 ? packed[g] : b_shr(packed[g - 4], 4), 15);
        for (int r = 0; r < n; r++) a[r] = four_bytes(rows[r][b].q + g * 4).a;
        add_nibbles(n, _mm256_shuffle_epi8(low_table, index.a), a, sum[0]);
        add_nibbles(n, _mm256_shuffle_epi8(high_table, index.a), a, sum[1]);
        add_nibbles(n, _mm256_shuffle_epi8(low_table, index.b), a, sum[2]);
        add_nibbles(n, _mm256_shuffle_epi8(high_table, index.b), a, sum[3]);
    }
    for (int r = 0; r < n; r++)
        dots[r] = (ivec){join_nibbles(dots[r].a, sum[0][r], sum[1][r], &rows[r][b]),
                         join_nibbles(dots[r].b, sum[2][r], sum[3][r], &rows[r][b])};
}
