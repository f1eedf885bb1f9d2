/* Attention of the CPU backend alone, compared with what this machine can do in the same seconds:
 * reading memory, and float products in registers.
 *
 *     attention ISA THREADS FORMAT HEADS KV_HEADS HEAD_DIM DEPTH ROWS [TURNED]
 *
 *     attention avx2 1 F16 8 1 512 32768 1       a new token of E2B, a layer without window
 *     attention avx512 2 F16 8 2 512 2048 512    a chunk of a prompt of E4B
 *     attention avx2 2 F16 16 1 512 8192 1 128   a new token of 12B, whose keys are values but for
 *                                                128 columns (plan/kv.h)
 *
 * Prints medians of ROUNDS rounds, in each of which the three take turns: GB/s of keys and values
 * and of reading; 1e9 fused products of floats a second of attention and of registers; shares. The
 * caches of all layers together are larger than the processor's. */
#include "turns.h"

#include "base/mem.h"
#include "base/rng.h"
#include "plan/emit.h"

enum { ROUNDS = 9, LAYERS_MAX = 64, VOCAB = 8 };
static const size_t caches_least = (size_t)192 << 20;
static const double turn_seconds = 0.12;

struct bench {
    struct turns turns;
    struct plan plan;
    struct kv_cache caches[LAYERS_MAX];
    int32_t n_heads, depth, rows, n_layers;
    int32_t *table;
};

/* Values between -1 and 1, encoded once and copied into all cells. */
static void fill_cells(const struct kv_cache *c, char *cells, size_t n, float spread)
{
    enum { PATTERNS = 61 };
    size_t bytes = (size_t)kv_cell_bytes(c);
    size_t cols = (size_t)(c->n_heads * (c->head_dim + c->turned));
    float *values = mem_alloc(cols, sizeof *values);
    char *encoded = mem_alloc(PATTERNS, bytes);
    if (!values || !encoded) turns_fail("no memory");
    struct rng rng = {.state = 7};
    for (size_t p = 0; p < PATTERNS; p++) {
        for (size_t i = 0; i < cols; i++) values[i] = rng_normal(&rng) * spread;
        format_traits(c->format)->encode(values, NULL, encoded + p * bytes, (int64_t)cols);
    }
    for (size_t i = 0; i < n; i++) memcpy(cells + i * bytes, encoded + i % PATTERNS * bytes, bytes);
    mem_free(values);
    mem_free(encoded);
}

/* Pages of all layers lie in one pool, in an order that is not that of positions. */
static void make_caches(struct bench *b, enum format format, int32_t kv_heads, int32_t head_dim,
                        int32_t turned)
{
    int32_t slots = kv_pages(b->depth + b->rows) + 1;
    struct kv_cache shape = kv_cache_shape(format, slots, kv_heads, head_dim);
    kv_share(&shape, turned);
    size_t layer_page = shape.page_bytes, layer = layer_page * (size_t)slots;
    b->n_layers = (int32_t)(caches_least / layer) + 1;
    if (b->n_layers > LAYERS_MAX) b->n_layers = LAYERS_MAX;
    shape.page_bytes *= (size_t)b->n_layers;
    char *pool = turns_take(&b->turns, shape.page_bytes * (size_t)(slots + 1));
    fill_cells(&shape, pool, shape.page_bytes * (size_t)(slots + 1) / (size_t)kv_cell_bytes(&shape),
               0.5f);
    b->table = turns_take(&b->turns, (size_t)slots * sizeof *b->table);
    for (int32_t i = 0; i < slots; i++) b->table[i] = 1 + (int32_t)((int64_t)i * 7919 % slots);
    if (slots % 7919 == 0) turns_fail("another depth, please");
    for (int32_t i = 0; i < b->n_layers; i++) {
        b->caches[i] = shape;
        b->caches[i].table = b->table;
        kv_place(&b->caches[i], pool + (size_t)i * layer_page, layer_page / 2);
    }
}

static void make_program(struct bench *b)
{
    struct carat_error err = {0};
    int32_t cols = b->n_heads * b->caches[0].head_dim;
    static struct weight queries;
    float *values = turns_take(&b->turns, (size_t)VOCAB * (size_t)cols * sizeof *values);
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
    if (cpu_backend.weight_load(b->turns.device, &queries, &err)) turns_fail(err.message);
    turns_bind(&b->turns, &b->plan);
}

static void make_step(struct bench *b)
{
    size_t n = (size_t)b->rows;
    int32_t *numbers = mem_alloc(3 * n + 1, sizeof *numbers);
    if (!numbers) turns_fail("no memory");
    b->turns.step = (struct step){.n_token = b->rows,
                                  .n_decode = b->rows == 1,
                                  .id = numbers,
                                  .position = numbers + n,
                                  .sequence = numbers + 2 * n,
                                  .out_row = numbers + 3 * n};
    for (int32_t i = 0; i < b->rows; i++) {
        b->turns.step.id[i] = i % VOCAB;
        b->turns.step.position[i] = b->depth - 1 + i;
    }
}

static void measure(struct bench *b)
{
    static const enum turn turns[3] = {TURN_RUN, TURN_READ, TURN_FLOATS};
    double seconds[3][ROUNDS];
    struct turns *t = &b->turns;
    for (int i = 0; i < 3; i++) turns_seconds(t, turns[i], turn_seconds);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < 3; i++) seconds[i][r] = turns_seconds(t, turns[i], turn_seconds);
    const struct kv_cache *c = &b->caches[0];
    double keys = 0, s = turns_median(seconds[0], ROUNDS);
    for (int32_t i = 0; i < b->rows; i++) keys += t->step.position[i] + 1;
    double bytes = (double)kv_position_bytes(c) * (b->depth + b->rows - 1) * b->n_layers / s / 1e9;
    double read = (double)turns_read_bytes / turns_median(seconds[1], ROUNDS) / 1e9;
    double products = keys * b->n_heads * c->head_dim * 2 * b->n_layers / s / 1e9;
    double floats = turns_rate(t, turns_median(seconds[2], ROUNDS)) / 1e9;
    printf("%8.1f us  %6.2f of %6.2f GB/s %3.0f %%  %6.2f of %6.2f Gfma/s %3.0f %%\n",
           s / b->n_layers * 1e6, bytes, read, 100 * bytes / read, products, floats,
           100 * products / floats);
}

int main(int argc, char **argv)
{
    static struct bench b;
    enum format format = FORMAT_COUNT;
    if (argc < 9 || argc > 10)
        turns_fail("ISA THREADS FORMAT HEADS KV_HEADS HEAD_DIM DEPTH ROWS [TURNED] expected");
    for (enum format f = 0; f < FORMAT_COUNT; f++)
        if (strcmp(format_traits(f)->name, argv[3]) == 0) format = f;
    if (format == FORMAT_COUNT) turns_fail("no such format");
    turns_open(&b.turns, argv[1], argv[2]);
    b.n_heads = atoi(argv[4]);
    b.depth = atoi(argv[7]);
    b.rows = atoi(argv[8]);
    if (b.n_heads < 1 || b.depth < 1 || b.rows < 1 || atoi(argv[5]) < 1)
        turns_fail("numbers from 1 on");
    make_caches(&b, format, atoi(argv[5]), atoi(argv[6]), argc > 9 ? atoi(argv[9]) : 0);
    make_program(&b);
    make_step(&b);
    measure(&b);
    return 0;
}
