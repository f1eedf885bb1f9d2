/* Steps that treat each row on its own: a worker takes a stretch of rows (of logits, of values). */
#include <math.h>
#include <string.h>

#include "backend/cpu/program.h"
#include "base/os.h"

void cpu_decode(const struct cpu_kernels *k, enum format format, const void *src, float *dst,
                int64_t n)
{
    switch (format) {
    case FORMAT_F32: memcpy(dst, src, (size_t)n * sizeof *dst); break;
    case FORMAT_F16: k->decode_f16(src, dst, n); break;
    case FORMAT_BF16: k->decode_bf16(src, dst, n); break;
    case FORMAT_Q8_0: k->decode_q8_0(src, dst, n); break;
    default: format_traits(format)->decode(src, dst, n); break;
    }
}

/* One row: x of the first input, y of the output; `scratch` is the worker's. */
typedef void (*row_fn)(const struct cpu_step *s, int64_t r, const float *x, float *y,
                       void *scratch);

static void for_rows(const struct cpu_step *s, const struct pool_worker *worker, row_fn fn)
{
    int64_t first, last;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    for (int64_t r = first; r < last; r++)
        fn(s, r, s->x0 + r * s->x_cols, s->y0 + r * s->y_cols, worker_scratch(s, worker));
}

static const char *table_row(const struct cpu_step *s, int64_t r)
{
    const struct weight *table = s->op->p.embed.table;
    size_t id = (size_t)s->program->step->id[token_row(s, r)];
    return (const char *)table->data + id * table->row_bytes;
}

/* The system is told of all rows before the first is touched. So it reads those that are not in
 * memory in parallel, where page faults would wait for one row after the other. */
void cpu_EMBED(const struct cpu_step *s, const struct pool_worker *worker)
{
    enum format format = s->op->p.embed.table->format;
    const struct cpu_kernels *k = cpu_step_kernels(s);
    int32_t block = format_traits(format)->block_elements;
    int32_t skipped = s->op->p.embed.first_col % block, before = s->op->p.embed.first_col - skipped;
    int32_t covered = (skipped + s->y_cols + block - 1) / block * block;
    size_t begin = format_row_bytes(format, before), bytes = format_row_bytes(format, covered);
    float *decoded = worker_scratch(s, worker);
    int64_t first, last;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    for (int64_t r = first; r < last; r++) os_map_expect(table_row(s, r) + begin, bytes);
    for (int64_t r = first; r < last; r++) {
        cpu_decode(k, format, table_row(s, r) + begin, decoded, covered);
        k->scale(decoded + skipped, s->op->p.embed.scale, s->y0 + r * s->y_cols, s->y_cols);
    }
}

static const float *vector_data(const struct weight *w)
{
    return w ? w->data : NULL;
}

static void norm_row(const struct cpu_step *s, int64_t r, const float *x, float *y, void *scratch)
{
    (void)r, (void)scratch;
    int32_t group = s->op->p.norm.group;
    const float *w = vector_data(s->op->p.norm.w);
    for (int32_t g = 0; g < s->y_cols; g += group)
        cpu_step_kernels(s)->rmsnorm(x + g, w, y + g, group, s->op->p.norm.eps);
}

/* The angle is rounded to fp32 as in training; its sine and cosine are then exact. */
void cpu_TURNS(const struct cpu_step *s, const struct pool_worker *worker)
{
    int32_t half = s->op->p.rope.head_dim / 2;
    const float *inv_freq = vector_data(s->op->p.rope.inv_freq);
    int64_t first, last;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    for (int64_t t = first; t < last; t++) {
        float *cosine = s->y1 + t * 2 * half, *sine = cosine + half;
        float position = (float)(s->program->step->position[t] + s->op->p.rope.ahead);
        for (int32_t i = 0; i < half; i++) {
            double angle = (double)(position * inv_freq[i]);
            cosine[i] = inv_freq[i] > 0 ? (float)cos(angle) : 1.0f;
            sine[i] = inv_freq[i] > 0 ? (float)sin(angle) : 0.0f;
        }
    }
}

static void rope_row(const struct cpu_step *s, int64_t r, const float *x, float *y, void *scratch)
{
    (void)scratch;
    int32_t d = s->op->p.rope.head_dim, half = d / 2;
    const float *cosine = s->x1 + (int64_t)token_row(s, r) * d, *sine = cosine + half;
    for (int32_t head = 0; head < s->y_cols; head += d)
        cpu_step_kernels(s)->rope(x + head, cosine, sine, y + head, half);
}

static void add_row(const struct cpu_step *s, int64_t r, const float *x, float *y, void *scratch)
{
    (void)scratch;
    cpu_step_kernels(s)->add(x, s->x1 + r * s->x1_cols, y, s->y_cols);
}

static void scale_row(const struct cpu_step *s, int64_t r, const float *x, float *y, void *scratch)
{
    (void)r, (void)scratch;
    cpu_step_kernels(s)->scale(x, s->op->p.scale.value, y, s->y_cols);
}

static void gelu_row(const struct cpu_step *s, int64_t r, const float *x, float *y, void *scratch)
{
    (void)scratch;
    const float *b = s->x1 + r * s->x1_cols + s->op->p.gelu_mul.second_col;
    cpu_step_kernels(s)->gelu_mul(x, b, y, s->y_cols);
}

#define ROW_STEP(NAME, fn)                                                                         \
    void cpu_##NAME(const struct cpu_step *s, const struct pool_worker *worker)                    \
    {                                                                                              \
        for_rows(s, worker, fn);                                                                   \
    }
ROW_STEP(RMSNORM, norm_row)
ROW_STEP(ROPE, rope_row)
ROW_STEP(ADD, add_row)
ROW_STEP(SCALE, scale_row)
ROW_STEP(GELU_MUL, gelu_row)

/* A row of logits is long enough to be shared: stretches are of values, not of rows. */
void cpu_SOFTCAP(const struct cpu_step *s, const struct pool_worker *worker)
{
    int64_t first, last;
    pool_stretch(worker, cpu_step_rows(s) * (int64_t)s->y_cols, &first, &last);
    cpu_step_kernels(s)->softcap(s->x0 + first, s->op->p.softcap.cap, s->y0 + first, last - first);
}

void cpu_CONCAT(const struct cpu_step *s, const struct pool_worker *worker)
{
    int64_t first, last, x1_cols = s->x1_cols, x0_cols = s->y_cols - x1_cols;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *y = s->y0 + r * s->y_cols;
        memcpy(y, s->x0 + r * x0_cols, (size_t)x0_cols * sizeof *y);
        memcpy(y + x0_cols, s->x1 + r * x1_cols, (size_t)x1_cols * sizeof *y);
    }
}

void cpu_GATHER_ROWS(const struct cpu_step *s, const struct pool_worker *worker)
{
    int64_t first, last;
    size_t cols = (size_t)s->y_cols;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    for (int64_t r = first; r < last; r++)
        memcpy(s->y0 + (size_t)r * cols, s->x0 + (size_t)s->program->step->out_row[r] * cols,
               cols * sizeof *s->y0);
}

/* Rows [first, last) of n in 8 bits. For a fine product n more rows follow them: the low ones. */
static void quantize_rows(const struct cpu_step *s, int64_t n, int64_t first, int64_t last)
{
    const struct cpu_kernels *k = cpu_step_kernels(s);
    struct act_block *act = s->program->scratch.act;
    int64_t cols = s->y_cols, n_blocks = cols / BLOCK_COLS;
    for (int64_t r = first; r < last; r++)
        if (s->is_fine)
            k->quantize_fine(s->x0 + r * cols, cols, act + r * n_blocks, act + (n + r) * n_blocks);
        else
            k->quantize(s->x0 + r * cols, cols, act + r * n_blocks);
}

/* The same in bf16; the first `before` rows are in 8 bits. */
static void round_rows(const struct cpu_step *s, int64_t n, int64_t before, int64_t first,
                       int64_t last)
{
    int64_t cols = s->y_cols, stretch = bf16_stretch(n - before), low = bf16_size(n - before, cols);
    for (int64_t r = first; r < last; r++) {
        uint16_t *row = s->program->scratch.bf16 + bf16_row(r - before);
        cpu_step_kernels(s)->bf16_round(s->x0 + r * cols, cols, stretch, row,
                                        s->is_fine ? row + low : NULL);
    }
}

void cpu_QUANTIZE(const struct cpu_step *s, const struct pool_worker *worker)
{
    int64_t per_row = s->x_cols / s->y_cols; /* EXPERT_OUT: n_used rows in one */
    int64_t n = cpu_step_rows(s) * per_row, n_bytes = cpu_step_byte_rows(s) * per_row, first, last;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    first *= per_row;
    last *= per_row;
    int64_t middle = n_bytes < first ? first : n_bytes < last ? n_bytes : last;
    if (s->has_bytes) quantize_rows(s, n, first, middle);
    round_rows(s, n, n_bytes, middle, last);
}

void cpu_ROUTE(const struct cpu_step *s, const struct pool_worker *worker)
{
    int32_t n = s->x_cols, n_used = s->op->p.route.n_used;
    const float *scale = vector_data(s->op->p.route.scale);
    float *p = worker_scratch(s, worker);
    int64_t first, last;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    for (int64_t r = first; r < last; r++) {
        const float *z = s->x0 + r * n;
        int32_t *id = (int32_t *)(void *)s->y0 + r * n_used;
        float *share = s->y1 + r * n_used, top = z[0], sum = 0;
        for (int32_t e = 1; e < n; e++) top = z[e] > top ? z[e] : top;
        memcpy(p, z, (size_t)n * sizeof *p);
        cpu_step_kernels(s)->exp_shifted(p, n, top);
        for (int32_t u = 0; u < n_used; u++) {
            int32_t best = 0;
            for (int32_t e = 1; e < n; e++)
                if (p[e] > p[best]) best = e;
            id[u] = best;
            share[u] = p[best];
            sum += p[best];
            p[best] = -1.0f;
        }
        for (int32_t u = 0; u < n_used; u++) share[u] = share[u] / sum * (scale ? scale[id[u]] : 1);
    }
}

static void encode(const struct cpu_step *s, enum format format, const float *from, char *to,
                   int64_t n)
{
    if (format == FORMAT_F16)
        cpu_step_kernels(s)->encode_f16(from, (uint16_t *)(void *)to, n);
    else
        format_traits(format)->encode(from, NULL, to, n);
}

/* Writes a head whose keys are its values except in turned columns: each stretch of columns goes to
 * its place. */
static void write_shared(const struct cpu_step *s, const struct kv_cache *c, const float *k,
                         const float *v, char *keys, char *values)
{
    int32_t half = c->turned / 2, middle = c->head_dim / 2, rest = middle - half;
    for (int32_t at = 0; at < c->head_dim; at += middle) {
        char *turned = values + format_row_bytes(c->format, kv_value_place(c, at));
        char *others = values + format_row_bytes(c->format, kv_value_place(c, at + half));
        encode(s, c->format, v + at, turned, half);
        encode(s, c->format, v + at + half, others, rest);
        encode(s, c->format, k + at, keys + format_row_bytes(c->format, kv_key_place(c, at)), half);
    }
}

static void write_cell(const struct cpu_step *s, const struct kv_cache *c, const float *k,
                       const float *v, size_t offset)
{
    char *keys = (char *)c->k + offset, *values = (char *)c->v + offset;
    if (!c->turned) {
        encode(s, c->format, k, keys, s->x_cols);
        encode(s, c->format, v, values, s->x_cols);
        return;
    }
    for (int32_t h = 0; h < c->n_heads; h++, k += c->head_dim, v += c->head_dim) {
        write_shared(s, c, k, v, keys, values);
        keys += c->head_bytes, values += c->head_bytes;
    }
}

void cpu_KV_WRITE(const struct cpu_step *s, const struct pool_worker *worker)
{
    const struct step *step = s->program->step;
    const struct kv_cache *cache = &s->program->plan->caches[s->op->p.kv.cache];
    int64_t first, last;
    pool_stretch(worker, cpu_step_rows(s), &first, &last);
    for (int64_t t = first; t < last; t++)
        write_cell(s, cache, s->x0 + t * s->x_cols, s->x1 + t * s->x_cols,
                   kv_offset(cache, step->sequence[t], step->position[t]));
}

/* The runner copies rows in and out between runs, so these are never steps of a program. */
void cpu_INPUT(const struct cpu_step *s, const struct pool_worker *worker)
{
    (void)s, (void)worker;
}

void cpu_OUTPUT(const struct cpu_step *s, const struct pool_worker *worker)
{
    (void)s, (void)worker;
}
