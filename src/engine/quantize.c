/* carat_quantize: the tensors of a file one after the other, in pieces of some megabytes; of each
 * piece all threads take as many rows. */
#include "carat_quantize.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/allowance.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/sized.h"
#include "engine/importance.h"
#include "gguf/write.h"
#include "model/mixture.h"

enum { PIECE_BYTES = 16 << 20, THREADS_MAX = 1024 };

/* What a thread has found in a tensor. */
struct tally {
    double error, size; /* sums of squares, of errors and of values */
    double weighted_error, weighted_size;
    bool is_finite, is_held; /* all values; all new ones */
    char apart[64];          /* threads do not write to the same cache line */
};

struct work {
    const struct carat_quantize_options *o;
    struct gguf *g;
    struct pool *pool;
    enum format *formats; /* of tensors; FORMAT_COUNT: as it was */
    struct importance matrix;
    float *importance; /* of the tensor that is being made */
    float *values;     /* two rows for each thread */
    int64_t cols_max;
    struct tally *tallies;
    uint8_t *piece;
    size_t piece_bytes;
    /* The piece that is being made. */
    const struct gguf_tensor *t;
    enum format to;
    int64_t n_importance; /* rows of importance: one for each expert; 0: none */
    int64_t first_row, n_rows;
};

/* ---- Types ------------------------------------------------------------------------------- */

/* The rule for a tensor, or NULL. */
static const struct carat_type_rule *rule_of(const struct carat_quantize_options *o,
                                             const char *name)
{
    for (int32_t i = 0; i < o->n_rules; i++)
        if (name_fits(name, o->rules[i].pattern)) return &o->rules[i];
    return NULL;
}

static bool may_change(const struct work *w, const struct gguf_tensor *t, const struct mixture *m,
                       const struct gemma_config *c)
{
    return mixture_format(m, c, t, w->o->is_pure) != FORMAT_COUNT;
}

/* Every rule has a type, and there are tensors for it. */
static int check_rules(const struct work *w, const struct mixture *m, const struct gemma_config *c,
                       struct carat_error *err)
{
    for (int32_t k = 0; k < w->o->n_rules; k++) {
        const struct carat_type_rule *rule = &w->o->rules[k];
        enum format format;
        size_t i = 0, n = gguf_tensor_count(w->g);
        if (!format_from_name(rule->type, &format))
            return err_set(err, CARAT_EUSAGE, "type \"%.40s\" of tensors \"%.60s\": no such type",
                           rule->type, rule->pattern);
        for (; i < n; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(w->g, i);
            if (name_fits(t->name, rule->pattern) && may_change(w, t, m, c)) break;
        }
        if (i < n) continue;
        err_set(err, CARAT_EUSAGE, "%s: no tensor that may change has \"%.60s\" in its name",
                gguf_path(w->g), rule->pattern);
        err_hint(err, "this is plain text, and ^ is the beginning of a name; vectors, routers and "
                      "per_layer_model_proj do not change");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static int check_source(const struct work *w, const struct gguf_tensor *t, enum format to,
                        struct carat_error *err)
{
    if (!t->is_supported)
        return err_set(err, CARAT_EFORMAT, "%s: tensor \"%s\": type %s cannot be read",
                       gguf_path(w->g), t->name, t->type_name);
    if (format_is_float(t->format) || w->o->may_requantize) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s: tensor \"%s\" is quantised already: %s, %s asked for",
            gguf_path(w->g), t->name, t->type_name, format_traits(to)->name);
    err_hint(err,
             "take a file in BF16 or F16; --allow-requantize takes this one, and errors add up");
    return CARAT_EUSAGE;
}

/* A layer gets a type without importance that needs it: only if a user says so. */
static int check_importance(const struct work *w, const struct gguf_tensor *t, enum format to,
                            struct carat_error *err)
{
    bool is_bad = mixture_needs_importance(to) && strncmp(t->name, "blk.", 4) == 0 &&
                  !importance_of(&w->matrix, t->name);
    if (!is_bad || rule_of(w->o, t->name)) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "tensor \"%s\": %s is bad without importance, and %.200s has none",
            t->name, format_traits(to)->name, w->o->imatrix);
    err_hint(err, "--tensor-type gives it another type, or this one all the same");
    return CARAT_EUSAGE;
}

static int choose_format(struct work *w, size_t i, const struct mixture *m,
                         const struct gemma_config *c, struct carat_error *err)
{
    const struct gguf_tensor *t = gguf_tensor_at(w->g, i);
    enum format to = mixture_format(m, c, t, w->o->is_pure);
    const struct carat_type_rule *rule = rule_of(w->o, t->name);
    if (to != FORMAT_COUNT && rule) format_from_name(rule->type, &to);
    if (to != FORMAT_COUNT) to = mixture_fit(to, t->dims[0]);
    bool is_same = to == FORMAT_COUNT || (t->is_supported && to == t->format);
    w->formats[i] = is_same ? FORMAT_COUNT : to;
    if (is_same) return CARAT_OK;
    if (t->dims[0] > w->cols_max) w->cols_max = t->dims[0];
    TRY(check_importance(w, t, to, err));
    return check_source(w, t, to, err);
}

static int read_config(struct gemma_config *c, const struct gguf *g, struct carat_error *err)
{
    int status = config_read(c, g, err);
    if (status && config_is_drafter(g)) err_hint(err, "quantising takes models, and no drafters");
    return status;
}

static int choose_formats(struct work *w, const struct mixture *m, struct carat_error *err)
{
    struct gemma_config c;
    size_t n = gguf_tensor_count(w->g);
    TRY(read_config(&c, w->g, err));
    TRY(check_rules(w, m, &c, err));
    w->formats = mem_alloc(n, sizeof *w->formats);
    if (!w->formats) return err_no_memory(err, "types", n * sizeof *w->formats);
    for (size_t i = 0; i < n; i++) TRY(choose_format(w, i, m, &c, err));
    return CARAT_OK;
}

/* ---- Values ------------------------------------------------------------------------------ */

/* The importance of columns in a row of the tensor, or NULL. */
static const float *importance_at_row(const struct work *w, int64_t row)
{
    if (w->n_importance == 0) return NULL;
    return w->importance + row / w->t->dims[1] % w->n_importance * w->t->dims[0];
}

static void add_errors(const float *values, const float *again, const float *importance, int64_t n,
                       struct tally *tally)
{
    for (int64_t i = 0; i < n; i++) {
        double error = (double)again[i] - (double)values[i];
        double square = error * error, size = (double)values[i] * (double)values[i];
        double weight = importance ? (double)importance[i] : 0.0;
        tally->error += square;
        tally->size += size;
        tally->weighted_error += weight * square;
        tally->weighted_size += weight * size;
        tally->is_finite &= isfinite(values[i]);
        tally->is_held &= isfinite(again[i]);
    }
}

static void encode_row(struct work *w, const uint8_t *from, uint8_t *to, float *values,
                       const float *importance, struct tally *tally)
{
    const struct format_traits *into = format_traits(w->to);
    int64_t cols = w->t->dims[0];
    float *again = values + w->cols_max;
    format_traits(w->t->format)->decode(from, values, cols);
    into->encode(values, importance, to, cols);
    into->decode(to, again, cols);
    add_errors(values, again, importance, cols, tally);
}

static void encode_rows(void *user, const struct pool_worker *worker)
{
    struct work *w = user;
    int64_t first, last, cols = w->t->dims[0];
    size_t from_bytes = format_row_bytes(w->t->format, cols);
    size_t to_bytes = format_row_bytes(w->to, cols);
    float *values = w->values + 2 * w->cols_max * worker->index;
    pool_stretch(worker, w->n_rows, &first, &last);
    for (int64_t i = first; i < last; i++)
        encode_row(w, w->t->data + (size_t)(w->first_row + i) * from_bytes,
                   w->piece + (size_t)i * to_bytes, values, importance_at_row(w, w->first_row + i),
                   &w->tallies[worker->index]);
}

static int put(const struct work *w, const void *bytes, size_t n, struct carat_error *err)
{
    return n > 0 ? w->o->write(w->o->user, bytes, n, err) : CARAT_OK;
}

static int put_padding(const struct work *w, uint64_t bytes, struct carat_error *err)
{
    static const uint8_t zeros[4096];
    for (uint64_t left = gguf_padding(w->g, bytes), n; left > 0; left -= n) {
        n = left < sizeof zeros ? left : sizeof zeros;
        TRY(put(w, zeros, (size_t)n, err));
    }
    return CARAT_OK;
}

/* The relative errors of the whole tensor. */
static int sum_up(const struct work *w, struct carat_quantized *q, struct carat_error *err)
{
    struct tally sum = {.is_finite = true, .is_held = true};
    for (int i = 0; i < pool_threads(w->pool); i++) {
        sum.error += w->tallies[i].error;
        sum.size += w->tallies[i].size;
        sum.weighted_error += w->tallies[i].weighted_error;
        sum.weighted_size += w->tallies[i].weighted_size;
        sum.is_finite &= w->tallies[i].is_finite;
        sum.is_held &= w->tallies[i].is_held;
    }
    q->error = sum.size > 0 ? sqrt(sum.error / sum.size) : 0;
    if (sum.weighted_size > 0) q->weighted_error = sqrt(sum.weighted_error / sum.weighted_size);
    if (sum.is_finite && sum.is_held) return CARAT_OK;
    const char *path = gguf_path(w->g), *name = w->t->name;
    if (!sum.is_finite)
        return err_set(err, CARAT_EFORMAT, "%s: tensor \"%s\" has a value that is no finite number",
                       path, name);
    return err_set(err, CARAT_EFORMAT, "%s: tensor \"%s\" has a value that is too large for %s",
                   path, name, format_traits(w->to)->name);
}

/* Of the tensor that is being made; NULL: none, and for floats, which have no use for it. */
static const struct imatrix_entry *entry_of(const struct work *w)
{
    return format_is_float(w->to) ? NULL : importance_of(&w->matrix, w->t->name);
}

/* Importance of all experts' columns. */
static void take_importance(struct work *w)
{
    const struct imatrix_entry *e = entry_of(w);
    int64_t cols = w->t->dims[0];
    w->n_importance = e ? e->n_values / cols : 0;
    for (int64_t i = 0; i < w->n_importance; i++)
        imatrix_read(e, i, w->n_importance, w->importance + i * cols);
}

static int encode_tensor(struct work *w, struct carat_quantized *q, struct carat_error *err)
{
    const int64_t *dims = w->t->dims;
    int64_t rows = dims[1] * dims[2] * dims[3];
    size_t row_bytes = format_row_bytes(w->to, dims[0]);
    int64_t most = (int64_t)(w->piece_bytes / row_bytes);
    take_importance(w);
    for (int i = 0; i < pool_threads(w->pool); i++)
        w->tallies[i] = (struct tally){.is_finite = true, .is_held = true};
    for (w->first_row = 0; w->first_row < rows; w->first_row += w->n_rows) {
        w->n_rows = rows - w->first_row < most ? rows - w->first_row : most;
        pool_run(w->pool, encode_rows, w);
        TRY(put(w, w->piece, (size_t)w->n_rows * row_bytes, err));
    }
    return sum_up(w, q, err);
}

/* ---- Files ------------------------------------------------------------------------------- */

static int put_tensor(struct work *w, const struct gguf_rewrite *r, size_t i,
                      struct carat_error *err)
{
    const struct gguf_tensor *t = w->t = gguf_tensor_at(w->g, i);
    bool is_new = w->formats[i] != FORMAT_COUNT;
    w->to = w->formats[i];
    struct carat_quantized q = {.name = t->name,
                                .from = t->type_name,
                                .to = is_new ? format_traits(w->to)->name : t->type_name,
                                .n_values = 1,
                                .from_bytes = t->bytes,
                                .to_bytes = gguf_rewrite_bytes(w->g, r, i),
                                .is_weighted = is_new && entry_of(w)};
    for (int d = 0; d < GGUF_DIMS_MAX; d++) q.n_values *= (uint64_t)t->dims[d];
    if (w->o->write) {
        TRY(is_new ? encode_tensor(w, &q, err) : put(w, t->data, t->bytes, err));
        TRY(put_padding(w, q.to_bytes, err));
        os_map_release(t->data, t->bytes);
    }
    if (w->o->tensor) w->o->tensor(w->o->user, &q, (int32_t)i, (int32_t)gguf_tensor_count(w->g));
    return CARAT_OK;
}

static int put_head(const struct work *w, struct gguf_rewrite r, struct carat_error *err)
{
    struct buf head = {0}, keys = {0};
    r.n_keys = importance_keys(&w->matrix, &keys);
    r.keys = &keys;
    if (!keys.failed) gguf_rewrite_head(w->g, &r, &head);
    int status = head.failed || keys.failed ? err_no_memory(err, "keys", head.length)
                                            : put(w, head.data, head.length, err);
    if (!status) status = put_padding(w, head.length, err);
    buf_deinit(&keys);
    buf_deinit(&head);
    return status;
}

static int put_file(struct work *w, const struct mixture *m, struct carat_error *err)
{
    struct gguf_rewrite r = {.formats = w->formats, .file_type = m->file_type};
    if (w->o->write) TRY(put_head(w, r, err));
    for (size_t i = 0; i < gguf_tensor_count(w->g); i++) TRY(put_tensor(w, &r, i, err));
    return CARAT_OK;
}

/* Threads and room for them. A piece has one row at least. */
static int take_memory(struct work *w, struct carat_error *err)
{
    int n_threads = w->o->n_threads ? w->o->n_threads : allowed_threads();
    struct pool_options pool = {.n_threads = n_threads, .patience = 1e-3};
    size_t n = (size_t)n_threads, row = (size_t)w->cols_max * sizeof *w->values;
    TRY(pool_open(&w->pool, &pool, err));
    w->piece_bytes = row > PIECE_BYTES ? row : PIECE_BYTES;
    w->piece = mem_alloc(w->piece_bytes, 1);
    w->values = mem_alloc(n, 2 * row);
    w->tallies = mem_alloc(n, sizeof *w->tallies);
    w->importance = mem_alloc((size_t)w->matrix.values_max + 1, sizeof *w->importance);
    if (w->piece && (w->values || row == 0) && w->tallies && w->importance) return CARAT_OK;
    return err_no_memory(err, "rows of weights", w->piece_bytes + 2 * n * row);
}

static int quantize(struct work *w, const struct mixture *m, const char *path,
                    struct carat_error *err)
{
    TRY(gguf_open(&w->g, path, err));
    TRY(importance_open(&w->matrix, w->o, w->g, err));
    TRY(choose_formats(w, m, err));
    if (w->o->write) TRY(take_memory(w, err));
    return put_file(w, m, err);
}

static int unknown_type(const char *type, struct carat_error *err)
{
    struct buf names = {0};
    for (int32_t i = 0; mixture_at(i); i++)
        buf_printf(&names, "%s%s", i ? ", " : "", mixture_at(i)->name);
    err_set(err, CARAT_EUSAGE, "type \"%.40s\": no such type of files", type);
    err_hint(err, "%s", buf_text(&names));
    buf_deinit(&names);
    return CARAT_EUSAGE;
}

static int no_matrix(const struct mixture *m, struct carat_error *err)
{
    err_set(err, CARAT_EUSAGE, "type %s: bad without an importance matrix", m->name);
    err_hint(err, "--imatrix FILE names one; IQ3_XXS and Q2_K need none");
    return CARAT_EUSAGE;
}

int carat_quantize(const char *path, const struct carat_quantize_options *given,
                   struct carat_error *err)
{
    struct carat_quantize_options o = {0};
    TRY(sized_copy(&o, sizeof o, SIZED_THROUGH(struct carat_quantize_options, user), given,
                   "quantize options", err));
    const struct mixture *m = o.type ? mixture_find(o.type) : NULL;
    if (!m) return unknown_type(o.type ? o.type : "", err);
    if (mixture_needs_importance(m->base) && !o.imatrix) return no_matrix(m, err);
    if (o.n_threads < 0 || o.n_threads > THREADS_MAX)
        return err_set(err, CARAT_EUSAGE, "threads: 0 to %d expected, %d found", THREADS_MAX,
                       o.n_threads);
    struct work w = {.o = &o};
    int status = quantize(&w, m, path, err);
    pool_close(w.pool);
    mem_free(w.piece);
    mem_free(w.values);
    mem_free(w.importance);
    mem_free(w.tallies);
    mem_free(w.formats);
    importance_close(&w.matrix);
    gguf_close(w.g);
    return status;
}

const char *carat_quantize_type(int32_t index)
{
    const struct mixture *m = mixture_at(index);
    return m ? m->name : NULL;
}
