#include "engine/importance.h"

#include <string.h>

#include "gguf/write.h"

bool name_fits(const char *name, const char *pattern)
{
    const char *found = strstr(name, pattern + (pattern[0] == '^'));
    return found && (pattern[0] != '^' || found == name);
}

static bool fits_one(const char *name, const char *const *patterns, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (name_fits(name, patterns[i])) return true;
    return false;
}

static bool is_used(const struct importance *m, const struct imatrix_entry *e)
{
    const struct carat_quantize_options *o = m->o;
    return (o->n_include == 0 || fits_one(e->name, o->include, o->n_include)) &&
           !fits_one(e->name, o->exclude, o->n_exclude);
}

const struct imatrix_entry *importance_of(const struct importance *m, const char *name)
{
    const struct imatrix_entry *e = m->matrix ? imatrix_find(m->matrix, name) : NULL;
    return e && is_used(m, e) ? e : NULL;
}

static size_t count_used(const struct importance *m)
{
    size_t n = 0;
    for (size_t i = 0; i < imatrix_count(m->matrix); i++) n += is_used(m, imatrix_at(m->matrix, i));
    return n;
}

uint64_t importance_keys(const struct importance *m, struct buf *out)
{
    uint64_t n = 2;
    if (!m->matrix) return 0;
    struct gguf_string dataset = imatrix_dataset(m->matrix);
    uint32_t chunks = imatrix_chunks(m->matrix);
    gguf_add_key_string(out, "quantize.imatrix.file", m->o->imatrix, strlen(m->o->imatrix));
    gguf_add_key_u32(out, "quantize.imatrix.entries_count", (uint32_t)count_used(m));
    if (dataset.length > 0) {
        gguf_add_key_string(out, "quantize.imatrix.dataset", dataset.data, dataset.length);
        n++;
    }
    if (chunks > 0) {
        gguf_add_key_u32(out, "quantize.imatrix.chunks_count", chunks);
        n++;
    }
    return n;
}

/* ---- Checks ------------------------------------------------------------------------------ */

static int check_pattern(const struct importance *m, const char *option, const char *pattern,
                         struct carat_error *err)
{
    for (size_t i = 0; i < imatrix_count(m->matrix); i++)
        if (name_fits(imatrix_at(m->matrix, i)->name, pattern)) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: no entry has \"%.60s\" in its name (%s)", m->o->imatrix,
                   pattern, option);
}

static int check_patterns(const struct importance *m, struct carat_error *err)
{
    const struct carat_quantize_options *o = m->o;
    for (int32_t i = 0; i < o->n_include; i++) TRY(check_pattern(m, "include", o->include[i], err));
    for (int32_t i = 0; i < o->n_exclude; i++) TRY(check_pattern(m, "exclude", o->exclude[i], err));
    return CARAT_OK;
}

/* Columns, times the matrices of all experts. */
static int check_size(struct importance *m, const struct gguf_tensor *t,
                      const struct imatrix_entry *e, struct carat_error *err)
{
    int64_t expected = t->dims[0] * t->dims[2] * t->dims[3];
    if (e->n_values > m->values_max) m->values_max = e->n_values;
    if (e->n_values == expected) return CARAT_OK;
    err_set(err, CARAT_EFORMAT,
            "%s: \"%s\" has importance of %lld columns, and the model's has %lld", m->o->imatrix,
            t->name, (long long)e->n_values, (long long)expected);
    err_hint(err, "the importance matrix is of another model");
    return CARAT_EFORMAT;
}

static int check_entries(struct importance *m, const struct gguf *g, struct carat_error *err)
{
    size_t n_found = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const struct imatrix_entry *e = importance_of(m, t->name);
        if (!e) continue;
        TRY(check_size(m, t, e, err));
        n_found++;
    }
    if (n_found > 0) return CARAT_OK;
    const char *name = imatrix_at(m->matrix, 0)->name;
    char shown[GGUF_PRINTABLE_BYTES];
    err_set(err, CARAT_EFORMAT, "%s: none of %zu entries names a tensor of the model, as \"%s\"",
            m->o->imatrix, count_used(m), gguf_printable(shown, name, strlen(name)));
    err_hint(err, "names such as \"blk.0.attn_q.weight\" are expected");
    return CARAT_EFORMAT;
}

int importance_open(struct importance *m, const struct carat_quantize_options *o,
                    const struct gguf *g, struct carat_error *err)
{
    *m = (struct importance){.o = o};
    if (!o->imatrix && o->n_include + o->n_exclude == 0) return CARAT_OK;
    if (!o->imatrix)
        return err_set(err, CARAT_EUSAGE, "entries are named, but no importance matrix");
    int status = imatrix_open(&m->matrix, o->imatrix, err);
    if (status == CARAT_EFORMAT)
        err_hint(err, "an importance matrix is what llama-imatrix writes: a GGUF or a .dat file");
    TRY(status);
    TRY(check_patterns(m, err));
    return check_entries(m, g, err);
}

void importance_close(struct importance *m)
{
    imatrix_close(m->matrix);
    m->matrix = NULL;
}
