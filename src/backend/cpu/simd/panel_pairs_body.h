/* A panel's products for AVX2, which has no instruction that adds four byte products in 32 bits.
 * Sums of a block are integers in registers, of 16 weight rows by PANEL_ROWS activation rows. Sums
 * of blocks stay in the output.
 *
 * Codes of up to 6 bits are bytes in the panel. Their products are added in 16 bits modulo 2^16:
 * the sum of (code - offset) * activation over what shares a scale is within +-32512, so it does
 * not matter if sums wrap on the way. They begin with minus the offset's products.
 *
 * Codes of 7 and 8 bits are 16-bit numbers in the panel, and two products take one multiplication
 * (Winograd's inner product): a w + b v = (a + v)(b + w) - a b - v w, where the last two are
 * summed up once for a row. So are those of fine rows, whatever the codes are, with activations in
 * 16 bits: sums are right modulo 2^32, and no operand leaves 16 bits. */

/* Activations of the next stretch are prefetched while products are computed, some for each group
 * of rows: with many columns they come from the third-level cache or from memory. */
struct asked {
    const struct tile_job *job;
    int64_t block;          /* the first */
    int32_t next, end, few; /* halves of rows; how many at a time */
};

/* A block of a prepared row. */
struct prepared {
    /* What sums of both halves begin with: twice 16 bits, or once 32. U5: start[1] is what is added
     * to them in the end. */
    int32_t start[2];
    float scale, x_sum; /* x_sum: what minima are multiplied by, or those of the first half */
    /* Activations in even and odd columns; by codes of up to 6 bits they are bytes, in half of
     * this. Where both halves have minima, what those of the second are multiplied by follows. */
    alignas(16) int16_t columns[2][16];
    alignas(16) float room_for_x_sum;
};

enum { PREPARED_X_SUM = sizeof(struct prepared) - offsetof(struct prepared, room_for_x_sum) };

struct panel {
    struct panel_place at;
    ptrdiff_t low; /* fine rows: from a row to its low blocks */
    struct asked asked;
    /* Rows of PANEL_BLOCKS blocks without gaps, of whichever size: see prepared_at. */
    alignas(32) uint8_t rows[PANEL_CHUNK * PANEL_BLOCKS * sizeof(struct prepared)];
    /* Bytes: 8 groups as in tile.h. 16 bits: 8 of even columns, each before its odd ones. */
    alignas(32) uint8_t w[PANEL_BLOCKS][8][128];
    alignas(32) float scale[PANEL_BLOCKS][16];
    alignas(32) int16_t factor[PANEL_BLOCKS][2][32];     /* of both halves of a block, twice each */
    alignas(32) float float_factor[PANEL_BLOCKS][2][16]; /* the same for sums in 32 bits */
    alignas(32) float min[PANEL_BLOCKS][2][16];
    alignas(
        32) int32_t products[PANEL_BLOCKS][2][16]; /* 16 bits: minus those of columns in pairs */
};

/* The offset that keeps 16-bit sums in range. */
ALWAYS int pairs_offset(enum code_kind kind)
{
    return kind == CODE_U5 ? 16 : code_kind_facts(kind).offset;
}

ALWAYS __m256i load32(const void *p)
{
    return _mm256_loadu_si256(p);
}

ALWAYS void store32(void *p, __m256i x)
{
    _mm256_storeu_si256(p, x);
}

ALWAYS __m256i even_columns(__m256i bytes)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
}

ALWAYS __m256i odd_columns(__m256i bytes)
{
    return _mm256_srai_epi16(bytes, 8);
}

/* Lane i of both halves of the result is the sum of the four lanes of x[i]'s half; `add` is an
 * addition in 16 or 32 bits. */
#define SUM_OF_LANES(x, add, sum)                                                                  \
    do {                                                                                           \
        __m256i low_ =                                                                             \
            add(_mm256_unpacklo_epi32((x)[0], (x)[1]), _mm256_unpackhi_epi32((x)[0], (x)[1]));     \
        __m256i high_ =                                                                            \
            add(_mm256_unpacklo_epi32((x)[2], (x)[3]), _mm256_unpackhi_epi32((x)[2], (x)[3]));     \
        (sum) = add(_mm256_unpacklo_epi64(low_, high_), _mm256_unpackhi_epi64(low_, high_));       \
    } while (0)

ALWAYS bool is_in_16_bits(enum code_kind kind, bool is_fine)
{
    return is_fine || unpacked_bits(kind) > 6;
}

ALWAYS struct prepared *prepared_at(const enum code_kind kind, const bool is_fine,
                                    struct panel *panel, int row, int b)
{
    const size_t unused = (size_t)(is_in_16_bits(kind, is_fine) ? 0 : BLOCK_COLS) +
                          (block_mins(kind) == 2 ? 0 : PREPARED_X_SUM);
    size_t at = (size_t)(row * PANEL_BLOCKS + b) * (sizeof(struct prepared) - unused);
    return (struct prepared *)(void *)(panel->rows + at);
}

/* What the minima of half h, or of all of a block, are multiplied by. */
ALWAYS float *prepared_x_sum(const enum code_kind kind, const bool is_fine, struct prepared *p,
                             int h)
{
    return h ? (float *)(void *)(p->columns[0] + (is_in_16_bits(kind, is_fine) ? 32 : 16))
             : &p->x_sum;
}

/* Four bytes of group g in all lanes. */
ALWAYS __m256i prepared_bytes(const enum code_kind kind, struct panel *panel, int row, int b, int g)
{
    return four_bytes((const int8_t *)prepared_at(kind, false, panel, row, b)->columns + g * 4).a;
}

/* A block's activations in 16 bits. */
ALWAYS void store_columns(const bool is_fine, const struct act_block *block, ptrdiff_t low,
                          int16_t out[2][16])
{
    __m256i bytes = load32(block->q), even = even_columns(bytes), odd = odd_columns(bytes);
    if (is_fine) {
        __m256i low_bytes = load32(block[low].q);
        __m256i base = _mm256_set1_epi16(FINE_BASE);
        even = _mm256_add_epi16(_mm256_mullo_epi16(even, base), even_columns(low_bytes));
        odd = _mm256_add_epi16(_mm256_mullo_epi16(odd, base), odd_columns(low_bytes));
    }
    store32(out[0], even);
    store32(out[1], odd);
}

/* Pairs of sums that are for an offset of 32, for one of 4. */
ALWAYS void eighth_starts(int32_t start[2])
{
    __m128i pairs = _mm_loadl_epi64((const __m128i *)(const void *)start);
    _mm_storel_epi64((__m128i *)(void *)start, _mm_srai_epi16(pairs, 3));
}

/* Fills in prepared block `to`, except for sums of lanes, and returns these lanes. */
ALWAYS __m256i prepare_block(const enum code_kind kind, const bool is_fine,
                             const struct act_block *block, ptrdiff_t low, struct prepared *to)
{
    to->scale = block[low].scale;
    for (int h = 0; h < block_mins(kind); h++)
        *prepared_x_sum(kind, is_fine, to, h) = x_sum(kind, is_fine, block, low, h);
    if (is_in_16_bits(kind, is_fine)) {
        store_columns(is_fine, block, low, to->columns);
        return _mm256_madd_epi16(load32(to->columns[0]), load32(to->columns[1]));
    }
    __m256i bytes = load32(block->q);
    store32(to->columns, bytes);
    if (block_halves(kind) == 2) memcpy(to->start, block->start6_pairs, sizeof to->start);
    if (kind == CODE_S3) eighth_starts(to->start);
    if (kind == CODE_U5) to->start[1] = block->minus * -pairs_offset(kind);
    return _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
}

/* What the sums of four blocks begin with, from their lanes: of first halves or whole blocks, then
 * of second halves. */
ALWAYS __m256i starts_of_lanes(const enum code_kind kind, const bool is_fine,
                               const __m256i lanes[4])
{
    __m256i sum;
    if (is_in_16_bits(kind, is_fine)) {
        SUM_OF_LANES(lanes, _mm256_add_epi32, sum);
        if (block_halves(kind) == 1)
            sum = _mm256_add_epi32(sum, _mm256_permute4x64_epi64(sum, 0x4E));
        return _mm256_sub_epi32(_mm256_setzero_si256(), sum);
    }
    SUM_OF_LANES(lanes, _mm256_add_epi16, sum);
    sum = _mm256_add_epi16(sum, _mm256_permute4x64_epi64(sum, 0x4E));
    return _mm256_mullo_epi16(sum, _mm256_set1_epi16((int16_t)-pairs_offset(kind)));
}

/* Four blocks from b on of prepared row i. */
ALWAYS void prepare_blocks(const enum code_kind kind, const bool is_fine, struct panel *panel,
                           const struct act_block *row, int i, int b)
{
    ptrdiff_t low = is_fine ? panel->low : 0;
    __m256i lanes[4];
    int32_t start[2][4];
    for (int j = 0; j < 4; j++) {
        /* Past the end: the last block again. */
        int from = b + j < panel->at.n_blocks ? b + j : panel->at.n_blocks - 1;
        lanes[j] = prepare_block(kind, is_fine, row + from, low,
                                 prepared_at(kind, is_fine, panel, i, b + j));
    }
    const bool has_starts = block_halves(kind) == 2 || pairs_offset(kind) == 0; /* or needs none */
    if (has_starts && !is_in_16_bits(kind, is_fine)) return;
    store32(start, starts_of_lanes(kind, is_fine, lanes));
    for (int j = 0; j < 4; j++)
        for (int h = 0; h < block_halves(kind); h++)
            prepared_at(kind, is_fine, panel, i, b + j)->start[h] = start[h][j];
}

/* The next stretch has about as many rows: those that follow, or the first ones of the next
 * columns. */
ALWAYS void begin_asking(const struct tile_job *job, int32_t first, int32_t n, struct panel *panel)
{
    int32_t n_groups = n / PANEL_ROWS * job->n_tiles / PANEL_TILES, next = first + n;
    struct asked asked = {.job = job, .block = panel->at.first};
    if (next == job->n) {
        next = 0;
        asked.block += panel->at.n_blocks;
    }
    int32_t end = next + n < job->n ? next + n : job->n;
    asked.next = next * 2;
    asked.end = asked.block < job->shape->n_blocks ? end * 2 : 0;
    asked.few = (n * 2 + n_groups - 1) / n_groups;
    panel->asked = asked;
}

ALWAYS void go_on_asking(struct asked *a)
{
    enum { LINES = (PANEL_BLOCKS * (int)sizeof(struct act_block) / 64 + 2) / 2 };
    for (int32_t i = 0; i < a->few && a->next < a->end; i++, a->next++) {
        const uint8_t *half =
            (const uint8_t *)(job_row(a->job, a->next / 2) + a->block) + a->next % 2 * LINES * 64;
        for (int line = 0; line < LINES; line++) __builtin_prefetch(half + line * 64, 0, 2);
    }
}

ALWAYS void prepare_rows(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                         int32_t first, int32_t n, struct panel *panel)
{
    panel->low = low_blocks(is_fine, job);
    begin_asking(job, first, n, panel);
    for (int32_t i = 0; i < n; i++) {
        const struct act_block *row = job_row(job, first + i) + panel->at.first;
        for (int b = 0; b < panel->at.n_blocks; b += 4)
            prepare_blocks(kind, is_fine, panel, row, i, b);
    }
}

/* Codes in 16 bits without their offset. Those of 8 bits have none by now: see b_wide. */
ALWAYS void widen_half(const enum code_kind kind, const bvec w[8], struct panel *panel, int b,
                       int h)
{
    const int groups = 8 / block_halves(kind);
    __m256i offset = _mm256_set1_epi16((int16_t)unpacked_offset(kind));
    ivec products = i_set(0);
    for (int g = h * groups; g < (h + 1) * groups; g++) {
        bvec even = {_mm256_sub_epi16(even_columns(w[g].a), offset),
                     _mm256_sub_epi16(even_columns(w[g].b), offset)};
        bvec odd = {_mm256_sub_epi16(odd_columns(w[g].a), offset),
                    _mm256_sub_epi16(odd_columns(w[g].b), offset)};
        b_store(panel->w[b][g], even);
        b_store(panel->w[b][g] + 64, odd);
        products.a = _mm256_sub_epi32(products.a, _mm256_madd_epi16(even.a, odd.a));
        products.b = _mm256_sub_epi32(products.b, _mm256_madd_epi16(even.b, odd.b));
    }
    store32(panel->products[b][h], products.a);
    store32(panel->products[b][h] + 8, products.b);
}

ALWAYS void fill_panel(const enum code_kind kind, const bool is_fine, const struct tile_job *job,
                       struct panel *panel)
{
    const struct tile_unit u = tile_unit_for_codes(kind);
    const tvec table = table_of(kind, job->shape);
    for (int b = 0; b < panel->at.n_blocks; b++) {
        const uint8_t *unit = unit_at(kind, job, panel->at.tile, panel->at.first + b);
        int i = (int)(panel->at.first + b) % u.n_blocks;
        bvec w[8];
        unpack(kind, table, unit + (size_t)i * u.block_bytes, w);
        if (is_in_16_bits(kind, is_fine))
            for (int h = 0; h < block_halves(kind); h++) widen_half(kind, w, panel, b, h);
        else
            for (int g = 0; g < 8; g++) b_store(panel->w[b][0] + g * 64, w[g]);
        f_store(panel->scale[b], unit_scales(kind, unit, i));
        for (int h = 0; h < 2 && block_halves(kind) == 2; h++) {
            struct factors room;
            const int8_t *factors = unit_factors(kind, unit, i, h, &room);
            ivec factor = short_factors(factors);
            store32(panel->factor[b][h], factor.a);
            store32(panel->factor[b][h] + 16, factor.b);
            if (is_in_16_bits(kind, is_fine))
                f_store(panel->float_factor[b][h], f_load_i8(factors));
        }
        for (int h = 0; h < block_mins(kind); h++)
            f_store(panel->min[b][h], unit_mins(kind, unit, i, h));
    }
}

ALWAYS __m256i add_small(__m256i sum, __m256i products)
{
    return settled(_mm256_add_epi16(sum, products));
}

ALWAYS __m256i small_products(__m256i w, __m256i a)
{
    return settled(_mm256_maddubs_epi16(w, a));
}

ALWAYS __m256i add_wide(__m256i sum, __m256i even_w, __m256i odd_w, __m256i even_a, __m256i odd_a)
{
    __m256i products =
        _mm256_madd_epi16(_mm256_add_epi16(even_a, odd_w), _mm256_add_epi16(odd_a, even_w));
    return settled(_mm256_add_epi32(sum, products));
}

/* Adds products of group g by two rows, or by one. Four products before four additions take 5 %
 * less time than each before its own. */
ALWAYS void add_group(const enum code_kind kind, const int n, struct panel *panel, int row, int b,
                      int g, bvec w, ivec *sum)
{
    ivec products[2];
    for (int i = 0; i < n; i++) {
        __m256i a = prepared_bytes(kind, panel, row + i, b, g);
        products[i] = (ivec){small_products(w.a, a), small_products(w.b, a)};
    }
    for (int i = 0; i < n; i++)
        sum[i] = (ivec){add_small(sum[i].a, products[i].a), add_small(sum[i].b, products[i].b)};
}

/* The 16-bit sums of half h of a block, or of all of it, two per lane. */
ALWAYS void half_sums(const enum code_kind kind, const int n, struct panel *panel, int first, int b,
                      int h, ivec *sum)
{
    const int groups = 8 / block_halves(kind);
    for (int i = 0; i < n; i++) {
        const int32_t *start = prepared_at(kind, false, panel, first + i, b)->start;
        sum[i] = i_set(pairs_offset(kind) ? start[h] : 0);
    }
#pragma GCC unroll 8
    for (int g = h * groups; g < (h + 1) * groups; g++) {
        bvec w = b_load(panel->w[b][0] + g * 64);
        for (int i = 0; i < n; i += 2)
            add_group(kind, n - i < 2 ? n - i : 2, panel, first + i, b, g, w, sum + i);
    }
}

ALWAYS void small_sums(const enum code_kind kind, const int n, struct panel *panel, int first,
                       int b, ivec *sum)
{
    half_sums(kind, n, panel, first, b, 0, sum);
    for (int i = 0; i < n; i++) {
        sum[i].a = _mm256_madd_epi16(sum[i].a, _mm256_set1_epi16(1));
        sum[i].b = _mm256_madd_epi16(sum[i].b, _mm256_set1_epi16(1));
        if (kind != CODE_U5) continue;
        __m256i offset = _mm256_set1_epi32(prepared_at(kind, false, panel, first + i, b)->start[1]);
        sum[i].a = _mm256_add_epi32(sum[i].a, offset);
        sum[i].b = _mm256_add_epi32(sum[i].b, offset);
    }
}

/* The sums of half h, multiplied by its factors. */
ALWAYS void factored_sums(const enum code_kind kind, const int n, struct panel *panel, int first,
                          int b, const int h, ivec *sum)
{
    half_sums(kind, n, panel, first, b, h, sum);
    for (int i = 0; i < n; i++) {
        sum[i].a = _mm256_madd_epi16(sum[i].a, load32(panel->factor[b][h]));
        sum[i].b = _mm256_madd_epi16(sum[i].b, load32(panel->factor[b][h] + 16));
    }
}

/* The sums of half h of a block, or of all of it, by codes and activations in 16 bits. */
ALWAYS void wide_sums(const enum code_kind kind, const int n, struct panel *panel, int first, int b,
                      const int h, ivec *sum)
{
    const int groups = 8 / block_halves(kind);
    for (int i = 0; i < n; i++)
        sum[i] = i_set(prepared_at(kind, true, panel, first + i, b)->start[h]);
#pragma GCC unroll 8
    for (int g = h * groups; g < (h + 1) * groups; g++) {
        bvec even = b_load(panel->w[b][g]), odd = b_load(panel->w[b][g] + 64);
        for (int i = 0; i < n; i++) {
            int16_t(*a)[16] = prepared_at(kind, true, panel, first + i, b)->columns;
            __m256i even_a = four_bytes((const int8_t *)(a[0] + g * 2)).a;
            __m256i odd_a = four_bytes((const int8_t *)(a[1] + g * 2)).a;
            sum[i].a = add_wide(sum[i].a, even.a, odd.a, even_a, odd_a);
            sum[i].b = add_wide(sum[i].b, even.b, odd.b, even_a, odd_a);
        }
    }
    for (int i = 0; i < n; i++) {
        sum[i].a = _mm256_add_epi32(sum[i].a, load32(panel->products[b][h]));
        sum[i].b = _mm256_add_epi32(sum[i].b, load32(panel->products[b][h] + 8));
    }
}

/* The sums of block b by n rows as floats. */
ALWAYS void block_sums(const enum code_kind kind, const bool is_fine, const int n,
                       struct panel *panel, int first, int b, fvec *total)
{
    ivec sum[PANEL_ROWS];
    if (!is_in_16_bits(kind, is_fine) && block_halves(kind) == 2) {
        /* Those of the first half wait in memory: the other half takes all registers. */
        ivec first_half[PANEL_ROWS];
        factored_sums(kind, n, panel, first, b, 0, first_half);
        __asm__ volatile("" : "+m"(first_half));
        factored_sums(kind, n, panel, first, b, 1, sum);
        for (int i = 0; i < n; i++) sum[i] = i_add(sum[i], first_half[i]);
    } else if (is_in_16_bits(kind, is_fine)) {
        wide_sums(kind, n, panel, first, b, 0, sum);
    } else {
        small_sums(kind, n, panel, first, b, sum);
    }
    for (int i = 0; i < n; i++) total[i] = f_of_int(sum[i]);
    if (!is_in_16_bits(kind, is_fine) || block_halves(kind) == 1) return;
    const fvec factor[2] = {f_load(panel->float_factor[b][0]), f_load(panel->float_factor[b][1])};
    for (int i = 0; i < n; i++) total[i] = f_mul(total[i], factor[0]);
    wide_sums(kind, n, panel, first, b, 1, sum);
    for (int i = 0; i < n; i++) total[i] = f_fma(f_of_int(sum[i]), factor[1], total[i]);
}

/* The panel by n rows from prepared row `first` on. kind and n are constants where this is
 * expanded. */
ALWAYS void panel_rows(const enum code_kind kind, const bool is_fine, const int n,
                       struct panel *panel, int32_t first, float *out, int64_t stride)
{
    go_on_asking(&panel->asked);
    if (panel->at.first == 0)
        for (int i = 0; i < n; i++) f_store(out + i * stride, f_set(0));
    for (int b = 0; b < panel->at.n_blocks; b++) {
        fvec sum[PANEL_ROWS];
        block_sums(kind, is_fine, n, panel, first, b, sum);
        for (int i = 0; i < n; i++) {
            struct prepared *p = prepared_at(kind, is_fine, panel, first + i, b);
            float *y = out + i * stride;
            fvec total = f_mul(sum[i], f_set(p->scale));
            total = f_fma(total, f_load(panel->scale[b]), f_load(y));
            for (int h = 0; h < block_mins(kind); h++)
                total = f_fma(f_load(panel->min[b][h]), f_set(*prepared_x_sum(kind, is_fine, p, h)),
                              total);
            f_store(y, total);
        }
    }
}

/* ---- Limits ----------------------------------------------------------------------------- */

enum { LIMIT_SUMS = 8 }; /* independent, which hides the latency of products */

/* What `settled` returns may be anything to the compiler, so it keeps every product. */
static double multiply_bytes(int64_t rounds)
{
    __m256i sum[LIMIT_SUMS], w = _mm256_set1_epi16(3), a = _mm256_set1_epi16((int16_t)rounds);
    __m256i odd_w = w, odd_a = a; /* else one addition would do for both */
    for (int i = 0; i < LIMIT_SUMS; i++) sum[i] = w;
    odd_a = settled(odd_a);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < LIMIT_SUMS; i++) {
            w = settled(w);
            odd_w = settled(odd_w);
            sum[i] = add_wide(sum[i], w, odd_w, a, odd_a);
        }
    return (double)rounds * LIMIT_SUMS * 32 * 2;
}

static double multiply_codes(int64_t rounds)
{
    __m256i sum[LIMIT_SUMS], w = _mm256_set1_epi8(3), a = _mm256_set1_epi8((int8_t)rounds);
    for (int i = 0; i < LIMIT_SUMS; i++) sum[i] = w;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < LIMIT_SUMS; i++) {
            w = settled(w);
            sum[i] = add_small(sum[i], small_products(w, a));
        }
    return (double)rounds * LIMIT_SUMS * 32 * 2;
}
