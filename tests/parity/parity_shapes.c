/* The list of shapes: real row lengths of the models, the edges of every op, and odd sizes. */
#include <stdio.h>

#include "base/assert.h"
#include "parity/parity.h"

struct list {
    struct parity_shape *shapes;
    size_t n;
};

static const int32_t row_counts[] = {1, 7, 33};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

static void add(struct list *l, struct parity_shape shape)
{
    carat_assert(l->n < PARITY_SHAPES_MAX);
    l->shapes[l->n++] = shape;
}

/* For every number of rows and both classes. */
static void add_rows(struct list *l, struct parity_shape shape)
{
    for (int i = 0; i < N_ROW_COUNTS; i++) {
        shape.rows = row_counts[i];
        shape.rows_class = ROWS_TOKEN;
        add(l, shape);
        shape.rows_class = ROWS_OUT;
        add(l, shape);
    }
}

static void add_row_ops(struct list *l)
{
    static const int32_t cols[] = {1, 77, 256, 1536};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        struct parity_shape s = {
            .cols = cols[i], .inner = cols[i] + 45, .is_odd = cols[i] % 32 != 0};
        static const enum op_code codes[] = {OP_ADD, OP_SCALE, OP_SOFTCAP, OP_GELU_MUL};
        for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
            s.code = codes[k];
            s.first = s.code == OP_GELU_MUL ? 45 : 0;
            add_rows(l, s);
        }
        s.first = 0;
        s.code = OP_GATHER_ROWS;
        for (int k = 0; k < N_ROW_COUNTS; k++) {
            s.rows = row_counts[k];
            s.rows_class = ROWS_OUT;
            add(l, s);
        }
    }
    add_rows(l, (struct parity_shape){.code = OP_GELU_MUL, .cols = 32, .inner = 96, .first = 64});
}

static void add_norms(struct list *l)
{
    static const int32_t shapes[][2] = {{1, 1},       {77, 77},    {77, 11},
                                        {2816, 2816}, {2048, 256}, {1024, 512}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct parity_shape s = {.code = OP_RMSNORM,
                                 .cols = shapes[i][0],
                                 .group = shapes[i][1],
                                 .is_odd = shapes[i][0] % 32 != 0};
        add_rows(l, s);
        s.has_weight = true;
        add_rows(l, s);
    }
    add_rows(l, (struct parity_shape){.code = OP_ROPE, .cols = 6, .group = 2, .is_odd = true});
    add_rows(l, (struct parity_shape){.code = OP_ROPE, .cols = 96, .group = 32});
    add_rows(l, (struct parity_shape){.code = OP_ROPE, .cols = 2048, .group = 256});
    add_rows(l, (struct parity_shape){.code = OP_ROPE, .cols = 1024, .group = 512});
}

/* `first` is inside a block and the columns end inside another one, for every format. */
static void add_formats(struct list *l)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        int32_t block = format_traits((enum format)f)->block_elements;
        int32_t unit = block == 1 ? 64 : block;
        struct parity_shape s = {.code = OP_EMBED, .format = (enum format)f, .inner = 4 * unit};
        static const int32_t starts[] = {0, 32, 96};
        for (int i = 0; i < 3; i++) {
            s.rows = row_counts[i];
            s.rows_class = i == 1 ? ROWS_OUT : ROWS_TOKEN;
            s.first = starts[i];
            s.cols = i == 0 ? s.inner : unit == 256 ? 320 : 32;
            if (s.first + s.cols > s.inner) s.cols = s.inner - s.first;
            if (s.cols > 0) add(l, s);
        }
        s = (struct parity_shape){.code = OP_EMBED,
                                  .format = (enum format)f,
                                  .rows = 7,
                                  .inner = 3 * unit,
                                  .first = 13,
                                  .cols = unit + 5,
                                  .is_odd = true};
        add(l, s);
        s = (struct parity_shape){
            .code = OP_MATMUL, .format = (enum format)f, .cols = 64, .inner = 3 * unit};
        add_rows(l, s);
        s.is_fine = true;
        add_rows(l, s);
        s.rows = 130; /* more than the kernels of a GPU for a few rows take */
        add(l, s);
        s.rows_class = ROWS_OUT;
        add(l, s);
        s.rows_class = ROWS_TOKEN;
        s.is_fine = false;
        s.cols = 13;
        s.is_odd = true;
        if (block == 1) s.inner = 77;
        s.rows = 7;
        add(l, s);
    }
    add(l, (struct parity_shape){
               .code = OP_MATMUL, .format = FORMAT_Q4_0, .rows = 1, .cols = 128, .inner = 2816});
}

static void add_experts(struct list *l)
{
    static const int32_t counts[][2] = {{1, 1}, {8, 2}, {5, 5}, {128, 8}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct parity_shape s = {
            .code = OP_ROUTE, .inner = counts[i][0], .n_used = counts[i][1], .cols = counts[i][1]};
        add_rows(l, s);
        s.has_weight = true;
        s.has_ties = true;
        add_rows(l, s);
    }
    static const enum format formats[] = {FORMAT_Q4_0, FORMAT_Q5_1, FORMAT_Q8_0, FORMAT_Q4_K,
                                          FORMAT_F16,  FORMAT_BF16, FORMAT_F32};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        int32_t block = format_traits(formats[i])->block_elements,
                inner = block > 1 ? 2 * block : 64;
        struct parity_shape s = {.format = formats[i],
                                 .cols = 24,
                                 .inner = inner,
                                 .n_expert = i == 3 ? 3 : 16,
                                 .n_used = i == 3 ? 1 : 4};
        s.code = OP_EXPERT_IN;
        add_rows(l, s);
        s.code = OP_EXPERT_OUT;
        add_rows(l, s);
    }
}

/* Heads of queries, of keys, their size; window, capacity, n_decode, rows, depth. `i` varies what
 * the two lists do not say. */
static struct parity_shape attention_shape(const int32_t *heads, const int32_t *step, size_t i)
{
    return (struct parity_shape){.code = OP_ATTENTION,
                                 .rows = step[3],
                                 .rows_class = i % 3 == 2 ? ROWS_OUT : ROWS_TOKEN,
                                 .n_heads = heads[0],
                                 .n_kv_heads = heads[1],
                                 .head_dim = heads[2],
                                 .window = step[0],
                                 .capacity = step[1],
                                 .n_decode = step[2],
                                 .depth = step[4],
                                 .cols = heads[0] * heads[2]};
}

static void add_writing(struct list *l, struct parity_shape s)
{
    s.code = OP_KV_WRITE;
    s.rows_class = ROWS_TOKEN;
    s.cols = s.n_kv_heads * s.head_dim;
    add(l, s);
}

static void add_attention(struct list *l)
{
    static const int32_t heads[][3] = {
        {4, 1, 16}, {4, 2, 32}, {8, 1, 256}, {4, 4, 256}, {4, 1, 512}};
    static const int32_t steps[][5] = {
        {0, 64, 0, 1, 0}, {0, 64, 0, 7, 0},   {0, 96, 3, 7, 20},  {0, 64, 4, 4, 40},
        {8, 8, 0, 1, 0},  {8, 8, 3, 3, 5},    {8, 8, 1, 1, 8},    {8, 14, 0, 7, 0},
        {8, 14, 0, 7, 3}, {8, 14, 2, 9, 200}, {8, 40, 0, 33, 31}, {32, 64, 5, 38, 70},
        {1, 7, 0, 7, 10}, {2, 8, 0, 7, 6},
    };
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            struct parity_shape s = attention_shape(heads[h], steps[i], i);
            s.format = (h + i) % 2 ? FORMAT_F16 : FORMAT_F32;
            add(l, s);
            if (h < 2) add_writing(l, s);
        }
}

/* Rows that see several pages, in tables that have gone round. */
static void add_pages(struct list *l)
{
    static const int32_t heads[][3] = {{4, 2, 32}, {8, 1, 256}, {4, 1, 512}};
    static const int32_t steps[][5] = {
        {0, 320, 3, 40, 150},  {0, 192, 4, 4, 170},   {0, 256, 1, 1, 255},   {64, 160, 2, 70, 300},
        {100, 128, 3, 3, 250}, {128, 128, 1, 1, 384}, {96, 256, 0, 129, 64}, {64, 64, 2, 2, 127},
    };
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            static const enum format formats[] = {FORMAT_F16, FORMAT_F32, FORMAT_Q8_0};
            struct parity_shape s = attention_shape(heads[h], steps[i], i);
            s.format = formats[(h + i) % (s.window ? 2 : 3)];
            add(l, s);
            if (h == 0) add_writing(l, s);
        }
}

/* More rows than a worker of the CPU takes at a time, of a few columns: rows are shared out too. */
static void add_many_rows(struct list *l)
{
    for (int i = 0; i < 2; i++)
        add(l, (struct parity_shape){.code = OP_MATMUL,
                                     .format = i ? FORMAT_Q4_K : FORMAT_Q8_0,
                                     .rows = 600,
                                     .cols = 100,
                                     .inner = 256,
                                     .is_fine = i == 0});
}

/* Caches that hold keys and values at once. */
static void add_shared(struct list *l)
{
    static const int32_t heads[][4] = {
        {4, 1, 512, 128}, {8, 2, 512, 128}, {16, 1, 512, 128}, {4, 2, 128, 64}, {8, 2, 256, 64}};
    static const int32_t steps[][5] = {{0, 64, 0, 1, 0},     {0, 96, 3, 7, 20},
                                       {0, 320, 3, 40, 150}, {0, 192, 4, 4, 170},
                                       {0, 256, 1, 1, 255},  {0, 192, 0, 90, 40}};
    static const enum format formats[] = {FORMAT_F16, FORMAT_F32, FORMAT_BF16};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            struct parity_shape s = attention_shape(heads[h], steps[i], i);
            s.format = formats[(h + i) % 3];
            s.turned = heads[h][3];
            add(l, s);
            if (i % 2) add_writing(l, s);
            if (s.head_dim < 512 || s.format != FORMAT_F16) continue;
            s.format = FORMAT_Q8_0;
            s.turned = 256;
            add(l, s);
            add_writing(l, s);
        }
}

/* New shapes go to the end: a case is drawn from a seed that is its place in the list. */
/* Ops that only drafters have. */
static void add_drafters(struct list *l)
{
    add_rows(l, (struct parity_shape){.code = OP_CONCAT, .cols = 3072, .inner = 1536});
    add_rows(l, (struct parity_shape){.code = OP_CONCAT, .cols = 96, .inner = 32});
    add_rows(l, (struct parity_shape){.code = OP_CONCAT, .cols = 8, .inner = 7, .is_odd = true});
    add_rows(l, (struct parity_shape){.code = OP_ROPE, .cols = 1024, .group = 256, .ahead = 1});
}

size_t parity_shapes(struct parity_shape *out)
{
    struct list l = {.shapes = out};
    add_row_ops(&l);
    add_norms(&l);
    add_formats(&l);
    add_experts(&l);
    add_attention(&l);
    add_pages(&l);
    add_many_rows(&l);
    add_shared(&l);
    add_drafters(&l);
    return l.n;
}

void parity_label(const struct parity_shape *s, char out[160])
{
    int n = snprintf(out, 160, "%s %d %s rows, %d cols", op_name(s->code), s->rows,
                     s->rows_class == ROWS_TOKEN ? "token" : "out", s->cols);
    if (s->inner) n += snprintf(out + n, 160 - (size_t)n, " from %d", s->inner);
    if (s->first) n += snprintf(out + n, 160 - (size_t)n, ", first %d", s->first);
    if (s->group) n += snprintf(out + n, 160 - (size_t)n, ", group %d", s->group);
    if (s->ahead) n += snprintf(out + n, 160 - (size_t)n, ", ahead %d", s->ahead);
    if (s->n_used) n += snprintf(out + n, 160 - (size_t)n, ", %d of %d", s->n_used, s->n_expert);
    if (s->n_heads)
        n += snprintf(out + n, 160 - (size_t)n, ", heads %d/%d x %d, window %d in %d, %d at %d",
                      s->n_heads, s->n_kv_heads, s->head_dim, s->window, s->capacity, s->n_decode,
                      s->depth);
    if (s->turned) n += snprintf(out + n, 160 - (size_t)n, ", %d turned", s->turned);
    snprintf(out + n, 160 - (size_t)n, ", %s%s%s%s", format_traits(s->format)->name,
             s->has_weight ? ", weight" : "", s->has_ties ? ", ties" : "",
             s->is_fine ? ", fine" : "");
}
