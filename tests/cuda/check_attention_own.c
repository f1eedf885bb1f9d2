/* Attention of one row that makes its heads itself against the launches that it stands for: the
 * same bits in results and cache. Cells that the row does not see hold NaN. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/kernels/attention_own.h"
#include "cuda/check_pages.h"
#include "cuda/check_tiles.h"
#include "quant/format.h"

enum { DIM = 256, SEQUENCES = 2, WINDOW_MOST = 1024, KV_HEADS_MOST = 16, NOISE_V = 52 };

struct own_case {
    const char *name;
    int32_t n_heads, n_kv, window;
    bool has_k, is_k_eq_v, is_out;
    enum format format;
};

/* One row and all that its launches read and write. */
struct own {
    struct check *check;
    struct check_pages pages;
    struct heads_args heads;
    struct attention_args attention;
    float *parts;
};

/* Keys and values of all cases. */
static float *noise;

/* Cells of positions first .. end - 1. */
static void fill_cells(struct check *c, const struct check_pages *pages, int32_t sequence,
                       int32_t first, int32_t end)
{
    int32_t n = end - first, *position = malloc(((size_t)n + 1) * sizeof *position);
    int32_t *of = malloc(((size_t)n + 1) * sizeof *of);
    for (int32_t i = 0; i < n; i++) position[i] = first + i, of[i] = sequence;
    struct step_view step = check_step(n, n, n, NULL, position, of, NULL);
    launch_kv_write(&c->queue, step, (struct rows){n, ROWS_TOKEN}, noise, noise + NOISE_V,
                    pages->device);
    check_step_free(&step);
    free(position);
    free(of);
}

static float *frequencies(void)
{
    float f[DIM / 2];
    for (int i = 0; i < DIM / 2; i++) f[i] = powf(10000.0f, -(float)i / (DIM / 2));
    return check_alloc(f, sizeof f);
}

static struct own new_own(struct check *c, const struct own_case *s, int32_t position)
{
    struct rng rng = {91};
    struct own o = {.check = c};
    int32_t first = position >= s->window ? position - s->window + 1 : 0, sequence = 1;
    size_t cols = (size_t)(s->n_heads * DIM), kv_cols = (size_t)(s->n_kv * DIM);
    struct kv_cache shape = kv_cache_shape(s->format, kv_pages(s->window) + 2, s->n_kv, DIM);
    o.pages = check_pages_new(&rng, &shape, SEQUENCES);
    check_pages_upload(&o.pages);
    fill_cells(c, &o.pages, sequence, first, position + (s->has_k ? 0 : 1));
    o.parts = check_normal_device(&rng, cols + 2 * kv_cols, 2, NULL);
    struct step_view step =
        check_step(1, 1, 1, NULL, &position, &sequence, s->is_out ? (int32_t[]){0} : NULL);
    o.heads = (struct heads_args){.step = step,
                                  .rows = {1, s->is_out},
                                  .q = o.parts,
                                  .has_q = true,
                                  .has_k = s->has_k,
                                  .is_k_eq_v = s->is_k_eq_v,
                                  .w_q = check_normal_device(&rng, DIM, 0.1f, NULL),
                                  .w_k = check_normal_device(&rng, DIM, 1, NULL),
                                  .inv_freq = frequencies(),
                                  .eps = 1e-6f,
                                  .n_heads = s->n_heads,
                                  .ahead = !s->has_k, /* as a drafter has it */
                                  .q_out = check_alloc(NULL, cols * sizeof(float)),
                                  .cache = {.head_dim = DIM}};
    if (s->has_k) {
        o.heads.k = o.parts + cols;
        o.heads.v = o.parts + cols + (s->is_k_eq_v ? 0 : kv_cols);
        o.heads.cache = o.pages.device;
    }
    size_t scratch = attention_decode_scratch_bytes(1, s->n_heads, &o.pages.device);
    o.attention = (struct attention_args){.step = step,
                                          .rows = {1, s->is_out},
                                          .q = o.heads.q_out,
                                          .cache = o.pages.device,
                                          .n_heads = s->n_heads,
                                          .window = s->window,
                                          .y = check_alloc(NULL, cols * sizeof(float)),
                                          .act = act_empty_of_kind(1, (int)cols, ACT_INT8),
                                          .scratch = check_alloc(NULL, scratch)};
    return o;
}

static bool free_own(struct own *o)
{
    bool is_whole =
        check_pages_free(&o->pages) & check_free(o->parts) &
        check_free((void *)(uintptr_t)o->heads.w_q) & check_free((void *)(uintptr_t)o->heads.w_k) &
        check_free((void *)(uintptr_t)o->heads.inv_freq) & check_free(o->heads.q_out) &
        check_free(o->attention.y) & act_free(&o->attention.act) & check_free(o->attention.scratch);
    check_step_free(&o->heads.step);
    return is_whole;
}

static void record_apart(void *user, int i)
{
    struct own *o = user;
    (void)i;
    launch_heads(&o->check->queue, &o->heads);
    launch_attention_decode(&o->check->queue, &o->attention);
}

static void record_together(void *user, int i)
{
    struct own *o = user;
    (void)i;
    launch_attention_own(&o->check->queue, &o->heads, &o->attention);
}

static void check_case(struct check *c, const struct own_case *s, int32_t position)
{
    struct own apart = new_own(c, s, position), together = new_own(c, s, position);
    record_apart(&apart, 0);
    bool is_taken = launch_attention_own(&c->queue, &together.heads, &together.attention);
    bool is_wanted = c->queue.capability == 90 && s->format == FORMAT_F16;
    const struct attention_args *a = &apart.attention, *b = &together.attention;
    size_t cols = (size_t)(s->n_heads * DIM);
    check_that(c, is_taken == is_wanted, "own: %s taken", s->name);
    if (is_taken) {
        check_that(c, check_is_same(a->y, b->y, cols * sizeof(float)), "own: %s at %d", s->name,
                   position);
        check_that(c,
                   check_is_same(a->act.values, b->act.values, cols) &&
                       check_is_same(a->act.scale, b->act.scale, cols / 4),
                   "own: %s at %d, activations", s->name, position);
        check_that(c,
                   check_is_same(apart.pages.device_pool, together.pages.device_pool,
                                 apart.pages.pool_bytes),
                   "own: %s at %d, cache", s->name, position);
    }
    check_that(c, free_own(&apart) & free_own(&together), "own: %s wrote outside", s->name);
}

/* What does not belong together is refused, and so is what blocks would overwrite. */
static void check_refused(struct check *c)
{
    struct own_case s = {"refused", 4, 2, 64, true, false, false, FORMAT_F16};
    struct own o = new_own(c, &s, 70);
    const struct queue *q = &c->queue;
    o.heads.rows.max = o.attention.rows.max = 2;
    check_that(c, !launch_attention_own(q, &o.heads, &o.attention), "own: two rows");
    o.heads.rows.max = o.attention.rows.max = 1;
    o.attention.window = 0;
    check_that(c, !launch_attention_own(q, &o.heads, &o.attention), "own: no window");
    o.attention.window = 64;
    o.attention.q = o.parts;
    check_that(c, !launch_attention_own(q, &o.heads, &o.attention), "own: other queries");
    o.attention.q = o.heads.q_out;
    o.heads.v = (float *)o.attention.scratch + 64;
    check_that(c, !launch_attention_own(q, &o.heads, &o.attention), "own: in the scratch");
    free_own(&o);
}

static void time_all(struct check *c)
{
    enum { LAUNCHES = 32 };
    static const struct own_case cases[] = {
        {"E4B", 8, 2, 512, true, false, false, FORMAT_F16},
        {"E4B, q alone", 8, 2, 512, false, false, false, FORMAT_F16},
        {"E2B", 8, 1, 512, true, false, false, FORMAT_F16},
        {"12B, 26B", 16, 8, 1024, true, false, false, FORMAT_F16},
        {"31B", 32, 16, 1024, true, false, false, FORMAT_F16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int32_t position = 100; position <= 3000; position += 2900) {
            struct own o = new_own(c, &cases[i], position);
            double apart = graph_time(c, record_apart, &o, LAUNCHES);
            double together = graph_time(c, record_together, &o, LAUNCHES);
            printf("own %-14s at %4d: heads, attention, join %.2f us, with heads in it %.2f us\n",
                   cases[i].name, position, apart * 1e6, together * 1e6);
            free_own(&o);
        }
}

void check_attention_own(struct check *c)
{
    static const struct own_case cases[] = {
        {"E4B", 8, 2, 512, true, false, false, FORMAT_F16},
        {"q alone", 8, 2, 512, false, false, true, FORMAT_F16},
        {"12B", 16, 8, 1024, true, false, false, FORMAT_F16},
        {"31B", 32, 16, 1024, true, true, false, FORMAT_F16},
        {"E2B", 8, 1, 512, true, false, true, FORMAT_F16},
        {"3 heads a key head", 9, 3, 100, true, false, false, FORMAT_F16},
        {"1 head, window of 1", 2, 2, 1, true, false, false, FORMAT_F16},
        {"5 heads", 5, 1, 70, true, true, false, FORMAT_F16},
        {"q8_0", 8, 2, 512, true, false, false, FORMAT_Q8_0},
    };
    static const int32_t positions[] = {0,    1,    31,   32,   63,   64,    100,  510,
                                        511,  512,  513,  640,  1022, 1023,  1024, 1055,
                                        3000, 8191, 8192, 8193, 8225, 130071};
    struct rng rng = {7};
    noise = check_normal_device(&rng, WINDOW_MOST * KV_HEADS_MOST * DIM + NOISE_V, 1, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t each = cases[i].n_kv > 8 ? 4 : cases[i].n_kv > 3 ? 2 : 1; /* large pools */
        for (size_t p = 0; p < sizeof positions / sizeof *positions; p += each)
            check_case(c, &cases[i], positions[p]);
    }
    check_refused(c);
    if (c->is_perf) time_all(c);
    check_free(noise);
}
