/* Products in bf16 on AMX's registers, emulated here so that any processor checks them, and on real
 * ones where there are any: they are near the products in double precision, rows have the same bits
 * alone and among others, and emulated and real ones too.
 *
 *   check-amx [--quick]   ends with "N passed, N failed"; --quick: fewer shapes, for valgrind */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/tiled.h"

extern const struct cpu_kernels cpu_kernels_amx_over_plain;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_kernels_amx_over_avx512;
#endif

enum { ROWS_MAX = 545, SETS_MAX = 3 };

/* Relative L2 errors. Numbers in bf16 are off by 2^-9 at most, and in both operands; those of Q3_K,
 * which are few, cancel less. Scales in blocks of 256, which are products, are rounded to a half in
 * tiles, except in those of S6. */
static const double LIMIT_HIGH = 2.9e-3, LIMIT_SUMS = 1e-5, LIMIT_SCALES = 1e-3;

static int passed, failed;

static void check(const char *name, const char *what, double error, double limit)
{
    if (error <= limit) { /* false for NaN */
        passed++;
        return;
    }
    failed++;
    printf("FAIL %s, %s: error %.3g, at most %.3g expected\n", name, what, error, limit);
}

struct data {
    struct tiled w;
    int64_t n_rows, cols;
    int32_t n_act;
    float *x; /* n_act x cols */
    uint16_t *high, *low;
};

static int64_t round_up(int64_t n)
{
    return (n + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}

static void open_data(struct data *d, const struct cpu_kernels *k, enum format format,
                      int64_t n_rows, int64_t cols, int32_t n_act)
{
    size_t n = (size_t)bf16_size(n_act, cols);
    *d = (struct data){.n_rows = n_rows, .cols = cols, .n_act = n_act};
    tiled_open(&d->w, k, format, n_rows, cols, false);
    d->x = random_floats(n_act * cols, 1, 6);
    d->high = mem_alloc(n, sizeof *d->high);
    d->low = mem_alloc(n, sizeof *d->low);
    for (int64_t r = 0; r < n_act; r++)
        k->bf16_round(d->x + r * cols, cols, bf16_stretch(n_act), d->high + bf16_row(r),
                      d->low + bf16_row(r));
}

static void close_data(struct data *d)
{
    tiled_close(&d->w);
    mem_free(d->x);
    mem_free(d->high);
    mem_free(d->low);
}

/* Rows from `first` on. */
static struct bf16_job make_job(const struct data *d, bool is_fine, int32_t first, int32_t n,
                                float *out)
{
    const struct weight *w = &d->w.source;
    bool has_tiles = d->w.weight.tiles != NULL;
    return (struct bf16_job){.shape = has_tiles ? &d->w.weight.shape : NULL,
                             .tile = d->w.weight.tiles,
                             .rows = {w->format, d->w.weight.rows, w->row_bytes, 0},
                             .n_rows = d->n_rows,
                             .n_blocks = d->cols / BLOCK_COLS,
                             .n_tiles = (int32_t)(round_up(d->n_rows) / TILE_ROWS),
                             .act = d->high,
                             .low = is_fine || !has_tiles ? d->low : NULL,
                             .stretch = bf16_stretch(d->n_act),
                             .first = first,
                             .n = n,
                             .out = out};
}

static size_t results(const struct data *d, int32_t n)
{
    return (size_t)(n * round_up(d->n_rows));
}

/* Results have exactly the right size, so that sanitizers see what is written next to them. */
static float *run(const struct cpu_kernels *k, const struct data *d, bool is_fine, int32_t first,
                  int32_t n)
{
    float *out = mem_alloc(results(d, n), sizeof *out);
    struct bf16_job job = make_job(d, is_fine, first, n, out);
    memset(out, 0x55, results(d, n) * sizeof *out);
    k->bf16_dot(&job);
    return out;
}

static double distance(const struct data *d, const float *out, int32_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < d->n_rows; r++) {
            double sum = 0;
            for (int64_t c = 0; c < d->cols; c++)
                sum += (double)d->w.decoded[r * d->cols + c] * (double)d->x[i * d->cols + c];
            double error = (double)out[i * round_up(d->n_rows) + r] - sum;
            difference += error * error;
            size += sum * sum;
        }
    return sqrt(difference / size);
}

/* All rows at once, then each group's first alone, and results in rows of their own. */
static void check_rows(const struct cpu_kernels *k, const struct data *d, bool is_fine)
{
    char name[96];
    int64_t stride = round_up(d->n_rows);
    const struct format_traits *format = format_traits(d->w.source.format);
    bool is_rounded = format->block_elements == 256 && !code_kind_has_halves(format->codes);
    bool is_sums = is_fine || format->codes == CODE_NONE;
    snprintf(name, sizeof name, "%s, %s%s, %d rows, %d by %d", k->name, format->name,
             is_fine ? ", fine" : "", (int)d->n_act, (int)d->n_rows, (int)d->cols);
    float *all = run(k, d, is_fine, 0, d->n_act);
    double limit = (is_sums ? LIMIT_SUMS : LIMIT_HIGH) + (is_rounded ? LIMIT_SCALES : 0);
    check(name, "distance to double precision", distance(d, all, d->n_act), limit);
    int different = 0;
    for (int32_t first = 0; first < d->n_act; first += BF16_ROWS) {
        float *one = run(k, d, is_fine, first, 1);
        different += memcmp(one, all + first * stride, (size_t)stride * sizeof *one) != 0;
        mem_free(one);
    }
    check(name, "rows alone and together", different, 0);
    float *y = mem_alloc(results(d, d->n_act) * 2, sizeof *y);
    float *room = mem_alloc(results(d, d->n_act), sizeof *room);
    struct bf16_job job = make_job(d, is_fine, 0, d->n_act, room);
    job.y = y;
    job.y_stride = stride * 2;
    k->bf16_dot(&job);
    for (int32_t i = 0; i < d->n_act; i++)
        different += memcmp(y + i * stride * 2, all + i * stride, (size_t)stride * 4) != 0;
    check(name, "results in rows of their own", different, 0);
    mem_free(room);
    mem_free(y);
    mem_free(all);
}

static void check_shape(const struct cpu_kernels *k, enum format format, int64_t n_rows,
                        int64_t cols, int32_t n_act)
{
    struct data d;
    if (format == FORMAT_F32 || cols % format_traits(format)->block_elements) return;
    open_data(&d, k, format, n_rows, cols, n_act);
    check_rows(k, &d, false);
    if (d.w.weight.tiles) check_rows(k, &d, true);
    close_data(&d);
}

/* A row that is not finite spoils no other, and not its own to something finite. */
static void check_not_finite(const struct cpu_kernels *k, enum format format)
{
    struct data d;
    int wrong = 0;
    open_data(&d, k, format, 32, 256, 20);
    float *before = run(k, &d, true, 0, 20);
    d.high[5 * BLOCK_COLS + 7] = 0x7fc0; /* NaN in row 5 */
    float *after = run(k, &d, true, 0, 20);
    for (int i = 0; i < 20 * 32; i++)
        wrong += i / 32 == 5 ? !isnan(after[i]) : memcmp(&before[i], &after[i], 4) != 0;
    check(k->name, "a row that is not finite", wrong, 0);
    mem_free(before);
    mem_free(after);
    close_data(&d);
}

static void check_set(const struct cpu_kernels *k, bool is_quick)
{
    static const int32_t counts[] = {1, 15, 16, 17, 31, 32, 33, 47, 64, 130, ROWS_MAX};
    for (enum format f = 0; f < FORMAT_COUNT; f++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            if (!is_quick || i == 3) check_shape(k, f, 40, 256, counts[i]);
        for (int64_t rows = 1; rows < 90 && !is_quick; rows += 11) check_shape(k, f, rows, 256, 18);
        for (int64_t cols = 32; cols < 1800; cols += is_quick ? 800 : 224)
            check_shape(k, f, 33, cols, 21);
        if (f != FORMAT_F32) check_not_finite(k, f);
    }
}

/* Of two sets, one emulated. */
static void check_same_bits(const struct cpu_kernels *a, const struct cpu_kernels *b)
{
    char name[96];
    snprintf(name, sizeof name, "%s and %s", a->name, b->name);
    for (enum format f = 0; f < FORMAT_COUNT; f++)
        for (int is_fine = 0; is_fine < 2 && f != FORMAT_F32; is_fine++) {
            struct data d;
            open_data(&d, a, f, 40, 768, 70);
            float *x = run(a, &d, is_fine, 0, 70), *y = run(b, &d, is_fine, 0, 70);
            check(name, format_traits(f)->name, memcmp(x, y, results(&d, 70) * sizeof *x) != 0, 0);
            mem_free(x);
            mem_free(y);
            close_data(&d);
        }
}

int main(int argc, char **argv)
{
    const struct cpu_kernels *sets[SETS_MAX] = {&cpu_kernels_amx_over_plain}, *found;
    struct carat_error err;
    int n_sets = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
#if defined(__x86_64__)
    if (cpu_kernels_find(&found, "avx512", &err) == CARAT_OK)
        sets[n_sets++] = &cpu_kernels_amx_over_avx512;
    else
        printf("skipped, emulated over avx512: %s\n", err.message);
#endif
    if (cpu_kernels_find(&found, "amx", &err) == CARAT_OK)
        sets[n_sets++] = found;
    else
        printf("skipped, real registers: %s\n", err.message);
    for (int i = 0; i < n_sets; i++) {
        check_set(sets[i], is_quick);
        printf("%s: %d passed so far\n", sets[i]->name, passed);
    }
    if (n_sets == SETS_MAX) check_same_bits(sets[1], sets[2]); /* plain lanes round sums twice */
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
