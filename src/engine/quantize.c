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
#include "gguf/write.h"
#include "model/mixture.h"

enum { PIECE_BYTES = 16 << 20, THREADS_MAX = 1024 };

/* What a thread has found in a tensor. */
struct tally {
    double error, size;      /* sums of squares, of errors and of values */
    bool is_finite, is_held; /* all values; all new ones */
    char apart[64];          /* threads do not write to the same cache line */
};

struct work {
    const struct carat_quantize_options *o;
    struct gguf *g;
    struct pool *pool;
    enum format *formats; /* of tensors; FORMAT_COUNT: as it was */
    float *values;        /* two rows for each thread */
    int64_t cols_max;
    struct tally *tallies;
    uint8_t *piece;
    size_t piece_bytes;
    /* The piece that is being made. */
    const struct gguf_tensor *t;
    enum format to;
    int64_t first_row, n_rows;
};

/* ---- Types ------------------------------------------------------------------------------- */

static bool fits(const char *pattern, const char *name)
{
    const char *found = strstr(name, pattern + (pattern[0] == '^'));
    return found && (pattern[0] != '^' || found == name);
}

/* The type that a user has chosen for a tensor, or `format`. */
static enum format apply_rules(const struct carat_quantize_options *o, const char *name,
                               enum format format)
{
    for (int32_t i = 0; i < o->n_rules; i++)
        if (fits(o->rules[i].pattern, name)) {
            format_from_name(o->rules[i].type, &format);
            break;
        }
    return format;
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
            if (fits(rule->pattern, t->name) && may_change(w, t, m, c)) break;
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

static int choose_format(struct work *w, size_t i, const struct mixture *m,
                         const struct gemma_config *c, struct carat_error *err)
{
    const struct gguf_tensor *t = gguf_tensor_at(w->g, i);
    enum format to = mixture_format(m, c, t, w->o->is_pure);
    if (to != FORMAT_COUNT) to = apply_rules(w->o, t->name, to);
    if (to != FORMAT_COUNT) to = mixture_fit(to, t->dims[0]);
    bool is_same = to == FORMAT_COUNT || (t->is_supported && to == t->format);
    w->formats[i] = is_same ? FORMAT_COUNT : to;
    if (is_same) return CARAT_OK;
    if (t->dims[0] > w->cols_max) w->cols_max = t->dims[0];
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

static void encode_row(struct work *w, const uint8_t *from, uint8_t *to, float *values,
                       struct tally *tally)
{
    const struct format_traits *into = format_traits(w->to);
    int64_t cols = w->t->dims[0];
    float *again = values + w->cols_max;
    format_traits(w->t->format)->decode(from, values, cols);
    into->encode(values, NULL, to, cols);
    into->decode(to, again, cols);
    for (int64_t i = 0; i < cols; i++) {
        double error = (double)again[i] - (double)values[i];
        tally->error += error * error;
        tally->size += (double)values[i] * (double)values[i];
        tally->is_finite &= isfinite(values[i]);
        tally->is_held &= isfinite(again[i]);
    }
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
                   w->piece + (size_t)i * to_bytes, values, &w->tallies[worker->index]);
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

/* The relative error of the whole tensor. */
static int sum_up(const struct work *w, double *error, struct carat_error *err)
{
    struct tally sum = {.is_finite = true, .is_held = true};
    for (int i = 0; i < pool_threads(w->pool); i++) {
        sum.error += w->tallies[i].error;
        sum.size += w->tallies[i].size;
        sum.is_finite &= w->tallies[i].is_finite;
        sum.is_held &= w->tallies[i].is_held;
    }
    *error = sum.size > 0 ? sqrt(sum.error / sum.size) : 0;
    if (sum.is_finite && sum.is_held) return CARAT_OK;
    const char *path = gguf_path(w->g), *name = w->t->name;
    if (!sum.is_finite)
        return err_set(err, CARAT_EFORMAT, "%s: tensor \"%s\" has a value that is no finite number",
                       path, name);
    return err_set(err, CARAT_EFORMAT, "%s: tensor \"%s\" has a value that is too large for %s",
                   path, name, format_traits(w->to)->name);
}

static int encode_tensor(struct work *w, double *error, struct carat_error *err)
{
    const int64_t *dims = w->t->dims;
    int64_t rows = dims[1] * dims[2] * dims[3];
    size_t row_bytes = format_row_bytes(w->to, dims[0]);
    int64_t most = (int64_t)(w->piece_bytes / row_bytes);
    for (int i = 0; i < pool_threads(w->pool); i++)
        w->tallies[i] = (struct tally){.is_finite = true, .is_held = true};
    for (w->first_row = 0; w->first_row < rows; w->first_row += w->n_rows) {
        w->n_rows = rows - w->first_row < most ? rows - w->first_row : most;
        pool_run(w->pool, encode_rows, w);
        TRY(put(w, w->piece, (size_t)w->n_rows * row_bytes, err));
    }
    return sum_up(w, error, err);
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
                                .to_bytes = gguf_rewrite_bytes(w->g, r, i)};
    for (int d = 0; d < GGUF_DIMS_MAX; d++) q.n_values *= (uint64_t)t->dims[d];
    if (w->o->write) {
        TRY(is_new ? encode_tensor(w, &q.error, err) : put(w, t->data, t->bytes, err));
        TRY(put_padding(w, q.to_bytes, err));
        os_map_release(t->data, t->bytes);
    }
    if (w->o->tensor) w->o->tensor(w->o->user, &q, (int32_t)i, (int32_t)gguf_tensor_count(w->g));
    return CARAT_OK;
}

static int put_file(struct work *w, const struct mixture *m, struct carat_error *err)
{
    struct gguf_rewrite r = {w->formats, m->file_type};
    if (w->o->write) {
        struct buf head = {0};
        gguf_rewrite_head(w->g, &r, &head);
        int status = head.failed ? err_no_memory(err, "keys", head.length)
                                 : put(w, head.data, head.length, err);
        if (!status) status = put_padding(w, head.length, err);
        buf_deinit(&head);
        TRY(status);
    }
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
    if (w->piece && (w->values || row == 0) && w->tallies) return CARAT_OK;
    return err_no_memory(err, "rows of weights", w->piece_bytes + 2 * n * row);
}

static int quantize(struct work *w, const struct mixture *m, const char *path,
                    struct carat_error *err)
{
    TRY(gguf_open(&w->g, path, err));
    TRY(choose_formats(w, m, err));
    if (w->o->write) TRY(take_memory(w, err));
    return put_file(w, m, err);
}

static int unknown_type(const char *type, struct carat_error *err)
{
    struct buf names = {0};
    for (int32_t i = 0; mixture_at(i); i++)
        buf_printf(&names, "%s%s", i ? ", " : "", mixture_at(i)->name);
    bool is_known = strncasecmp(type, "IQ2_", 4) == 0 || strncasecmp(type, "IQ1_", 4) == 0;
    err_set(err, CARAT_EUSAGE, "type \"%.40s\": %s", type,
            is_known ? "bad without an importance matrix, which is not supported"
                     : "no such type of files");
    err_hint(err, "%s", buf_text(&names));
    buf_deinit(&names);
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
    if (o.n_threads < 0 || o.n_threads > THREADS_MAX)
        return err_set(err, CARAT_EUSAGE, "threads: 0 to %d expected, %d found", THREADS_MAX,
                       o.n_threads);
    struct work w = {.o = &o};
    int status = quantize(&w, m, path, err);
    pool_close(w.pool);
    mem_free(w.piece);
    mem_free(w.values);
    mem_free(w.tallies);
    mem_free(w.formats);
    gguf_close(w.g);
    return status;
}

const char *carat_quantize_type(int32_t index)
{
    const struct mixture *m = mixture_at(index);
    return m ? m->name : NULL;
}
