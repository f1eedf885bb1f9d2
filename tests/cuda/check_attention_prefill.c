/* Attention of many rows against a double-precision reference of the same rounded inputs: pages in
 * any order, rings before and after they wrap, windows that begin anywhere in a page, several
 * prompts in a step. NaN is in every cell that no row sees, and in the values of a whole sequence:
 * no row of another one may see it. A row's bits depend on nothing but the row. */
#include "cuda/check.h"
#include "cuda/check_pages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"

/* The kernel rounds q, k, v to fp16, and so does the reference here. It also rounds p to fp16,
 * which the reference does not: relative errors of up to 2^-12 each, 1.4e-4 in the mean square,
 * make 2e-8 of the square of an output. Sums of products in fp32 add less than that. Cases here
 * show 0.4e-8 to 4e-8. In a single row a few keys may have most of the weight, so that errors do
 * not average: ten times as much is allowed. */
static const double BUDGET = 1e-7;

enum { RUNS_MAX = 8, SINGLES = 70, TOKENS_MAX = 512 };

/* One step: rows of runs[i] are `n` tokens of `sequence` from `start`. The first n_decode runs are
 * single tokens, which the kernel leaves alone. */
struct scene {
    const char *name;
    enum format format;
    int32_t head_dim, n_heads, n_kv, window;
    int32_t capacity; /* positions that a sequence keeps, before rounding to pages */
    float k_scale;
    int32_t n_decode;
    int32_t out_every; /* > 0: ROWS_OUT, every out_every-th token; < 0: the last one of each run */
    enum act_kind act;
    int32_t bad; /* > 0: all values of sequence bad - 1 are NaN */
    int32_t
        n_singles; /* besides `runs`, this many of one to three tokens of sequences of their own */
    struct {
        int32_t sequence, start, n;
    } runs[RUNS_MAX];
    int32_t turned; /* keys are values but for so many columns; 0: apart */
};

struct work {
    const struct scene *scene;
    int32_t n_token, n_out, n_seq;
    int32_t begin; /* the first row of the launch's class that is in a run */
    int32_t position[TOKENS_MAX], sequence[TOKENS_MAX], out_row[TOKENS_MAX];
    struct check_pages pages;
    float *k, *v; /* [sequence][position % capacity][kv head], as the kernel rounds them */
    float *q;     /* the same */
    double *expected;
};

static void *take(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        printf("out of memory: %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static int32_t first_key(const struct scene *s, int32_t position)
{
    return s->window > 0 && position >= s->window ? position - s->window + 1 : 0;
}

static int32_t rows_of(const struct work *w)
{
    return w->scene->out_every ? w->n_out : w->n_token;
}

static int32_t token_of(const struct work *w, int32_t row)
{
    return w->scene->out_every ? w->out_row[row] : row;
}

static void add_run(struct work *w, int32_t sequence, int32_t start, int32_t n)
{
    for (int32_t j = 0; j < n; j++) {
        w->position[w->n_token] = start + j;
        w->sequence[w->n_token++] = sequence;
    }
    if (n > 0 && sequence >= w->n_seq) w->n_seq = sequence + 1;
}

static void lay_out(struct work *w)
{
    const struct scene *s = w->scene;
    for (int i = 0; i < RUNS_MAX; i++)
        add_run(w, s->runs[i].sequence, s->runs[i].start, s->runs[i].n);
    for (int32_t i = 0; i < s->n_singles; i++) add_run(w, i, 5 * i, 1 + i % 3);
    for (int32_t t = 0; t < w->n_token; t++) {
        bool is_last = t + 1 == w->n_token || w->sequence[t + 1] != w->sequence[t];
        if (s->out_every > 0 ? (t + 1) % s->out_every == 0 : s->out_every < 0 && is_last)
            w->out_row[w->n_out++] = t;
    }
    while (w->begin < rows_of(w) && token_of(w, w->begin) < s->n_decode) w->begin++;
}

static size_t cell_of(const struct work *w, int32_t sequence, int32_t position)
{
    int32_t capacity = kv_capacity(&w->pages.host);
    return (size_t)sequence * (size_t)capacity + (size_t)(position % capacity);
}

/* Keys and values of one position. */
static void fill_cell(struct work *w, struct rng *rng, int32_t sequence, int32_t position)
{
    const struct scene *s = w->scene;
    int32_t n = s->n_kv * s->head_dim;
    size_t at = cell_of(w, sequence, position) * (size_t)n;
    size_t offset = kv_offset(&w->pages.host, sequence, position);
    check_normal(rng, w->k + at, (size_t)n, s->k_scale);
    check_normal(rng, w->v + at, (size_t)n, s->turned ? s->k_scale : 1.0f);
    check_share_columns(&w->pages.host, w->k + at, w->v + at);
    for (int j = 0; j < 2; j++) {
        float *row = (j ? w->v : w->k) + at;
        char *file = (char *)(j ? w->pages.host.v : w->pages.host.k) + offset;
        check_cell_write(&w->pages.host, file, j == 1, row);
        for (int32_t c = 0; c < n; c++) row[c] = f16_to_f32(f32_to_f16(row[c]));
        if (j && s->bad == sequence + 1) memset(file, 0xff, (size_t)kv_cell_bytes(&w->pages.host));
    }
}

/* Random keys and values in the cells that some row may see. The others stay NaN. Entries of pages
 * without any become 0. */
static void fill_cache(struct work *w, struct rng *rng)
{
    const struct scene *s = w->scene;
    int32_t slots = kv_pages(s->capacity) + (s->window > 0);
    struct kv_cache shape = kv_cache_shape(s->format, slots, s->n_kv, s->head_dim);
    kv_share(&shape, s->turned);
    w->pages = check_pages_new(rng, &shape, w->n_seq);
    size_t n_cells = (size_t)w->n_seq * (size_t)kv_capacity(&w->pages.host);
    size_t bytes = n_cells * (size_t)(s->n_kv * s->head_dim) * sizeof(float);
    char *is_held = take(n_cells);
    memset(is_held, 0, n_cells);
    w->k = take(bytes);
    w->v = take(bytes);
    for (int32_t t = 0; t < w->n_token; t++)
        for (int32_t p = first_key(s, w->position[t]); p <= w->position[t]; p++)
            if (!is_held[cell_of(w, w->sequence[t], p)]) {
                is_held[cell_of(w, w->sequence[t], p)] = 1;
                fill_cell(w, rng, w->sequence[t], p);
            }
    for (size_t i = 0; i < n_cells / KV_PAGE; i++)
        if (!memchr(is_held + i * KV_PAGE, 1, KV_PAGE)) w->pages.table[i] = 0;
    free(is_held);
    check_pages_upload(&w->pages);
}

static void expect_head(struct work *w, int32_t row, int32_t head, double *score)
{
    const struct scene *s = w->scene;
    int32_t token = token_of(w, row), kv_head = head / (s->n_heads / s->n_kv);
    int32_t d = s->head_dim, last = w->position[token], first = first_key(s, last);
    size_t at = ((size_t)row * (size_t)s->n_heads + (size_t)head) * (size_t)d;
    double most = -INFINITY, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t p = first; p <= last; p++) {
            size_t cell = cell_of(w, w->sequence[token], p);
            size_t from = (cell * (size_t)s->n_kv + (size_t)kv_head) * (size_t)d;
            if (pass == 0) {
                double dot = 0;
                for (int32_t i = 0; i < d; i++)
                    dot += (double)w->q[at + (size_t)i] * (double)w->k[from + (size_t)i];
                score[p - first] = dot;
                most = fmax(most, dot);
            } else {
                double share = exp(score[p - first] - most);
                sum += share;
                for (int32_t i = 0; i < d; i++)
                    w->expected[at + (size_t)i] += share * (double)w->v[from + (size_t)i];
            }
        }
    for (int32_t i = 0; i < d; i++) w->expected[at + (size_t)i] /= sum;
}

static void expect(struct work *w)
{
    const struct scene *s = w->scene;
    double *score = take((size_t)kv_capacity(&w->pages.host) * sizeof *score);
    for (int32_t r = 0; r < rows_of(w); r++)
        for (int32_t h = 0; h < s->n_heads; h++) expect_head(w, r, h, score);
    free(score);
}

/* ---- What came back -------------------------------------------------------------------------- */

static bool is_untouched(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)bytes)[i] != 0xff) return false;
    return true;
}

/* Activations equal what the host makes of the fp32 outputs, bit for bit. */
static bool is_same_act(enum act_kind kind, const float *y, int32_t cols, const char *values,
                        const float *scale)
{
    if (kind == ACT_HALF) {
        const uint16_t *half = (const uint16_t *)(const void *)values;
        for (int32_t i = 0; i < cols; i++)
            if (half[i] != f32_to_f16(y[i])) return false;
        return scale[0] == 1.0f;
    }
    for (int32_t b = 0; b < cols / 32; b++) {
        const float *x = y + b * 32;
        float most = 0;
        int sum = 0;
        for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
        float inverse = most > 0 ? 127.0f / most : 0, d = most / 127.0f;
        for (int i = 0; i < 32; i++) {
            int q = (int)nearbyintf(x[i] * inverse);
            int byte = 8 * (i % 16 / 4) + i / 16 * 4 + i % 4;
            sum += q;
            if ((int)(signed char)values[b * 32 + byte] != q) return false;
        }
        if (scale[2 * b] != d || scale[2 * b + 1] != d * (float)sum) return false;
    }
    return true;
}

struct result {
    float *y;
    char *values;
    float *scale;
    size_t y_bytes, value_bytes, scale_bytes;
};

static void result_free(struct result *r)
{
    free(r->y), free(r->values), free(r->scale);
}

/* Values of rows [begin, end): within the budget, all together and each alone. Rows of a bad
 * sequence are NaN throughout. */
static void check_values_of(struct check *c, const struct work *w, const float *y)
{
    const struct scene *s = w->scene;
    size_t cols = (size_t)s->n_heads * (size_t)s->head_dim;
    double error = 0, size = 0, worst = 0;
    bool is_bad_only = true;
    for (int32_t r = w->begin; r < rows_of(w); r++) {
        size_t at = (size_t)r * cols;
        if (w->sequence[token_of(w, r)] + 1 == s->bad) {
            for (size_t i = 0; i < cols; i++) is_bad_only = is_bad_only && isnan(y[at + i]);
            continue;
        }
        double one = check_nmse(y + at, w->expected + at, cols);
        double squares = 0;
        for (size_t i = 0; i < cols; i++) squares += w->expected[at + i] * w->expected[at + i];
        worst = fmax(worst, one);
        error += one * squares;
        size += squares;
    }
    check_that(c, size > 0 && error <= BUDGET * size, "%s: nmse %.2e", s->name, error / size);
    check_that(c, worst <= 10 * BUDGET, "%s: worst row's nmse %.2e", s->name, worst);
    check_that(c, is_bad_only, "%s: a number made of NaN", s->name);
}

static void check_result(struct check *c, const struct work *w, const struct result *got,
                         int32_t rows_max)
{
    const struct scene *s = w->scene;
    int32_t cols = s->n_heads * s->head_dim, end = rows_of(w);
    size_t skip = (size_t)w->begin * (size_t)cols, after = (size_t)end * (size_t)cols;
    check_values_of(c, w, got->y);
    bool is_kept =
        is_untouched(got->y, skip * sizeof(float)) &&
        is_untouched(got->y + after, ((size_t)rows_max * (size_t)cols - after) * sizeof(float));
    check_that(c, is_kept, "%s: rows of others were written", s->name);
    size_t value_row = got->value_bytes / (size_t)rows_max;
    size_t scale_row = got->scale_bytes / (size_t)rows_max / sizeof(float);
    bool is_same = true;
    for (int32_t r = w->begin; r < end && s->act != ACT_NONE; r++)
        if (w->sequence[token_of(w, r)] + 1 != s->bad)
            is_same = is_same && is_same_act(s->act, got->y + (size_t)r * (size_t)cols, cols,
                                             got->values + (size_t)r * value_row,
                                             got->scale + (size_t)r * scale_row);
    check_that(c, is_same, "%s: activations differ from outputs", s->name);
}

/* ---- Launches -------------------------------------------------------------------------------- */

static struct attention_args args_of(const struct work *w, int32_t rows_max)
{
    const struct scene *s = w->scene;
    return (struct attention_args){
        .step = check_step(w->n_token, s->n_decode, w->n_out, NULL, w->position, w->sequence,
                           s->out_every ? w->out_row : NULL),
        .rows = {rows_max - w->begin, s->out_every ? ROWS_OUT : ROWS_TOKEN},
        .q = check_alloc(w->q, (size_t)rows_max * (size_t)(s->n_heads * s->head_dim) * 4),
        .cache = w->pages.device,
        .n_heads = s->n_heads,
        .window = s->window,
    };
}

static void args_free(struct attention_args *args)
{
    check_free((void *)(uintptr_t)args->q);
    check_step_free(&args->step);
}

static int32_t runs_of(const struct attention_args *args)
{
    int32_t counts[5];
    check_download(counts, args->step.counts, sizeof counts);
    return counts[args->rows.is_out ? 4 : 3];
}

/* Launches, for n_runs runs, and takes what came back. */
static struct result launch_once(struct check *c, const struct work *w, struct attention_args *args,
                                 int32_t rows_max, int32_t n_runs)
{
    const struct scene *s = w->scene;
    int32_t cols = s->n_heads * s->head_dim;
    size_t n = (size_t)rows_max * (size_t)cols;
    struct result got = {.y_bytes = n * sizeof(float),
                         .value_bytes = s->act == ACT_HALF ? n * 2 : n,
                         .scale_bytes =
                             (s->act == ACT_HALF ? (size_t)rows_max : n / 16) * sizeof(float)};
    args->y = check_alloc(NULL, got.y_bytes);
    args->act = (struct act){.kind = s->act,
                             .stride = cols,
                             .values = check_alloc(NULL, got.value_bytes),
                             .scale = check_alloc(NULL, got.scale_bytes)};
    check_that(c, attention_prefill_takes(args), "%s: not taken", s->name);
    launch_attention_prefill(&c->queue, args, n_runs);
    got.y = take(got.y_bytes);
    got.values = take(got.value_bytes);
    got.scale = take(got.scale_bytes);
    check_download(got.y, args->y, got.y_bytes);
    check_download(got.values, args->act.values, got.value_bytes);
    check_download(got.scale, args->act.scale, got.scale_bytes);
    bool is_whole = check_free(args->y);
    is_whole = check_free(args->act.values) && is_whole;
    is_whole = check_free(args->act.scale) && is_whole;
    check_that(c, is_whole, "%s: guards overwritten", s->name);
    return got;
}

/* Tokens [begin, end) alone in a step have the same bits as among the others. */
static void check_part(struct check *c, const struct work *w, int32_t begin, int32_t end,
                       const float *y)
{
    int32_t cols = w->scene->n_heads * w->scene->head_dim;
    struct scene plain = *w->scene;
    struct work alone = {.scene = &plain, .n_token = end - begin, .pages = w->pages};
    plain.n_decode = 0;
    alone.q = w->q + (size_t)begin * (size_t)cols;
    memcpy(alone.position, w->position + begin, (size_t)alone.n_token * sizeof(int32_t));
    memcpy(alone.sequence, w->sequence + begin, (size_t)alone.n_token * sizeof(int32_t));
    struct attention_args args = args_of(&alone, alone.n_token);
    struct result got = launch_once(c, &alone, &args, alone.n_token, 1);
    check_that(c, memcmp(got.y, y + (size_t)begin * (size_t)cols, got.y_bytes) == 0,
               "%s: tokens %d to %d depend on others", w->scene->name, begin, end - 1);
    result_free(&got);
    args_free(&args);
}

/* Each run in two parts, cut where the tiles of rows are not. */
static void check_parts(struct check *c, const struct work *w, const float *y)
{
    if (w->scene->out_every) return;
    for (int32_t t = w->begin, end; t < w->n_token; t = end) {
        for (end = t + 1; end < w->n_token && w->sequence[end] == w->sequence[t]; end++) continue;
        int32_t cut = t + (end - t) / 3;
        if (cut > t) check_part(c, w, t, cut, y);
        check_part(c, w, cut, end, y);
    }
}

static void check_scene(struct check *c, const struct scene *s)
{
    struct rng rng = {77};
    struct work w = {.scene = s};
    lay_out(&w);
    fill_cache(&w, &rng);
    int32_t rows_max = rows_of(&w) + 5;
    size_t n = (size_t)rows_max * (size_t)(s->n_heads * s->head_dim);
    w.q = take(n * sizeof(float));
    w.expected = take(n * sizeof(double));
    for (size_t i = 0; i < n; i++) w.expected[i] = 0;
    check_normal(&rng, w.q, n, 1.0f);
    struct attention_args args = args_of(&w, rows_max);
    for (size_t i = 0; i < n; i++) w.q[i] = f16_to_f32(f32_to_f16(w.q[i]));
    expect(&w);
    int32_t n_runs = runs_of(&args);
    struct result got = launch_once(c, &w, &args, rows_max, n_runs);
    struct result again = launch_once(c, &w, &args, rows_max, n_runs + 3); /* as when recorded */
    check_result(c, &w, &got, rows_max);
    check_that(c, memcmp(got.y, again.y, got.y_bytes) == 0, "%s: not repeatable", s->name);
    check_parts(c, &w, got.y);
    result_free(&got);
    result_free(&again);
    args_free(&args);
    check_that(c, check_pages_free(&w.pages), "%s: cache written", s->name);
    free(w.k), free(w.v), free(w.q), free(w.expected);
}

/* ---- Speed ----------------------------------------------------------------------------------- */

struct speed {
    const char *name;
    int32_t head_dim, n_heads, n_kv, window, start, n;
    enum format format;
    int32_t turned;
};

struct timed {
    struct check *c;
    struct attention_args args;
};

static void run_timed(void *user)
{
    struct timed *t = user;
    launch_attention_prefill(&t->c->queue, &t->args, 1);
}

/* A buffer of `bytes` that repeats `period` random bytes. */
static void *repeat(const void *values, size_t period, size_t bytes)
{
    char *host = take(bytes);
    for (size_t i = 0; i < bytes; i += period)
        memcpy(host + i, values, bytes - i < period ? bytes - i : period);
    void *device = check_alloc(host, bytes);
    free(host);
    return device;
}

static void time_shape(struct check *c, const struct speed *s)
{
    enum { PERIOD = 1 << 18, LAYERS = 4 };
    struct rng rng = {5};
    float *normal = take(PERIOD * sizeof *normal);
    check_normal(&rng, normal, PERIOD, 1.0f);
    char *encoded = take(PERIOD * sizeof *normal);
    int32_t slots = s->window > 0 ? kv_pages(s->window + s->n - 1) + 1 : kv_pages(s->start + s->n);
    struct kv_cache cache = kv_cache_shape(s->format, slots, s->n_kv, s->head_dim);
    kv_share(&cache, s->turned);
    cache.page_bytes *= LAYERS;
    size_t period = format_row_bytes(s->format, PERIOD);
    size_t bytes = ((size_t)slots + 1) * cache.page_bytes;
    int32_t *table = take((size_t)slots * 4);
    for (int32_t i = 0; i < slots; i++) table[i] = i + 1;
    cache.table = check_alloc(table, (size_t)slots * 4);
    free(table);
    size_t cols = (size_t)s->n_heads * (size_t)s->head_dim, n = (size_t)s->n * cols;
    int32_t *position = take((size_t)s->n * 4), *sequence = take((size_t)s->n * 4);
    double pairs = 0;
    for (int32_t t = 0; t < s->n; t++) {
        position[t] = s->start + t;
        sequence[t] = 0;
        pairs += s->window > 0 && position[t] >= s->window ? s->window : position[t] + 1;
    }
    struct timed t = {.c = c};
    t.args = (struct attention_args){
        .step = check_step(s->n, 0, 0, NULL, position, sequence, NULL),
        .rows = {s->n, ROWS_TOKEN},
        .q = repeat(normal, PERIOD * sizeof *normal, n * sizeof(float)),
        .cache = cache,
        .n_heads = s->n_heads,
        .window = s->window,
        .act = {.kind = ACT_HALF,
                .stride = (int32_t)cols,
                .values = check_alloc(NULL, n * 2),
                .scale = check_alloc(NULL, (size_t)s->n * 4)},
    };
    check_normal(&rng, normal, PERIOD, 0.15f);
    format_traits(s->format)->encode(normal, NULL, encoded, PERIOD);
    void *pool = repeat(encoded, period, bytes);
    kv_place(&t.args.cache, pool, cache.page_bytes / LAYERS / 2);
    double one = check_time(c, run_timed, &t, false);
    double many = one < 1e-3 ? check_time_graph(c, run_timed, &t) : one;
    double flops = 4.0 * s->head_dim * s->n_heads * pairs;
    printf("  %-34s %9.1f us %6.1f TFLOP/s of visible pairs, replayed %9.1f us %6.1f\n", s->name,
           one * 1e6, flops / one / 1e12, many * 1e6, flops / many / 1e12);
    check_free((void *)(uintptr_t)t.args.q);
    check_free(pool);
    check_free((void *)(uintptr_t)cache.table);
    check_free(t.args.act.values);
    check_free(t.args.act.scale);
    check_step_free(&t.args.step);
    free(normal), free(encoded), free(position), free(sequence);
}

static const struct speed speeds[] = {
    {"E4B window 512, 512 tokens", 256, 8, 2, 512, 0, 512, FORMAT_F16, 0},
    {"E4B window 512, 2048 tokens", 256, 8, 2, 512, 0, 2048, FORMAT_F16, 0},
    {"E4B window 512, 8192 tokens", 256, 8, 2, 512, 0, 8192, FORMAT_F16, 0},
    {"E2B window 512, 8192 tokens", 256, 8, 1, 512, 0, 8192, FORMAT_F16, 0},
    {"12B window 1024, 2048 tokens", 256, 16, 8, 1024, 0, 2048, FORMAT_F16, 0},
    {"12B window 1024, 8192 tokens", 256, 16, 8, 1024, 0, 8192, FORMAT_F16, 0},
    {"E4B global, 512 tokens", 512, 8, 2, 0, 0, 512, FORMAT_F16, 0},
    {"E4B global, 2048 tokens", 512, 8, 2, 0, 0, 2048, FORMAT_F16, 0},
    {"E4B global, 8192 tokens", 512, 8, 2, 0, 0, 8192, FORMAT_F16, 0},
    {"E4B global, 4096 tokens at 28672", 512, 8, 2, 0, 28672, 4096, FORMAT_F16, 0},
    {"12B global, 2048 tokens", 512, 16, 1, 0, 0, 2048, FORMAT_F16, 0},
    {"12B global, 8192 tokens", 512, 16, 1, 0, 0, 8192, FORMAT_F16, 0},
    {"12B global, 8192 tokens, shared", 512, 16, 1, 0, 0, 8192, FORMAT_F16, 128},
    {"31B global, 4096 tokens at 28672", 512, 32, 4, 0, 28672, 4096, FORMAT_F16, 0},
    {"31B global, the same, shared", 512, 32, 4, 0, 28672, 4096, FORMAT_F16, 128},
    {"E4B window 512, 2048 tokens, Q8_0", 256, 8, 2, 512, 0, 2048, FORMAT_Q8_0, 0},
    {"E4B global, 2048 tokens, Q8_0", 512, 8, 2, 0, 0, 2048, FORMAT_Q8_0, 0},
};

/* clang-format off */
static const struct scene scenes[] = {
    /* name, format, head, heads, kv heads, window, capacity, k scale, decode, out, act, bad,
     * singles, runs */
    {"1 row at 0", FORMAT_F16, 256, 8, 2, 512, 700, 0.1f, 0, 0, ACT_INT8, 0, 0, {{0, 0, 1}}, 0},
    {"E4B window, 150 rows", FORMAT_F16, 256, 8, 2, 64, 256, 0.1f, 0, 0, ACT_INT8, 0, 0,
     {{0, 0, 150}}, 0},
    {"window, ring wraps, start 333", FORMAT_F16, 256, 8, 2, 96, 200, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{1, 333, 77}}, 0},
    {"12B window, 8 kv heads", FORMAT_F16, 256, 16, 8, 100, 200, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{0, 140, 70}}, 0},
    {"E4B global, 65 rows at 201", FORMAT_F16, 512, 8, 2, 0, 300, 0.08f, 0, 0, ACT_INT8, 0, 0,
     {{0, 201, 65}}, 0},
    {"12B global, 16 heads on one", FORMAT_F16, 512, 16, 1, 0, 150, 0.08f, 0, 0, ACT_HALF, 0, 0,
     {{0, 0, 101}}, 0},
    {"peaked scores, global", FORMAT_F16, 512, 8, 1, 0, 200, 1.0f, 0, 0, ACT_INT8, 0, 0,
     {{0, 10, 90}}, 0},
    {"peaked scores, window", FORMAT_F16, 256, 8, 1, 70, 200, 2.0f, 0, 0, ACT_INT8, 0, 0,
     {{0, 10, 130}}, 0},
    {"sequences change inside tiles", FORMAT_F16, 256, 8, 2, 50, 128, 0.1f, 2, 0, ACT_INT8, 0, 0,
     {{3, 90, 1}, {0, 17, 1}, {2, 100, 9}, {1, 0, 33}, {4, 5, 3}, {5, 60, 20}}, 0},
    {"sequences, global", FORMAT_F16, 512, 8, 2, 0, 160, 0.08f, 2, 0, ACT_INT8, 0, 0,
     {{3, 90, 1}, {0, 17, 1}, {2, 100, 9}, {1, 0, 33}, {4, 5, 3}, {5, 60, 20}}, 0},
    {"chunk after decode", FORMAT_F16, 256, 8, 2, 50, 128, 0.1f, 2, 0, ACT_INT8, 0, 0,
     {{3, 90, 1}, {0, 17, 1}, {2, 10, 41}, {1, 0, 3}}, 0},
    {"out rows, window", FORMAT_F16, 256, 4, 2, 40, 128, 0.1f, 1, 7, ACT_INT8, 0, 0,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}}, 0},
    {"out rows, global", FORMAT_F16, 512, 4, 2, 0, 128, 0.08f, 1, 3, ACT_INT8, 0, 0,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}}, 0},
    {"out rows, prompts end", FORMAT_F16, 512, 8, 2, 0, 160, 0.08f, 1, -1, ACT_HALF, 0, 0,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}, {0, 128, 2}, {4, 31, 33}}, 0},
    {"out rows, all", FORMAT_F16, 256, 8, 2, 40, 128, 0.1f, 2, 1, ACT_INT8, 0, 0,
     {{3, 90, 1}, {5, 7, 1}, {2, 10, 61}, {1, 0, 35}, {0, 128, 2}}, 0},
    {"odd prompts, window", FORMAT_F16, 256, 8, 2, 96, 224, 0.1f, 0, 0, ACT_INT8, 0, 0,
     {{4, 1000, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 2000, 65}}, 0},
    {"odd prompts, global", FORMAT_F16, 512, 8, 2, 0, 400, 0.08f, 0, 0, ACT_HALF, 0, 0,
     {{4, 100, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 300, 65}}, 0},
    {"odd prompts, 12B global", FORMAT_F16, 512, 16, 1, 0, 200, 0.08f, 0, 0, ACT_HALF, 0, 0,
     {{4, 100, 1}, {0, 77, 31}, {3, 133, 33}, {1, 0, 64}, {2, 30, 65}}, 0},
    {"pages begin and end, global", FORMAT_F16, 512, 8, 2, 0, 400, 0.08f, 0, 0, ACT_HALF, 0, 0,
     {{0, 63, 1}, {1, 64, 64}, {2, 0, 17}, {3, 127, 130}, {4, 320, 63}}, 0},
    {"peaked scores, global, fp16", FORMAT_F16, 512, 8, 1, 0, 300, 1.0f, 0, 0, ACT_HALF, 0, 0,
     {{0, 10, 190}}, 0},
    {"3 heads on one, global", FORMAT_F16, 512, 6, 2, 0, 300, 0.15f, 0, 0, ACT_HALF, 0, 0,
     {{0, 100, 77}, {1, 3, 5}}, 0},
    {"31B global, 32 heads on 4", FORMAT_F16, 512, 32, 4, 0, 400, 0.2f, 0, 0, ACT_HALF, 0, 0,
     {{0, 300, 90}}, 0},
    {"sequences after decode, global", FORMAT_F16, 512, 8, 2, 0, 160, 0.08f, 2, 0, ACT_HALF, 0, 0,
     {{3, 90, 1}, {0, 17, 1}, {2, 100, 9}, {1, 0, 33}, {4, 5, 3}, {5, 60, 20}}, 0},
    {"out rows, global, fp16", FORMAT_F16, 512, 4, 2, 0, 128, 0.08f, 1, 3, ACT_HALF, 0, 0,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}}, 0},
    {"floats alone, global", FORMAT_F16, 512, 8, 2, 0, 200, 0.08f, 0, 0, ACT_NONE, 0, 0,
     {{0, 60, 67}}, 0},
    {"window, pages begin and end", FORMAT_F16, 256, 8, 2, 64, 200, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{0, 63, 1}, {1, 64, 64}, {2, 0, 17}, {3, 127, 130}, {4, 320, 63}}, 0},
    {"E4B window 512, fp16", FORMAT_F16, 256, 8, 2, 512, 800, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{0, 450, 210}, {1, 1600, 40}}, 0},
    {"window 1024, 16 heads on 8", FORMAT_F16, 256, 16, 8, 1024, 1200, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{0, 1000, 130}}, 0},
    {"peaked scores, window, fp16", FORMAT_F16, 256, 8, 1, 70, 200, 2.0f, 0, 0, ACT_HALF, 0, 0,
     {{0, 10, 130}}, 0},
    {"sequences, window, fp16", FORMAT_F16, 256, 8, 2, 50, 128, 0.1f, 2, 0, ACT_HALF, 0, 0,
     {{3, 90, 1}, {0, 17, 1}, {2, 100, 9}, {1, 0, 33}, {4, 5, 3}, {5, 60, 20}}, 0},
    {"odd prompts, window, fp16", FORMAT_F16, 256, 8, 2, 96, 224, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{4, 1000, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 2000, 65}}, 0},
    {"out rows, window, fp16", FORMAT_F16, 256, 4, 2, 40, 128, 0.1f, 1, 7, ACT_HALF, 0, 0,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}}, 0},
    {"NaN in a prompt, window, fp16", FORMAT_F16, 256, 8, 2, 96, 224, 0.1f, 0, 0, ACT_HALF, 4, 0,
     {{4, 1000, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 2000, 65}}, 0},
    {"70 prompts, window, fp16", FORMAT_F16, 256, 8, 2, 40, 64, 0.1f, 0, 0, ACT_HALF, 0, SINGLES,
     {{0}}, 0},
    {"heads of 256 without a window", FORMAT_F16, 256, 6, 2, 0, 300, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{0, 100, 77}, {1, 3, 5}}, 0},
    {"NaN in a prompt, window", FORMAT_F16, 256, 8, 2, 96, 224, 0.1f, 0, 0, ACT_INT8, 4, 0,
     {{4, 1000, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 2000, 65}}, 0},
    {"NaN in a prompt, global", FORMAT_F16, 512, 8, 2, 0, 400, 0.08f, 1, 0, ACT_HALF, 1, 0,
     {{4, 100, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 300, 65}}, 0},
    {"NaN in a prompt, out rows", FORMAT_F16, 512, 8, 2, 0, 400, 0.08f, 1, 2, ACT_HALF, 2, 0,
     {{4, 100, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 300, 65}}, 0},
    {"NaN in a prompt, BF16", FORMAT_BF16, 256, 8, 2, 96, 224, 0.1f, 0, 0, ACT_INT8, 3, 0,
     {{4, 1000, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 2000, 65}}, 0},
    {"70 prompts, window", FORMAT_F16, 256, 8, 2, 40, 64, 0.1f, 0, 0, ACT_INT8, 0, SINGLES,
     {{0}}, 0},
    {"70 prompts, global", FORMAT_F16, 512, 4, 1, 0, 400, 0.08f, 0, 0, ACT_HALF, 30, SINGLES,
     {{0}}, 0},
    {"3 heads on one, head 64", FORMAT_F16, 64, 6, 2, 30, 99, 0.3f, 0, 0, ACT_INT8, 0, 0,
     {{0, 3, 91}, {1, 50, 5}}, 0},
    {"head 128", FORMAT_F16, 128, 5, 1, 0, 300, 0.2f, 0, 0, ACT_HALF, 0, 0, {{0, 33, 200}}, 0},
    {"window smaller than a tile", FORMAT_F16, 128, 2, 2, 9, 21, 0.2f, 0, 0, ACT_NONE, 0, 0,
     {{1, 95, 13}}, 0},
    {"BF16, global", FORMAT_BF16, 512, 8, 2, 0, 130, 0.08f, 0, 0, ACT_NONE, 0, 0, {{0, 60, 67}}, 0},
    {"F32, window", FORMAT_F32, 256, 8, 2, 40, 130, 0.1f, 0, 0, ACT_INT8, 0, 0, {{0, 111, 67}}, 0},
    {"Q8_0, window", FORMAT_Q8_0, 256, 8, 2, 40, 130, 0.1f, 0, 0, ACT_INT8, 0, 0,
     {{1, 111, 67}}, 0},
    {"Q8_0, global", FORMAT_Q8_0, 512, 8, 2, 0, 130, 0.08f, 0, 0, ACT_INT8, 0, 0, {{1, 33, 67}}, 0},
    {"F32, head 64", FORMAT_F32, 64, 4, 1, 40, 130, 0.3f, 0, 0, ACT_INT8, 0, 0, {{0, 111, 67}}, 0},
    {"Q8_0, head 128", FORMAT_Q8_0, 128, 4, 1, 0, 130, 0.2f, 0, 0, ACT_INT8, 0, 0,
     {{0, 11, 67}}, 0},
    {"12B global, shared", FORMAT_F16, 512, 16, 1, 0, 150, 0.08f, 0, 0, ACT_HALF, 0, 0,
     {{0, 0, 101}}, 128},
    {"12B global, shared, 8 bits", FORMAT_F16, 512, 16, 1, 0, 200, 0.08f, 0, 0, ACT_INT8, 0, 0,
     {{0, 30, 101}}, 128},
    {"odd prompts, 26B global, shared", FORMAT_F16, 512, 16, 2, 0, 400, 0.08f, 0, 0, ACT_HALF, 0, 0,
     {{4, 100, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 300, 65}}, 128},
    {"31B global, shared, floats alone", FORMAT_F16, 512, 32, 4, 0, 400, 0.2f, 0, 0, ACT_NONE, 0, 0,
     {{0, 300, 90}}, 128},
    {"out rows, shared, fp16", FORMAT_F16, 512, 4, 2, 0, 128, 0.08f, 1, 3, ACT_HALF, 0, 0,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}}, 128},
    {"NaN in a prompt, shared", FORMAT_F16, 512, 8, 2, 0, 400, 0.08f, 1, 0, ACT_HALF, 1, 0,
     {{4, 100, 1}, {0, 77, 31}, {3, 333, 33}, {1, 0, 64}, {2, 300, 65}}, 128},
    {"448 columns turned", FORMAT_F16, 512, 8, 2, 0, 400, 0.08f, 0, 0, ACT_INT8, 0, 0,
     {{0, 100, 77}, {1, 3, 5}}, 448},
    {"F32, shared", FORMAT_F32, 512, 8, 2, 0, 130, 0.08f, 0, 0, ACT_INT8, 0, 0, {{0, 60, 67}}, 128},
    {"BF16, shared", FORMAT_BF16, 512, 8, 2, 0, 130, 0.08f, 0, 0, ACT_HALF, 0, 0, {{0, 60, 67}},
     128},
    {"Q8_0, shared", FORMAT_Q8_0, 512, 16, 2, 0, 130, 0.08f, 0, 0, ACT_HALF, 0, 0, {{1, 33, 67}},
     256},
    {"head 256, shared", FORMAT_F16, 256, 8, 2, 0, 300, 0.1f, 0, 0, ACT_HALF, 0, 0,
     {{0, 100, 77}, {1, 3, 5}}, 64},
    {"head 128, shared", FORMAT_F16, 128, 5, 1, 0, 300, 0.2f, 0, 0, ACT_INT8, 0, 0, {{0, 33, 200}},
     64},
};
/* clang-format on */

void check_attention_prefill(struct check *c)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) check_scene(c, &scenes[i]);
    for (size_t i = 0; c->is_perf && i < sizeof speeds / sizeof *speeds; i++)
        time_shape(c, &speeds[i]);
}
