/* Every kernel of every instruction set that this machine has, against plain double precision.
 * Needs nothing but the C library, so that it also runs under an emulator of another processor.
 *
 *   check-cpu-kernels [SET]                    checks, ends with "N passed, N failed"
 *   check-cpu-kernels --perf [SET [FORMAT]]    GB/s and GOP/s by format and number of rows */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "kernels/tiled.h"

enum {
    ROWS = 40, /* not a multiple of 16 */
    COLS = 768,
    ODD_COLS = 25 * 32, /* the last unit of a tile is not full */
    ACT_ROWS = 19,
    LIST_MAX = 160 /* more rows than some kernels prepare at a time */
};

/* The sets that run here, best first, and those that only tests have. */
static const struct cpu_kernels *sets[16];
static int n_sets;

static int passed, failed;

static void check(const char *kernels, const char *what, double error, double limit)
{
    if (error <= limit) { /* false for NaN */
        passed++;
        return;
    }
    failed++;
    printf("FAIL %s %s: error %.3g, at most %.3g expected\n", kernels, what, error, limit);
}

/* Relative L2 distance of two rows of floats, sums in double. */
struct distance {
    double difference, size;
};

static void add_distance(struct distance *d, double found, double expected)
{
    d->difference += (found - expected) * (found - expected);
    d->size += expected * expected;
}

static double relative(struct distance d)
{
    return sqrt(d.difference / d.size);
}

/* ---- Quantised products ----------------------------------------------------------------- */

struct product {
    struct tiled w;
    struct act_block *act, *high, *low; /* the same rows in 8 bits, and fine */
    int64_t cols;
};

/* Extreme: all weights and activations are the largest or smallest of their formats. */
static void open_product(struct product *p, const struct cpu_kernels *k, enum format format,
                         int64_t rows, int64_t cols, int64_t n_act, bool is_extreme)
{
    float *x = random_floats(n_act * cols, 1, 6);
    for (int64_t i = 0; is_extreme && i < n_act * cols; i++)
        x[i] = is_high(i / cols, i % cols) ? 1 : -1;
    tiled_open(&p->w, k, format, rows, cols, is_extreme);
    p->cols = cols;
    int64_t n_blocks = cols / BLOCK_COLS;
    p->act = mem_alloc((size_t)(n_act * n_blocks * 3), sizeof *p->act);
    p->high = p->act + n_act * n_blocks;
    p->low = p->high + n_act * n_blocks;
    for (int64_t r = 0; r < n_act; r++) {
        k->quantize(x + r * cols, cols, p->act + r * n_blocks);
        k->quantize_fine(x + r * cols, cols, p->high + r * n_blocks, p->low + r * n_blocks);
    }
    mem_free(x);
}

static void close_product(struct product *p)
{
    tiled_close(&p->w);
    mem_free(p->act);
}

/* Value i of rows in 8 bits, or of fine rows. */
static double activation(const struct product *p, bool is_fine, int64_t i)
{
    int64_t b = i / BLOCK_COLS, at = i % BLOCK_COLS;
    if (!is_fine) return p->act[b].q[at] * (double)p->act[b].scale;
    return (FINE_BASE * p->high[b].q[at] + p->low[b].q[at]) * (double)p->low[b].scale;
}

static double expected_dot(const struct product *p, bool is_fine, int64_t row, int64_t act_row)
{
    double sum = 0;
    for (int64_t i = 0; i < p->cols; i++)
        sum +=
            (double)p->w.decoded[row * p->cols + i] * activation(p, is_fine, act_row * p->cols + i);
    return sum;
}

/* All tiles. Listed activation rows are divided by 2, as slots of experts are, and compared bit
 * for bit with rows taken one at a time, tile by tile. `n` rows: a few rows and many take
 * different ways. */
static void check_rows(const struct cpu_kernels *k, const struct product *p, bool is_fine,
                       int32_t n, struct distance *d)
{
    enum { N_TILES = (ROWS + TILE_ROWS - 1) / TILE_ROWS };
    int32_t list[LIST_MAX];
    float out[LIST_MAX * N_TILES * TILE_ROWS], alone[TILE_ROWS];
    for (int i = 0; i < n; i++) list[i] = (i * 7 + 2) % (ACT_ROWS * 2);
    struct tile_job job = {.shape = &p->w.weight.shape,
                           .tile = tile_at(&p->w.weight, 0, 0),
                           .n_tiles = N_TILES,
                           .act = is_fine ? p->high : p->act,
                           .low = is_fine ? p->low : NULL,
                           .list = list,
                           .n = n,
                           .divisor = 2,
                           .out = out};
    k->tile_dot(&job);
    int different = 0;
    for (int i = 0; i < n * N_TILES; i++) {
        int tile = i % N_TILES, act_row = list[i / N_TILES] / 2;
        struct tile_job one = {.shape = &p->w.weight.shape,
                               .tile = tile_at(&p->w.weight, 0, tile),
                               .n_tiles = 1,
                               .act = is_fine ? p->high : p->act,
                               .low = is_fine ? p->low : NULL,
                               .first = act_row,
                               .n = 1,
                               .out = alone};
        k->tile_dot(&one);
        different += memcmp(alone, out + i * TILE_ROWS, sizeof alone) != 0;
        for (int r = 0; r < TILE_ROWS && tile * TILE_ROWS + r < ROWS; r++)
            add_distance(d, (double)alone[r],
                         expected_dot(p, is_fine, tile * TILE_ROWS + r, act_row));
    }
    check(k->name, "rows alone and together are the same bits", different, 0);
}

/* Kernels of a few rows read ahead in each of the ways in turn. */
static void check_shape(const struct cpu_kernels *k, enum format format, int64_t cols,
                        bool is_extreme)
{
    static const int32_t counts[] = {1, 1, 1, 2, 7, 8, 9, 29, 30, 31, 59, 64, LIST_MAX};
    static const enum read_ahead ways[] = {AHEAD_NONE, AHEAD_ONCE, AHEAD_BY_LEVEL, AHEAD_FAR};
    struct product p;
    open_product(&p, k, format, ROWS, cols, ACT_ROWS, is_extreme);
    for (int is_fine = 0; is_fine < 2; is_fine++) {
        struct distance d = {0};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            p.w.weight.shape.ahead = ways[i % 4];
            check_rows(k, &p, is_fine, counts[i], &d);
        }
        /* Scales in blocks of 256 are products, rounded to a half in tiles: 2^-11. Tiles whose
         * halves have scales have both factors. */
        const struct format_traits *t = format_traits(format);
        bool is_rounded = t->block_elements == 256 && !code_kind_has_halves(t->codes);
        check(k->name, t->name, relative(d), is_rounded ? 1e-3 : 1e-6);
    }
    close_product(&p);
}

static void check_format(const struct cpu_kernels *k, enum format format)
{
    check_shape(k, format, COLS, false);
    check_shape(k, format, COLS, true);
    if (ODD_COLS % format_traits(format)->block_elements == 0)
        check_shape(k, format, ODD_COLS, false);
}

/* ---- Products on all sets ---------------------------------------------------------------- */

/* With n rows, all tiles. */
static void multiply(const struct cpu_kernels *k, const struct product *p, bool is_fine, int32_t n,
                     float *out)
{
    int32_t list[LIST_MAX];
    for (int i = 0; i < n; i++) list[i] = i % ACT_ROWS;
    struct tile_job job = {.shape = &p->w.weight.shape,
                           .tile = tile_at(&p->w.weight, 0, 0),
                           .n_tiles = (int32_t)p->w.weight.n_tiles,
                           .act = is_fine ? p->high : p->act,
                           .low = is_fine ? p->low : NULL,
                           .list = list,
                           .n = n,
                           .divisor = 1,
                           .out = out};
    k->tile_dot(&job);
}

/* Integer sums are exact and float sums have one order: sets with fused multiply-add agree to the
 * bit, however many rows there are. */
static void check_same_bits(const struct cpu_kernels *a, const struct cpu_kernels *b,
                            enum format format, bool is_extreme)
{
    static const int32_t counts[] = {1, 2, 3, 8, 31, 64, LIST_MAX};
    static float out[2][LIST_MAX * (ROWS + TILE_ROWS)];
    struct product p, q;
    open_product(&p, a, format, ROWS, COLS, ACT_ROWS, is_extreme);
    open_product(&q, b, format, ROWS, COLS, ACT_ROWS, is_extreme);
    size_t act_bytes = 3 * ACT_ROWS * COLS / BLOCK_COLS * sizeof *p.act;
    check(b->name, "activations are those of the other sets", memcmp(p.act, q.act, act_bytes) != 0,
          0);
    for (size_t c = 0; c < 2 * sizeof counts / sizeof *counts; c++) {
        size_t n = (size_t)counts[c / 2] * (size_t)p.w.weight.n_tiles * TILE_ROWS;
        multiply(a, &p, c % 2, counts[c / 2], out[0]);
        multiply(b, &p, c % 2, counts[c / 2], out[1]);
        check(b->name, "products are those of the other sets",
              memcmp(out[0], out[1], n * sizeof(float)) != 0, 0);
    }
    close_product(&p);
    close_product(&q);
}

/* Of normal weights, and of the extremes. */
static void check_all_same_bits(const struct cpu_kernels *a, const struct cpu_kernels *b)
{
    for (enum format f = 0; f < FORMAT_COUNT; f++)
        for (int is_extreme = 0; is_extreme < 2; is_extreme++)
            if (format_traits(f)->codes != CODE_NONE) check_same_bits(a, b, f, is_extreme);
}

/* With every later set. Plain C rounds twice. */
static void check_with_others(int first)
{
    for (int i = first + 1; i < n_sets; i++)
        if (strcmp(sets[i]->name, "plain") != 0 && strcmp(sets[first]->name, "plain") != 0)
            check_all_same_bits(sets[first], sets[i]);
}

/* Whether a block's sums are not those of its codes. */
static bool has_wrong_sums(const struct act_block *block)
{
    int32_t pairs[4]; /* of halves' columns 4 i and 4 i + 1, and of the others */
    for (int i = 0; i < 4; i++) {
        const int8_t *q = block->q + i / 2 * 16 + i % 2 * 2;
        pairs[i] = q[0] + q[1] + q[4] + q[5] + q[8] + q[9] + q[12] + q[13];
        if (block->start6_pairs[i / 2][i % 2] != -32 * pairs[i]) return true;
    }
    int32_t first = pairs[0] + pairs[1], second = pairs[2] + pairs[3];
    return block->start6[0] != -32 * first || block->start6[1] != -32 * second ||
           block->minus != -(first + second) ||
           block->sum != block->scale * (float)(first + second);
}

/* Blocks so small that 127 by their largest value is infinite, in full or not in the end. */
static void check_tiny_blocks(const struct cpu_kernels *k)
{
    static const float largest[] = {1e-45f, 1e-40f, 1.2e-38f, 3e-37f, 1e-36f, 1e-33f, 1e-20f};
    for (size_t t = 0; t < sizeof largest / sizeof *largest; t++) {
        float x[BLOCK_COLS] = {[3] = largest[t], [20] = -largest[t] / 2};
        struct act_block block;
        k->quantize(x, BLOCK_COLS, &block);
        double limit = fmax((double)largest[t] / 250, 1e-30);
        int too_far = 0;
        for (int i = 0; i < BLOCK_COLS; i++)
            too_far += fabs((double)x[i] - block.q[i] * (double)block.scale) > limit;
        check(k->name, "quantise: tiny blocks", too_far, 0);
        check(k->name, "quantise: sums of tiny blocks", has_wrong_sums(&block), 0);
    }
}

/* Codes in two parts, of which the high one alone is a block in 8 bits. */
static void check_fine(const struct cpu_kernels *k, const float *x)
{
    enum { N = COLS / BLOCK_COLS };
    struct act_block high[N], low[N];
    double worst = 0, worst_high = 0;
    int wrong = 0;
    k->quantize_fine(x, COLS, high, low);
    for (int i = 0; i < COLS; i++) {
        const struct act_block *h = &high[i / BLOCK_COLS], *l = &low[i / BLOCK_COLS];
        int codes[2] = {h->q[i % BLOCK_COLS], l->q[i % BLOCK_COLS]};
        double step = l->scale > 0 ? (double)l->scale : 1;
        worst = fmax(worst, fabs((double)x[i] / step - FINE_BASE * codes[0] - codes[1]));
        worst_high = fmax(worst_high, fabs((double)x[i] / step / FINE_BASE - codes[0]));
        wrong += abs(codes[0]) > 127 || abs(codes[1]) > 127 || h->scale != l->scale * FINE_BASE;
    }
    for (int b = 0; b < N; b++) {
        float sum = -low[b].scale * (float)(FINE_BASE * high[b].minus + low[b].minus);
        wrong += has_wrong_sums(&high[b]) || low[b].sum != sum;
        low[b].sum = -low[b].scale * (float)low[b].minus; /* as that of a block of its own */
        wrong += has_wrong_sums(&low[b]);
    }
    check(k->name, "quantise fine: at most half a step", worst, 0.503);
    check(k->name, "quantise fine: the high part too", worst_high, 0.505);
    check(k->name, "quantise fine: parts and their sums", wrong, 0);
}

static void check_quantize(const struct cpu_kernels *k)
{
    float *x = random_floats(COLS, 3, 9);
    struct act_block blocks[COLS / BLOCK_COLS];
    memset(x, 0, 32 * sizeof *x); /* a block of zeros has scale 0 */
    k->quantize(x, COLS, blocks);
    double worst = 0;
    int wrong = 0;
    for (int b = 0; b < COLS / BLOCK_COLS; b++) wrong += has_wrong_sums(&blocks[b]);
    for (int i = 0; i < COLS; i++) {
        const struct act_block *block = &blocks[i / BLOCK_COLS];
        double step = (double)block->scale;
        double error = fabs((double)x[i] - block->q[i % BLOCK_COLS] * step);
        worst = fmax(worst, step > 0 ? error / step : error);
    }
    check(k->name, "quantise: at most half a step", worst, 0.5001);
    check(k->name, "quantise: sums of blocks", wrong, 0);
    check_fine(k, x);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) { /* in either half of a block */
        for (int j = 0; j < 32; j++) x[j] = 1;
        x[i / 3 * 16 + 7] = bad[i % 3];
        k->quantize(x, BLOCK_COLS, blocks);
        check(k->name, "quantise: a value that is not finite makes the scale NaN",
              isnan(blocks[0].scale) ? 0 : 1, 0);
    }
    check_tiny_blocks(k);
    float y[1] = {NAN};
    k->exp_shifted(y, 1, 0);
    check(k->name, "exp of NaN is NaN", isnan(y[0]) ? 0 : 1, 0);
    float scores[32] = {[7] = NAN}, top = -INFINITY;
    check(k->name, "softened NaN is NaN", isnan(k->soften(scores, 0, 31, &top)) ? 0 : 1, 0);
    y[0] = NAN;
    k->softcap(y, 30, y, 1);
    check(k->name, "softcap of NaN is NaN", isnan(y[0]) ? 0 : 1, 0);
    float values[32] = {[7] = NAN, [20] = 1};
    uint16_t halves[32];
    k->encode_f16(values, halves, 32);
    check(k->name, "NaN as fp16 is NaN",
          isnan(f16_to_f32(halves[7])) && halves[6] == 0 && halves[20] == 0x3c00 ? 0 : 1, 0);
    mem_free(x);
}

/* ---- Float kernels ---------------------------------------------------------------------- */

static struct float_rows rows_of(const float *floats, int64_t n)
{
    return (struct float_rows){FORMAT_F32, floats, (size_t)n * sizeof *floats, 0};
}

static void check_dots(const struct cpu_kernels *k, int n_a, int n_b, int n)
{
    float *a = random_floats((int64_t)n_a * n, 1, 1), *b = random_floats((int64_t)n_b * n, 1, 2);
    float *out = mem_alloc((size_t)(n_a + 1) * (size_t)n_b, sizeof *out);
    k->dots(a, n, n_a, rows_of(b, n), n_b, n, out, n_b);
    struct distance d = {0};
    for (int i = 0; i < n_a; i++)
        for (int j = 0; j < n_b; j++) {
            double sum = 0;
            for (int c = 0; c < n; c++) sum += (double)a[i * n + c] * (double)b[j * n + c];
            add_distance(&d, (double)out[i * n_b + j], sum);
        }
    check(k->name, "dots", relative(d), 1e-5);
    int differ = 0;
    for (int i = 0; i < n_a; i++) {
        float *alone = out + (size_t)n_a * (size_t)n_b;
        k->dots(a + (size_t)i * (size_t)n, n, 1, rows_of(b, n), n_b, n, alone, n_b);
        differ += memcmp(alone, out + (size_t)i * (size_t)n_b, (size_t)n_b * sizeof *out) != 0;
    }
    check(k->name, "dots of a row alone are those among others", differ, 0);
    mem_free(a);
    mem_free(b);
    mem_free(out);
}

/* Rows of halves, and of blocks of bytes, give the bits of the same values as floats, in dots and
 * in weigh. */
static void check_halves(const struct cpu_kernels *k, enum format format, int n_a, int n_b, int n)
{
    size_t row_bytes = format_row_bytes(format, n), row_floats = (size_t)n * sizeof(float);
    float *a = random_floats((int64_t)n_a * n, 1, 1), *b = random_floats((int64_t)n_b * n, 1, 2);
    float *y[2] = {mem_alloc((size_t)n_a, row_floats), mem_alloc((size_t)n_a, row_floats)};
    float *p[2] = {mem_alloc((size_t)(n_a * n_b), 4), mem_alloc((size_t)(n_a * n_b), 4)};
    uint8_t *bytes = mem_alloc((size_t)n_b, row_bytes);
    for (int j = 0; j < n_b; j++) {
        format_traits(format)->encode(b + j * n, NULL, bytes + (size_t)j * row_bytes, n);
        format_traits(format)->decode(bytes + (size_t)j * row_bytes, b + j * n, n);
    }
    struct float_rows rows[2] = {{format, bytes, row_bytes, (ptrdiff_t)row_bytes}, rows_of(b, n)};
    for (int i = 0; i < 2; i++) {
        k->dots(a, n, n_a, rows[i], n_b, n, p[i], n_b);
        memcpy(y[i], a, (size_t)n_a * row_floats);
        k->weigh(y[i], n, a /* as good as any */, p[i], n_b, n_a, rows[i], n_b, n);
    }
    check(k->name, "dots of halves or bytes are those of floats",
          memcmp(p[0], p[1], (size_t)(n_a * n_b) * sizeof(float)) != 0, 0);
    check(k->name, "weighed halves or bytes are weighed floats",
          memcmp(y[0], y[1], (size_t)n_a * row_floats) != 0, 0);
    if (format == FORMAT_Q8_0) {
        for (int j = 0; j < n_b; j++) k->decode_q8_0(bytes + (size_t)j * row_bytes, a, n);
        check(k->name, "decoded bytes are those of the format",
              memcmp(a, b + (n_b - 1) * n, row_floats) != 0, 0);
    }
    for (int i = 0; i < 2; i++) mem_free(y[i]), mem_free(p[i]);
    mem_free(a);
    mem_free(b);
    mem_free(bytes);
}

static void check_weigh(const struct cpu_kernels *k, int n_y, int n_v, int n)
{
    float *y = random_floats((int64_t)n_y * n, 1, 1), *v = random_floats((int64_t)n_v * n, 1, 2);
    float *p = random_floats((int64_t)n_y * n_v, 1, 3), *keep = random_floats(n_y, 1, 4);
    float *before = random_floats((int64_t)n_y * n, 1, 1);
    k->weigh(y, n, keep, p, n_v, n_y, rows_of(v, n), n_v, n);
    struct distance d = {0};
    for (int i = 0; i < n_y; i++)
        for (int c = 0; c < n; c++) {
            double sum = (double)before[i * n + c] * (double)keep[i];
            for (int j = 0; j < n_v; j++) sum += (double)p[i * n_v + j] * (double)v[j * n + c];
            add_distance(&d, (double)y[i * n + c], sum);
        }
    check(k->name, "weigh", relative(d), 1e-6);
    mem_free(y);
    mem_free(v);
    mem_free(p);
    mem_free(keep);
    mem_free(before);
}

static void check_soften(const struct cpu_kernels *k, int from, int to, float top)
{
    float *x = random_floats(32, 3, 1), shares[32], before = top;
    memcpy(shares, x, sizeof shares);
    float sum = k->soften(shares, from, to, &top);
    double most = (double)before, total = 0;
    struct distance d = {0};
    for (int i = from; i <= to; i++) most = (double)x[i] > most ? (double)x[i] : most;
    for (int i = 0; i < 32; i++) {
        double share = i < from || i > to ? 0 : exp((double)x[i] - most);
        add_distance(&d, (double)shares[i], share);
        total += share;
    }
    add_distance(&d, (double)sum, total);
    check(k->name, "soften", relative(d), 1e-6);
    check(k->name, "soften's top", fabs((double)top - most), 0);
    mem_free(x);
}

static double gelu(double a)
{
    return 0.5 * a * (1 + tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));
}

static void check_elementwise(const struct cpu_kernels *k, int n)
{
    float *x = random_floats(n, 3, 1), *w = random_floats(n, 1, 2);
    float *y = mem_alloc((size_t)n + 1, sizeof *y);
    struct distance norm = {0}, product = {0}, cap = {0}, exponent = {0}, sum = {0}, half = {0};
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    y[n] = 42; /* nothing is written after the end */
    k->rmsnorm(x, w, y, n, 1e-6f);
    for (int i = 0; i < n; i++)
        add_distance(&norm, (double)y[i], (double)x[i] * (double)w[i] / sqrt(squares / n + 1e-6));
    k->gelu_mul(x, w, y, n);
    for (int i = 0; i < n; i++)
        add_distance(&product, (double)y[i], gelu((double)x[i]) * (double)w[i]);
    k->softcap(x, 30, y, n);
    for (int i = 0; i < n; i++) add_distance(&cap, (double)y[i], 30 * tanh((double)x[i] / 30));
    k->add(x, w, y, n);
    for (int i = 0; i < n; i++) add_distance(&sum, (double)y[i], (double)x[i] + (double)w[i]);
    memcpy(y, x, (size_t)n * sizeof *y);
    k->exp_shifted(y, n, 2);
    for (int i = 0; i < n; i++) add_distance(&exponent, (double)y[i], exp((double)x[i] - 2));
    uint16_t *halves = mem_alloc((size_t)n, sizeof *halves);
    k->encode_f16(x, halves, n);
    k->decode_f16(halves, y, n);
    for (int i = 0; i < n; i++)
        add_distance(&half, (double)y[i], (double)f16_to_f32(f32_to_f16(x[i])));
    check(k->name, "rmsnorm", relative(norm), 1e-6);
    check(k->name, "gelu_mul", relative(product), 1e-6);
    check(k->name, "softcap", relative(cap), 1e-6);
    check(k->name, "add", relative(sum), 1e-6);
    check(k->name, "exp", relative(exponent), 1e-6);
    check(k->name, "f16 there and back is that of the format", relative(half), 0);
    check(k->name, "nothing after the end", fabs((double)y[n] - 42), 0);
    mem_free(halves);
    mem_free(x);
    mem_free(w);
    mem_free(y);
}

static void check_kernels(const struct cpu_kernels *k)
{
    for (enum format f = 0; f < FORMAT_COUNT; f++) {
        if (format_traits(f)->codes == CODE_NONE) continue;
        check_format(k, f);
    }
    check_quantize(k);
    check_dots(k, 7, 9, 256);
    check_dots(k, 4, 32, 500);
    check_dots(k, 7, 14, 2600);
    check_dots(k, 1, 5, 8200);
    check_dots(k, 1, 1, 5);
    static const enum format halves[] = {FORMAT_F16, FORMAT_BF16};
    for (int i = 0; i < 2; i++) {
        check_halves(k, halves[i], 1, 16, 2560);
        check_halves(k, halves[i], 7, 9, 500);
        check_halves(k, halves[i], 6, 1, 5);
    }
    static const int few[] = {1, 2, 3, 4, 7, 8, 9, 17};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        check_halves(k, FORMAT_Q8_0, few[i], 32, 512);
        check_halves(k, FORMAT_Q8_0, few[i], 5, 96);
        check_halves(k, FORMAT_F16, few[i], 31, 272);
    }
    check_weigh(k, 7, 9, 256);
    check_weigh(k, 4, 32, 512);
    check_weigh(k, 3, 1, 40);
    check_soften(k, 0, 31, -INFINITY);
    check_soften(k, 5, 5, -INFINITY);
    check_soften(k, 17, 30, 1);
    check_soften(k, 0, 20, 50);
    check_elementwise(k, 2560);
    check_elementwise(k, 37);
    check_elementwise(k, 3);
}

/* ---- Speed ------------------------------------------------------------------------------ */

/* Seconds of a run over all tiles. */
static double run_once(const struct cpu_kernels *k, const struct product *p, int32_t n)
{
    enum { TILES = 4 };
    float *out = mem_alloc((size_t)n * TILES * TILE_ROWS, sizeof *out);
    double begin = os_seconds();
    for (int64_t tile = 0; tile < p->w.weight.n_tiles; tile += TILES) {
        struct tile_job job = {.shape = &p->w.weight.shape,
                               .tile = tile_at(&p->w.weight, 0, tile),
                               .n_tiles = TILES,
                               .act = p->act,
                               .n = n,
                               .out = out};
        k->tile_dot(&job);
    }
    double seconds = os_seconds() - begin;
    mem_free(out);
    return seconds;
}

/* The median of 7. */
static double seconds_for(const struct cpu_kernels *k, const struct product *p, int32_t n)
{
    double runs[7];
    for (int r = 0; r < 7; r++) {
        double seconds = run_once(k, p, n);
        int at = r;
        for (; at > 0 && runs[at - 1] > seconds; at--) runs[at] = runs[at - 1];
        runs[at] = seconds;
    }
    return runs[3];
}

/* Many rows take panels, which must pay: a loop that a compiler did not unroll kept its sums in
 * memory and halved the speed of prompts on one set, and every result was right. Only what is slow
 * in every run in turns counts. Sanitizers and emulators do not show what a compiler made. */
static void check_panels_pay(const struct cpu_kernels *k)
{
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    enum { FEW = 8, MANY = 64, LEAST = 5, MOST = 100 };
    const double slower = 1.25;
    if (strcmp(k->name, "plain") == 0) return;
    for (enum format f = 0; f < FORMAT_COUNT; f++) {
        struct product p;
        char what[64];
        if (format_traits(f)->codes == CODE_NONE) continue;
        open_product(&p, k, f, 256, 2560, MANY, false);
        double few = INFINITY, many = INFINITY;
        for (int i = 0; i < LEAST || (i < MOST && many > few * slower); i++) {
            few = fmin(few, run_once(k, &p, FEW) / FEW);
            many = fmin(many, run_once(k, &p, MANY) / MANY);
        }
        snprintf(what, sizeof what, "%s, time of a row of %d by that of a row of %d",
                 format_traits(f)->name, MANY, FEW);
        check(k->name, what, many / few, slower);
        close_product(&p);
    }
#else
    (void)k;
#endif
}

/* Of one format, or of all (NULL). Gives how many were measured. */
static int measure(const struct cpu_kernels *k, const char *format)
{
    static const int32_t counts[] = {1, 2, 4, 8, 12, 16, 24, 32, 64, 256};
    int n_measured = 0;
    for (enum format f = 0; f < FORMAT_COUNT; f++) {
        struct product p;
        if (format_traits(f)->codes == CODE_NONE) continue;
        if (format && strcmp(format, format_traits(f)->name) != 0) continue;
        open_product(&p, k, f, 2560, 2560, 256, false);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            double s = seconds_for(k, &p, counts[i]);
            printf("%s,%s,%d,%.1f,%.1f\n", k->name, format_traits(f)->name, counts[i],
                   (double)p.w.weight.bytes / s / 1e9, 2.0 * 2560 * 2560 * counts[i] / s / 1e9);
            fflush(stdout); /* some take long */
        }
        close_product(&p);
        n_measured++;
    }
    return n_measured;
}

static void find_sets(bool tells)
{
    const char *name;
    for (int i = 0; (name = cpu_isa_name(i)); i++) {
        struct carat_error err;
        if (cpu_kernels_find(&sets[n_sets], name, &err) == CARAT_OK)
            n_sets++;
        else if (tells)
            printf("skipped: %s\n", err.message);
    }
#if defined(__x86_64__)
    extern const struct cpu_kernels cpu_kernels_avxvnni_by_evex; /* avxvnni_by_evex.c */
    if (cpu_kernels_find(&sets[n_sets], "avx512", NULL) == CARAT_OK)
        sets[n_sets++] = &cpu_kernels_avxvnni_by_evex;
#endif
}

int main(int argc, char **argv)
{
    bool is_perf = argc > 1 && strcmp(argv[1], "--perf") == 0;
    const char *set = argc > 1 + is_perf ? argv[1 + is_perf] : NULL;
    const char *format = is_perf && argc > 3 ? argv[3] : NULL;
    int n_done = 0;
    find_sets(!is_perf);
    if (is_perf) printf("kernels,format,rows,GB/s,GOP/s\n");
    for (int i = 0; i < n_sets; i++) {
        if (set && strcmp(set, sets[i]->name) != 0) continue;
        if (is_perf) {
            n_done += measure(sets[i], format);
        } else {
            check_kernels(sets[i]);
            check_panels_pay(sets[i]);
            check_with_others(i);
            n_done++;
        }
    }
    if (n_done == 0) {
        fprintf(stderr, "no such instruction set here, or format\n");
        return 1;
    }
    if (!is_perf) printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
