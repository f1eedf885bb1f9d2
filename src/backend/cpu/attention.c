/* Attention by blocks of 32 keys with running maxima, in segments of 512 keys that are joined in
 * order. Both are cut at absolute positions, and every query is treated on its own. So a row's bits
 * do not depend on whether it comes in a chunk or alone, nor on which worker computes it.
 *
 *   many rows: an item of work is a few tokens of one sequence and one key head, which goes through
 *              the segments one by one
 *   few rows:  an item is one token, one segment, and a few key heads or some query heads of one; a
 *              later step joins them
 *
 * While a block is multiplied, the lines of the next one are prefetched, as pages lie anywhere. Key
 * heads next to each other may take turns block by block: so memory is read in stretches. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/program.h"

enum {
    KEY_BLOCK = 32,
    SEGMENT = 512,    /* keys; a multiple of KEY_BLOCK */
    QUERIES_MAX = 64, /* query heads treated together: tokens x heads of a key head */
    FEW_QUERIES = 16, /* up to this many, keys and values are used as they are in the cache */
    ITEMS_A_WORKER = 4,
    HEADS_LEAST = 4 /* query heads of an item, unless workers would go idle */
};

/* A softmax under way, for one query: its largest score, sum of exponentials, and weighted
 * values, which follow it in memory. */
struct running {
    float top, sum;
};

/* What an item works on. */
struct block_job {
    const struct cpu_step *s;
    const struct kv_cache *cache;
    int32_t d, group;    /* head size; query heads of a token and key head that are treated */
    int32_t n_key_heads; /* that take turns */
    int32_t row, n_tokens, key_head, head, sequence; /* the first key head and query head */
    int32_t until;                                   /* positions up to this one are wanted next */
    /* worker's scratch: */
    float *q, *k, *v, *scores, *keep; /* queries; a block of keys and values; its scores */
    struct running *segment, *total;  /* of each query */
    float *segment_values, *total_values;
};

static int32_t group_size(const struct plan *plan, const struct op *op)
{
    return op->p.attention.n_heads / plan->caches[op->p.attention.cache].n_heads;
}

static int32_t n_queries(const struct block_job *j)
{
    return j->n_tokens * j->group * j->n_key_heads;
}

/* Tokens of an item: as many as make QUERIES_MAX queries, at least one. */
static int32_t tokens_per_item(int32_t group)
{
    return group < QUERIES_MAX ? QUERIES_MAX / group : 1;
}

/* Queries that an item has at most. */
static size_t queries_max(const struct plan *plan, const struct op *op)
{
    int32_t group = group_size(plan, op), many = group * tokens_per_item(group);
    return (size_t)(many > op->p.attention.n_heads ? many : op->p.attention.n_heads);
}

size_t cpu_attention_worker_bytes(const struct plan *plan, const struct op *op)
{
    size_t d = (size_t)plan->caches[op->p.attention.cache].head_dim;
    size_t queries = queries_max(plan, op);
    return ((queries * 3 + 2 * KEY_BLOCK) * d + queries * (KEY_BLOCK + 1)) * sizeof(float) +
           queries * 2 * sizeof(struct running);
}

/* Segments that a query can see at most. */
static int32_t segments_max(const struct plan *plan, const struct op *op)
{
    int32_t window = op->p.attention.window;
    int32_t visible = window ? window : kv_capacity(&plan->caches[op->p.attention.cache]);
    return (visible - 1) / SEGMENT + 2;
}

static size_t partial_stride(int32_t d)
{
    return (size_t)d + sizeof(struct running) / sizeof(float);
}

size_t cpu_attention_partial_floats(const struct plan *plan, const struct op *op)
{
    return (size_t)SPLIT_ROWS_MAX * (size_t)op->p.attention.n_heads *
           (size_t)segments_max(plan, op) *
           partial_stride(plan->caches[op->p.attention.cache].head_dim);
}

static void cut_scratch(struct block_job *j, void *scratch)
{
    size_t queries = queries_max(j->s->program->plan, j->s->op), d = (size_t)j->d;
    j->q = scratch;
    j->segment_values = j->q + queries * d;
    j->total_values = j->segment_values + queries * d;
    j->k = j->total_values + queries * d;
    j->v = j->k + KEY_BLOCK * d;
    j->scores = j->v + KEY_BLOCK * d;
    j->keep = j->scores + queries * KEY_BLOCK;
    j->segment = (struct running *)(void *)(j->keep + queries);
    j->total = j->segment + queries;
}

static void visible(const struct cpu_step *s, int32_t row, int32_t *first, int32_t *last)
{
    int32_t window = s->op->p.attention.window;
    *last = s->program->step->position[token_row(s, row)];
    *first = window && *last >= window ? *last - window + 1 : 0;
}

static void clear(struct running *r, float *values, int32_t n, int32_t d)
{
    for (int32_t i = 0; i < n; i++) r[i] = (struct running){.top = -INFINITY};
    memset(values, 0, (size_t)n * (size_t)d * sizeof *values);
}

static_assert(KV_PAGE % KEY_BLOCK == 0, "a block of keys lies in one page");

/* Bytes from a block to the next; 0 if the next is not wanted. */
static ptrdiff_t next_block(const struct block_job *j, int32_t position)
{
    int32_t block = position / KEY_BLOCK * KEY_BLOCK, next = block + KEY_BLOCK;
    if (next > j->until) return 0;
    return (ptrdiff_t)kv_offset(j->cache, j->sequence, next) -
           (ptrdiff_t)kv_offset(j->cache, j->sequence, block);
}

static void ask_for(const char *cell, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(cell + at, 0, 2);
}

/* One head's keys and values of positions [first, last], which lie in one block. For a few queries
 * they are used as they are in the cache; for many they are decoded first. */
static void read_block(const struct block_job *j, int32_t key_head, int32_t first, int32_t last,
                       struct float_rows *k, struct float_rows *v)
{
    const struct kv_cache *c = j->cache;
    size_t stride = (size_t)kv_cell_bytes(c), bytes = (size_t)c->head_bytes;
    size_t at = kv_offset(c, j->sequence, first) + (size_t)key_head * bytes;
    ptrdiff_t ahead = next_block(j, first);
    const char *keys = (const char *)c->k + at, *values = (const char *)c->v + at;
    *k = (struct float_rows){c->format, keys, stride, ahead};
    *v = (struct float_rows){c->format, values, stride, ahead};
    if (j->n_tokens * j->group <= FEW_QUERIES) return;
    size_t decoded = (size_t)j->d * sizeof(float);
    for (int32_t i = 0; i <= last - first; i++, keys += stride, values += stride) {
        cpu_decode(cpu_step_kernels(j->s), c->format, keys, j->k + i * j->d, j->d);
        cpu_decode(cpu_step_kernels(j->s), c->format, values, j->v + i * j->d, j->d);
        if (ahead) ask_for(keys + ahead, bytes);
        if (ahead) ask_for(values + ahead, bytes);
    }
    *k = (struct float_rows){FORMAT_F32, j->k, decoded, 0};
    *v = (struct float_rows){FORMAT_F32, j->v, decoded, 0};
}

/* Turns the scores of one query into shares. *keep gets the factor for what it has summed so far.
 * The query does not see keys before `from` and after `to`. */
static void soften(const struct cpu_kernels *k, struct running *r, float *p, int32_t from,
                   int32_t to, float *keep)
{
    float top = r->top;
    if (from > to) { /* all keys are later ones */
        *keep = 1.0f;
        memset(p, 0, KEY_BLOCK * sizeof *p);
        return;
    }
    float sum = k->soften(p, from, to, &top);
    bool is_same = top == r->top && top > -INFINITY;
    *keep = is_same ? 1.0f : expf(r->top - top);
    r->sum = r->sum * *keep + sum;
    r->top = top;
}

/* Adds the keys [first, last] of one block and key head to the segment's running softmax of its
 * queries, which begin with number `query`. */
static void add_keys(const struct block_job *j, int32_t key_head, int32_t query, int32_t first,
                     int32_t last)
{
    const struct cpu_kernels *k = cpu_step_kernels(j->s);
    int32_t n = last - first + 1, n_queries = j->n_tokens * j->group;
    struct float_rows keys, values;
    read_block(j, key_head, first, last, &keys, &values);
    k->dots(j->q + query * j->d, j->d, n_queries, keys, n, j->d, j->scores, KEY_BLOCK);
    for (int32_t i = 0; i < n_queries; i++) {
        int32_t from, to;
        visible(j->s, j->row + i / j->group, &from, &to);
        from = from > first ? from - first : 0;
        to = to < last ? to - first : n - 1;
        soften(k, &j->segment[query + i], j->scores + i * KEY_BLOCK, from, to, &j->keep[i]);
    }
    k->weigh(j->segment_values + query * j->d, j->d, j->keep, j->scores, KEY_BLOCK, n_queries,
             values, n, j->d);
}

/* The running softmax over the visible keys of one segment. */
static void run_segment(const struct block_job *j, int32_t segment, int32_t first, int32_t last)
{
    int32_t begin = segment * SEGMENT, end = begin + SEGMENT - 1;
    if (begin < first) begin = first;
    if (end > last) end = last;
    clear(j->segment, j->segment_values, n_queries(j), j->d);
    while (begin <= end) {
        int32_t block_end = begin / KEY_BLOCK * KEY_BLOCK + KEY_BLOCK - 1;
        for (int32_t i = 0; i < j->n_key_heads; i++)
            add_keys(j, j->key_head + i, i * j->group, begin, block_end < end ? block_end : end);
        begin = block_end + 1;
    }
}

/* Joins two softmaxes over different keys: adds `part` to `total`. */
static void join(struct running *total, float *total_values, const struct running *part,
                 const float *part_values, int32_t d)
{
    if (part->top == -INFINITY) return; /* it saw no key */
    if (total->top == -INFINITY) {
        *total = *part;
        memcpy(total_values, part_values, (size_t)d * sizeof *total_values);
        return;
    }
    float top = total->top > part->top ? total->top : part->top;
    float a = expf(total->top - top), b = expf(part->top - top);
    for (int32_t i = 0; i < d; i++) total_values[i] = total_values[i] * a + part_values[i] * b;
    *total = (struct running){.top = top, .sum = total->sum * a + part->sum * b};
}

static float *head_output(const struct cpu_step *s, int32_t row, int32_t head, int32_t d)
{
    return s->y0 + (int64_t)row * s->y_cols + head * d;
}

/* Columns that lie together in a head, in its keys and in its values. */
static int32_t columns_together(const struct kv_cache *c)
{
    return c->turned ? 32 : c->head_dim;
}

/* Orders the columns of a query as those of keys lie in the cache. */
static void order_query(const struct kv_cache *c, const float *from, float *to)
{
    int32_t each = columns_together(c);
    for (int32_t i = 0; i < c->head_dim; i += each)
        memcpy(to + i, from + kv_key_column(c, i), (size_t)each * sizeof *to);
}

/* Sums of values, each times `by`, back in the order of columns. */
static void scale_values(const struct cpu_step *s, const struct kv_cache *c, const float *values,
                         float by, float *to)
{
    int32_t each = columns_together(c);
    for (int32_t i = 0; i < c->head_dim; i += each)
        cpu_step_kernels(s)->scale(values + i, by, to + kv_value_column(c, i), each);
}

static void load_queries(const struct block_job *j)
{
    int32_t n = j->n_key_heads * j->group;
    for (int32_t i = 0; i < j->n_tokens * n; i++)
        order_query(j->cache,
                    j->s->x0 + (int64_t)(j->row + i / n) * j->s->x_cols +
                        (int64_t)(j->head + i % n) * j->d,
                    j->q + (int64_t)i * j->d);
}

static struct block_job make_job(const struct cpu_step *s, const struct pool_worker *worker)
{
    const struct kv_cache *cache = &s->program->plan->caches[s->op->p.attention.cache];
    struct block_job j = {.s = s,
                          .cache = cache,
                          .d = cache->head_dim,
                          .group = group_size(s->program->plan, s->op),
                          .n_key_heads = 1};
    cut_scratch(&j, worker_scratch(s, worker));
    return j;
}

/* ---- Many rows -------------------------------------------------------------------------- */

/* Tokens [j->row, j->row + j->n_tokens) of one sequence, positions rising. */
static void attend_run(struct block_job *j)
{
    int32_t first, last, ignored;
    visible(j->s, j->row, &first, &ignored);
    visible(j->s, j->row + j->n_tokens - 1, &ignored, &last);
    j->sequence = j->s->program->step->sequence[token_row(j->s, j->row)];
    j->until = last;
    load_queries(j);
    clear(j->total, j->total_values, n_queries(j), j->d);
    for (int32_t segment = first / SEGMENT; segment <= last / SEGMENT; segment++) {
        run_segment(j, segment, first, last);
        for (int32_t i = 0; i < n_queries(j); i++)
            join(&j->total[i], j->total_values + i * j->d, &j->segment[i],
                 j->segment_values + i * j->d, j->d);
    }
    for (int32_t i = 0; i < n_queries(j); i++)
        scale_values(j->s, j->cache, j->total_values + i * j->d, 1.0f / j->total[i].sum,
                     head_output(j->s, j->row + i / j->group, j->head + i % j->group, j->d));
}

/* How many of the rows from `row` on, at most `most`, follow each other in one sequence. */
static int32_t run_length(const struct cpu_step *s, int32_t row, int32_t most)
{
    const struct step *step = s->program->step;
    int32_t n = 1, t = token_row(s, row);
    for (; n < most; n++) {
        int32_t next = token_row(s, row + n);
        if (step->sequence[next] != step->sequence[t] || step->position[next] < step->position[t])
            break;
        t = next;
    }
    return n;
}

static void attend_rows(const struct cpu_step *s, const struct pool_worker *worker)
{
    struct block_job j = make_job(s, worker);
    int32_t n_rows = cpu_step_rows(s), per_item = tokens_per_item(j.group);
    int64_t n_items = (int64_t)((n_rows + per_item - 1) / per_item) * j.cache->n_heads;
    for (int64_t item; (item = pool_take(s->share, n_items)) >= 0;) {
        /* Late tokens see the most keys: begin with them, so that no worker ends with one. */
        int32_t place = (int32_t)((n_items - 1 - item) / j.cache->n_heads) * per_item;
        int32_t end = place + per_item < n_rows ? place + per_item : n_rows;
        j.key_head = (int32_t)(item % j.cache->n_heads);
        j.head = j.key_head * j.group;
        for (j.row = place; j.row < end; j.row += j.n_tokens) {
            j.n_tokens = run_length(s, j.row, end - j.row);
            attend_run(&j);
        }
    }
}

/* ---- Few rows --------------------------------------------------------------------------- */

static struct running *partial_at(const struct cpu_step *s, int32_t row, int32_t head,
                                  int32_t segment, int32_t d)
{
    int64_t index =
        ((int64_t)row * s->op->p.attention.n_heads + head) * segments_max(s->program->plan, s->op) +
        segment;
    return (struct running *)(void *)(s->program->scratch.partial +
                                      (size_t)index * partial_stride(d));
}

static int32_t count_segments(const struct cpu_step *s, int32_t row)
{
    int32_t first, last;
    visible(s, row, &first, &last);
    return last / SEGMENT - first / SEGMENT + 1;
}

/* The most bytes of a cell that the key heads of an item may have if they take turns: a block of
 * them has to stay in the second-level cache. In turns a Zen 4 reads E4B's heads 1.3 to 1.7 times
 * as fast, a Xeon 14 % slower (docs/benchmarks.md). */
static int32_t stretch_most(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd")) return 2048;
#endif
    return 0;
}

/* Chooses the heads of an item, so that all workers have something to do and end together: as many
 * key heads as make a stretch, fewer, or some of the query heads of one. Each of these parts reads
 * the keys and values again. */
static void choose_heads(struct block_job *j, int64_t n_segments, int n_workers)
{
    int32_t n = j->cache->n_heads;
    int64_t enough = (int64_t)n_workers * ITEMS_A_WORKER;
    j->n_key_heads = n;
    while (j->n_key_heads > 1 &&
           (n % j->n_key_heads != 0 || j->n_key_heads * j->cache->head_bytes > stretch_most() ||
            n_segments * (n / j->n_key_heads) < enough))
        j->n_key_heads--;
    int64_t n_items = n_segments * (n / j->n_key_heads);
    while (j->n_key_heads == 1 && n_items < enough && j->group % 2 == 0 &&
           (j->group / 2 >= HEADS_LEAST || n_items < n_workers)) {
        j->group /= 2;
        n_items *= 2;
    }
}

/* Segments [begin, end) of one token, for the heads of one item. */
static void attend_stretch(struct block_job *j, int32_t begin, int32_t end)
{
    int32_t first, last;
    visible(j->s, j->row, &first, &last);
    j->sequence = j->s->program->step->sequence[token_row(j->s, j->row)];
    j->until = (first / SEGMENT + end) * SEGMENT - 1;
    if (j->until > last) j->until = last;
    load_queries(j);
    for (int32_t segment = begin; segment < end; segment++) {
        run_segment(j, first / SEGMENT + segment, first, last);
        for (int32_t i = 0; i < n_queries(j); i++) {
            struct running *partial = partial_at(j->s, j->row, j->head + i, segment, j->d);
            *partial = j->segment[i];
            memcpy(partial + 1, j->segment_values + i * j->d, (size_t)j->d * sizeof(float));
        }
    }
}

static int32_t parts_of_row(const struct block_job *j)
{
    return j->s->op->p.attention.n_heads / (j->n_key_heads * j->group);
}

/* Items [first, end), numbered by row, part of its heads and segment. */
static void attend_items(struct block_job *j, int64_t first, int64_t end)
{
    int64_t begin = 0; /* first item of the row */
    for (j->row = 0; first < end; j->row++) {
        int32_t n = count_segments(j->s, j->row);
        int64_t row_end = begin + (int64_t)n * parts_of_row(j);
        while (first < end && first < row_end) {
            int32_t at = (int32_t)(first - begin), segment = at % n, left = n - segment;
            int32_t taken = end - first < left ? (int32_t)(end - first) : left;
            j->head = at / n * j->n_key_heads * j->group;
            j->key_head = j->head / group_size(j->s->program->plan, j->s->op);
            attend_stretch(j, segment, segment + taken);
            first += taken;
        }
        begin = row_end;
    }
}

/* A worker takes items that follow each other, so that it can prefetch from one segment to the
 * next. */
static void attend_segments(const struct cpu_step *s, const struct pool_worker *worker)
{
    struct block_job j = make_job(s, worker);
    int64_t n_segments = 0, first, end;
    for (int32_t row = 0; row < cpu_step_rows(s); row++) n_segments += count_segments(s, row);
    j.n_tokens = 1;
    choose_heads(&j, n_segments, worker->count);
    while (pool_take_stretch(worker, s->share, n_segments * parts_of_row(&j), 1, &first, &end))
        attend_items(&j, first, end);
}

void cpu_JOIN_SEGMENTS(const struct cpu_step *s, const struct pool_worker *worker)
{
    if (cpu_step_rows(s) > SPLIT_ROWS_MAX) return;
    int32_t n_heads = s->op->p.attention.n_heads;
    struct block_job j = make_job(s, worker);
    int64_t begin, end;
    pool_stretch(worker, (int64_t)cpu_step_rows(s) * n_heads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int32_t row = (int32_t)(i / n_heads), head = (int32_t)(i % n_heads), first, last;
        visible(s, row, &first, &last);
        clear(j.total, j.total_values, 1, j.d);
        for (int32_t segment = 0; segment <= last / SEGMENT - first / SEGMENT; segment++) {
            const struct running *partial = partial_at(s, row, head, segment, j.d);
            join(j.total, j.total_values, partial, (const float *)(const void *)(partial + 1), j.d);
        }
        scale_values(s, j.cache, j.total_values, 1.0f / j.total->sum,
                     head_output(s, row, head, j.d));
    }
}

void cpu_ATTENTION(const struct cpu_step *s, const struct pool_worker *worker)
{
    if (cpu_step_rows(s) > SPLIT_ROWS_MAX)
        attend_rows(s, worker);
    else
        attend_segments(s, worker);
}
