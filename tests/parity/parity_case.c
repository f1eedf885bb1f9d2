/* The data of a case, drawn from its seed. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "parity/parity.h"
#include "quant/grid_blocks.h"

enum { EMBED_IDS = 40, POSITION_MAX = 262143, FOUND_ROWS = 16 };

struct draw {
    struct parity_case *c;
    struct rng rng;
    bool failed;
};

static void *take(struct draw *d, size_t count, size_t size)
{
    void *memory = arena_take(&d->c->arena, count, size);
    if (!memory) d->failed = true;
    return memory;
}

/* `n` normal numbers; one in 16 is 30 times larger, so that saturating ops saturate. */
static float *draw_floats(struct draw *d, size_t n, bool has_outliers)
{
    float *values = take(d, n, sizeof *values);
    for (size_t i = 0; values && i < n; i++) {
        values[i] = rng_normal(&d->rng);
        if (has_outliers && rng_below(&d->rng, 16) == 0) values[i] *= 30.0f;
    }
    return values;
}

static struct weight table_of(const char *name, const float *values, int64_t rows, int64_t cols)
{
    return (struct weight){.name = name,
                           .format = FORMAT_F32,
                           .n_expert = 1,
                           .rows = rows,
                           .cols = cols,
                           .row_bytes = (size_t)cols * sizeof *values,
                           .expert_bytes = (size_t)(rows * cols) * sizeof *values,
                           .data = values};
}

/* Points of grids take long to find, so a later row has the blocks of one of the first FOUND_ROWS,
 * beginning with another one. */
static void repeat_row(const struct format_traits *traits, const char *found, size_t r,
                       size_t row_bytes, char *row)
{
    size_t at = r / FOUND_ROWS * (size_t)traits->block_bytes % row_bytes;
    memcpy(row, found + at, row_bytes - at);
    memcpy(row + (row_bytes - at), found, at);
}

/* The weight of the op in its format, and the values that it means. Between the matrices of a
 * stack lies as much foreign memory, NaN as floats, as between the two halves of a fused matrix. */
static void draw_weight(struct draw *d, int32_t n_expert, int64_t rows, int64_t cols)
{
    const struct format_traits *traits = format_traits(d->c->shape.format);
    size_t row_bytes = format_row_bytes(d->c->shape.format, cols);
    size_t n_rows = (size_t)(n_expert * rows), apart = n_expert > 1 ? 2 : 1;
    size_t expert_bytes = apart * (size_t)rows * row_bytes;
    float *values = draw_floats(d, n_rows * (size_t)cols, false);
    char *data = take(d, (size_t)n_expert, expert_bytes);
    if (!values || !data) return;
    memset(data, 0xff, (size_t)n_expert * expert_bytes);
    for (size_t r = 0; r < n_rows; r++) {
        char *row = data + r / (size_t)rows * expert_bytes + r % (size_t)rows * row_bytes;
        size_t from = r % FOUND_ROWS;
        if (r == from || !format_has_grid(d->c->shape.format))
            traits->encode(values + r * (size_t)cols, NULL, row, cols);
        else
            repeat_row(traits,
                       data + from / (size_t)rows * expert_bytes + from % (size_t)rows * row_bytes,
                       r, row_bytes, row);
        traits->decode(row, values + r * (size_t)cols, cols);
    }
    d->c->weight_values = values;
    d->c->weight = (struct weight){.name = "weight",
                                   .format = d->c->shape.format,
                                   .n_expert = n_expert,
                                   .rows = rows,
                                   .cols = cols,
                                   .row_bytes = row_bytes,
                                   .expert_bytes = expert_bytes,
                                   .data = data};
}

static void draw_vector(struct draw *d, int32_t n)
{
    float *values = draw_floats(d, (size_t)n, false);
    d->c->weight_values = values;
    d->c->weight = table_of("vector", values, 1, n);
}

static void draw_input(struct draw *d, int k, int32_t cols, bool has_outliers)
{
    int32_t rows = d->c->step.n_token;
    float *values = draw_floats(d, (size_t)rows * (size_t)cols, has_outliers);
    d->c->input[k] = table_of("input", values, rows, cols);
}

/* ---- The step --------------------------------------------------------------------------- */

/* The output rows: a rising, incomplete choice of the tokens. */
static void choose_out_rows(struct draw *d)
{
    struct step *s = &d->c->step;
    int32_t wanted = s->n_out;
    s->n_out = 0;
    for (int32_t t = 0; t < s->n_token && s->n_out < wanted; t++) {
        int32_t left = s->n_token - t, needed = wanted - s->n_out;
        bool is_out = needed >= left || rng_below(&d->rng, (uint32_t)left) < (uint32_t)needed;
        if (is_out) s->out_row[s->n_out++] = t;
    }
}

static void draw_step(struct draw *d)
{
    const struct parity_shape *p = &d->c->shape;
    struct step *s = &d->c->step;
    bool is_out = p->rows_class == ROWS_OUT;
    bool is_cached = p->code == OP_ATTENTION || p->code == OP_KV_WRITE;
    s->n_out = is_out ? p->rows : (p->rows + 1) / 2;
    s->n_token = is_out && !is_cached ? p->rows * 2 + 1 : p->rows;
    if (is_out && is_cached) s->n_out = (p->rows + 1) / 2;
    s->n_decode = p->n_decode;
    size_t n = (size_t)s->n_token;
    s->id = take(d, n, sizeof(int32_t));
    s->position = take(d, n, sizeof(int32_t));
    s->sequence = take(d, n, sizeof(int32_t));
    s->out_row = take(d, n, sizeof(int32_t));
    if (d->failed) return;
    for (int32_t t = 0; t < s->n_token; t++) {
        s->id[t] = p->code == OP_EMBED ? (int32_t)rng_below(&d->rng, EMBED_IDS) : t;
        s->position[t] = (int32_t)rng_below(&d->rng, POSITION_MAX + 1u);
    }
    s->position[0] = is_out ? 0 : POSITION_MAX;
    choose_out_rows(d);
}

/* ---- Caches ----------------------------------------------------------------------------- */

/* Single rows, each of its own sequence, at positions far apart, then a chunk of the last
 * sequence. The numbers of the sequences fall, so that row and sequence differ. */
static void place_rows(struct draw *d)
{
    struct parity_case *c = d->c;
    struct step *s = &c->step;
    const struct parity_shape *p = &c->shape;
    int32_t n_chunk = s->n_token - p->n_decode;
    c->n_seq = p->n_decode + (n_chunk > 0);
    c->n_position = 0;
    for (int32_t t = 0; t < s->n_token; t++) {
        bool is_single = t < p->n_decode;
        s->sequence[t] = is_single ? c->n_seq - 1 - t : 0;
        s->position[t] = p->depth + (is_single ? 2 * t : t - p->n_decode);
        if (s->position[t] >= c->n_position) c->n_position = s->position[t] + 1;
    }
    c->first_visible = take(d, (size_t)c->n_seq, sizeof *c->first_visible);
    if (d->failed) return;
    for (int32_t q = 0; q < c->n_seq; q++) c->first_visible[q] = c->n_position;
    for (int32_t t = 0; t < s->n_token; t++) {
        int32_t first =
            p->window && s->position[t] >= p->window ? s->position[t] - p->window + 1 : 0;
        int32_t *least = &c->first_visible[s->sequence[t]];
        if (first < *least) *least = first;
        carat_assert(s->position[t] - *least < p->capacity);
    }
}

static void shuffle(struct draw *d, int32_t *ids, int32_t n)
{
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t k = (int32_t)rng_below(&d->rng, (uint32_t)i + 1), id = ids[i];
        ids[i] = ids[k];
        ids[k] = id;
    }
}

static int32_t last_position(const struct parity_case *c, int32_t sequence)
{
    int32_t last = 0;
    for (int32_t t = 0; t < c->step.n_token; t++)
        if (c->step.sequence[t] == sequence && c->step.position[t] > last)
            last = c->step.position[t];
    return last;
}

/* Whether a row of the step sees or writes a position that lies in a slot. */
static bool is_slot_used(const struct parity_case *c, int32_t sequence, int32_t slot)
{
    int32_t last = last_position(c, sequence) / KV_PAGE;
    for (int32_t page = c->first_visible[sequence] / KV_PAGE; page <= last; page++)
        if (page % c->cache.slots == slot) return true;
    return false;
}

/* A page is as long as if other layers had parts before, between and after those of this one. */
enum { OTHER_PARTS = 768, PAGES_SPARE = 3 };

static void draw_table(struct draw *d)
{
    struct parity_case *c = d->c;
    int32_t n = c->n_seq * c->cache.slots;
    size_t part = (size_t)KV_PAGE * (size_t)kv_cell_bytes(&c->cache);
    size_t second = (OTHER_PARTS + part + OTHER_PARTS + 255) / 256 * 256;
    struct kv_cache at = c->cache;
    char base[1];
    kv_place(&at, base, second - OTHER_PARTS);
    c->n_pages = n + PAGES_SPARE + 1;
    c->k_at = (size_t)(OTHER_PARTS + ((char *)at.k - base));
    c->v_at = (size_t)(OTHER_PARTS + ((char *)at.v - base));
    c->cache.page_bytes = at.turned ? second : (second + part + OTHER_PARTS + 255) / 256 * 256;
    int32_t *ids = take(d, (size_t)c->n_pages, sizeof *ids);
    c->table = take(d, (size_t)n, sizeof *c->table);
    if (d->failed) return;
    for (int32_t i = 0; i < c->n_pages; i++) ids[i] = i;
    shuffle(d, ids + 1, c->n_pages - 1);
    for (int32_t i = 0; i < n; i++) {
        int32_t sequence = i / c->cache.slots, slot = i % c->cache.slots;
        bool is_given_back = !is_slot_used(c, sequence, slot) && rng_below(&d->rng, 2) == 0;
        c->table[i] = is_given_back ? 0 : ids[i + 1];
    }
    for (int32_t q = 0; q < c->n_seq; q++)
        carat_assert(last_position(c, q) / KV_PAGE - c->first_visible[q] / KV_PAGE <
                     c->cache.slots);
}

static void draw_table_of_keys(struct draw *d, struct weight *out, float spread)
{
    struct parity_case *c = d->c;
    int32_t cols = c->cache.n_heads * c->cache.head_dim;
    size_t rows = (size_t)c->n_seq * (size_t)c->n_position, n = rows * (size_t)cols;
    float *values = draw_floats(d, n, false);
    if (!values) return;
    for (size_t i = 0; i < n; i++) values[i] *= spread;
    *out = table_of("keys", values, (int64_t)rows, cols);
}

/* Keys are values in all columns that are not turned. */
static void share_columns(struct parity_case *c)
{
    float *keys = (float *)(uintptr_t)c->keys.data;
    const float *values = c->values.data;
    int64_t n = c->keys.rows * c->keys.cols;
    for (int64_t i = 0; i < n; i++)
        if (!kv_has_own_key(c->cache.head_dim, c->cache.turned, (int32_t)(i % c->keys.cols)))
            keys[i] = values[i];
}

static void draw_caches(struct draw *d)
{
    const struct parity_shape *p = &d->c->shape;
    int32_t slots = kv_pages(p->capacity) + (p->window > 0);
    d->c->cache = kv_cache_shape(p->format, slots, p->n_kv_heads, p->head_dim);
    kv_share(&d->c->cache, p->turned);
    place_rows(d);
    if (!d->failed) draw_table(d);
    if (d->failed) return;
    /* Scores q . k of spread 2: a softmax that is neither flat nor one-hot. */
    float spread = 2.0f / sqrtf((float)p->head_dim);
    draw_table_of_keys(d, &d->c->keys, spread);
    draw_table_of_keys(d, &d->c->values, p->turned ? spread : 1.0f);
    if (!d->failed) share_columns(d->c);
    if (p->code == OP_ATTENTION) draw_input(d, 0, p->cols, false);
}

/* ---- Experts ---------------------------------------------------------------------------- */

/* Logits from which ROUTE chooses known experts in a known order. Few rows choose expert 0, and
 * with a few rows most experts get none. */
static void draw_routes(struct draw *d)
{
    struct parity_case *c = d->c;
    int32_t n_token = c->step.n_token, n = c->shape.n_expert, n_used = c->shape.n_used;
    float *z = take(d, (size_t)n_token * (size_t)n, sizeof *z);
    c->routed = take(d, (size_t)n_token * (size_t)n_used, sizeof *c->routed);
    if (d->failed) return;
    for (int32_t t = 0; t < n_token; t++) {
        float *row = z + (size_t)t * (size_t)n;
        for (int32_t e = 0; e < n; e++) row[e] = -4.0f - (float)rng_unit(&d->rng);
        for (int32_t s = 0; s < n_used; s++) {
            int32_t e = (int32_t)rng_below(&d->rng, (uint32_t)n);
            while (row[e] > -3.0f) e = (e + 1) % n;
            row[e] = 2.0f - 0.5f * (float)s;
            c->routed[t * n_used + s] = e;
        }
    }
    c->input[1] = table_of("router logits", z, n_token, n);
}

static void draw_router_input(struct draw *d)
{
    draw_input(d, 0, d->c->shape.inner, false);
    float *z = (float *)(uintptr_t)d->c->input[0].data;
    size_t n = (size_t)d->c->step.n_token * (size_t)d->c->shape.inner;
    for (size_t i = 0; z && d->c->shape.has_ties && i < n; i++) z[i] = rintf(z[i]);
    if (d->c->shape.has_weight) draw_vector(d, d->c->shape.inner);
}

/* Frequencies as on global layers: a falling series, and pairs that do not turn. */
static void draw_rope(struct draw *d)
{
    int32_t half = d->c->shape.group / 2;
    draw_input(d, 0, d->c->shape.cols, false);
    draw_vector(d, half);
    for (int32_t i = 0; d->c->weight_values && i < half; i++)
        d->c->weight_values[i] =
            i >= 8 && i >= half * 3 / 4 ? 0.0f : powf(10000.0f, -(float)i / (float)half);
}

static void draw_op(struct draw *d)
{
    const struct parity_shape *p = &d->c->shape;
    switch (p->code) {
    case OP_EMBED: draw_weight(d, 1, EMBED_IDS, p->inner); break;
    case OP_RMSNORM:
        draw_input(d, 0, p->cols, true);
        if (p->has_weight) draw_vector(d, p->group);
        break;
    case OP_MATMUL:
        draw_weight(d, 1, p->cols, p->inner);
        draw_input(d, 0, p->inner, false);
        break;
    case OP_ROPE: draw_rope(d); break;
    case OP_KV_WRITE:
    case OP_ATTENTION: draw_caches(d); break;
    case OP_ADD:
        draw_input(d, 0, p->cols, true);
        draw_input(d, 1, p->cols, true);
        break;
    case OP_CONCAT:
        draw_input(d, 0, p->cols - p->inner, true);
        draw_input(d, 1, p->inner, true);
        break;
    case OP_GELU_MUL:
        draw_input(d, 0, p->cols, true);
        draw_input(d, 1, p->inner, false);
        break;
    case OP_SCALE:
    case OP_SOFTCAP:
    case OP_GATHER_ROWS: draw_input(d, 0, p->cols, true); break;
    case OP_ROUTE: draw_router_input(d); break;
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT:
        draw_weight(d, p->n_expert, p->cols, p->inner);
        draw_input(d, 0, p->code == OP_EXPERT_IN ? p->inner : p->inner * p->n_used, false);
        draw_routes(d);
        break;
    case OP_INPUT: /* nothing is computed */
    case OP_OUTPUT:
    case OP_COUNT: break;
    }
}

bool parity_case_init(struct parity_case *c, const struct parity_shape *shape, uint64_t seed)
{
    *c = (struct parity_case){.shape = *shape};
    struct draw d = {.c = c, .rng = {.state = seed}};
    c->value = shape->code == OP_RMSNORM ? 1e-6f : shape->code == OP_SOFTCAP ? 30.0f : 0.7f;
    draw_step(&d);
    if (!d.failed) draw_op(&d);
    if (d.failed) arena_deinit(&c->arena);
    return !d.failed;
}

void parity_case_deinit(struct parity_case *c)
{
    arena_deinit(&c->arena);
}

size_t parity_offset(const struct parity_case *c, int32_t sequence, int32_t position)
{
    struct kv_cache cache = c->cache;
    cache.table = c->table;
    return c->k_at + kv_offset(&cache, sequence, position);
}

int32_t parity_token(const struct parity_case *c, int32_t r)
{
    return c->shape.rows_class == ROWS_TOKEN ? r : c->step.out_row[r];
}

const float *parity_input(const struct parity_case *c, int k, int32_t r)
{
    const float *values = c->input[k].data;
    return values + (size_t)parity_token(c, r) * (size_t)c->input[k].cols;
}
