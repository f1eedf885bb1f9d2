/* Attention of many rows against a double-precision reference of the same rounded inputs. */
#include "cuda/check.h"

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

enum { RUNS_MAX = 6, TOKENS_MAX = 512 };

/* One step: rows of runs[i] are `n` tokens of `sequence` from `start`. The first n_decode runs are
 * single tokens. */
struct scene {
    const char *name;
    enum format format;
    int32_t head_dim, n_heads, n_kv, window, capacity;
    float k_scale;
    int32_t n_decode;
    int32_t part;
    int32_t out_every; /* > 0: ROWS_OUT, every out_every-th token */
    enum act_kind act;
    struct {
        int32_t sequence, start, n;
    } runs[RUNS_MAX];
};

struct work {
    const struct scene *scene;
    int32_t n_token, n_out, n_seq;
    int32_t position[TOKENS_MAX], sequence[TOKENS_MAX], out_row[TOKENS_MAX];
    struct kv_cache cache;
    size_t cache_values;
    float *k, *v, *q; /* as the kernel rounds them; NaN in unwritten cells of the cache */
    char *k_file, *v_file;
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

static void lay_out(struct work *w)
{
    const struct scene *s = w->scene;
    for (int i = 0; i < RUNS_MAX; i++)
        for (int32_t j = 0; j < s->runs[i].n; j++) {
            w->position[w->n_token] = s->runs[i].start + j;
            w->sequence[w->n_token++] = s->runs[i].sequence;
            if (s->runs[i].sequence >= w->n_seq) w->n_seq = s->runs[i].sequence + 1;
        }
    if (s->out_every > 0)
        for (int32_t t = s->out_every - 1; t < w->n_token; t += s->out_every)
            w->out_row[w->n_out++] = t;
}

/* Random keys and values in the cells that some row may see. The others stay NaN. */
static void fill_cache(struct work *w, struct rng *rng)
{
    const struct scene *s = w->scene;
    int32_t cell_values = s->n_kv * s->head_dim;
    size_t cells = (size_t)w->n_seq * (size_t)s->capacity;
    w->cache = kv_cache_shape(s->format, s->capacity, s->n_kv, s->head_dim);
    size_t cell_bytes = (size_t)kv_cell_bytes(&w->cache);
    w->cache_values = cells * (size_t)cell_values;
    w->k = take(w->cache_values * sizeof(float));
    w->v = take(w->cache_values * sizeof(float));
    memset(w->k, 0xff, w->cache_values * sizeof(float));
    memset(w->v, 0xff, w->cache_values * sizeof(float));
    w->k_file = take(cells * cell_bytes);
    w->v_file = take(cells * cell_bytes);
    memset(w->k_file, 0xff, cells * cell_bytes);
    memset(w->v_file, 0xff, cells * cell_bytes);
    for (int i = 0; i < RUNS_MAX; i++)
        for (int32_t p = first_key(s, s->runs[i].start); p < s->runs[i].start + s->runs[i].n; p++) {
            size_t cell = kv_offset(&w->cache, s->runs[i].sequence, p) / cell_bytes;
            float *row[2] = {w->k + cell * (size_t)cell_values, w->v + cell * (size_t)cell_values};
            char *file[2] = {w->k_file + cell * cell_bytes, w->v_file + cell * cell_bytes};
            for (int j = 0; j < 2; j++) {
                check_normal(rng, row[j], (size_t)cell_values, j ? 1.0f : s->k_scale);
                format_traits(s->format)->encode(row[j], file[j], cell_values);
                format_traits(s->format)->decode(file[j], row[j], cell_values);
                for (int32_t c = 0; c < cell_values; c++)
                    row[j][c] = f16_to_f32(f32_to_f16(row[j][c]));
            }
        }
}

static void expect_head(struct work *w, int32_t row, int32_t token, int32_t head, double *score)
{
    const struct scene *s = w->scene;
    int32_t d = s->head_dim, last = w->position[token], first = first_key(s, last);
    int32_t kv_head = head / (s->n_heads / s->n_kv);
    size_t at = ((size_t)row * (size_t)s->n_heads + (size_t)head) * (size_t)d;
    double most = -INFINITY, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t p = first; p <= last; p++) {
            size_t cell =
                kv_offset(&w->cache, w->sequence[token], p) / (size_t)kv_cell_bytes(&w->cache);
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

static void expect(struct work *w, int32_t rows)
{
    const struct scene *s = w->scene;
    double *score = take((size_t)s->capacity * sizeof *score);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t h = 0; h < s->n_heads; h++)
            expect_head(w, r, s->out_every > 0 ? w->out_row[r] : r, h, score);
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

static void download(struct result *to, const struct attention_args *args)
{
    to->y = take(to->y_bytes);
    to->values = take(to->value_bytes);
    to->scale = take(to->scale_bytes);
    check_download(to->y, args->y, to->y_bytes);
    check_download(to->values, args->act.values, to->value_bytes);
    check_download(to->scale, args->act.scale, to->scale_bytes);
}

static void check_result(struct check *c, const struct work *w, const struct result *got,
                         int32_t rows, int32_t rows_max)
{
    const struct scene *s = w->scene;
    int32_t cols = s->n_heads * s->head_dim;
    int32_t begin = s->part == ATTEND_CHUNK ? s->n_decode : 0;
    int32_t end = s->part == ATTEND_DECODE ? s->n_decode : rows;
    size_t n = (size_t)(end - begin) * (size_t)cols, skip = (size_t)begin * (size_t)cols;
    double nmse = check_nmse(got->y + skip, w->expected + skip, n);
    check_that(c, nmse <= BUDGET, "%s: nmse %.2e", s->name, nmse);
    double worst = 0;
    for (int32_t r = begin; r < end; r++) {
        size_t at = (size_t)r * (size_t)cols;
        double one = check_nmse(got->y + at, w->expected + at, (size_t)cols);
        worst = fmax(worst, one);
    }
    check_that(c, worst <= 10 * BUDGET, "%s: worst row's nmse %.2e", s->name, worst);
    size_t after = (size_t)end * (size_t)cols;
    bool is_kept =
        is_untouched(got->y, skip * sizeof(float)) &&
        is_untouched(got->y + after, ((size_t)rows_max * (size_t)cols - after) * sizeof(float));
    check_that(c, is_kept, "%s: rows of others were written", s->name);
    size_t value_row = got->value_bytes / (size_t)rows_max;
    size_t scale_row = got->scale_bytes / (size_t)rows_max / sizeof(float);
    bool is_same = true;
    for (int32_t r = begin; r < end && s->act != ACT_NONE; r++)
        is_same = is_same && is_same_act(s->act, got->y + (size_t)r * (size_t)cols, cols,
                                         got->values + (size_t)r * value_row,
                                         got->scale + (size_t)r * scale_row);
    check_that(c, is_same, "%s: activations differ from outputs", s->name);
}

static void check_scene(struct check *c, const struct scene *s)
{
    struct rng rng = {77};
    struct work w = {.scene = s};
    lay_out(&w);
    fill_cache(&w, &rng);
    int32_t rows = s->out_every > 0 ? w.n_out : w.n_token, rows_max = rows + 5;
    int32_t cols = s->n_heads * s->head_dim;
    size_t n = (size_t)rows_max * (size_t)cols;
    w.q = take(n * sizeof(float));
    w.expected = take(n * sizeof(double));
    for (size_t i = 0; i < n; i++) w.expected[i] = 0;
    check_normal(&rng, w.q, n, 1.0f);
    struct attention_args args = {
        .step = check_step(w.n_token, s->n_decode, w.n_out, NULL, w.position, w.sequence,
                           s->out_every > 0 ? w.out_row : NULL),
        .rows = {rows_max, s->out_every > 0 ? ROWS_OUT : ROWS_TOKEN},
        .q = check_alloc(w.q, n * sizeof(float)),
        .cache = w.cache,
        .n_heads = s->n_heads,
        .window = s->window,
    };
    args.part = s->part;
    size_t file_bytes = w.cache_values / (size_t)(s->n_kv * s->head_dim) *
                        format_row_bytes(s->format, s->n_kv * s->head_dim);
    args.cache.k = check_alloc(w.k_file, file_bytes);
    args.cache.v = check_alloc(w.v_file, file_bytes);
    for (size_t i = 0; i < n; i++) w.q[i] = f16_to_f32(f32_to_f16(w.q[i]));
    expect(&w, rows);
    struct result got[2];
    for (int i = 0; i < 2; i++) {
        got[i] = (struct result){.y_bytes = n * sizeof(float),
                                 .value_bytes = s->act == ACT_HALF ? n * 2 : n,
                                 .scale_bytes = (s->act == ACT_HALF ? (size_t)rows_max : n / 16) *
                                                sizeof(float)};
        args.y = check_alloc(NULL, got[i].y_bytes);
        args.act = (struct act){.kind = s->act,
                                .stride = cols,
                                .values = check_alloc(NULL, got[i].value_bytes),
                                .scale = check_alloc(NULL, got[i].scale_bytes)};
        check_that(c, attention_prefill_takes(&args), "%s: not taken", s->name);
        launch_attention_prefill(&c->queue, &args);
        download(&got[i], &args);
        bool is_whole = check_free(args.y);
        is_whole = check_free(args.act.values) && is_whole;
        is_whole = check_free(args.act.scale) && is_whole;
        check_that(c, is_whole, "%s: guards overwritten", s->name);
    }
    check_result(c, &w, &got[0], rows, rows_max);
    check_that(c, memcmp(got[0].y, got[1].y, got[0].y_bytes) == 0, "%s: not repeatable", s->name);
    for (int i = 0; i < 2; i++) free(got[i].y), free(got[i].values), free(got[i].scale);
    check_free((void *)(uintptr_t)args.q);
    check_free(args.cache.k);
    check_free(args.cache.v);
    check_step_free(&args.step);
    free(w.k), free(w.v), free(w.q), free(w.k_file), free(w.v_file), free(w.expected);
}

/* ---- Speed ----------------------------------------------------------------------------------- */

struct speed {
    const char *name;
    int32_t head_dim, n_heads, n_kv, window, start, n;
    enum format format;
};

struct timed {
    struct check *c;
    struct attention_args args;
};

static void run_timed(void *user)
{
    struct timed *t = user;
    launch_attention_prefill(&t->c->queue, &t->args);
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
    enum { PERIOD = 1 << 18 };
    struct rng rng = {5};
    float *normal = take(PERIOD * sizeof *normal);
    check_normal(&rng, normal, PERIOD, 1.0f);
    char *encoded = take(PERIOD * sizeof *normal);
    int32_t capacity = s->window > 0 ? s->window + s->n : s->start + s->n;
    size_t period = format_row_bytes(s->format, PERIOD);
    size_t bytes = format_row_bytes(s->format, (int64_t)capacity * s->n_kv * s->head_dim);
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
        .cache = kv_cache_shape(s->format, capacity, s->n_kv, s->head_dim),
        .n_heads = s->n_heads,
        .window = s->window,
        .act = {.kind = ACT_HALF,
                .stride = (int32_t)cols,
                .values = check_alloc(NULL, n * 2),
                .scale = check_alloc(NULL, (size_t)s->n * 4)},
    };
    check_normal(&rng, normal, PERIOD, 0.15f);
    format_traits(s->format)->encode(normal, encoded, PERIOD);
    t.args.cache.k = repeat(encoded, period, bytes);
    t.args.cache.v = repeat(encoded, period, bytes);
    double seconds = check_time(c, run_timed, &t, false);
    double flops = 4.0 * s->head_dim * s->n_heads * pairs;
    printf("  %-44s %9.1f us %7.1f TFLOP/s of visible pairs (mma.sync: 641 on an H200)\n", s->name,
           seconds * 1e6, flops / seconds / 1e12);
    check_free((void *)(uintptr_t)t.args.q);
    check_free(t.args.cache.k);
    check_free(t.args.cache.v);
    check_free(t.args.act.values);
    check_free(t.args.act.scale);
    check_step_free(&t.args.step);
    free(normal), free(encoded), free(position), free(sequence);
}

static const struct speed speeds[] = {
    {"E4B window 512, 512 tokens", 256, 8, 2, 512, 0, 512, FORMAT_F16},
    {"E4B window 512, 2048 tokens", 256, 8, 2, 512, 0, 2048, FORMAT_F16},
    {"E4B window 512, 8192 tokens", 256, 8, 2, 512, 0, 8192, FORMAT_F16},
    {"E2B window 512, 8192 tokens", 256, 8, 1, 512, 0, 8192, FORMAT_F16},
    {"12B window 1024, 2048 tokens", 256, 16, 8, 1024, 0, 2048, FORMAT_F16},
    {"12B window 1024, 8192 tokens", 256, 16, 8, 1024, 0, 8192, FORMAT_F16},
    {"E4B global, 512 tokens", 512, 8, 2, 0, 0, 512, FORMAT_F16},
    {"E4B global, 2048 tokens", 512, 8, 2, 0, 0, 2048, FORMAT_F16},
    {"E4B global, 8192 tokens", 512, 8, 2, 0, 0, 8192, FORMAT_F16},
    {"E4B global, 4096 tokens at 28672", 512, 8, 2, 0, 28672, 4096, FORMAT_F16},
    {"12B global, 2048 tokens", 512, 16, 1, 0, 0, 2048, FORMAT_F16},
    {"12B global, 8192 tokens", 512, 16, 1, 0, 0, 8192, FORMAT_F16},
    {"E4B window 512, 2048 tokens, Q8_0", 256, 8, 2, 512, 0, 2048, FORMAT_Q8_0},
    {"E4B global, 2048 tokens, Q8_0", 512, 8, 2, 0, 0, 2048, FORMAT_Q8_0},
};

/* clang-format off */
static const struct scene scenes[] = {
    /* name, format, head, heads, kv heads, window, capacity, k scale, decode, part, out, act */
    {"1 row at 0", FORMAT_F16, 256, 8, 2, 512, 700, 0.1f, 0, ATTEND_ALL, 0, ACT_INT8, {{0, 0, 1}}},
    {"E4B window, 150 rows", FORMAT_F16, 256, 8, 2, 64, 256, 0.1f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 0, 150}}},
    {"window, ring wraps, start 333", FORMAT_F16, 256, 8, 2, 96, 200, 0.1f, 0, ATTEND_ALL, 0,
     ACT_HALF, {{1, 333, 77}}},
    {"12B window, 8 kv heads", FORMAT_F16, 256, 16, 8, 100, 200, 0.1f, 0, ATTEND_ALL, 0, ACT_HALF,
     {{0, 140, 70}}},
    {"E4B global, 65 rows at 201", FORMAT_F16, 512, 8, 2, 0, 300, 0.08f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 201, 65}}},
    {"12B global, 16 heads on one", FORMAT_F16, 512, 16, 1, 0, 150, 0.08f, 0, ATTEND_ALL, 0,
     ACT_HALF, {{0, 0, 101}}},
    {"peaked scores, global", FORMAT_F16, 512, 8, 1, 0, 200, 1.0f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 10, 90}}},
    {"peaked scores, window", FORMAT_F16, 256, 8, 1, 70, 200, 2.0f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 10, 130}}},
    {"sequences change inside tiles", FORMAT_F16, 256, 8, 2, 50, 128, 0.1f, 2, ATTEND_ALL, 0,
     ACT_INT8, {{3, 90, 1}, {0, 17, 1}, {2, 100, 9}, {1, 0, 33}, {4, 5, 3}, {5, 60, 20}}},
    {"sequences, global", FORMAT_F16, 512, 8, 2, 0, 160, 0.08f, 2, ATTEND_ALL, 0, ACT_INT8,
     {{3, 90, 1}, {0, 17, 1}, {2, 100, 9}, {1, 0, 33}, {4, 5, 3}, {5, 60, 20}}},
    {"chunk part", FORMAT_F16, 256, 8, 2, 50, 128, 0.1f, 2, ATTEND_CHUNK, 0, ACT_INT8,
     {{3, 90, 1}, {0, 17, 1}, {2, 10, 41}, {1, 0, 3}}},
    {"decode part", FORMAT_F16, 512, 8, 2, 0, 128, 0.08f, 2, ATTEND_DECODE, 0, ACT_HALF,
     {{3, 90, 1}, {0, 17, 1}, {2, 10, 41}, {1, 0, 3}}},
    {"out rows, window", FORMAT_F16, 256, 4, 2, 40, 128, 0.1f, 1, ATTEND_ALL, 7, ACT_INT8,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}}},
    {"out rows, global", FORMAT_F16, 512, 4, 2, 0, 128, 0.08f, 1, ATTEND_ALL, 3, ACT_INT8,
     {{3, 90, 1}, {2, 10, 61}, {1, 0, 35}}},
    {"3 heads on one, head 64", FORMAT_F16, 64, 6, 2, 30, 99, 0.3f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 3, 91}, {1, 50, 5}}},
    {"head 128", FORMAT_F16, 128, 5, 1, 0, 300, 0.2f, 0, ATTEND_ALL, 0, ACT_HALF, {{0, 33, 200}}},
    {"cache smaller than a tile", FORMAT_F16, 128, 2, 2, 9, 21, 0.2f, 0, ATTEND_ALL, 0, ACT_NONE,
     {{1, 95, 13}}},
    {"BF16, global", FORMAT_BF16, 512, 8, 2, 0, 130, 0.08f, 0, ATTEND_ALL, 0, ACT_NONE,
     {{0, 60, 67}}},
    {"F32, window", FORMAT_F32, 256, 8, 2, 40, 130, 0.1f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 111, 67}}},
    {"Q8_0, window", FORMAT_Q8_0, 256, 8, 2, 40, 130, 0.1f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{1, 111, 67}}},
    {"Q8_0, global", FORMAT_Q8_0, 512, 8, 2, 0, 130, 0.08f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{1, 33, 67}}},
    {"F32, head 64", FORMAT_F32, 64, 4, 1, 40, 130, 0.3f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 111, 67}}},
    {"Q8_0, head 128", FORMAT_Q8_0, 128, 4, 1, 0, 130, 0.2f, 0, ATTEND_ALL, 0, ACT_INT8,
     {{0, 11, 67}}},
};
/* clang-format on */

void check_attention_prefill(struct check *c)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) check_scene(c, &scenes[i]);
    for (size_t i = 0; c->is_perf && i < sizeof speeds / sizeof *speeds; i++)
        time_shape(c, &speeds[i]);
}
