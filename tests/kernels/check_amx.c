/* Products on AMX's registers, which are emulated here, against those of the same lanes without
 * them: every bit is the same, for every kind of codes, number of rows, tiles and blocks. The real
 * ones run in check-cpu-kernels on a processor that has them.
 *
 *   check-amx [--quick]   ends with "N passed, N failed"; --quick: fewer shapes, for valgrind */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "base/rng.h"

extern const struct cpu_kernels cpu_kernels_amx_over_plain;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_kernels_amx_over_avx512;
#endif

enum { TILES_MAX = 9, BLOCKS_MAX = 50, ROWS_MAX = 530, SEED = 15 };

static int passed, failed;

/* What numbers a case has. */
enum values { RANDOM, LARGEST, MIXED_SIGNS, NOT_FINITE, VALUES };

struct data {
    struct tile_shape shape;
    uint8_t *tiles;
    struct act_block *act; /* ROWS_MAX rows */
};

static uint16_t random_half(struct rng *rng, enum values values)
{
    if (values == LARGEST) return 0x7bff;
    if (values == NOT_FINITE && rng_next(rng) % 16 == 0) return 0x7c00; /* infinite */
    uint16_t bits = (uint16_t)rng_next(rng);
    return (bits & 0x7c00) == 0x7c00 ? (uint16_t)(bits ^ 0x4000) : bits;
}

/* A tile's bytes are codes as they come; scales and minima are numbers. */
static void draw_tile(struct rng *rng, enum code_kind kind, enum values values, uint8_t *tile,
                      size_t bytes)
{
    struct tile_unit u = tile_unit_for_codes(kind);
    for (size_t i = 0; i < bytes; i++)
        tile[i] = values == LARGEST       ? 0xff
                  : values == MIXED_SIGNS ? (i & 1 ? 0xff : 0)
                                          : (uint8_t)rng_next(rng);
    for (size_t at = 0; at < bytes; at += u.bytes) {
        size_t end = kind == CODE_S6 ? u.mins_at : u.bytes;
        for (size_t i = u.scales_at; i + 2 <= end; i += 2) {
            uint16_t half = random_half(rng, values);
            memcpy(tile + at + i, &half, sizeof half);
        }
    }
}

static void draw_act(struct rng *rng, enum values values, struct act_block *a)
{
    int32_t total = 0;
    *a = (struct act_block){0};
    for (int i = 0; i < BLOCK_COLS; i++) {
        a->q[i] = values == LARGEST       ? INT8_MIN
                  : values == MIXED_SIGNS ? (int8_t)(i & 1 ? -127 : 127)
                                          : (int8_t)((int)(rng_next(rng) % 255) - 127);
        total += a->q[i];
        a->start6[i / 16] -= 32 * a->q[i];
    }
    a->scale = values == LARGEST ? 1.0f : rng_normal(rng);
    if (values == NOT_FINITE && rng_next(rng) % 16 == 0) a->scale = NAN;
    a->minus = -total;
    a->sum = a->scale * (float)total;
}

static void open_data(struct data *d, enum code_kind kind, int n_blocks, enum values values)
{
    struct rng rng = {.state = SEED};
    struct tile_unit u = tile_unit_for_codes(kind);
    size_t n_units = (size_t)((n_blocks + u.n_blocks - 1) / u.n_blocks), bytes = n_units * u.bytes;
    *d = (struct data){.shape = {.kind = kind, .n_blocks = n_blocks, .bytes = bytes}};
    d->tiles = mem_alloc(TILES_MAX, bytes);
    d->act = mem_alloc((size_t)(ROWS_MAX * n_blocks), sizeof *d->act);
    for (int t = 0; t < TILES_MAX; t++)
        draw_tile(&rng, kind, values, d->tiles + (size_t)t * bytes, bytes);
    for (int i = 0; i < ROWS_MAX * n_blocks; i++) draw_act(&rng, values, &d->act[i]);
}

static void close_data(struct data *d)
{
    mem_free(d->tiles);
    mem_free(d->act);
}

static bool is_same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Outputs are of exactly the right size, so that sanitizers see what is written beside them. */
static void check_job(const struct cpu_kernels *k, const struct cpu_kernels *without,
                      const struct data *d, int n, int n_tiles, bool has_list)
{
    int32_t list[ROWS_MAX];
    for (int i = 0; i < n; i++) list[i] = (i * 7 + 2) % n * 2 + i % 2;
    size_t n_out = (size_t)(n * n_tiles * TILE_ROWS);
    float *out[2] = {mem_alloc(n_out, sizeof(float)), mem_alloc(n_out, sizeof(float))};
    struct tile_job job = {.shape = &d->shape,
                           .tile = d->tiles,
                           .n_tiles = n_tiles,
                           .act = d->act,
                           .list = has_list ? list : NULL,
                           .first = has_list ? 0 : ROWS_MAX - n,
                           .n = n,
                           .divisor = has_list ? 2 : 1};
    for (int i = 0; i < 2; i++) {
        memset(out[i], 0x55, n_out * sizeof(float));
        job.out = out[i];
        (i ? without : k)->tile_dot(&job);
    }
    size_t different = 0;
    for (size_t i = 0; i < n_out; i++) different += !is_same(out[0][i], out[1][i]);
    mem_free(out[0]);
    mem_free(out[1]);
    if (different == 0) {
        passed++;
        return;
    }
    failed++;
    printf("FAIL %s, codes %d, %d rows%s, %d tiles, %d blocks: %zu of %zu results differ\n",
           k->name, d->shape.kind, n, has_list ? " of a list" : "", n_tiles, (int)d->shape.n_blocks,
           different, n_out);
}

static void check_kind(const struct cpu_kernels *k, const struct cpu_kernels *without,
                       enum code_kind kind, bool is_quick)
{
    struct data d;
    int step = is_quick ? 9 : 1;
    open_data(&d, kind, 9, RANDOM);
    for (int n = 1; n <= 70; n += step) check_job(k, without, &d, n, 3, n % 2);
    for (int tiles = 1; tiles <= TILES_MAX; tiles += step)
        for (int n = 15; n <= 17; n++) check_job(k, without, &d, n, tiles, tiles % 2);
    close_data(&d);
    for (int blocks = 1; blocks <= BLOCKS_MAX; blocks += step) {
        open_data(&d, kind, blocks, RANDOM);
        check_job(k, without, &d, 21, 2, blocks % 2);
        close_data(&d);
    }
    static const int many[] = {240, 255, 256, 257, 272, 511, 512, 513, ROWS_MAX};
    open_data(&d, kind, 17, RANDOM);
    for (size_t i = 0; i < sizeof many / sizeof *many && !is_quick; i++)
        check_job(k, without, &d, many[i], 2, i % 2);
    close_data(&d);
    for (enum values values = LARGEST; values < VALUES; values++) {
        open_data(&d, kind, 11, values);
        check_job(k, without, &d, 37, 3, false);
        close_data(&d);
    }
}

static void check_set(const struct cpu_kernels *k, const char *without, bool is_quick)
{
    const struct cpu_kernels *base;
    struct carat_error err;
    if (cpu_kernels_find(&base, without, &err) != CARAT_OK) {
        printf("skipped %s: %s\n", k->name, err.message);
        return;
    }
    for (enum code_kind kind = 0; kind < CODE_COUNT; kind++) check_kind(k, base, kind, is_quick);
}

int main(int argc, char **argv)
{
    bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    check_set(&cpu_kernels_amx_over_plain, "plain", is_quick);
#if defined(__x86_64__)
    check_set(&cpu_kernels_amx_over_avx512, "avx512", is_quick);
#endif
    printf("seed %d: %d passed, %d failed\n", SEED, passed, failed);
    return failed != 0;
}
