/* Attention of decode rows that begin with the same pages: with packs every row has the bits that
 * it has without, in y and in act, whatever the other rows of its pack hold. */
#include "cuda/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "backend/cuda/packs.h"

enum { ROWS_MAX = 128, CHAIN_MAX = 16 };

struct shape {
    const char *name;
    int32_t n_heads, n_kv, turned;
};

/* Rows in groups: rows of a group share a prefix, and each has positions of its own after it. */
struct scene {
    struct shape s;
    int32_t rows, slots, n_pages;
    int32_t position[ROWS_MAX], sequence[ROWS_MAX], out_row[ROWS_MAX];
    int32_t *table; /* [rows][slots] */
    struct share share;
    struct step step;
    struct pack pack[ROWS_MAX];
    int32_t member[ROWS_MAX], is_packed[ROWS_MAX], n_packs;
};

static struct kv_cache cache_of(const struct scene *e)
{
    struct kv_cache c = kv_cache_shape(FORMAT_F16, e->slots, e->s.n_kv, 512);
    kv_share(&c, e->s.turned);
    return c;
}

/* ---- Scenes ------------------------------------------------------------------------------- */

static void scene_init(struct scene *e, struct shape s, int32_t rows, int32_t positions_max)
{
    *e = (struct scene){.s = s, .rows = rows, .slots = kv_pages(positions_max), .n_pages = 1};
    e->table = calloc((size_t)rows * (size_t)e->slots, sizeof *e->table);
    for (int32_t r = 0; r < rows; r++) {
        e->sequence[r] = rows - 1 - r;
        e->out_row[r] = r;
    }
    e->step = (struct step){.n_token = rows,
                            .n_decode = rows,
                            .n_out = rows,
                            .position = e->position,
                            .sequence = e->sequence,
                            .out_row = e->out_row};
}

static int32_t *pages_of(struct scene *e, int32_t row)
{
    return e->table + (size_t)e->sequence[row] * (size_t)e->slots;
}

/* A row at a position whose first pages are those of row `of`, and the others its own. */
static void scene_row(struct scene *e, int32_t row, int32_t position, int32_t of, int32_t shared)
{
    int32_t *page = pages_of(e, row);
    e->position[row] = position;
    for (int32_t i = 0; i < kv_pages(position + 1); i++)
        page[i] = i < shared / KV_PAGE && of != row ? pages_of(e, of)[i] : e->n_pages++;
}

/* Finds the packs; false: nothing is shared. */
static bool scene_pack(struct scene *e, enum share_kind kind)
{
    struct pack_rule rule = pack_rule_of(e->s.n_heads, 512, e->s.n_kv, kind);
    bool is_any = share_find(&e->share, e->table, e->slots, &e->step, share_least_of(kind));
    e->step.leader = is_any ? e->share.leader : NULL;
    e->step.shared = is_any ? e->share.shared : NULL;
    e->n_packs = packs_fill(&rule, &e->step, e->pack, e->member, e->is_packed);
    return e->n_packs > 0;
}

/* ---- On the device ------------------------------------------------------------------------ */

struct stage {
    struct attention_args a;
    struct step_view packed; /* the step with its packs */
    void *counts;            /* of it */
    void *pool;
    size_t cols, pool_bytes;
};

/* Halves that repeat after a number of bytes that no page divides. */
static void *make_pool(struct rng *rng, size_t bytes)
{
    enum { PIECE = (1 << 20) + 1536 };
    char *device;
    uint16_t *host = malloc(PIECE);
    for (size_t i = 0; i < PIECE / 2; i++) host[i] = f32_to_f16(0.5f * rng_normal(rng));
    if (cudaMalloc((void **)&device, bytes) != cudaSuccess) {
        printf("no memory for %zu bytes of pages\n", bytes);
        exit(1);
    }
    for (size_t at = 0; at < bytes; at += PIECE)
        check_upload(device + at, host, bytes - at < PIECE ? bytes - at : PIECE);
    free(host);
    return device;
}

static void stage_open(struct stage *g, struct rng *rng, struct scene *e)
{
    size_t rows = (size_t)e->rows, cols = (size_t)e->s.n_heads * 512;
    struct attention_args a = {.rows = {e->rows, ROWS_TOKEN}, .n_heads = e->s.n_heads};
    a.step = check_step(e->rows, e->rows, e->rows, NULL, e->position, e->sequence, e->out_row);
    a.cache = cache_of(e);
    a.cache.table = check_alloc(e->table, rows * (size_t)e->slots * sizeof *e->table);
    g->pool_bytes = (size_t)e->n_pages * a.cache.page_bytes;
    g->pool = make_pool(rng, g->pool_bytes);
    kv_place(&a.cache, g->pool, a.cache.page_bytes / 2);
    float *q = malloc(rows * cols * sizeof *q);
    check_normal(rng, q, rows * cols, 0.1f);
    a.q = check_alloc(q, rows * cols * sizeof *q);
    free(q);
    a.scratch = check_alloc(NULL, attention_decode_scratch_bytes(e->rows, e->s.n_heads, &a.cache));
    a.y = check_alloc(NULL, rows * cols * sizeof(float));
    a.act = (struct act){.kind = ACT_INT8, .stride = (int32_t)cols};
    a.act.values = check_alloc(NULL, rows * cols);
    a.act.scale = check_alloc(NULL, rows * cols / 32 * 2 * sizeof(float));
    int32_t counts[STEP_PACKS + 1] = {e->rows, e->rows, e->rows};
    counts[STEP_PACKS] = e->n_packs;
    g->a = a;
    g->cols = cols;
    g->packed = a.step;
    g->packed.counts = g->counts = check_alloc(counts, sizeof counts);
    g->packed.pack = check_alloc(e->pack, rows * sizeof *e->pack);
    g->packed.member = check_alloc(e->member, rows * sizeof *e->member);
    g->packed.is_packed = check_alloc(e->is_packed, rows * sizeof *e->is_packed);
}

static void stage_close(struct check *c, struct stage *g, const char *name)
{
    struct attention_args *a = &g->a;
    bool is_whole = check_free(a->y) & check_free(a->scratch) & check_free(a->act.values) &
                    check_free(a->act.scale) & check_free((void *)(uintptr_t)a->q) &
                    check_free((void *)(uintptr_t)a->cache.table) & check_free(g->counts) &
                    check_free((void *)(uintptr_t)g->packed.pack) &
                    check_free((void *)(uintptr_t)g->packed.member) &
                    check_free((void *)(uintptr_t)g->packed.is_packed);
    check_that(c, is_whole, "%s: wrote outside its buffers", name);
    check_step_free(&a->step);
    cudaFree(g->pool);
}

/* ---- The same bits ------------------------------------------------------------------------ */

struct answer {
    float *y, *scale;
    int8_t *values;
};

static struct answer ask(struct check *c, const struct stage *g, bool has_packs, int32_t first,
                         bool is_out)
{
    struct attention_args a = g->a;
    size_t rows = (size_t)(a.rows.max - first), n = rows * g->cols;
    struct answer r = {.y = malloc(n * sizeof *r.y),
                       .scale = malloc(n / 16 * sizeof *r.scale),
                       .values = malloc(n)};
    if (has_packs) a.step = g->packed;
    a.q += (size_t)first * g->cols;
    a.rows = (struct rows){a.rows.max - first, is_out};
    a.first_row = first;
    a.step.position += is_out ? 0 : first;
    a.step.sequence += is_out ? 0 : first;
    a.step.out_row += is_out ? first : 0;
    cudaMemset(a.scratch, 0xff, attention_decode_scratch_bytes(g->a.rows.max, a.n_heads, &a.cache));
    launch_attention_decode(&c->queue, &a);
    check_download(r.y, a.y, n * sizeof *r.y);
    check_download(r.scale, a.act.scale, n / 16 * sizeof *r.scale);
    check_download(r.values, a.act.values, n);
    return r;
}

/* Equal bits, or both NaN. */
static bool are_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static void compare(struct check *c, const struct scene *e, const struct stage *g, int32_t first,
                    bool is_out)
{
    struct answer with = ask(c, g, true, first, is_out), without = ask(c, g, false, first, is_out);
    for (int32_t row = first; row < e->rows; row++) {
        size_t at = (size_t)(row - first) * g->cols;
        bool is_same = are_same(with.y + at, without.y + at, g->cols) &&
                       are_same(with.scale + at / 16, without.scale + at / 16, g->cols / 16) &&
                       memcmp(with.values + at, without.values + at, g->cols) == 0;
        check_that(c, is_same, "%s: row %d of %d at %d, shared %d, %s: other bits with packs",
                   e->s.name, row, e->rows, e->position[row],
                   e->step.shared ? e->step.shared[row] : 0, is_out ? "outputs" : "tokens");
    }
    free(with.y), free(with.scale), free(with.values);
    free(without.y), free(without.scale), free(without.values);
}

/* Makes a value of the page of a row's last position NaN. */
static void spoil(const struct scene *e, const struct stage *g, int32_t row)
{
    const struct kv_cache *cache = &g->a.cache;
    const int32_t *table = e->table + (size_t)e->sequence[row] * (size_t)e->slots;
    size_t page = (size_t)table[e->position[row] / KV_PAGE];
    size_t cell = (size_t)(e->position[row] % KV_PAGE) * (size_t)kv_cell_bytes(cache);
    uint16_t nan = 0x7e00;
    check_upload((char *)cache->v + page * cache->page_bytes + cell + 34, &nan, sizeof nan);
}

/* Groups with prefixes of several lengths, rows of none, and what rows have of their own from
 * nothing to hundreds of positions; launches from a row on, as for more rows than one launch takes,
 * and of output rows. */
static void check_bits(struct check *c, struct shape s, int32_t rows, const int32_t prefix[3],
                       uint32_t own_max)
{
    struct rng rng = {101};
    static struct scene e;
    struct stage g;
    int32_t longest = 0, leader[3] = {-1, -1, -1};
    for (int i = 0; i < 3; i++)
        if (prefix[i] > longest) longest = prefix[i];
    scene_init(&e, s, rows, longest + (int32_t)own_max + 1);
    static const int32_t edges[] = {-1, 0, 1, 30, 31, 32, 33, 63, 64, 65};
    for (int32_t r = 0; r < rows; r++) {
        int32_t i = (int32_t)rng_below(&rng, 3), of = leader[i] < 0 ? r : leader[i];
        int32_t own = r % 3 ? (int32_t)rng_below(&rng, own_max) : edges[r / 3 % 10];
        bool is_alone = rng_below(&rng, 8) == 0;
        if (!is_alone && leader[i] < 0) leader[i] = r;
        scene_row(&e, r, prefix[i] + own, is_alone ? r : of, prefix[i]);
    }
    check_that(c, scene_pack(&e, SHARE_ON), "%s: nothing is shared", s.name);
    stage_open(&g, &rng, &e);
    compare(c, &e, &g, 0, false);
    compare(c, &e, &g, 0, true);
    compare(c, &e, &g, rows / 3, false);
    for (int32_t r = 1; r < rows; r += 5) spoil(&e, &g, r);
    compare(c, &e, &g, 0, false);
    stage_close(c, &g, s.name);
    free(e.table);
}

/* ---- Speed -------------------------------------------------------------------------------- */

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

/* Seconds of one of n launches in a graph. */
static double time_launches(struct timing *t)
{
    double seconds[2];
    for (int half = 0; half < 2; half++) {
        cudaGraph_t graph;
        int32_t n = half ? t->n / 2 : t->n;
        cudaStreamBeginCapture(t->c->queue.stream, cudaStreamCaptureModeThreadLocal);
        for (int32_t i = 0; i < n; i++) launch_attention_decode(&t->c->queue, &t->a[i]);
        cudaStreamEndCapture(t->c->queue.stream, &graph);
        if (cudaGraphInstantiate(&t->graph, graph, 0) != cudaSuccess) return 0;
        seconds[half] = check_time(t->c, replay, t, true);
        cudaGraphExecDestroy(t->graph);
        cudaGraphDestroy(graph);
    }
    return (seconds[0] - seconds[1]) / (t->n - t->n / 2);
}

/* Microseconds of one launch without packs and with them. Launches have caches of their own, so
 * that each finds its pages outside the L2 cache, as in a step. */
static void time_both(struct check *c, struct scene *e, double us[2])
{
    struct rng rng = {7};
    struct stage g;
    struct timing t = {.c = c, .n = CHAIN_MAX};
    void *pool[CHAIN_MAX];
    stage_open(&g, &rng, e);
    while (t.n > 2 && (size_t)t.n * g.pool_bytes > (size_t)2 << 30) t.n /= 2;
    for (int32_t i = 0; i < t.n; i++) {
        t.a[i] = g.a;
        t.a[i].y = NULL;
        if (i == 0) continue;
        pool[i] = make_pool(&rng, g.pool_bytes);
        kv_place(&t.a[i].cache, pool[i], g.a.cache.page_bytes / 2);
    }
    us[0] = time_launches(&t) * 1e6;
    for (int32_t i = 0; i < t.n; i++) t.a[i].step = g.packed;
    us[1] = time_launches(&t) * 1e6;
    for (int32_t i = 1; i < t.n; i++) cudaFree(pool[i]);
    stage_close(c, &g, e->s.name);
}

/* Rows with `own` positions and more after a prefix that they share, or do not. */
static void time_scene(struct check *c, struct shape s, int32_t rows, int32_t prefix, int32_t own,
                       bool is_shared)
{
    static struct scene e;
    double us[2];
    scene_init(&e, s, rows, prefix + own + 32);
    for (int32_t r = 0; r < rows; r++)
        scene_row(&e, r, prefix + own + r % 32, is_shared ? 0 : r, prefix);
    scene_pack(&e, SHARE_ON);
    time_both(c, &e, us);
    printf("  %-12s %3d rows, %6d %s, %4d own: %8.2f us, with packs %8.2f us, %5.2f x\n", s.name,
           rows, prefix, is_shared ? "shared  " : "unshared", own, us[0], us[1], us[0] / us[1]);
    fflush(stdout);
    free(e.table);
}

static void time_all(struct check *c)
{
    static const struct shape models[] = {{"E4B", 8, 2, 0},
                                          {"E2B", 8, 1, 0},
                                          {"12B", 16, 1, 0},
                                          {"26B", 16, 2, 0},
                                          {"31B", 32, 4, 0}};
    static const int32_t rows[] = {2, 4, 8, 16, 32, 64}, prefix[] = {512, 2048, 4096, 8192, 32768};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t p = 0; p < sizeof prefix / sizeof *prefix; p++)
            time_scene(c, models[0], rows[r], prefix[p], 128, true);
    time_scene(c, models[0], 32, 32768, 1024, true);
    time_scene(c, models[0], 32, 2048, 1024, true);
    for (int i = 1; i < 5; i++) {
        time_scene(c, models[i], 4, 2048, 128, true);
        time_scene(c, models[i], 32, 8192, 128, true);
        time_scene(c, models[i], 32, 32768, 128, true);
    }
    time_scene(c, models[0], 4, 512, 128, false);
    time_scene(c, models[0], 32, 2048, 128, false);
    time_scene(c, models[2], 32, 2048, 128, false);
}

void check_cascade(struct check *c)
{
    static const struct shape shapes[] = {{"4 heads a key head", 8, 2, 0},
                                          {"8", 8, 1, 0},
                                          {"16", 16, 1, 0},
                                          {"3", 9, 3, 0},
                                          {"1", 2, 2, 0},
                                          {"13", 26, 2, 0},
                                          {"5", 5, 1, 0},
                                          {"16, shared", 16, 1, 128},
                                          {"8, shared", 32, 4, 128}};
    static const int32_t short_ones[3] = {64, 640, 192}, long_ones[3] = {4096, 2048, 17408};
    int n = c->is_small ? 2 : (int)(sizeof shapes / sizeof *shapes);
    for (int i = 0; i < n; i++) check_bits(c, shapes[i], 40, short_ones, 300);
    for (int i = 0; i < n && !c->is_small; i++) check_bits(c, shapes[i], 64, long_ones, 900);
    if (c->is_perf) time_all(c);
}
