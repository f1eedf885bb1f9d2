/* Attention of independent rows against double precision: pages in any order, rings before and
 * after they wrap, windows that begin anywhere in a tile and a page, sequences mixed, every cache
 * format, NaN in every cell that no row may see and in every page that is not its own. A row's bits
 * must depend on nothing but the row. */
#include "cuda/check_act.h"
#include "cuda/check_pages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

enum { ROWS_CHECKED_MAX = 160 };

/* Both paths sum in fp32. Each of some hundred steps of a score of about 10 has a relative error
 * of 2^-24, which moves a share by 1e-6. On the tensor cores q and p are two halves with 22
 * bits, whose error is no larger. */
static const double BUDGET = 1e-11;

/* Tensor cores read q8_0 as fp16(code * d): these values are what the budget above counts from.
 * More than 8 query heads of a key head are plain halves there, and so are their shares p, whose
 * error of 2^-12 each is the budget then. Rounded keys and queries move a score whose spread is S
 * by about S * 2^-12, here up to 4e-3; that budget counts from the values themselves. Rounding to
 * q8_0 has moved the same scores 40 times as far. */
static const double BUDGET_HALF_SHARES = 2e-7, BUDGET_HALVES = 2e-5;

struct shape {
    const char *name;
    enum format format;
    int32_t head_dim, n_heads, n_kv;
    int32_t capacity; /* positions that a sequence keeps, before rounding to pages */
    int32_t window, n_sequences;
    float q_scale;
    bool is_exact;
    int32_t turned; /* keys are values but for so many columns; 0: apart */
};

struct world {
    struct check *c;
    struct rng rng;
    struct shape s;
    struct kv_cache cache;
    int32_t *table; /* [sequences * slots] */
    int32_t n_pages;
    char *pool;
    /* Of cells, counted by sequence, slot and place in the page: [cells][n_kv * head_dim]. */
    float *k, *v, *k_halves, *v_halves;
    char *is_visible;
    double worst, farthest; /* from what is read, from the values that were encoded */
};

/* One launch: its inputs and its results. */
struct ask {
    int32_t n_token, n_decode, n_out, rows_max;
    bool is_out;
    enum act_kind kind;
    bool has_y;
    const int32_t *position, *sequence, *out_row;
    const float *q; /* [rows_max][cols] */
};
struct answer {
    float *y;
    uint8_t *values; /* [rows_max][stride] int8 or fp16 */
    float *scale;
};

static int32_t cols_of(const struct shape *s)
{
    return s->n_heads * s->head_dim;
}

/* How attention rounds what it reads. */
enum rounding { ROUND_NOTHING, ROUND_CACHE, ROUND_ALL /* queries too */ };

static enum rounding rounding_of(const struct shape *s)
{
    bool is_mma = !s->is_exact && (s->head_dim == 256 || s->head_dim == 512);
    if (!is_mma || s->format != FORMAT_Q8_0) return ROUND_NOTHING;
    return s->n_heads / s->n_kv > 8 ? ROUND_ALL : ROUND_CACHE;
}

static void to_halves(const float *x, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = f16_to_f32(f32_to_f16(x[i]));
}

static int32_t stride_of(const struct shape *s)
{
    return (cols_of(s) + 63) / 64 * 64;
}

static int32_t first_visible(const struct shape *s, int32_t position)
{
    return s->window && position >= s->window ? position - s->window + 1 : 0;
}

static int32_t slots_of(const struct shape *s)
{
    return kv_pages(s->capacity) + (s->window ? 1 : 0);
}

static int32_t capacity_of(const struct shape *s)
{
    return slots_of(s) * KV_PAGE;
}

static struct kv_cache cache_of(const struct shape *s)
{
    struct kv_cache c = kv_cache_shape(s->format, slots_of(s), s->n_kv, s->head_dim);
    kv_share(&c, s->turned);
    return c;
}

static size_t cells_of(const struct shape *s)
{
    return (size_t)s->n_sequences * (size_t)capacity_of(s);
}

static size_t cell_of(const struct shape *s, int32_t sequence, int32_t position)
{
    int32_t capacity = capacity_of(s);
    return (size_t)sequence * (size_t)capacity + (size_t)(position % capacity);
}

/* ---- A cache: what the rows see is random, the rest NaN ----------------------------------- */

enum { FOREIGN_PAGES = 3 };

/* Pages in a random order for the slots that some row sees; the others get page 0. */
static void make_table(struct world *w)
{
    size_t n = (size_t)w->s.n_sequences * (size_t)w->cache.slots;
    w->table = calloc(n, sizeof *w->table);
    w->n_pages = (int32_t)n + 1 + FOREIGN_PAGES;
    int32_t *page = malloc((size_t)w->n_pages * sizeof *page);
    for (int32_t i = 0; i < w->n_pages; i++) page[i] = i;
    for (int32_t i = w->n_pages - 1; i > 1; i--) {
        int32_t other = 1 + (int32_t)rng_below(&w->rng, (uint32_t)i), kept = page[i];
        page[i] = page[other];
        page[other] = kept;
    }
    for (size_t i = 0; i < n; i++)
        if (memchr(w->is_visible + i * KV_PAGE, 1, KV_PAGE)) w->table[i] = page[1 + i];
    free(page);
}

/* A layer is the second of two in its pages, keys before values. */
static void fill_pool(struct world *w)
{
    size_t cell_bytes = (size_t)kv_cell_bytes(&w->cache), part = KV_PAGE * cell_bytes;
    size_t cols = (size_t)w->s.n_kv * (size_t)w->s.head_dim, cells = cells_of(&w->s);
    struct kv_cache at = w->cache;
    w->cache.page_bytes = 4 * part;
    char *file = malloc((size_t)w->n_pages * w->cache.page_bytes);
    memset(file, 0xff, (size_t)w->n_pages * w->cache.page_bytes);
    memset(file, 0, w->cache.page_bytes);
    for (size_t i = 0; i < cells; i++) {
        if (!w->is_visible[i]) continue;
        char *page = file + (size_t)w->table[i / KV_PAGE] * w->cache.page_bytes;
        kv_place(&at, page + 2 * part, part);
        check_normal(&w->rng, w->k + i * cols, cols, 1);
        check_normal(&w->rng, w->v + i * cols, cols, 1);
        check_share_columns(&at, w->k + i * cols, w->v + i * cols);
        for (int is_v = 0; is_v < 2; is_v++) {
            float *row = (is_v ? w->v : w->k) + i * cols;
            char *cell = (char *)(is_v ? at.v : at.k) + i % KV_PAGE * cell_bytes;
            check_cell_write(&at, cell, is_v, row);
            to_halves(row, (is_v ? w->v_halves : w->k_halves) + i * cols, cols);
        }
    }
    w->pool = check_alloc(file, (size_t)w->n_pages * w->cache.page_bytes);
    kv_place(&w->cache, w->pool + 2 * part, part);
    free(file);
}

static void world_open(struct world *w, int32_t n, const int32_t *position, const int32_t *sequence)
{
    const struct shape *s = &w->s;
    size_t cells = cells_of(s), cols = (size_t)s->n_kv * (size_t)s->head_dim;
    w->is_visible = calloc(cells, 1);
    for (int32_t t = 0; t < n; t++)
        for (int32_t p = first_visible(s, position[t]); p <= position[t]; p++)
            w->is_visible[cell_of(s, sequence[t], p)] = 1;
    w->k = malloc(cells * cols * sizeof *w->k);
    w->v = malloc(cells * cols * sizeof *w->v);
    w->k_halves = malloc(cells * cols * sizeof *w->k_halves);
    w->v_halves = malloc(cells * cols * sizeof *w->v_halves);
    w->cache = cache_of(s);
    make_table(w);
    fill_pool(w);
    w->cache.table = check_alloc(w->table, cells / KV_PAGE * sizeof *w->table);
}

static void world_close(struct world *w)
{
    bool is_whole = check_free(w->pool) & check_free((void *)(uintptr_t)w->cache.table);
    check_that(w->c, is_whole, "%s: cache or table written", w->s.name);
    free(w->table);
    free(w->is_visible);
    free(w->k), free(w->k_halves);
    free(w->v), free(w->v_halves);
}

/* ---- What is expected --------------------------------------------------------------------- */

static void expect_head(const struct world *w, const float *q, int32_t position, int32_t sequence,
                        int32_t key_head, enum rounding rounding, double *y)
{
    const struct shape *s = &w->s;
    const float *keys = rounding ? w->k_halves : w->k, *values = rounding ? w->v_halves : w->v;
    float halves[HEAD_DIM_MAX];
    if (rounding == ROUND_ALL) to_halves(q, halves, (size_t)s->head_dim), q = halves;
    int32_t d = s->head_dim, first = first_visible(s, position), n = position - first + 1;
    double *p = malloc((size_t)n * sizeof *p), most = -INFINITY, sum = 0;
    size_t cols = (size_t)s->n_kv * (size_t)d, at = (size_t)key_head * (size_t)d;
    for (int32_t i = 0; i < n; i++) {
        const float *k = keys + cell_of(s, sequence, first + i) * cols + at;
        p[i] = 0;
        for (int32_t e = 0; e < d; e++) p[i] += (double)q[e] * (double)k[e];
        most = fmax(most, p[i]);
    }
    for (int32_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - most);
    for (int32_t e = 0; e < d; e++) y[e] = 0;
    for (int32_t i = 0; i < n; i++) {
        const float *v = values + cell_of(s, sequence, first + i) * cols + at;
        double share = p[i] / sum;
        for (int32_t e = 0; e < d; e++) y[e] += share * (double)v[e];
    }
    free(p);
}

/* ---- One launch --------------------------------------------------------------------------- */

static size_t values_bytes(const struct shape *s, const struct ask *ask)
{
    size_t size = act_is_half(ask->kind) ? 2 : 1,
           rows = ((size_t)ask->rows_max + CORE_ROWS - 1) / CORE_ROWS * CORE_ROWS;
    return (ask->kind == ACT_CORES ? rows : (size_t)ask->rows_max) * (size_t)stride_of(s) * size;
}

static size_t scale_bytes(const struct shape *s, const struct ask *ask)
{
    size_t each = act_is_half(ask->kind) ? 1 : (size_t)stride_of(s) / 32 * 2;
    return (size_t)ask->rows_max * each * sizeof(float);
}

static struct answer run(struct world *w, const struct ask *ask)
{
    const struct shape *s = &w->s;
    size_t y_bytes = (size_t)ask->rows_max * (size_t)cols_of(s) * sizeof(float);
    size_t scratch = attention_decode_scratch_bytes(ask->rows_max, s->n_heads, &w->cache);
    struct attention_args a = {.rows = {ask->rows_max, ask->is_out},
                               .cache = w->cache,
                               .n_heads = s->n_heads,
                               .window = s->window,
                               .is_exact = s->is_exact};
    a.step = check_step(ask->n_token, ask->n_decode, ask->n_out, NULL, ask->position, ask->sequence,
                        ask->is_out ? ask->out_row : NULL);
    a.q = check_alloc(ask->q, y_bytes);
    a.scratch = check_alloc(NULL, scratch);
    a.y = ask->has_y ? check_alloc(NULL, y_bytes) : NULL;
    a.act = (struct act){.kind = ask->kind, .stride = stride_of(s)};
    if (ask->kind) {
        a.act.values = check_alloc(NULL, values_bytes(s, ask));
        a.act.scale = check_alloc(NULL, scale_bytes(s, ask));
    }
    launch_attention_decode(&w->c->queue, &a);
    struct answer r = {.y = malloc(y_bytes),
                       .values = malloc(values_bytes(s, ask)),
                       .scale = malloc(scale_bytes(s, ask))};
    if (a.y) check_download(r.y, a.y, y_bytes);
    if (ask->kind) {
        check_download(r.values, a.act.values, values_bytes(s, ask));
        check_download(r.scale, a.act.scale, scale_bytes(s, ask));
        if (ask->kind == ACT_CORES)
            check_act_order((uint16_t *)(void *)r.values, ask->rows_max, stride_of(s));
    }
    bool is_whole = check_free(a.scratch) & check_free(a.y) & check_free(a.act.values) &
                    check_free(a.act.scale) & check_free((void *)(uintptr_t)a.q);
    check_that(w->c, is_whole, "%s: wrote outside its buffers", s->name);
    check_step_free(&a.step);
    return r;
}

static void answer_free(struct answer *r)
{
    free(r->y);
    free(r->values);
    free(r->scale);
}

/* ---- Comparison ---------------------------------------------------------------------------- */

static bool is_poison(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != 0xff) return false;
    return true;
}

/* One block of 32 columns, rounded by hand. */
static bool is_block_right(const float *x, const int8_t *values, const float *scale)
{
    float most = 0, sum = 0;
    for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
    float inverse = most > 0 ? 127.0f / most : 0, d = most / 127.0f;
    for (int i = 0; i < 32; i++) {
        int lane = i % 16 / 4, place = i / 16 * 4 + i % 4;
        float n = rintf(x[i] * inverse);
        if (values[8 * lane + place] != (int8_t)n) return false;
        sum += n;
    }
    return scale[0] == d && scale[1] == d * sum;
}

static bool is_act_right(const struct shape *s, const struct ask *ask, const struct answer *r,
                         int32_t row)
{
    int32_t cols = cols_of(s), stride = stride_of(s);
    float *x = calloc((size_t)stride, sizeof *x);
    memcpy(x, r->y + (size_t)row * (size_t)cols, (size_t)cols * sizeof *x);
    bool is_right = true;
    if (ask->kind == ACT_INT8) {
        const int8_t *values = (const int8_t *)r->values + (size_t)row * (size_t)stride;
        const float *scale = r->scale + (size_t)row * (size_t)stride / 32 * 2;
        for (int32_t b = 0; b < stride / 32; b++)
            is_right &= is_block_right(x + b * 32, values + b * 32, scale + b * 2);
    } else {
        const uint16_t *values = (const uint16_t *)(const void *)r->values;
        is_right = r->scale[row] == 1;
        for (int32_t i = 0; i < stride; i++)
            is_right &= values[(size_t)row * (size_t)stride + (size_t)i] == f32_to_f16(x[i]);
    }
    free(x);
    return is_right;
}

static bool is_row_asked(const struct ask *ask, int32_t row)
{
    return row < (ask->is_out ? ask->n_out : ask->n_token);
}

/* The error of a row, with what attention reads rounded in the same way, or not at all. */
static double row_error(const struct world *w, const struct ask *ask, const float *y, int32_t row,
                        enum rounding rounding)
{
    const struct shape *s = &w->s;
    size_t cols = (size_t)cols_of(s), d = (size_t)s->head_dim;
    double *expected = malloc(cols * sizeof *expected);
    int32_t t = ask->is_out ? ask->out_row[row] : row;
    for (int32_t h = 0; h < s->n_heads; h++)
        expect_head(w, ask->q + (size_t)row * cols + (size_t)h * d, ask->position[t],
                    ask->sequence[t], h / (s->n_heads / s->n_kv), rounding,
                    expected + (size_t)h * d);
    double nmse = check_nmse(y, expected, cols);
    free(expected);
    return nmse;
}

static void check_ask(struct world *w, const struct ask *ask, const char *what)
{
    const struct shape *s = &w->s;
    size_t cols = (size_t)cols_of(s);
    enum rounding rounding = rounding_of(s);
    double budget = rounding == ROUND_ALL ? BUDGET_HALF_SHARES : BUDGET;
    struct answer r = run(w, ask);
    bool is_kept = true;
    for (int32_t row = 0; row < ask->rows_max; row++) {
        const float *y = r.y + (size_t)row * cols;
        if (!is_row_asked(ask, row)) {
            is_kept &= !ask->has_y || is_poison(y, cols * sizeof *y);
            continue;
        }
        int32_t t = ask->is_out ? ask->out_row[row] : row;
        double nmse = row_error(w, ask, y, row, rounding);
        if (nmse > w->worst) w->worst = nmse;
        check_that(w->c, nmse <= budget, "%s %s: row %d at %d: nmse %.2e", s->name, what, row,
                   ask->position[t], nmse);
        if (rounding) {
            double far = row_error(w, ask, y, row, ROUND_NOTHING);
            if (far > w->farthest) w->farthest = far;
            check_that(w->c, far <= BUDGET_HALVES, "%s %s: row %d at %d: nmse %.2e unrounded",
                       s->name, what, row, ask->position[t], far);
        }
        if (ask->kind)
            check_that(w->c, is_act_right(s, ask, &r, row), "%s %s: row %d: rounding", s->name,
                       what, row);
    }
    check_that(w->c, is_kept, "%s %s: wrote a row that is not its own", s->name, what);
    answer_free(&r);
}

/* ---- Cases -------------------------------------------------------------------------------- */

static float *queries(struct world *w, int32_t rows)
{
    size_t n = (size_t)rows * (size_t)cols_of(&w->s);
    float *q = malloc(n * sizeof *q);
    check_normal(&w->rng, q, n, w->s.q_scale);
    return q;
}

/* clang-format off */
/* Positions around every edge. */
static int32_t edge_positions(const struct shape *s, int32_t *out)
{
    int32_t c = capacity_of(s), w = s->window ? s->window : c;
    int32_t edges[] = {0,     1,     7,      30,     31,     32,        33,        63,
                       w - 2, w - 1, w,      w + 1,  w / 2,  2 * w + 3, 5 * w / 3, c - 1,
                       c,     c + 5, 3 * c - 1,
                       /* a window from the beginning, the end and the middle of a tile or page */
                       w + 31, w + 62, w + 63, w + 78, w + 127, 2 * c + w - 1, 2 * c + w - 3};
    int32_t n = 0;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        if (edges[i] >= 0 && (s->window || edges[i] < c)) out[n++] = edges[i];
    return n;
}
/* clang-format on */

/* Every edge as a row of its own sequence, with rows beyond the live ones, and output rows. */
static void check_edges(struct check *c, struct shape s)
{
    int32_t position[32], sequence[32], out_row[32], n = edge_positions(&s, position);
    s.n_sequences = s.capacity > 2000 ? 2 : n;
    struct world w = {.c = c, .rng = {17}, .s = s};
    for (int32_t t = 0; t < n; t++) sequence[t] = (n - 1 - t) % s.n_sequences;
    world_open(&w, n, position, sequence);
    float *q = queries(&w, n + 3);
    struct ask ask = {.n_token = n,
                      .n_decode = n / 3,
                      .rows_max = n + 3,
                      .has_y = true,
                      .kind = ACT_INT8,
                      .position = position,
                      .sequence = sequence,
                      .out_row = out_row,
                      .q = q};
    check_ask(&w, &ask, "all");
    ask.kind = ACT_NONE;
    check_ask(&w, &ask, "floats only");
    ask.kind = ACT_HALF;
    ask.is_out = true;
    for (int32_t t = 0; t < n; t++)
        if (t % 3 != 1) out_row[ask.n_out++] = t;
    check_ask(&w, &ask, "outputs");
    ask.kind = ACT_CORES;
    check_ask(&w, &ask, "outputs for tiles");
    if (c->is_perf) printf("  %-34s worst nmse %.1e, %.1e\n", s.name, w.worst, w.farthest);
    free(q);
    world_close(&w);
}

/* Rows of sequences, `each` that follow each other in the same one; now and then a position is
 * left out. */
static void draw_rows(struct world *w, int32_t rows, int32_t each, int32_t *position,
                      int32_t *sequence)
{
    int32_t limit = (w->s.window ? 3 : 1) * capacity_of(&w->s) - 2 * each;
    for (int32_t t = 0; t < rows; t++) {
        if (t % each == 0)
            position[t] = (int32_t)rng_below(&w->rng, (uint32_t)limit);
        else
            position[t] = position[t - 1] + 1 + (rng_below(&w->rng, 8) == 0);
        sequence[t] = w->s.n_sequences - 1 - t / each;
    }
}

/* A row alone, among 16, and among 64 (more than one pass of the scratch holds) has the same
 * bits, in y and in act, with and without y. */
static void check_company(struct check *c, struct shape s, int32_t rows, int32_t each)
{
    int32_t position[ROWS_CHECKED_MAX], sequence[ROWS_CHECKED_MAX];
    size_t cols = (size_t)cols_of(&s), stride = (size_t)stride_of(&s);
    s.n_sequences = (rows + each - 1) / each;
    struct world w = {.c = c, .rng = {29}, .s = s};
    draw_rows(&w, rows, each, position, sequence);
    world_open(&w, rows, position, sequence);
    float *q = queries(&w, rows);
    struct ask ask = {.n_token = rows,
                      .n_decode = rows,
                      .rows_max = rows,
                      .has_y = true,
                      .kind = ACT_INT8,
                      .position = position,
                      .sequence = sequence,
                      .q = q};
    struct answer many = run(&w, &ask);
    for (int32_t t = 0; t < rows; t += 1 + rows / 7) {
        for (int32_t among = 1; among <= 16; among += 15) {
            if (t + among > rows) continue;
            struct ask alone = ask;
            alone.n_token = alone.n_decode = alone.rows_max = among;
            alone.position += t, alone.sequence += t;
            alone.q += (size_t)t * cols;
            alone.has_y = among > 1;
            struct answer one = run(&w, &alone);
            bool is_same =
                !alone.has_y || memcmp(one.y, many.y + (size_t)t * cols, cols * sizeof(float)) == 0;
            is_same &= memcmp(one.values, many.values + (size_t)t * stride, stride) == 0;
            is_same &= memcmp(one.scale, many.scale + (size_t)t * stride / 16,
                              stride / 16 * sizeof(float)) == 0;
            check_that(c, is_same, "%s: row %d of %d differs among %d", s.name, t, rows, among);
            answer_free(&one);
        }
    }
    answer_free(&many);
    free(q);
    world_close(&w);
}

/* ---- Speed -------------------------------------------------------------------------------- */

enum { CHAIN_MAX = 16 };
struct timing {
    struct check *c;
    struct attention_args a[CHAIN_MAX];
    int32_t n;
    cudaGraphExec_t graph;
};

static void replay(void *user)
{
    struct timing *t = user;
    cudaGraphLaunch(t->graph, t->c->queue.stream);
}

/* Pools of pages: random bits that are finite halves, bytes and floats, one MB, repeated. */
static void *fill_cache(struct rng *rng, size_t bytes)
{
    enum { PIECE = 1 << 20 };
    char *device;
    uint16_t *host = malloc(PIECE);
    for (size_t i = 0; i < PIECE / 2; i++) host[i] = f32_to_f16(0.3f * rng_normal(rng));
    if (cudaMalloc((void **)&device, bytes) != cudaSuccess) return NULL;
    cudaMemcpy(device, host, bytes < PIECE ? bytes : PIECE, cudaMemcpyHostToDevice);
    for (size_t at = PIECE; at < bytes; at += PIECE)
        cudaMemcpyAsync(device + at, device, bytes - at < PIECE ? bytes - at : PIECE,
                        cudaMemcpyDeviceToDevice, NULL);
    cudaDeviceSynchronize();
    free(host);
    return device;
}

/* As pages are given out to sequences that grow together: page p of a sequence next to page p of
 * the next one. */
static int32_t *make_turns(const struct kv_cache *cache, int32_t rows)
{
    size_t n = (size_t)rows * (size_t)cache->slots;
    int32_t *table = malloc(n * sizeof *table);
    for (size_t i = 0; i < n; i++) {
        int32_t row = (int32_t)i / cache->slots, slot = (int32_t)i % cache->slots;
        table[i] = 1 + slot * rows + row;
    }
    int32_t *device = check_alloc(table, n * sizeof *table);
    free(table);
    return device;
}

/* Seconds of one launch in a chain of launches in a graph, each with its own cache. */
static double time_chain(struct timing *t)
{
    cudaGraph_t graph;
    cudaStreamBeginCapture(t->c->queue.stream, cudaStreamCaptureModeThreadLocal);
    for (int32_t i = 0; i < t->n; i++) launch_attention_decode(&t->c->queue, &t->a[i]);
    cudaStreamEndCapture(t->c->queue.stream, &graph);
    if (cudaGraphInstantiate(&t->graph, graph, 0) != cudaSuccess) return 0;
    double seconds = check_time(t->c, replay, t, true);
    cudaGraphExecDestroy(t->graph);
    cudaGraphDestroy(graph);
    return seconds;
}

/* Decode of `rows` sequences with `keys` keys: the time of one call among others, the bytes of
 * keys and values divided by it, and the bound at 4.67 TB/s. Without keys no row is live, and
 * the time is the floor of two launches. */
static void time_shape(struct check *c, struct shape s, int32_t rows, int32_t keys)
{
    struct rng rng = {5};
    int32_t position[64], sequence[64];
    for (int32_t t = 0; t < rows; t++) position[t] = keys - 1, sequence[t] = t;
    struct kv_cache cache = cache_of(&s);
    size_t all = ((size_t)rows * (size_t)cache.slots + 1) * cache.page_bytes;
    size_t cols = (size_t)cols_of(&s);
    cache.table = make_turns(&cache, rows);
    struct timing t = {.c = c, .n = CHAIN_MAX};
    void *pool[CHAIN_MAX];
    while (t.n > 2 && (size_t)t.n * all > (size_t)1 << 31) t.n /= 2;
    struct attention_args a = {
        .rows = {rows, 0}, .n_heads = s.n_heads, .window = s.window, .is_exact = s.is_exact};
    int32_t live = keys ? rows : 0;
    a.step = check_step(live, live, live, NULL, position, sequence, NULL);
    float *q = malloc((size_t)rows * cols * sizeof *q);
    check_normal(&rng, q, (size_t)rows * cols, 0.1f);
    a.q = check_alloc(q, (size_t)rows * cols * sizeof *q);
    a.scratch = check_alloc(NULL, attention_decode_scratch_bytes(rows, s.n_heads, &cache));
    a.act = (struct act){.kind = ACT_INT8, .stride = stride_of(&s)};
    a.act.values = check_alloc(NULL, (size_t)rows * cols);
    a.act.scale = check_alloc(NULL, (size_t)rows * cols / 4);
    for (int32_t i = 0; i < t.n; i++) {
        t.a[i] = a;
        t.a[i].cache = cache;
        pool[i] = fill_cache(&rng, all);
        kv_place(&t.a[i].cache, pool[i], cache.page_bytes / 2);
    }
    double whole = time_chain(&t), one;
    t.n /= 2;
    one = (whole - time_chain(&t)) / t.n;
    t.n *= 2;
    int32_t seen = s.window && keys > s.window ? s.window : keys;
    double bytes = (double)kv_position_bytes(&cache) * seen * rows;
    printf("  %-22s %2d rows %6d keys: %8.2f us %6.0f GB/s  bound %7.2f us\n", s.name, rows, keys,
           one * 1e6, bytes / one / 1e9, bytes / 4.67e12 * 1e6);
    fflush(stdout);
    for (int32_t i = 0; i < t.n; i++) cudaFree(pool[i]);
    free(q);
    check_free((void *)(uintptr_t)cache.table);
    check_free(a.scratch);
    check_free(a.act.values);
    check_free(a.act.scale);
    check_free((void *)(uintptr_t)a.q);
    check_step_free(&a.step);
}

static void time_q8_0(struct check *c)
{
    static const struct shape global[] = {
        {"E4B global Q8_0", FORMAT_Q8_0, 512, 8, 2, 0, 0, 1, 1, false, 0},
        {"12B global Q8_0", FORMAT_Q8_0, 512, 16, 1, 0, 0, 1, 1, false, 0},
        {"31B global Q8_0", FORMAT_Q8_0, 512, 32, 4, 0, 0, 1, 1, false, 0},
        {"12B global Q8_0, shared", FORMAT_Q8_0, 512, 16, 1, 0, 0, 1, 1, false, 256},
        {"31B global Q8_0, shared", FORMAT_Q8_0, 512, 32, 4, 0, 0, 1, 1, false, 256},
    };
    static const int32_t keys[] = {512, 2048, 8192, 32768, 131072};
    for (size_t i = 0; i < sizeof global / sizeof *global; i++) {
        struct shape s = global[i];
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            s.capacity = keys[k] > 8192 ? keys[k] : 8192;
            time_shape(c, s, 1, keys[k]);
        }
        s.capacity = 8192;
        time_shape(c, s, 32, 2048);
    }
}

static void time_all(struct check *c)
{
    static const struct shape local[] = {
        {"E4B local", FORMAT_F16, 256, 8, 2, 1024, 512, 1, 1, false, 0},
        {"E2B local", FORMAT_F16, 256, 8, 1, 1024, 512, 1, 1, false, 0},
        {"12B, 26B local", FORMAT_F16, 256, 16, 8, 2048, 1024, 1, 1, false, 0},
        {"31B local", FORMAT_F16, 256, 32, 16, 2048, 1024, 1, 1, false, 0},
    };
    static const struct shape global[] = {
        {"E4B global", FORMAT_F16, 512, 8, 2, 0, 0, 1, 1, false, 0},
        {"E2B global", FORMAT_F16, 512, 8, 1, 0, 0, 1, 1, false, 0},
        {"12B global", FORMAT_F16, 512, 16, 1, 0, 0, 1, 1, false, 0},
        {"26B global", FORMAT_F16, 512, 16, 2, 0, 0, 1, 1, false, 0},
        {"31B global", FORMAT_F16, 512, 32, 4, 0, 0, 1, 1, false, 0},
        {"12B global, shared", FORMAT_F16, 512, 16, 1, 0, 0, 1, 1, false, 128},
        {"26B global, shared", FORMAT_F16, 512, 16, 2, 0, 0, 1, 1, false, 128},
        {"31B global, shared", FORMAT_F16, 512, 32, 4, 0, 0, 1, 1, false, 128},
    };
    static const int32_t keys[] = {512, 2048, 8192, 32768, 131072}, rows[] = {8, 16, 32, 64};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (i == 0) time_shape(c, local[i], 1, 0);
        time_shape(c, local[i], 1, 100);
        time_shape(c, local[i], 1, 3000);
        for (size_t r = 0; r < 4; r++) time_shape(c, local[i], rows[r], 3000);
    }
    for (size_t i = 0; i < sizeof global / sizeof *global; i++) {
        struct shape s = global[i];
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            if (keys[k] > 32768 && s.n_kv == 2 && i > 0) continue;
            s.capacity = keys[k] > 8192 ? keys[k] : 8192;
            time_shape(c, s, 1, keys[k]);
        }
        s.capacity = 8192;
        for (size_t r = 0; r < 4; r++)
            for (size_t k = 0; k < 3; k++) time_shape(c, s, rows[r], keys[k]);
    }
    time_q8_0(c);
    struct shape s = {"E4B local Q8_0", FORMAT_Q8_0, 256, 8, 2, 1024, 512, 1, 1, false, 0};
    time_shape(c, s, 1, 3000);
    s = (struct shape){"E4B global F16 exact", FORMAT_F16, 512, 8, 2, 8192, 0, 1, 1, true, 0};
    time_shape(c, s, 1, 512);
    time_shape(c, s, 1, 8192);
}

/* As many rows as sm90/attention_window.cu takes with one or two blocks each: kernels that a row
 * alone never has. */
static void check_filled(struct check *c, struct shape s)
{
    for (int32_t blocks = 1; blocks <= 2; blocks++) {
        int32_t rows = c->queue.n_sm / blocks / s.n_kv;
        if (rows > 1) check_company(c, s, rows < ROWS_CHECKED_MAX ? rows : ROWS_CHECKED_MAX, 5);
    }
}

/* Rows of one sequence, whose keys may be read once for several of them, and rows of sequences of
 * their own. */
static void check_sequences(struct check *c)
{
    static const struct shape shapes[] = {
        {"f16 256, 4 heads, window", FORMAT_F16, 256, 8, 2, 200, 100, 0, 0.2f, false, 0},
        {"f16 256, 2 heads, window", FORMAT_F16, 256, 16, 8, 700, 512, 0, 0.2f, false, 0},
        {"f16 256, 2 heads, window of 1024", FORMAT_F16, 256, 16, 8, 1100, 1024, 0, 0.2f, false, 0},
        {"f16 256, 8 heads, window", FORMAT_F16, 256, 8, 1, 700, 600, 0, 0.2f, false, 0},
        {"f16 256, 3 heads, window of 1", FORMAT_F16, 256, 9, 3, 100, 1, 0, 0.2f, false, 0},
        {"f16 256, 20 heads", FORMAT_F16, 256, 20, 1, 300, 64, 0, 0.2f, false, 0},
        {"f16 512, 4 heads", FORMAT_F16, 512, 8, 2, 700, 0, 0, 0.2f, false, 0},
        {"f16 512, 1 head", FORMAT_F16, 512, 2, 2, 400, 0, 0, 0.2f, false, 0},
        {"f16 512, 8 heads", FORMAT_F16, 512, 32, 4, 400, 0, 0, 0.2f, false, 0},
        {"f16 512, 8 heads, shared", FORMAT_F16, 512, 32, 4, 400, 0, 0, 0.2f, false, 128},
        {"f16 512, 16 heads, shared", FORMAT_F16, 512, 16, 1, 700, 0, 0, 0.2f, false, 128},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_company(c, shapes[i], 7, 2);
        check_company(c, shapes[i], 12, 1);
        check_company(c, shapes[i], 64, 11);
        check_company(c, shapes[i], 17, 17);
        if (shapes[i].window) check_filled(c, shapes[i]);
    }
}

void check_attention_decode(struct check *c)
{
    static const struct shape shapes[] = {
        {"f16 256, 4 heads a key head", FORMAT_F16, 256, 8, 2, 150, 100, 1, 0.2f, false, 0},
        {"f16 256, 2, many keys", FORMAT_F16, 256, 4, 2, 700, 512, 1, 0.2f, false, 0},
        {"f16 256, 16", FORMAT_F16, 256, 16, 1, 130, 0, 1, 0.2f, false, 0},
        {"f16 256, 20", FORMAT_F16, 256, 20, 1, 90, 64, 1, 0.2f, false, 0},
        {"f16 512, 8, peaks", FORMAT_F16, 512, 8, 1, 300, 0, 1, 0.7f, false, 0},
        {"f16 512, 3", FORMAT_F16, 512, 9, 3, 161, 96, 1, 0.2f, false, 0},
        {"f16 512, 16", FORMAT_F16, 512, 16, 1, 1300, 0, 1, 0.1f, false, 0},
        {"f16 512, 13, window of 1", FORMAT_F16, 512, 26, 2, 40, 1, 1, 0.2f, false, 0},
        {"f16 512, 1, 9000 keys", FORMAT_F16, 512, 2, 2, 9000, 0, 1, 0.1f, false, 0},
        {"f16 256 exact", FORMAT_F16, 256, 8, 2, 150, 100, 1, 0.2f, true, 0},
        {"f16 512 exact, 16", FORMAT_F16, 512, 16, 1, 300, 0, 1, 0.2f, true, 0},
        {"f32 64", FORMAT_F32, 64, 3, 1, 77, 33, 1, 0.4f, false, 0},
        {"f32 96, 1 head", FORMAT_F32, 96, 1, 1, 50, 0, 1, 0.4f, true, 0},
        {"bf16 160", FORMAT_BF16, 160, 6, 3, 64, 40, 1, 0.3f, false, 0},
        {"f16 32, 1 head", FORMAT_F16, 32, 1, 1, 99, 98, 1, 0.4f, false, 0},
        {"q8_0 256", FORMAT_Q8_0, 256, 8, 2, 150, 100, 1, 0.2f, false, 0},
        {"q8_0 256, 2, many keys", FORMAT_Q8_0, 256, 4, 2, 700, 512, 1, 0.2f, false, 0},
        {"q8_0 256, 20", FORMAT_Q8_0, 256, 20, 1, 90, 64, 1, 0.2f, false, 0},
        {"q8_0 256, 9, 2 key heads", FORMAT_Q8_0, 256, 18, 2, 130, 0, 1, 0.2f, false, 0},
        {"q8_0 512, 8, peaks", FORMAT_Q8_0, 512, 8, 1, 300, 0, 1, 0.7f, false, 0},
        {"q8_0 512, 3", FORMAT_Q8_0, 512, 9, 3, 161, 96, 1, 0.2f, false, 0},
        {"q8_0 512, 4", FORMAT_Q8_0, 512, 8, 2, 1300, 0, 1, 0.2f, false, 0},
        {"q8_0 512, 16", FORMAT_Q8_0, 512, 16, 1, 400, 0, 1, 0.1f, false, 0},
        {"q8_0 512, 16, many keys", FORMAT_Q8_0, 512, 16, 1, 2100, 0, 1, 0.1f, false, 0},
        {"q8_0 512, 13, window of 1", FORMAT_Q8_0, 512, 26, 2, 40, 1, 1, 0.2f, false, 0},
        {"q8_0 512, 1, 9000 keys", FORMAT_Q8_0, 512, 2, 2, 9000, 0, 1, 0.1f, false, 0},
        {"q8_0 512 exact, 16", FORMAT_Q8_0, 512, 16, 1, 300, 0, 1, 0.2f, true, 0},
        {"q8_0 32", FORMAT_Q8_0, 32, 3, 3, 50, 0, 1, 0.4f, true, 0},
        {"f32 512", FORMAT_F32, 512, 8, 4, 64, 48, 1, 0.2f, false, 0},
        {"f16 512, 16, shared", FORMAT_F16, 512, 16, 1, 1300, 0, 1, 0.1f, false, 128},
        {"f16 512, 8, shared, peaks", FORMAT_F16, 512, 32, 4, 300, 0, 1, 0.7f, false, 128},
        {"f16 512, 4, 448 turned", FORMAT_F16, 512, 8, 2, 300, 0, 1, 0.2f, false, 448},
        {"f16 512 exact, 16, shared", FORMAT_F16, 512, 16, 1, 300, 0, 1, 0.2f, true, 128},
        {"f16 256, 4, shared", FORMAT_F16, 256, 8, 2, 300, 0, 1, 0.2f, false, 64},
        {"f32 512, shared", FORMAT_F32, 512, 8, 4, 64, 0, 1, 0.2f, false, 128},
        {"q8_0 512, 16, shared", FORMAT_Q8_0, 512, 16, 1, 1300, 0, 1, 0.1f, false, 256},
        {"q8_0 512, 8, shared, peaks", FORMAT_Q8_0, 512, 32, 4, 300, 0, 1, 0.7f, false, 256},
        {"q8_0 512, 4, shared", FORMAT_Q8_0, 512, 8, 2, 300, 0, 1, 0.2f, false, 256},
        {"q8_0 512 exact, 16, shared", FORMAT_Q8_0, 512, 16, 1, 300, 0, 1, 0.2f, true, 256},
        {"bf16 128, shared", FORMAT_BF16, 128, 6, 3, 150, 0, 1, 0.3f, false, 64},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_edges(c, shapes[i]);
    struct shape s = shapes[0];
    check_company(c, s, 64, 1);
    s = (struct shape){"f16 512", FORMAT_F16, 512, 16, 1, 3000, 0, 1, 0.2f, false, 0};
    check_company(c, s, 19, 1);
    s = (struct shape){"q8_0 128", FORMAT_Q8_0, 128, 8, 4, 300, 0, 1, 0.2f, false, 0};
    check_company(c, s, 150, 1);
    s = (struct shape){"q8_0 256, window", FORMAT_Q8_0, 256, 8, 2, 150, 100, 1, 0.2f, false, 0};
    check_company(c, s, 64, 1);
    s = (struct shape){"q8_0 512, 8 heads", FORMAT_Q8_0, 512, 8, 2, 3000, 0, 1, 0.2f, false, 0};
    check_company(c, s, 19, 1);
    s = (struct shape){"q8_0 512, 16 heads", FORMAT_Q8_0, 512, 16, 1, 3000, 0, 1, 0.2f, false, 0};
    check_company(c, s, 19, 1);
    check_sequences(c);
    if (c->is_perf) time_all(c);
}
