/* Sizes of rows, of which bounds of products are made: all formats and layouts, experts, columns
 * that are no whole tile. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/check.h"
#include "quant/format.h"

struct bound_case {
    enum format format;
    enum cuda_layout layout;
    int32_t n_expert, rows, cols;
};

static const struct bound_case cases[] = {
    {FORMAT_Q4_0, LAYOUT_TILES, 1, 17, 96},    {FORMAT_Q4_1, LAYOUT_TILES, 2, 24, 64},
    {FORMAT_Q5_0, LAYOUT_TILES, 1, 9, 160},    {FORMAT_Q5_1, LAYOUT_TILES, 1, 40, 288},
    {FORMAT_Q8_0, LAYOUT_TILES, 3, 11, 352},   {FORMAT_Q4_K, LAYOUT_TILES, 1, 13, 512},
    {FORMAT_Q5_K, LAYOUT_TILES, 2, 8, 256},    {FORMAT_Q6_K, LAYOUT_TILES, 1, 33, 768},
    {FORMAT_IQ4_NL, LAYOUT_TILES, 1, 20, 96},  {FORMAT_Q3_K, LAYOUT_TILES, 1, 21, 512},
    {FORMAT_Q2_K, LAYOUT_TILES, 1, 18, 768},   {FORMAT_IQ4_XS, LAYOUT_TILES, 2, 11, 256},
    {FORMAT_IQ3_XXS, LAYOUT_TILES, 1, 9, 512}, {FORMAT_IQ3_S, LAYOUT_TILES, 2, 10, 256},
    {FORMAT_IQ2_S, LAYOUT_TILES, 1, 11, 512},  {FORMAT_IQ1_M, LAYOUT_TILES, 1, 12, 256},
    {FORMAT_MXFP4, LAYOUT_TILES, 1, 19, 96},   {FORMAT_F16, LAYOUT_ROWS, 2, 5, 67},
    {FORMAT_BF16, LAYOUT_ROWS, 1, 3, 200},     {FORMAT_F32, LAYOUT_ROWS, 1, 7, 129},
};

/* What row_size_args says, and the largest. */
static double expect(const struct bound_case *b, const float *w, const float *by,
                     const float *times, bool is_norm, bool is_by_expert, double *out)
{
    double most = 0;
    for (int64_t r = 0; r < (int64_t)b->n_expert * b->rows; r++) {
        double sum = 0;
        for (int64_t k = 0; k < b->cols; k++) {
            double x = w[r * b->cols + k] * by[is_by_expert ? r / b->rows * b->cols + k : k];
            sum += is_norm ? x * x : fabs(x);
        }
        out[r] = (is_norm ? sqrt(sum) : sum) * times[r];
        most = fmax(most, out[r]);
    }
    return most;
}

static void check_case(struct check *c, const struct bound_case *b, bool is_norm, bool is_by_expert)
{
    struct rng rng = {.state = 31};
    float *values, *by, *times, most = 0;
    size_t n = (size_t)b->n_expert * (size_t)b->rows;
    struct cuda_weight w =
        check_weight(c, &rng, b->format, b->layout, b->n_expert, b->rows, b->cols, 1, &values);
    struct row_size_args args = {.w = w, .is_norm = is_norm, .is_by_expert = is_by_expert};
    float *by_device = check_normal_device(&rng, (size_t)b->n_expert * (size_t)b->cols, 1, &by);
    float *times_device = check_normal_device(&rng, n, 1, &times);
    args.by = by_device;
    for (size_t i = 0; i < n; i++) times[i] = fabsf(times[i]);
    check_upload(times_device, times, n * sizeof *times);
    args.times = args.out = times_device;
    args.most = check_alloc(&most, sizeof most);
    launch_row_sizes(&c->queue, &args);
    double *expected = calloc(n, sizeof *expected);
    double largest = expect(b, values, by, times, is_norm, is_by_expert, expected);
    check_download(times, times_device, n * sizeof *times);
    check_download(&most, args.most, sizeof most);
    double error = check_nmse(times, expected, n), of_most = fabs((double)most / largest - 1);
    check_that(c, error < 1e-6 && of_most < 1e-3, "sizes of rows of %s: nmse %.3g, largest %.3g",
               format_traits(b->format)->name, error, of_most);
    bool is_whole = check_free(times_device);
    is_whole = check_free(args.most) && is_whole;
    check_that(c, is_whole, "sizes of rows: writes beyond");
    check_free(by_device);
    check_weight_free(&w);
    free(values), free(by), free(times), free(expected);
}

void check_bound(struct check *c)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case(c, &cases[i], true, false);
        check_case(c, &cases[i], false, true);
    }
}
