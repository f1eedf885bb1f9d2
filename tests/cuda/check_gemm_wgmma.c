/* Matrix products on Hopper by wgmma: the bits of launch_gemm_f16, whose products are compared with
 * exact ones elsewhere, slice by slice, whatever the shape, and the same bits for any number of
 * rows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cublas.h"
#include "backend/cuda/slices.h"
#include "cuda/check.h"
#include "quant/format.h"

static void *need(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);
    if (!p) {
        puts("out of memory");
        exit(1);
    }
    return p;
}

/* Normal values, after a million the same again; columns from `cols` on are 0. */
static uint16_t *draw(size_t rows, size_t cols, size_t stride, uint64_t seed)
{
    enum { PERIOD = 1000003 };
    struct rng rng = {.state = seed};
    uint16_t *values = need(rows * stride, sizeof *values), *normal = need(PERIOD, sizeof *normal);
    for (size_t i = 0; i < PERIOD && i < rows * stride; i++)
        normal[i] = f32_to_f16(rng_normal(&rng));
    for (size_t i = 0; i < rows * stride; i++)
        if (i % stride < cols) values[i] = normal[i % PERIOD];
    free(normal);
    return values;
}

/* ---- A product ----------------------------------------------------------------------------- */

struct product {
    int32_t n_w, rows[3], cols, n_rows, spare_cols;
    struct gemm_args args; /* for n_rows, without results */
    size_t n_out;          /* columns of all weights */
};

static float scale_of_row(size_t row)
{
    return ldexpf(1, (int)(row % 7) - 3);
}

/* The NaN is in the row of x and in the row of the first weight; -1: nowhere. */
static struct product product_make(const struct product *shape, int32_t nan_row, int32_t nan_col)
{
    struct product p = *shape;
    size_t stride = ((size_t)p.cols + 63) / 64 * 64, n_rows = (size_t)p.n_rows;
    for (int32_t k = 0; k < p.n_w; k++) p.n_out += (size_t)p.rows[k];
    uint16_t *x = draw(n_rows, (size_t)p.cols, stride, 5);
    uint16_t *w = draw(p.n_out, (size_t)p.cols, stride, 6);
    if (nan_row >= 0) x[(size_t)nan_row * stride] = 0x7e00;
    if (nan_col >= 0) w[(size_t)nan_col * stride + (size_t)p.cols - 1] = 0x7e00;
    float *scale = need(n_rows, sizeof *scale);
    for (size_t i = 0; i < n_rows; i++) scale[i] = scale_of_row(i);
    p.args = (struct gemm_args){.n_rows = p.n_rows, .n_w = p.n_w};
    p.args.x = (struct act){.kind = ACT_HALF,
                            .stride = (int32_t)stride,
                            .values = check_alloc(x, n_rows * stride * 2),
                            .scale = check_alloc(scale, n_rows * sizeof *scale)};
    uint16_t *mirror = check_alloc(w, p.n_out * stride * 2);
    for (int32_t k = 0; k < p.n_w; k++) {
        p.args.w[k] = (struct cuda_weight){.n_expert = 1,
                                           .rows = p.rows[k],
                                           .cols = p.cols,
                                           .mirror = mirror,
                                           .mirror_cols = (int32_t)stride};
        mirror += (size_t)p.rows[k] * stride;
    }
    free(x), free(w), free(scale);
    return p;
}

static void product_free(struct check *c, struct product *p)
{
    bool is_whole = check_free(p->args.x.values);
    is_whole = check_free(p->args.x.scale) && is_whole;
    is_whole = check_free(p->args.w[0].mirror) && is_whole;
    check_that(c, is_whole, "gemm_wgmma: inputs overwritten");
}

/* ---- Its results ----------------------------------------------------------------------------- */

enum way { FLOATS, UNSCALED, HALVES, WAYS };
static const char *const way_names[] = {"fp32", "fp32 without scales", "half"};

static size_t result_bytes(const struct product *p, enum way way, int32_t n_rows)
{
    size_t half_cols = p->n_out + (size_t)p->spare_cols;
    return (size_t)n_rows * (way == HALVES ? half_cols * 2 : p->n_out * 4);
}

enum { FASTEST = -1 }; /* of tiles */

/* False: no such tile makes this. */
static bool launch(struct check *c, const struct gemm_args *args, const struct gemm_maps *maps,
                   int tile)
{
    if (tile != FASTEST) return launch_gemm_tile(&c->queue, args, maps, tile);
    launch_gemm_wgmma(&c->queue, args, maps);
    return true;
}

/* The first n_rows rows. On the host, to be freed; fp32 weight after weight. NULL: no such tile. */
static void *multiply_by(struct check *c, const struct product *p, enum way way, int32_t n_rows,
                         int tile)
{
    size_t bytes = result_bytes(p, way, n_rows);
    struct gemm_args args = p->args;
    struct gemm_maps maps;
    char *memory = check_alloc(NULL, bytes), *y = memory;
    bool is_made = true;
    args.is_unscaled = way == UNSCALED;
    args.half_cols = (int32_t)p->n_out + p->spare_cols;
    if (way == HALVES) args.half = (uint16_t *)(void *)memory;
    for (int32_t k = 0; way != HALVES && k < p->n_w; k++) {
        args.y[k] = (float *)(void *)y;
        y += (size_t)n_rows * (size_t)p->rows[k] * 4;
    }
    for (int32_t k = 0; k < p->n_w; k++) {
        struct gemm_args part = args;
        part.n_rows = p->n_rows; /* the maps are for all */
        if (way != HALVES) part.n_w = 1, part.w[0] = args.w[k], part.y[0] = args.y[k];
        if (way == HALVES && k > 0) continue;
        bool is_mapped = gemm_maps_make(&part, &maps);
        check_that(c, is_mapped, "gemm_maps_make %d x %zu x %d", n_rows, p->n_out, p->cols);
        part.n_rows = n_rows;
        if (is_mapped) is_made = launch(c, &part, &maps, tile) && is_made;
    }
    void *host = need(bytes, 1);
    check_download(host, memory, bytes);
    check_that(c, check_free(memory), "gemm_wgmma %s %d x %zu x %d: writes beyond", way_names[way],
               n_rows, p->n_out, p->cols);
    if (is_made) return host;
    free(host);
    return NULL;
}

static void *multiply(struct check *c, const struct product *p, enum way way, int32_t n_rows)
{
    return multiply_by(c, p, way, n_rows, FASTEST);
}

/* Adds slice i of n to y [n_rows][rows of weight k]: launch_gemm_f16 with zeros elsewhere in x. */
static void add_slice(struct check *c, const struct product *p, int32_t k, int32_t i, int32_t n,
                      float *y)
{
    size_t stride = (size_t)p->args.x.stride, n_rows = (size_t)p->n_rows;
    size_t n_y = n_rows * (size_t)p->rows[k], steps = stride / 64, bytes = n_rows * stride * 2;
    size_t begin = steps * (size_t)i / (size_t)n * 64,
           end = steps * (size_t)(i + 1) / (size_t)n * 64;
    uint16_t *x = need(n_rows * stride, sizeof *x);
    float *slice = need(n_y, sizeof *slice);
    check_download(x, p->args.x.values, bytes);
    for (size_t at = 0; at < n_rows * stride; at++)
        if (at % stride < begin || at % stride >= end) x[at] = 0;
    struct gemm_args args = {
        .n_rows = p->n_rows, .n_w = 1, .w = {p->args.w[k]}, .x = p->args.x, .is_unscaled = true};
    args.x.values = check_alloc(x, bytes);
    args.y[0] = check_alloc(NULL, n_y * sizeof *slice);
    launch_gemm_f16(&c->queue, &args);
    check_download(slice, args.y[0], n_y * sizeof *slice);
    for (size_t at = 0; at < n_y; at++) y[at] = i == 0 ? slice[at] : y[at] + slice[at];
    check_free(args.x.values);
    check_free(args.y[0]);
    free(x), free(slice);
}

/* What multiply gives for all rows. */
static void *expect(struct check *c, const struct product *p, enum way way)
{
    size_t half_cols = p->n_out + (size_t)p->spare_cols, first = 0;
    uint16_t *halves = need(1, result_bytes(p, way, p->n_rows));
    float *floats = (float *)(void *)halves;
    memset(halves, 0xff, result_bytes(p, way, p->n_rows));
    for (int32_t k = 0; k < p->n_w; first += (size_t)p->rows[k++]) {
        size_t rows = (size_t)p->rows[k], n_y = (size_t)p->n_rows * rows;
        int32_t n =
            gemm_slices(way == HALVES ? (int32_t)p->n_out : p->rows[k], p->args.x.stride / 64);
        float *y = need(n_y, sizeof *y);
        for (int32_t i = 0; i < n; i++) add_slice(c, p, k, i, n, y);
        for (size_t at = 0; at < n_y; at++) {
            size_t row = at / rows, col = at % rows;
            if (way == HALVES)
                halves[row * half_cols + first + col] = f32_to_f16(y[at]);
            else
                floats[(size_t)p->n_rows * first + at] =
                    way == FLOATS ? y[at] * scale_of_row(row) : y[at];
        }
        free(y);
    }
    return halves;
}

/* Values that differ; NaN is NaN. */
static size_t count_differences(const void *a, const void *b, size_t bytes, bool is_half)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes / (is_half ? 2 : 4); i++)
        if (is_half) {
            uint16_t u = ((const uint16_t *)a)[i], v = ((const uint16_t *)b)[i];
            n += u != v && !((u & 0x7fff) > 0x7c00 && (v & 0x7fff) > 0x7c00);
        } else {
            uint32_t u = ((const uint32_t *)a)[i], v = ((const uint32_t *)b)[i];
            n += u != v && !((u & 0x7fffffff) > 0x7f800000 && (v & 0x7fffffff) > 0x7f800000);
        }
    return n;
}

/* ---- Bits ------------------------------------------------------------------------------------ */

#define SHAPE(w, cols_, n_rows_, spare, ...)                                                       \
    {                                                                                              \
        .n_w = w, .rows = {__VA_ARGS__}, .cols = cols_, .n_rows = n_rows_, .spare_cols = spare     \
    }
static const struct product shapes[] = {
    SHAPE(1, 64, 1, 0, 8),
    SHAPE(1, 100, 3, 0, 264),
    SHAPE(3, 192, 17, 8, 64, 32, 40),
    SHAPE(2, 704, 65, 16, 136, 136),
    SHAPE(3, 320, 130, 0, 512, 128, 128),
    SHAPE(1, 256, 300, 8, 776),
    SHAPE(1, 128, 128, 0, 4096),
    SHAPE(2, 1088, 97, 0, 304, 24),
    SHAPE(1, 128, 512, 0, 640),
    SHAPE(1, 64, 2048, 0, 264),
    SHAPE(1, 640, 513, 0, 2560),
    SHAPE(2, 512, 2047, 0, 1280, 1280),
    SHAPE(1, 64, 1999, 0, 3072),
    SHAPE(1, 192, 2048, 0, 2816),
    SHAPE(1, 192, 1024, 0, 5376),
    SHAPE(1, 192, 1999, 0, 3840),
    SHAPE(1, 4096, 9, 0, 264), /* from here on in slices: 8, */
    SHAPE(1, 2560, 200, 0, 256),
    SHAPE(2, 1856, 77, 8, 640, 1272), /* 4 */
    SHAPE(1, 1088, 600, 0, 1536),
    SHAPE(3, 1100, 300, 16, 2048, 512, 512), /* and 2 */
    SHAPE(1, 2048, 513, 0, 2560),
    SHAPE(1, 512, 1999, 0, 3840),
    SHAPE(1, 512, 2040, 0, 2816),
};

/* As on a chip of few multiprocessors, where a pair of blocks makes many tiles, and other ones are
 * the fastest. */
static const int32_t chips[] = {132, 2, 24, 66};

static void check_shape(struct check *c, const struct product *shape, int32_t nan_row,
                        int32_t nan_col)
{
    struct product p = product_make(shape, nan_row, nan_col);
    const int32_t n_sm = c->queue.n_sm;
    for (enum way way = 0; way < WAYS; way++) {
        size_t bytes = result_bytes(&p, way, p.n_rows);
        void *expected = expect(c, &p, way);
        for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
            if (chips[i] > n_sm) continue;
            c->queue.n_sm = chips[i];
            void *found = multiply(c, &p, way, p.n_rows);
            size_t n = count_differences(expected, found, bytes, way == HALVES);
            check_that(c, n == 0, "gemm_wgmma %s %d x %zu x %d on %d: %zu values differ",
                       way_names[way], p.n_rows, p.n_out, p.cols, chips[i], n);
            free(found);
            c->queue.n_sm = n_sm;
        }
        free(expected);
    }
    product_free(c, &p);
}

/* ---- Gate and up ----------------------------------------------------------------------------- */

/* Rows of W by 2^0 to 2^-20 in turn, and a row of zeros in x. */
static void spread(struct product *p)
{
    size_t stride = (size_t)p->args.x.stride;
    uint16_t *w = need(p->n_out * stride, 2), *zeros = need(stride, 2);
    check_download(w, p->args.w[0].mirror, p->n_out * stride * 2);
    for (size_t i = 0; i < p->n_out * stride; i++)
        w[i] = f32_to_f16(ldexpf(f16_to_f32(w[i]), -(int)(i / stride % 21)));
    check_upload(p->args.w[0].mirror, w, p->n_out * stride * 2);
    check_upload(p->args.x.values, zeros, stride * 2);
    free(w), free(zeros);
}

/* What the largest |gelu(gate) up| is 2^15 times at most, for rows of W and x as long as these. */
static float hidden_scale_for(const struct product *p)
{
    int exponent;
    double squares = 1.5 * p->cols + 64, scale = 8;
    frexp(squares * squares * scale * scale, &exponent);
    return ldexpf(1, exponent - 15);
}

/* By way of fp32 sums, slice by slice, and launch_gelu_mul; padding is 0. To be freed. */
static uint16_t *hidden_expected(struct check *c, const struct product *p, size_t stride)
{
    size_t n_rows = (size_t)p->n_rows, cols = (size_t)p->rows[0], n = n_rows * cols;
    int32_t n_slices = gemm_slices(2 * (int32_t)stride, p->args.x.stride / 64);
    struct step_view step = check_step(p->n_rows, 0, 0, NULL, NULL, NULL, NULL);
    float *floats = check_alloc(NULL, 3 * n * sizeof *floats), *host = need(n, sizeof *host);
    for (int32_t k = 0; k < 2; k++) {
        for (int32_t i = 0; i < n_slices; i++) add_slice(c, p, k, i, n_slices, host);
        for (size_t i = 0; i < n; i++) host[i] *= scale_of_row(i / cols);
        check_upload(floats + (size_t)k * n, host, n * sizeof *host);
    }
    struct gelu_mul_args gelu = {.step = step,
                                 .rows = {p->n_rows, 0},
                                 .a = floats,
                                 .b = floats + n,
                                 .half_div = 1,
                                 .cols = p->rows[0],
                                 .b_cols = p->rows[0],
                                 .y = floats + 2 * n};
    launch_gelu_mul(&c->queue, &gelu);
    check_download(host, gelu.y, n * sizeof *host);
    uint16_t *expected = need(n_rows * stride, 2);
    float inverse = 1 / hidden_scale_for(p);
    for (size_t i = 0; i < n; i++)
        expected[i / cols * stride + i % cols] = f32_to_f16(host[i] * inverse);
    check_free(floats), free(host);
    check_step_free(&step);
    return expected;
}

/* NULL: no such tile. */
static uint16_t *hidden_found(struct check *c, const struct product *p, size_t stride, int tile)
{
    size_t n_rows = (size_t)p->n_rows;
    struct gemm_args args = p->args;
    struct gemm_maps maps;
    float *scale = need(n_rows, sizeof *scale);
    uint16_t *found = need(n_rows * stride, 2);
    args.hidden = (struct act){.kind = ACT_HALF,
                               .stride = (int32_t)stride,
                               .values = check_alloc(NULL, n_rows * stride * 2),
                               .scale = check_alloc(NULL, n_rows * sizeof *scale)};
    args.hidden_scale = hidden_scale_for(p);
    check_that(c, gemm_maps_make(&args, &maps), "gemm_wgmma: no maps for gate and up");
    bool is_made = launch(c, &args, &maps, tile);
    check_download(found, args.hidden.values, n_rows * stride * 2);
    check_download(scale, args.hidden.scale, n_rows * sizeof *scale);
    size_t n = 0;
    for (size_t i = 0; i < n_rows && is_made; i++) n += scale[i] != args.hidden_scale;
    check_that(c, n == 0, "gemm_wgmma: gate and up: %zu scales of %zu are wrong", n, n_rows);
    bool is_whole = check_free(args.hidden.values);
    is_whole = check_free(args.hidden.scale) && is_whole;
    check_that(c, is_whole, "gemm_wgmma: gate and up: writes beyond");
    free(scale);
    if (is_made) return found;
    free(found);
    return NULL;
}

static void check_pair(struct check *c, const struct product *shape, int32_t nan_row,
                       int32_t nan_col)
{
    struct product p = product_make(shape, nan_row, nan_col);
    const int32_t n_sm = c->queue.n_sm;
    if (nan_row < 0) spread(&p);
    size_t stride = ((size_t)p.rows[0] + 63) / 64 * 64, bytes = (size_t)p.n_rows * stride * 2;
    uint16_t *expected = hidden_expected(c, &p, stride);
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        if (chips[i] > n_sm) continue;
        c->queue.n_sm = chips[i];
        uint16_t *found = hidden_found(c, &p, stride, FASTEST);
        size_t n = count_differences(expected, found, bytes, true);
        check_that(c, n == 0, "gemm_wgmma: gate and up %d x %d x %d on %d: %zu values differ",
                   p.n_rows, p.rows[0], p.cols, chips[i], n);
        free(found);
        c->queue.n_sm = n_sm;
    }
    for (int i = 0; i < GEMM_TILES && p.n_rows * (int64_t)p.rows[0] < 1000000; i++) {
        uint16_t *found = hidden_found(c, &p, stride, i);
        if (!found) continue;
        size_t n = count_differences(expected, found, bytes, true);
        check_that(c, n == 0, "gemm_wgmma: gate and up %d x %d x %d by tiles of %s: %zu differ",
                   p.n_rows, p.rows[0], p.cols, gemm_tile_name(i), n);
        free(found);
    }
    free(expected);
    product_free(c, &p);
}

static void check_pairs(struct check *c)
{
    static const struct product pairs[] = {
        SHAPE(2, 64, 1, 0, 8, 8),
        SHAPE(2, 100, 65, 0, 136, 136),
        SHAPE(2, 704, 130, 0, 1000, 1000),
        SHAPE(2, 256, 700, 0, 776, 776),
        SHAPE(2, 512, 512, 0, 1280, 1280),
        SHAPE(2, 192, 2047, 0, 2816, 2816),
        SHAPE(2, 192, 1999, 0, 1536, 1536),
        SHAPE(2, 128, 520, 0, 5376, 5376),
        SHAPE(2, 64, 1024, 0, 640, 640),
        SHAPE(2, 320, 512, 0, 2560, 2560),
        SHAPE(2, 2048, 9, 0, 264, 264),
        SHAPE(2, 2816, 77, 0, 2112, 2112), /* 8, 2 slices, */
        SHAPE(2, 1088, 140, 0, 776, 776),
        SHAPE(2, 2112, 600, 0, 320, 320), /* 4, 8 */
        SHAPE(2, 2816, 1025, 0, 2112, 2112),
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (c->is_small && (int64_t)pairs[i].n_rows * pairs[i].rows[0] > 300000) continue;
        check_pair(c, &pairs[i], -1, -1);
    }
    check_pair(c, &pairs[1], 33, 70);
    check_pair(c, &pairs[12], 5, 700);
}

/* The first rows of a long prompt and a short prompt of these rows. */
static void check_row_counts(struct check *c, int32_t out, int32_t cols)
{
    static const int32_t rows[] = {1, 7, 64, 65, 128, 130, 200, 257, 500, 512, 1000};
    struct product shape = SHAPE(1, cols, 2048, 0, out), p = product_make(&shape, -1, -1);
    void *all = multiply(c, &p, HALVES, p.n_rows);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *some = multiply(c, &p, HALVES, rows[i]);
        size_t n = count_differences(all, some, result_bytes(&p, HALVES, rows[i]), true);
        check_that(c, n == 0, "gemm_wgmma %d x %d: %zu values of %d rows are others alone", out,
                   cols, n, rows[i]);
        free(some);
    }
    free(all);
    product_free(c, &p);
}

static void check_refused(struct check *c)
{
    struct product shape = SHAPE(1, 64, 5, 0, 24), p = product_make(&shape, -1, -1);
    struct gemm_args args = p.args;
    struct gemm_maps maps;
    args.y[0] = args.x.scale;
    check_that(c, gemm_maps_make(&args, &maps), "gemm_wgmma: 24 columns of results");
    args.w[0].rows = 23;
    check_that(c, !gemm_maps_make(&args, &maps), "gemm_wgmma: 23 columns of results");
    args = p.args;
    args.half = (uint16_t *)args.x.values + 1, args.half_cols = 24;
    check_that(c, !gemm_maps_make(&args, &maps), "gemm_wgmma: results that are not aligned");
    product_free(c, &p);
}

/* ---- Time ------------------------------------------------------------------------------------ */

enum { COPIES = 6 }; /* of weights: none is in L2 when its turn comes */

struct timed {
    struct check *c;
    struct cublas *cublas;
    struct gemm_args args[COPIES];
    struct gemm_maps maps[COPIES];
    int tile;
};

static void run_all(void *user)
{
    struct timed *t = user;
    for (int i = 0; i < COPIES; i++)
        if (t->cublas)
            cublas_multiply(t->cublas, &t->c->queue, &t->args[i]);
        else
            launch(t->c, &t->args[i], &t->maps[i], t->tile);
}

static void time_shape(struct check *c, struct cublas *cublas, int32_t rows, int32_t out,
                       int32_t cols)
{
    struct product shape = SHAPE(1, cols, rows, 0, COPIES * out), p = product_make(&shape, -1, -1);
    struct timed t = {.c = c, .tile = FASTEST};
    void *y = check_alloc(NULL, (size_t)rows * (size_t)out * 2);
    for (int i = 0; i < COPIES; i++) {
        t.args[i] = p.args;
        t.args[i].w[0].rows = out;
        t.args[i].w[0].mirror += (size_t)i * (size_t)out * (size_t)p.args.x.stride;
        t.args[i].half = y;
        t.args[i].half_cols = out;
        gemm_maps_make(&t.args[i], &t.maps[i]);
    }
    double flop = 2.0 * COPIES * rows * out * cols, own[2], other[2] = {0};
    for (int i = 0; i < 2; i++) {
        t.cublas = NULL;
        own[i] = check_time(c, run_all, &t, false);
        t.cublas = cublas;
        if (cublas) other[i] = check_time(c, run_all, &t, false);
    }
    printf("gemm_wgmma %4d x %5d x %5d: %6.1f %6.1f us %5.0f TFLOP/s; cublas %6.1f %6.1f us\n",
           rows, out, cols, own[0] / COPIES * 1e6, own[1] / COPIES * 1e6,
           flop / fmin(own[0], own[1]) / 1e12, other[0] / COPIES * 1e6, other[1] / COPIES * 1e6);
    fflush(stdout);
    check_free(y);
    product_free(c, &p);
}

/* Gate and up with gelu, `out` neurons. */
static void time_pair(struct check *c, int32_t rows, int32_t out, int32_t cols)
{
    struct product shape = SHAPE(1, cols, rows, 0, COPIES * 2 * out);
    struct product p = product_make(&shape, -1, -1);
    struct timed t = {.c = c, .tile = FASTEST};
    struct act hidden = {.kind = ACT_HALF,
                         .stride = out,
                         .values = check_alloc(NULL, (size_t)rows * (size_t)out * 2),
                         .scale = check_alloc(NULL, (size_t)rows * sizeof(float))};
    for (int i = 0; i < COPIES; i++) {
        struct gemm_args *a = &t.args[i];
        *a = p.args;
        a->n_w = 2, a->hidden = hidden, a->hidden_scale = 1;
        a->w[0].rows = out;
        a->w[0].mirror += (size_t)i * 2 * (size_t)out * (size_t)p.args.x.stride;
        a->w[1] = a->w[0];
        gemm_maps_make(a, &t.maps[i]);
    }
    double seconds = check_time(c, run_all, &t, false) / COPIES;
    printf("gemm_wgmma %4d x %5d x %5d, gate, up and gelu: %6.1f us %5.0f TFLOP/s\n", rows, out,
           cols, seconds * 1e6, 4.0 * rows * out * cols / seconds / 1e12);
    fflush(stdout);
    check_free(hidden.values), check_free(hidden.scale);
    product_free(c, &p);
}

static void time_all(struct check *c)
{
    static const int32_t rows[] = {2048, 512, 320, 256, 128, 64, 8};
    static const int32_t of[][2] = {{20480, 2560}, {2560, 10240}, {3072, 2560}, {2560, 2048},
                                    {30720, 3840}, {3840, 15360}, {8192, 3840}, {3840, 4096}};
    struct cublas *cublas = NULL;
    void *workspace = check_alloc(NULL, CUBLAS_WORKSPACE_BYTES);
    if (!c->is_own && cublas_open(&cublas, NULL) == 0)
        cublas_set_stream(cublas, &c->queue, workspace, CUBLAS_WORKSPACE_BYTES);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof of / sizeof *of; j++)
            time_shape(c, cublas, rows[i], of[j][0], of[j][1]);
    for (size_t i = 0; i < 2; i++) {
        time_pair(c, rows[i], 10240, 2560);
        time_pair(c, rows[i], 15360, 3840);
        time_pair(c, rows[i], 21504, 5376);
    }
    cublas_close(cublas);
    check_free(workspace);
}

void check_gemm_wgmma(struct check *c)
{
    if (c->queue.capability != 90) {
        puts("gemm_wgmma: skipped, it is for compute capability 9.0");
        check_that(c, true, "skipped");
        return;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (c->is_small && (int64_t)shapes[i].n_rows * shapes[i].rows[0] > 300000) continue;
        check_shape(c, &shapes[i], -1, -1);
    }
    check_shape(c, &shapes[5], 299, 400);
    check_pairs(c);
    check_shape(c, &shapes[16], 8, 3);
    check_refused(c);
    if (!c->is_small) {
        check_row_counts(c, 2560, 10240);
        check_row_counts(c, 4096, 640);
        check_row_counts(c, 1536, 2048);
        check_row_counts(c, 256, 2560);
    }
    if (c->is_perf) time_all(c);
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* Of a product by each tile that makes it; 1: not timed. On a hot chip, where it takes longer, only
 * tiles are timed that are within a fifth of the fastest one on a cool chip. */
static void time_each_tile(struct timed *t, double seconds[GEMM_TILES])
{
    double fastest = 1;
    for (t->tile = 0; t->tile < GEMM_TILES; t->tile++) {
        bool is_made = launch_gemm_tile(&t->c->queue, &t->args[0], &t->maps[0], t->tile);
        seconds[t->tile] = is_made ? check_time(t->c, run_all, t, false) / COPIES : 1;
        fastest = fmin(fastest, seconds[t->tile]);
    }
    for (t->tile = 0; t->c->is_hot && t->tile < GEMM_TILES; t->tile++) {
        bool is_near = seconds[t->tile] < 1.2 * fastest;
        seconds[t->tile] = is_near ? check_time_hot(t->c, run_all, t) / COPIES : 1;
    }
    t->tile = FASTEST;
}

/* The tile that is taken next to the two fastest ones. */
static void time_tiles(struct timed *t)
{
    int taken = gemm_tile_for(&t->c->queue, &t->args[0]), first = taken, second = taken;
    double seconds[GEMM_TILES];
    time_each_tile(t, seconds);
    for (int i = 0; i < GEMM_TILES; i++) {
        if (seconds[i] < seconds[first])
            second = first, first = i;
        else if (i != first && (second == first || seconds[i] < seconds[second]))
            second = i;
    }
    const struct gemm_args *a = &t->args[0];
    for (int i = 0; i < GEMM_TILES; i++)
        if (seconds[i] < 1)
            printf("gemm_tiles,%d,%d,%d,%d,\"%s\",%.2f\n", a->n_rows, a->w[0].rows, a->n_w,
                   a->w[0].cols, gemm_tile_name(i), seconds[i] * 1e6);
    printf("tiles of %4d x %5d%s x %5d: takes %s", a->n_rows, a->w[0].rows,
           a->hidden.kind != ACT_NONE ? " (2)" : "", a->w[0].cols, gemm_tile_name(taken));
    printf(" %.1f us; fastest %s", seconds[taken] * 1e6, gemm_tile_name(first));
    printf(" %.1f us, %s", seconds[first] * 1e6, gemm_tile_name(second));
    printf(" %.1f us\n", seconds[second] * 1e6);
    fflush(stdout);
}

/* Any tile that makes the product at all, also where it is not the fastest. */
static void check_tile(struct check *c, const struct product *p, enum way way, const void *expected,
                       int tile)
{
    void *found = multiply_by(c, p, way, p->n_rows, tile);
    if (!found) return;
    size_t n = count_differences(expected, found, result_bytes(p, way, p->n_rows), way == HALVES);
    check_that(c, n == 0, "gemm_wgmma %s %d x %zu x %d by tiles of %s: %zu values differ",
               way_names[way], p->n_rows, p->n_out, p->cols, gemm_tile_name(tile), n);
    free(found);
}

static void check_tiles(struct check *c, const struct product *shape)
{
    struct product p = product_make(shape, -1, -1);
    for (enum way way = 0; way < WAYS; way++) {
        void *expected = multiply(c, &p, way, p.n_rows);
        for (int i = 0; i < GEMM_TILES; i++) check_tile(c, &p, way, expected, i);
        free(expected);
    }
    product_free(c, &p);
}

/* All tiles for steps of some rows; weights of one product after those of another. */
static void time_tiles_of(struct check *c, int32_t out, int32_t cols, bool is_pair)
{
    enum { MOST = 2048 };
    static const int32_t cool[] = {65, 96, 129, 200, 257, 320, 400, 513, 600, 769, 1024};
    static const int32_t hot[] = {1152, 1408, 1664, MOST};
    const int32_t *rows = c->is_hot ? hot : cool;
    size_t n_rows = c->is_hot ? sizeof hot / sizeof *hot : sizeof cool / sizeof *cool;
    int32_t all = (is_pair ? 2 : 1) * out;
    struct product shape = SHAPE(1, cols, MOST, 0, COPIES * all), p = product_make(&shape, -1, -1);
    struct timed t = {.c = c, .tile = FASTEST};
    uint16_t *y = check_alloc(NULL, (size_t)MOST * (size_t)out * 2);
    float *scale = check_alloc(NULL, MOST * sizeof *scale);
    for (int i = 0; i < COPIES; i++) {
        struct gemm_args *a = &t.args[i];
        *a = p.args;
        a->w[0].rows = out;
        a->w[0].mirror += (size_t)i * (size_t)all * (size_t)p.args.x.stride;
        a->half = y, a->half_cols = out;
        if (is_pair) {
            a->n_w = 2, a->w[1] = a->w[0], a->hidden_scale = 1, a->half = NULL;
            a->hidden = (struct act){.kind = ACT_HALF, .stride = out, .values = y, .scale = scale};
        }
        gemm_maps_make(a, &t.maps[i]);
    }
    for (size_t i = 0; i < n_rows; i++) {
        for (int k = 0; k < COPIES; k++) t.args[k].n_rows = rows[i];
        time_tiles(&t);
    }
    check_free(y), check_free(scale);
    product_free(c, &p);
}

/* Every tile that makes a product at all has the bits of the fastest one. */
void check_gemm_tiles(struct check *c)
{
    if (c->queue.capability != 90) {
        puts("gemm_tiles: skipped, they are for compute capability 9.0");
        check_that(c, true, "skipped");
        return;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if ((int64_t)shapes[i].n_rows * shapes[i].rows[0] > (c->is_small ? 100000 : 1500000))
            continue;
        check_tiles(c, &shapes[i]);
    }
    if (!c->is_perf) return;
    static const int32_t of[][3] = {{10240, 2560, 1}, {2560, 10240, 0}, {3072, 2560, 0},
                                    {2560, 2048, 0},  {15360, 3840, 1}, {3840, 15360, 0},
                                    {8192, 3840, 0},  {3840, 4096, 0},  {21504, 5376, 1},
                                    {5376, 21504, 0}, {6144, 1536, 1},  {1536, 6144, 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        time_tiles_of(c, of[i][0], of[i][1], of[i][2]);
}
