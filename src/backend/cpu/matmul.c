/* Matrix products. An item of work is a few tiles of 16 weight rows with all activation rows. So
 * weights come from memory once, and a result does not depend on the worker. Weights in tiles are
 * multiplied with activations in 8 bits; others are decoded row by row and multiplied in fp32. On
 * processors with fast products in bf16, prompt rows are multiplied in bf16 with weights of either
 * kind. */
#include <string.h>

#include "backend/cpu/program.h"
#include "backend/host.h"

enum {
    ITEM_TILES_MIN = 4, /* tiles per item */
    ITEM_TILES_MAX = 8,
    ITEM_TILES_FEW_ROWS = 16, /* at most, with a few rows: their results take less room */
    FEW_ROWS = 16,
    ITEMS_A_WORKER = 8,  /* so that workers end together */
    ITEM_ROWS = 256,     /* activation rows per kernel call: their results stay in cache */
    BF16_ROWS_MAX = 512, /* the same in bf16, where weights are unpacked in each call, */
    BF16_TILES_MAX = 10, /* and tiles per item: with more, activations are read less often */
    FLOAT_ROWS = 4,      /* weight rows decoded or read at a time */
    AS_READ_ROWS = 8,    /* up to this many activation rows, float weights are decoded as read */
    RESULTS = ITEM_ROWS * ITEM_TILES_MAX * TILE_ROWS, /* of an item at most */
    BF16_RESULTS = BF16_ROWS_MAX * BF16_TILES_MAX * TILE_ROWS
};

static size_t results_max(const struct device *device)
{
    return device->has_bf16 ? BF16_RESULTS : RESULTS;
}

size_t cpu_matmul_worker_bytes(const struct device *device, const struct op *op)
{
    const struct weight *w = op->code == OP_MATMUL ? op->p.matmul.w : op->p.expert.w;
    return (results_max(device) + (size_t)w->cols * FLOAT_ROWS) * sizeof(float);
}

/* One matrix and the rows it is multiplied with. */
struct product {
    const struct cpu_step *s;
    const struct cpu_weight *w;
    int64_t expert;
    const int32_t *list; /* activation rows; NULL: all from `first` on */
    int32_t first, n;
    int64_t n_tiles, item_tiles; /* of the matrix and of an item */
    float *results;              /* worker's */
};

static inline void add_scaled(float *y, float factor, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += factor * x[i];
}

/* Stores the results of activation row `row` in a row of the output, or adds them to it. */
static inline void put(const struct product *p, int32_t row, int64_t first, int64_t n,
                       const float *result)
{
    const struct cpu_step *s = p->s;
    int64_t cols = p->w->source->rows;
    if (s->op->code == OP_EXPERT_OUT)
        add_scaled(s->y0 + row / s->op->p.expert.n_used * (int64_t)s->y_cols + first, s->x2[row],
                   result, n);
    else
        memcpy(s->y0 + row * cols + first, result, (size_t)n * sizeof *result);
}

/* EXPERT_IN: the n_used slots of a token have one input row. */
static int32_t rows_share_input(const struct cpu_step *s)
{
    return s->op->code == OP_EXPERT_IN ? s->op->p.expert.n_used : 1;
}

static const uint8_t *weight_row(const struct product *p, int64_t row)
{
    const struct weight *w = p->w->source;
    return p->w->rows + (size_t)p->expert * p->w->matrix_bytes + (size_t)row * w->row_bytes;
}

/* How many of the product's rows are multiplied in 8 bits: the first ones. */
static int32_t byte_rows(const struct product *p)
{
    int32_t n = cpu_step_byte_rows(p->s) - p->first;
    if (p->list) return p->n; /* experts */
    return n < 0 ? 0 : n < p->n ? n : p->n;
}

/* Puts the results of the product's rows [first, first + n) by n_tiles tiles. */
static void put_rows(const struct product *p, int64_t tile, int64_t n_tiles, int32_t first,
                     int32_t n)
{
    int64_t col = tile * TILE_ROWS, left = p->w->source->rows - col;
    int64_t n_cols = left < n_tiles * TILE_ROWS ? left : n_tiles * TILE_ROWS;
    for (int32_t i = 0; i < n; i++)
        put(p, p->list ? p->list[first + i] : p->first + first + i, col, n_cols,
            p->results + i * n_tiles * TILE_ROWS);
}

/* The product's first n rows, in 8 bits. */
static void multiply_bytes(const struct product *p, int64_t tile, int64_t n_tiles, int32_t n)
{
    const struct act_block *act = p->s->program->scratch.act;
    struct tile_job job = {.shape = &p->w->shape,
                           .tile = tile_at(p->w, p->expert, tile),
                           .n_tiles = (int32_t)n_tiles,
                           .act = act,
                           .low = p->s->is_fine ? act + cpu_step_rows(p->s) * p->w->shape.n_blocks
                                                : NULL,
                           .divisor = rows_share_input(p->s),
                           .out = p->results};
    for (int32_t done = 0; done < n; done += job.n) {
        job.n = n - done < ITEM_ROWS ? n - done : ITEM_ROWS;
        job.list = p->list ? p->list + done : NULL;
        job.first = p->first + done;
        cpu_step_kernels(p->s)->tile_dot(&job);
        put_rows(p, tile, n_tiles, done, job.n);
    }
}

/* The product's rows from `done` on, in bf16. */
static void multiply_bf16(const struct product *p, int64_t tile, int64_t n_tiles, int32_t done)
{
    const struct weight *w = p->w->source;
    const uint16_t *act = p->s->program->scratch.bf16;
    int32_t before = cpu_step_byte_rows(p->s), n_act = cpu_step_rows(p->s) - before;
    bool is_whole = (tile + n_tiles) * TILE_ROWS <= w->rows; /* results go to their rows at once */
    struct bf16_job job = {.n_rows = w->rows - tile * TILE_ROWS,
                           .n_blocks = w->cols / BLOCK_COLS,
                           .n_tiles = (int32_t)n_tiles,
                           .act = act,
                           .stretch = bf16_stretch(n_act),
                           .out = p->results,
                           .y_stride = w->rows};
    if (p->s->is_fine) job.low = act + bf16_size(n_act, w->cols);
    if (p->w->tiles) {
        job.shape = &p->w->shape;
        job.tile = tile_at(p->w, 0, tile);
    } else {
        const uint8_t *rows = weight_row(p, tile * TILE_ROWS);
        job.rows = (struct float_rows){.format = w->format, .data = rows, .stride = w->row_bytes};
    }
    for (; done < p->n; done += job.n) {
        job.n = p->n - done < BF16_ROWS_MAX ? p->n - done : BF16_ROWS_MAX;
        job.first = p->first + done - before;
        if (is_whole) job.y = p->s->y0 + (p->first + done) * w->rows + tile * TILE_ROWS;
        cpu_step_kernels(p->s)->bf16_dot(&job);
        if (!is_whole) put_rows(p, tile, n_tiles, done, job.n);
    }
}

static void multiply_tiles(const struct product *p, int64_t tile, int64_t n_tiles)
{
    int32_t n = byte_rows(p);
    multiply_bytes(p, tile, n_tiles, n);
    if (n < p->n) multiply_bf16(p, tile, n_tiles, n);
}

static const float *input_row(const struct product *p, int32_t row)
{
    return p->s->x0 + row / rows_share_input(p->s) * p->w->source->cols;
}

/* Weight rows [first, last), decoded before they are multiplied. */
static void multiply_decoded(const struct product *p, int64_t first, int64_t last)
{
    const struct weight *w = p->w->source;
    const struct cpu_kernels *k = cpu_step_kernels(p->s);
    float *decoded = p->results + results_max(p->s->program->device);
    for (int n_rows; first < last; first += n_rows) {
        n_rows = last - first < FLOAT_ROWS ? (int)(last - first) : FLOAT_ROWS;
        struct float_rows b = {FORMAT_F32, decoded, (size_t)w->cols * sizeof *decoded, 0};
        for (int i = 0; i < n_rows; i++)
            cpu_decode(k, w->format, weight_row(p, first + i), decoded + i * w->cols, w->cols);
        for (int32_t done = 0, n; done < p->n; done += n) {
            int32_t at = p->list ? p->list[done] : done, most = p->n - done;
            n = p->list ? 1 : most < ITEM_ROWS ? most : ITEM_ROWS;
            k->dots(input_row(p, at), w->cols, n, b, n_rows, w->cols, p->results, FLOAT_ROWS);
            for (int32_t i = 0; i < n; i++)
                put(p, at + i, first, n_rows, p->results + i * FLOAT_ROWS);
        }
    }
}

/* The same with few activation rows, where decoding would take longer than reading: a few weight
 * rows at a time, which stay in the first-level cache for all activations. */
static void multiply_as_read(const struct product *p, int64_t first, int64_t last)
{
    const struct weight *w = p->w->source;
    for (int n_rows; first < last; first += n_rows) {
        n_rows = last - first < FLOAT_ROWS ? (int)(last - first) : FLOAT_ROWS;
        struct float_rows b = {w->format, weight_row(p, first), w->row_bytes,
                               FLOAT_ROWS * (ptrdiff_t)w->row_bytes};
        for (int32_t done = 0, n; done < p->n; done += n) {
            int32_t at = p->list ? p->list[done] : done;
            n = p->list ? 1 : p->n;
            cpu_step_kernels(p->s)->dots(input_row(p, at), w->cols, n, b, n_rows, w->cols,
                                         p->results, FLOAT_ROWS);
            for (int32_t i = 0; i < n; i++)
                put(p, at + i, first, n_rows, p->results + i * FLOAT_ROWS);
        }
    }
}

/* Weights that are not in tiles: n_tiles times 16 rows of them. */
static void multiply_floats(const struct product *p, int64_t tile, int64_t n_tiles)
{
    const struct weight *w = p->w->source;
    struct product in_fp32 = *p;
    int64_t first = tile * TILE_ROWS, end = first + n_tiles * TILE_ROWS;
    int64_t last = end < w->rows ? end : w->rows;
    if (format_is_float(w->format) && weight_takes_bf16(w)) in_fp32.n = byte_rows(p);
    if (format_is_float(w->format) && in_fp32.n <= AS_READ_ROWS)
        multiply_as_read(&in_fp32, first, last);
    else
        multiply_decoded(&in_fp32, first, last);
    if (in_fp32.n < p->n) multiply_bf16(p, tile, n_tiles, in_fp32.n);
}

static void multiply_stretch(const struct product *p, int64_t first, int64_t last)
{
    for (int64_t end; first < last; first = end) {
        end = first + p->item_tiles < last ? first + p->item_tiles : last;
        if (p->w->tiles)
            multiply_tiles(p, first, end - first);
        else
            multiply_floats(p, first, end - first);
    }
}

static void multiply_item(const struct product *p, int64_t item)
{
    int64_t first = item * p->item_tiles, last = first + p->item_tiles;
    multiply_stretch(p, first, last < p->n_tiles ? last : p->n_tiles);
}

/* An even number, as kernels take pairs. In bf16, items are as large as possible while each worker
 * gets the same number of them. */
static int64_t tiles_per_item(const struct cpu_step *s, int64_t n_tiles, int n_workers)
{
    if (cpu_step_byte_rows(s) < cpu_step_rows(s)) {
        int64_t a_worker = (n_tiles + n_workers - 1) / n_workers;
        int64_t n_items = (a_worker + BF16_TILES_MAX - 1) / BF16_TILES_MAX;
        int64_t even = (a_worker + 2 * n_items - 1) / (2 * n_items) * 2;
        return even < BF16_TILES_MAX ? even : BF16_TILES_MAX;
    }
    int64_t most = cpu_step_rows(s) <= FEW_ROWS ? ITEM_TILES_FEW_ROWS : ITEM_TILES_MAX;
    int64_t tiles = n_tiles / (n_workers * ITEMS_A_WORKER) / 2 * 2;
    if (tiles < ITEM_TILES_MIN) return ITEM_TILES_MIN;
    return tiles < most ? tiles : most;
}

static int64_t count_items(const struct product *p)
{
    return (p->n_tiles + p->item_tiles - 1) / p->item_tiles;
}

static struct product make_product(const struct cpu_step *s, const struct weight *w,
                                   const struct pool_worker *worker)
{
    struct product p = {.s = s,
                        .w = w->device_data,
                        .n_tiles = (w->rows + TILE_ROWS - 1) / TILE_ROWS,
                        .results = worker_scratch(s, worker)};
    p.item_tiles = tiles_per_item(s, p.n_tiles, worker->count);
    return p;
}

/* Items that are cut by rows too. Parts of rows in bf16 have whole groups, so the first part may be
 * a little longer. */
static void multiply_parts(struct product *p)
{
    const struct cpu_step *s = p->s;
    int32_t n_rows = p->n, n_bytes = cpu_step_byte_rows(s);
    int32_t extra = n_bytes < n_rows ? n_bytes % BF16_ROWS : 0;
    int32_t n_parts = (n_rows - extra + ITEM_ROWS - 1) / ITEM_ROWS;
    int64_t n_items = count_items(p) * n_parts;
    for (int64_t item; (item = pool_take(s->share, n_items)) >= 0;) {
        int32_t part = (int32_t)(item % n_parts), end = extra + (part + 1) * ITEM_ROWS;
        p->first = part ? extra + part * ITEM_ROWS : 0;
        p->n = (end < n_rows ? end : n_rows) - p->first;
        multiply_item(p, item / n_parts);
    }
}

void cpu_MATMUL(const struct cpu_step *s, const struct pool_worker *worker)
{
    struct product p = make_product(s, s->op->p.matmul.w, worker);
    p.n = cpu_step_rows(s);
    if (p.n <= FEW_ROWS) { /* weights come from memory: reading it in a few places is fastest */
        int64_t first, last;
        while (pool_take_stretch(worker, s->share, p.n_tiles, ITEM_TILES_MIN, &first, &last))
            multiply_stretch(&p, first, last);
        return;
    }
    int64_t n_items = count_items(&p);
    bool is_bf16 = cpu_step_byte_rows(s) < p.n; /* weights are unpacked for each part */
    int64_t enough = is_bf16 ? worker->count : worker->count * ITEMS_A_WORKER;
    if (p.w->tiles && p.n > ITEM_ROWS && n_items < enough)
        multiply_parts(&p);
    else
        for (int64_t item; (item = pool_take(s->share, n_items)) >= 0;) multiply_item(&p, item);
}

/* ---- Experts ---------------------------------------------------------------------------- */

/* scratch.routed: where each expert's stretch begins (n_expert + 1 numbers), then the
 * (row, slot) pairs as row * n_used + slot, sorted by expert and then by row. */
void cpu_SORT_ROUTED(const struct cpu_step *s, const struct pool_worker *worker)
{
    if (worker->index != 0) return;
    int32_t n_expert = s->op->p.expert.w->n_expert, n = cpu_step_rows(s) * s->op->p.expert.n_used;
    const int32_t *id = (const int32_t *)(const void *)s->x1;
    int32_t *begin = s->program->scratch.routed, *pairs = begin + n_expert + 1;
    memset(begin, 0, (size_t)(n_expert + 1) * sizeof *begin);
    for (int32_t i = 0; i < n; i++) begin[id[i] + 1]++;
    for (int32_t e = 0; e < n_expert; e++) begin[e + 1] += begin[e];
    for (int32_t i = 0; i < n; i++) pairs[begin[id[i]]++] = i;
    for (int32_t e = n_expert; e > 0; e--) begin[e] = begin[e - 1]; /* filling has advanced them */
    begin[0] = 0;
}

/* An item is one stretch of output columns, for all experts in turn. So a row's sum over its
 * experts is made by one worker, in the order of their ids. */
static void multiply_experts(const struct cpu_step *s, const struct pool_worker *worker)
{
    struct product p = make_product(s, s->op->p.expert.w, worker);
    int32_t n_expert = p.w->source->n_expert;
    const int32_t *begin = s->program->scratch.routed, *pairs = begin + n_expert + 1;
    int64_t n_items = count_items(&p), cols = p.w->source->rows;
    for (int64_t item; (item = pool_take(s->share, n_items)) >= 0;) {
        int64_t most = p.item_tiles * TILE_ROWS, first = item * most, left = cols - first;
        size_t n = (size_t)(left < most ? left : most);
        if (s->op->code == OP_EXPERT_OUT)
            for (int32_t r = 0; r < cpu_step_rows(s); r++)
                memset(s->y0 + r * cols + first, 0, n * sizeof *s->y0);
        for (p.expert = 0; p.expert < n_expert; p.expert++) {
            p.list = pairs + begin[p.expert];
            p.n = begin[p.expert + 1] - begin[p.expert];
            if (p.n > 0) multiply_item(&p, item);
        }
    }
}

void cpu_EXPERT_IN(const struct cpu_step *s, const struct pool_worker *worker)
{
    multiply_experts(s, worker);
}

void cpu_EXPERT_OUT(const struct cpu_step *s, const struct pool_worker *worker)
{
    multiply_experts(s, worker);
}

/* ---- Observers --------------------------------------------------------------------------- */

void cpu_OBSERVE(const struct cpu_step *s, const struct pool_worker *worker)
{
    const struct device *d = s->program->device;
    if (worker->index != 0) return;
    struct product_rows rows = host_product_rows(s->op, s->x0, s->x1, cpu_step_rows(s));
    d->observe(d->observe_user, &rows);
}
