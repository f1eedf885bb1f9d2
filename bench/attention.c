/* Attention of the CPU backend alone, compared with what this machine can do in the same seconds:
 * reading memory, and float products in registers.
 *
 *     attention ISA THREADS FORMAT HEADS KV_HEADS HEAD_DIM DEPTH ROWS
 *
 *     attention avx2 1 F16 8 1 512 32768 1       a new token of E2B, a layer without window
 *     attention avx512 2 F16 8 2 512 2048 512    a chunk of a prompt of E4B
 *
 * Prints medians of ROUNDS rounds, in each of which the three take turns: GB/s of keys and values
 * and of reading; 1e9 fused products of floats a second of attention and of registers; shares. The
 * caches of all layers together are larger than the processor's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/program.h"
#include "base/allowance.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "plan/emit.h"

enum { ROUNDS = 9, LAYERS_MAX = 64, VOCAB = 8 };
static const size_t caches_least = (size_t)192 << 20, read_bytes_at_once = (size_t)192 << 20;
static const double round_seconds = 0.12;

struct bench {
    struct device *device;
    struct plan plan;
    struct program *program;
    struct kv_cache caches[LAYERS_MAX];
    struct step step;
    int32_t n_heads, depth, rows, n_layers;
    int32_t *table;
    uint8_t *memory; /* read at once */
    double results[64];
    int64_t rounds;
};

static int fail(const char *what)
{
    fprintf(stderr, "attention: %s\n", what);
    exit(2);
}

static void *take(struct bench *b, size_t bytes)
{
    void *memory;
    struct carat_error err = {0};
    if (cpu_backend.alloc(b->device, bytes, &memory, &err)) fail(err.message);
    return memory;
}

/* Values between -1 and 1, encoded once and copied into all cells. */
static void fill_cells(const struct kv_cache *c, char *cells, size_t n, float spread)
{
    enum { PATTERNS = 61 };
    size_t bytes = (size_t)kv_cell_bytes(c), cols = (size_t)(c->n_heads * c->head_dim);
    float *values = mem_alloc(cols, sizeof *values);
    char *encoded = mem_alloc(PATTERNS, bytes);
    if (!values || !encoded) fail("no memory");
    struct rng rng = {.state = 7};
    for (size_t p = 0; p < PATTERNS; p++) {
        for (size_t i = 0; i < cols; i++) values[i] = rng_normal(&rng) * spread;
        format_traits(c->format)->encode(values, encoded + p * bytes, (int64_t)cols);
    }
    for (size_t i = 0; i < n; i++) memcpy(cells + i * bytes, encoded + i % PATTERNS * bytes, bytes);
    mem_free(values);
    mem_free(encoded);
}

/* Pages of all layers lie in one pool, in an order that is not that of positions. */
static void make_caches(struct bench *b, enum format format, int32_t kv_heads, int32_t head_dim)
{
    int32_t slots = kv_pages(b->depth + b->rows) + 1;
    struct kv_cache shape = kv_cache_shape(format, slots, kv_heads, head_dim);
    size_t layer = shape.page_bytes * (size_t)slots;
    b->n_layers = (int32_t)(caches_least / layer) + 1;
    if (b->n_layers > LAYERS_MAX) b->n_layers = LAYERS_MAX;
    shape.page_bytes *= (size_t)b->n_layers;
    char *pool = take(b, shape.page_bytes * (size_t)(slots + 1));
    size_t part = (size_t)KV_PAGE * (size_t)kv_cell_bytes(&shape);
    fill_cells(&shape, pool, shape.page_bytes * (size_t)(slots + 1) / (size_t)kv_cell_bytes(&shape),
               0.5f);
    b->table = take(b, (size_t)slots * sizeof *b->table);
    for (int32_t i = 0; i < slots; i++) b->table[i] = 1 + (int32_t)((int64_t)i * 7919 % slots);
    if (slots % 7919 == 0) fail("another depth, please");
    for (int32_t i = 0; i < b->n_layers; i++) {
        b->caches[i] = shape;
        b->caches[i].table = b->table;
        b->caches[i].k = pool + (size_t)i * 2 * part;
        b->caches[i].v = pool + ((size_t)i * 2 + 1) * part;
    }
}

static void make_program(struct bench *b)
{
    struct carat_error err = {0};
    int32_t cols = b->n_heads * b->caches[0].head_dim;
    static struct weight queries;
    float *values = take(b, (size_t)VOCAB * (size_t)cols * sizeof *values);
    struct rng rng = {.state = 3};
    for (int32_t i = 0; i < VOCAB * cols; i++) values[i] = rng_normal(&rng) * 0.1f;
    queries = (struct weight){.name = "queries",
                              .format = FORMAT_F32,
                              .n_expert = 1,
                              .rows = VOCAB,
                              .cols = cols,
                              .row_bytes = (size_t)cols * sizeof *values,
                              .expert_bytes = (size_t)(VOCAB * cols) * sizeof *values,
                              .data = values};
    plan_init(&b->plan, b->rows, 1, b->caches, b->n_layers);
    buf_id q = emit_embed(&b->plan, ROWS_TOKEN, &queries, 1.0f, 0, cols);
    for (int32_t i = 0; i < b->n_layers; i++) emit_attention(&b->plan, q, i, b->n_heads, 0);
    if (cpu_backend.weight_load(b->device, &queries, &err) || plan_close(&b->plan, &err) ||
        cpu_backend.bind(b->device, &b->plan, NULL, take(b, b->plan.bytes + 64),
                         take(b, cpu_backend.scratch_bytes(b->device, &b->plan) + 64), &b->program,
                         &err))
        fail(err.message);
}

static void make_step(struct bench *b)
{
    size_t n = (size_t)b->rows;
    int32_t *numbers = mem_alloc(3 * n + 1, sizeof *numbers);
    if (!numbers) fail("no memory");
    b->step = (struct step){.n_token = b->rows,
                            .n_decode = b->rows == 1,
                            .id = numbers,
                            .position = numbers + n,
                            .sequence = numbers + 2 * n,
                            .out_row = numbers + 3 * n};
    for (int32_t i = 0; i < b->rows; i++) {
        b->step.id[i] = i % VOCAB;
        b->step.position[i] = b->depth - 1 + i;
    }
}

static void read_all(void *user, const struct pool_worker *worker)
{
    struct bench *b = user;
    int64_t first, last;
    pool_stretch(worker, (int64_t)(read_bytes_at_once / 4096), &first, &last);
    b->results[worker->index % 64] =
        b->device->kernels->read_bytes(b->memory + first * 4096, (size_t)(last - first) * 4096);
}

static void multiply_all(void *user, const struct pool_worker *worker)
{
    struct bench *b = user;
    b->results[worker->index % 64] = b->device->kernels->multiply_floats(b->rounds);
}

/* Seconds of one run, as many runs as take a while. */
static double time_of(struct bench *b, int what)
{
    double begin = os_seconds(), seconds;
    int n = 0;
    do {
        if (what == 0) cpu_backend.run(b->program, &b->step);
        if (what == 1) pool_run(b->device->pool, read_all, b);
        if (what == 2) pool_run(b->device->pool, multiply_all, b);
        n++;
    } while ((seconds = os_seconds() - begin) < round_seconds);
    return seconds / n;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *b)
{
    double seconds[3][ROUNDS];
    b->memory = take(b, read_bytes_at_once);
    memset(b->memory, 1, read_bytes_at_once);
    b->rounds = 1 << 20;
    for (int i = 0; i < 3; i++) time_of(b, i);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < 3; i++) seconds[i][r] = time_of(b, i);
    for (int i = 0; i < 3; i++) qsort(seconds[i], ROUNDS, sizeof(double), compare);
    const struct kv_cache *c = &b->caches[0];
    double keys = 0, s = seconds[0][ROUNDS / 2];
    for (int32_t i = 0; i < b->rows; i++) keys += b->step.position[i] + 1;
    double bytes = 2.0 * kv_cell_bytes(c) * (b->depth + b->rows - 1) * b->n_layers / s / 1e9;
    double read = (double)read_bytes_at_once / seconds[1][ROUNDS / 2] / 1e9;
    double products = keys * b->n_heads * c->head_dim * 2 * b->n_layers / s / 1e9;
    double floats = b->results[0] * pool_threads(b->device->pool) / seconds[2][ROUNDS / 2] / 1e9;
    printf("%8.1f us  %6.2f of %6.2f GB/s %3.0f %%  %6.2f of %6.2f Gfma/s %3.0f %%\n",
           s / b->n_layers * 1e6, bytes, read, 100 * bytes / read, products, floats,
           100 * products / floats);
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct carat_error err = {0};
    enum format format = FORMAT_COUNT;
    if (argc != 9) fail("ISA THREADS FORMAT HEADS KV_HEADS HEAD_DIM DEPTH ROWS expected");
    struct device_options options = {.n_threads = atoi(argv[2]), .isa = argv[1]};
    for (enum format f = 0; f < FORMAT_COUNT; f++)
        if (strcmp(format_traits(f)->name, argv[3]) == 0) format = f;
    if (format == FORMAT_COUNT) fail("no such format");
    if (cpu_backend.open(&b.device, 0, &options, &err)) fail(err.message);
    b.n_heads = atoi(argv[4]);
    b.depth = atoi(argv[7]);
    b.rows = atoi(argv[8]);
    if (b.n_heads < 1 || b.depth < 1 || b.rows < 1 || atoi(argv[5]) < 1) fail("numbers from 1 on");
    make_caches(&b, format, atoi(argv[5]), atoi(argv[6]));
    make_program(&b);
    make_step(&b);
    measure(&b);
    return 0;
}
