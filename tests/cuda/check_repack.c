/* Every format in every layout, read back by exact products with the columns of the identity. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/check_tiles.h"

static void check_layout(struct check *c, enum format format, enum cuda_layout layout, int rows,
                         int cols)
{
    struct rng rng = {(uint64_t)format * 16 + layout};
    float *values, *x = calloc((size_t)(cols * cols), sizeof *x);
    float *y = malloc((size_t)(rows * cols) * sizeof *y);
    struct cuda_weight w = check_weight(c, &rng, format, layout, 1, rows, cols, 0.05f, &values);
    for (int i = 0; i < cols; i++) x[i * cols + i] = 1;
    struct step_view step = check_step(cols, 0, 0, NULL, NULL, NULL, NULL);
    struct exact_args args = {.step = step, .rows = {.max = cols}, .w = w};
    float *device_x = check_alloc(x, (size_t)(cols * cols) * sizeof *x);
    args.x = device_x;
    args.y = check_alloc(NULL, (size_t)(rows * cols) * sizeof *y);
    launch_matmul_exact(&c->queue, &args);
    check_download(y, args.y, (size_t)(rows * cols) * sizeof *y);
    /* Scales in blocks of 256 are rounded to fp16 in tiles: 2^-11 of both terms, which are below
     * twice the largest value; nothing else is rounded. */
    float most = 0, error = 0;
    for (int i = 0; i < rows * cols; i++) most = fmaxf(most, fabsf(values[i]));
    for (int i = 0; i < rows * cols; i++) {
        float d = fabsf(values[i] - y[i % cols * rows + i / cols]);
        error = d <= error ? error : d;
    }
    bool is_rounded = layout == LAYOUT_TILES && format_traits(format)->block_elements == 256;
    check_that(c, error <= (is_rounded ? most * 4 / 2048 : 0), "repack %s layout %d %dx%d: %g",
               format_traits(format)->name, layout, rows, cols, (double)error);
    check_free(device_x);
    check_free(args.y);
    check_step_free(&step);
    check_weight_free(&w);
    free(values);
    free(x);
    free(y);
}

/* Rows and columns that pad a tile must be zeros with scale 0, whatever was there before. */
static void check_padding(struct check *c)
{
    struct rng rng = {77};
    struct cuda_weight w = check_weight(c, &rng, FORMAT_Q4_1, LAYOUT_TILES, 2, 11, 96, 0.05f, NULL);
    struct tile_bytes bytes = tile_bytes_of(FORMAT_Q4_1, 11, 96, 2);
    uint16_t *scale = malloc(bytes.scale), *minus = malloc(bytes.minus);
    check_download(scale, w.scale, bytes.scale);
    check_download(minus, w.minus, bytes.minus);
    bool is_right = bytes.scale == 2 * 2 * 2 * 32;
    for (int i = 0; is_right && i < 2 * 2 * 2 * 16; i++) {
        int tile = i / 16, row = tile / 2 % 2 * 8 + i % 16 / 2;
        int col = tile % 2 * 64 + i % 2 * 32;
        if (row >= 11 || col >= 96) is_right = scale[i] == 0 && minus[i] == 0;
    }
    check_that(c, is_right, "padding of tiles");
    free(scale);
    free(minus);
    check_weight_free(&w);
}

struct repack_run {
    struct check *check;
    struct cuda_weight w;
    void *file;
    int64_t row_bytes;
};

static void run_repack(void *user)
{
    struct repack_run *r = user;
    launch_repack(&r->check->queue, &r->w, 0, 0, r->w.rows, r->file, r->row_bytes);
}

static void time_repack(struct check *c, enum format format)
{
    size_t bytes;
    struct repack_run run = {.check = c};
    run.w = weight_of_noise(format, 1, 16384, 2560, &bytes);
    run.row_bytes = (int64_t)format_row_bytes(format, 2560);
    run.file = check_alloc(NULL, (size_t)run.row_bytes * 16384);
    double s = check_time(c, run_repack, &run, true);
    printf("repack %-6s 16384x2560 %7.1f us %6.0f GB/s read\n", format_traits(format)->name,
           s * 1e6, (double)run.row_bytes * 16384 / s / 1e9);
    check_free(run.file);
    check_weight_free(&run.w);
}

void check_repack(struct check *c)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        enum format format = (enum format)f;
        int block = format_traits(format)->block_elements, cols = block > 32 ? 768 : 160;
        check_layout(c, format, LAYOUT_FILE, 19, cols);
        check_layout(c, format, LAYOUT_FLOATS, 19, cols);
        check_layout(c, format, block > 1 ? LAYOUT_TILES : LAYOUT_ROWS, 19, cols);
        if (block == 1) check_layout(c, format, LAYOUT_ROWS, 3, 37);
    }
    check_padding(c);
    if (!c->is_perf) return;
    time_repack(c, FORMAT_Q8_0);
    time_repack(c, FORMAT_Q4_0);
    time_repack(c, FORMAT_Q6_K);
}
