/* An entry for each matrix of the layers, found by name: one look-up a product. */
#include "engine/input_sums.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "engine/model_file.h"
#include "gguf/write.h"

/* Of one tensor; experts have rows of their own. */
struct input_sums {
    const char *name;
    int64_t cols, n_experts;
    double *squares; /* n_experts times cols */
    uint64_t *counts;
};

struct carat_importance {
    struct arena arena;
    const struct gguf *g;    /* the model's */
    struct input_sums *sums; /* of g's tensors, in order; cols 0: none */
};

static int take_sums(carat_importance *m, size_t i, struct carat_error *err)
{
    const struct gguf_tensor *t = gguf_tensor_at(m->g, i);
    if (t->n_dims < 2 || strncmp(t->name, "blk.", 4) != 0) return CARAT_OK;
    struct input_sums *s = &m->sums[i];
    *s = (struct input_sums){.name = t->name, .cols = t->dims[0], .n_experts = t->dims[2]};
    size_t n = (size_t)(s->cols * s->n_experts);
    s->squares = arena_take(&m->arena, n, sizeof *s->squares);
    s->counts = arena_take(&m->arena, (size_t)s->n_experts, sizeof *s->counts);
    if (s->squares && s->counts) return CARAT_OK;
    return err_no_memory(err, "sums of inputs", n * sizeof *s->squares);
}

int carat_importance_open(carat_importance **out, const carat_model *model, struct carat_error *err)
{
    size_t n = gguf_tensor_count(model->gguf);
    carat_importance *m = *out = mem_alloc(1, sizeof *m);
    if (!m) return err_no_memory(err, "sums of inputs", sizeof *m);
    m->g = model->gguf;
    m->sums = arena_take(&m->arena, n, sizeof *m->sums);
    int status = m->sums ? CARAT_OK : err_no_memory(err, "sums of inputs", n * sizeof *m->sums);
    for (size_t i = 0; i < n && !status; i++) status = take_sums(m, i, err);
    if (!status) return CARAT_OK;
    carat_importance_close(m);
    *out = NULL;
    return status;
}

void carat_importance_close(carat_importance *m)
{
    if (!m) return;
    arena_deinit(&m->arena);
    mem_free(m);
}

static struct input_sums *sums_of(carat_importance *m, const char *name)
{
    const struct gguf_tensor *t = gguf_tensor_find(m->g, name);
    struct input_sums *s = t ? &m->sums[t - gguf_tensor_at(m->g, 0)] : NULL;
    return s && s->cols > 0 ? s : NULL;
}

static void add_row(struct input_sums *s, int64_t expert, const float *row)
{
    double *squares = s->squares + expert * s->cols;
    for (int64_t i = 0; i < s->cols; i++) squares[i] += (double)row[i] * (double)row[i];
    s->counts[expert]++;
}

void importance_add(void *user, const struct product_rows *p)
{
    struct input_sums *s = sums_of(user, p->weight->name);
    if (!s || s->cols != p->weight->cols || s->n_experts != p->weight->n_expert) return;
    for (int32_t r = 0; r < p->n_rows; r++) {
        const float *row = p->rows + r * s->cols;
        if (!p->experts) add_row(s, 0, row);
        for (int32_t u = 0; u < p->n_used; u++) add_row(s, p->experts[r * p->n_used + u], row);
    }
}

/* ---- Files ------------------------------------------------------------------------------- */

static bool has_read(const struct input_sums *s)
{
    for (int64_t e = 0; s->cols > 0 && e < s->n_experts; e++)
        if (s->counts[e] > 0) return true;
    return false;
}

static size_t count_read(const carat_importance *m)
{
    size_t n = 0;
    for (size_t i = 0; i < gguf_tensor_count(m->g); i++) n += has_read(&m->sums[i]);
    return n;
}

/* Two tensors for each entry: NAME.in_sum2 and NAME.counts. */
static const char *tensor_name(const struct input_sums *s, bool is_counts, char out[96])
{
    snprintf(out, 96, "%s.%s", s->name, is_counts ? "counts" : "in_sum2");
    return out;
}

static void add_head(const carat_importance *m, const struct carat_importance_facts *facts,
                     struct buf *out)
{
    char name[96];
    uint64_t offset = 0;
    gguf_add_beginning(out, 2 * count_read(m), 4);
    gguf_add_key_string(out, "general.type", "imatrix", strlen("imatrix"));
    gguf_add_key_text_list(out, "imatrix.datasets", facts->dataset);
    gguf_add_key_u32(out, "imatrix.chunk_count", (uint32_t)facts->n_chunks);
    gguf_add_key_u32(out, "imatrix.chunk_size", (uint32_t)facts->chunk_tokens);
    for (size_t i = 0; i < gguf_tensor_count(m->g); i++) {
        const struct input_sums *s = &m->sums[i];
        if (!has_read(s)) continue;
        gguf_add_floats(out, tensor_name(s, false, name), s->cols, s->n_experts, &offset);
        gguf_add_floats(out, tensor_name(s, true, name), 1, s->n_experts, &offset);
    }
}

static void add_float(struct buf *out, double value)
{
    float narrow = (float)value;
    buf_add(out, &narrow, sizeof narrow);
}

static void add_padding(struct buf *out)
{
    while (out->length % GGUF_ALIGNMENT != 0) buf_add_char(out, '\0');
}

/* The values of both tensors of an entry. */
static void add_entry(const struct input_sums *s, struct buf *out)
{
    for (int64_t i = 0; i < s->cols * s->n_experts; i++) add_float(out, s->squares[i]);
    add_padding(out);
    for (int64_t e = 0; e < s->n_experts; e++) add_float(out, (double)s->counts[e]);
    add_padding(out);
}

int carat_importance_write(const carat_importance *m, const struct carat_importance_facts *facts,
                           int (*write)(void *user, const void *bytes, size_t n,
                                        struct carat_error *err),
                           void *user, struct carat_error *err)
{
    struct buf piece = {0};
    if (count_read(m) == 0) return err_set(err, CARAT_EUSAGE, "no product has read anything yet");
    add_head(m, facts, &piece);
    add_padding(&piece);
    int status = piece.failed ? err_no_memory(err, "importance matrix", piece.length)
                              : write(user, piece.data, piece.length, err);
    for (size_t i = 0; i < gguf_tensor_count(m->g) && !status; i++) {
        if (!has_read(&m->sums[i])) continue;
        buf_clear(&piece);
        add_entry(&m->sums[i], &piece);
        status = piece.failed ? err_no_memory(err, "importance matrix", piece.length)
                              : write(user, piece.data, piece.length, err);
    }
    buf_deinit(&piece);
    return status;
}
