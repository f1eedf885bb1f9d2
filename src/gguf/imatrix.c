/* Both forms become the same list of entries, which point into the mapped file. */
#include "gguf/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "gguf/internal.h"

static const char SUMS[] = ".in_sum2", COUNTS[] = ".counts";

/* Columns that were never in use still get a millionth, so that their weights are not arbitrary. */
static const float importance_min = 1e-6f;

struct imatrix {
    struct arena arena;
    struct os_map map; /* of a .dat file */
    bool is_mapped;    /* `map` is ours to close */
    struct gguf *g;    /* the other form */
    struct imatrix_entry *entries;
    uint32_t *order; /* indexes of entries, sorted by name */
    size_t n;
    uint32_t chunks;
    struct gguf_string dataset;
};

static float float_at(const uint8_t *floats, int64_t i)
{
    float value;
    memcpy(&value, floats + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* ---- What both forms must be ------------------------------------------------------------- */

static const char *name_at(const void *entries, uint32_t index)
{
    return ((const struct imatrix_entry *)entries)[index].name;
}

static int check_values(const char *name, const char *what, const uint8_t *floats, int64_t n,
                        struct carat_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        float value = float_at(floats, i);
        if (isfinite(value) && !(value < 0.0f)) continue;
        char shown[GGUF_PRINTABLE_BYTES];
        return err_set(err, CARAT_EFORMAT,
                       "%s %lld of \"%s\" is %g: finite numbers from 0 on expected", what,
                       (long long)i, gguf_printable(shown, name, strlen(name)), (double)value);
    }
    return CARAT_OK;
}

/* Checks values and sorts names. */
static int finish(struct imatrix *m, struct carat_error *err)
{
    if (m->n == 0) return err_set(err, CARAT_EFORMAT, "an importance matrix without entries");
    m->order = arena_take(&m->arena, m->n, sizeof *m->order);
    if (!m->order) return err_no_memory(err, "importance matrix", m->n * sizeof *m->order);
    for (size_t i = 0; i < m->n; i++) {
        const struct imatrix_entry *e = &m->entries[i];
        m->order[i] = (uint32_t)i;
        TRY(check_values(e->name, "value", e->values, e->n_values, err));
        if (e->counts) TRY(check_values(e->name, "count", e->counts, e->n_counts, err));
    }
    order_by_name(m->order, m->n, name_at, m->entries);
    for (size_t i = 1; i < m->n; i++) {
        const char *name = m->entries[m->order[i]].name;
        char shown[GGUF_PRINTABLE_BYTES];
        if (strcmp(name, m->entries[m->order[i - 1]].name) != 0) continue;
        return err_set(err, CARAT_EFORMAT, "two entries for \"%s\"",
                       gguf_printable(shown, name, strlen(name)));
    }
    return CARAT_OK;
}

/* ---- GGUF -------------------------------------------------------------------------------- */

static int64_t value_count(const struct gguf_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->dims[i];
    return n;
}

static bool is_sums(const struct gguf_tensor *t)
{
    size_t length = strlen(t->name), end = strlen(SUMS);
    return length > end && strcmp(t->name + length - end, SUMS) == 0;
}

/* An entry of the tensor with its sums. */
static int take_sums(struct imatrix *m, const struct gguf_tensor *t, struct imatrix_entry *e,
                     struct carat_error *err)
{
    char counts_name[TENSOR_NAME_BYTES_MAX + sizeof COUNTS];
    char *name = arena_copy_text(&m->arena, t->name, strlen(t->name) - strlen(SUMS));
    if (!name) return err_no_memory(err, "importance matrix", strlen(t->name));
    snprintf(counts_name, sizeof counts_name, "%s%s", name, COUNTS);
    const struct gguf_tensor *counts = gguf_tensor_find(m->g, counts_name);
    if (!counts)
        return err_set(err, CARAT_EFORMAT, "tensor \"%s\" has no \"%s%s\"", t->name, name, COUNTS);
    for (int i = 0; i < 2; i++) {
        const struct gguf_tensor *part = i ? counts : t;
        if (!part->is_supported || part->format != FORMAT_F32)
            return err_set(err, CARAT_EFORMAT, "tensor \"%s\" is of type %s, F32 expected",
                           part->name, part->type_name);
    }
    *e = (struct imatrix_entry){name, value_count(t), value_count(counts), t->data, counts->data};
    if (e->n_values % e->n_counts == 0) return CARAT_OK;
    return err_set(err, CARAT_EFORMAT, "tensor \"%s\" has %lld values, and %lld counts", t->name,
                   (long long)e->n_values, (long long)e->n_counts);
}

static int read_gguf(struct imatrix *m, struct carat_error *err)
{
    struct gguf_string type = {0};
    TRY(gguf_get_string(m->g, "general.type", &type, err));
    if (type.length != 7 || memcmp(type.data, "imatrix", 7) != 0) {
        char shown[GGUF_PRINTABLE_BYTES];
        return err_set(err, CARAT_EFORMAT, "no importance matrix: general.type is \"%s\"",
                       gguf_printable(shown, type.data, type.length));
    }
    TRY(gguf_get_u32(m->g, "imatrix.chunk_count", &m->chunks, err));
    const struct gguf_kv *texts = gguf_find(m->g, "imatrix.datasets");
    if (texts && texts->strings && texts->count > 0) m->dataset = texts->strings[0];
    size_t n = gguf_tensor_count(m->g);
    m->entries = arena_take(&m->arena, n + 1, sizeof *m->entries);
    if (!m->entries) return err_no_memory(err, "importance matrix", n * sizeof *m->entries);
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->g, i);
        if (is_sums(t)) TRY(take_sums(m, t, &m->entries[m->n++], err));
    }
    return finish(m, err);
}

/* ---- .dat -------------------------------------------------------------------------------- */

enum { DATASET_BYTES_MAX = 65535, ENTRY_BYTES_MIN = 4 + 1 + 4 + 4 + 4 };

/* What is read next. */
struct reader {
    struct imatrix *m;
    const uint8_t *at;
    struct carat_error *err;
};

static size_t bytes_left_of(const struct reader *r)
{
    return r->m->map.length - (size_t)(r->at - r->m->map.data);
}

/* Bytes [at, at + n) are in the file. */
static int need(const struct reader *r, int64_t n)
{
    if ((uint64_t)n <= bytes_left_of(r)) return CARAT_OK;
    return err_set(r->err, CARAT_EFORMAT,
                   "byte %zu: the file ends within an importance matrix: %lld more expected",
                   r->m->map.length, (long long)(n - (int64_t)bytes_left_of(r)));
}

static int take_number(struct reader *r, const char *what, int64_t low, int64_t high, int64_t *out)
{
    int32_t value;
    TRY(need(r, sizeof value));
    memcpy(&value, r->at, sizeof value);
    *out = value;
    if (value < low || value > high)
        return err_set(r->err, CARAT_EFORMAT,
                       "no importance matrix: byte %zu: %s is %d, %lld to %lld expected",
                       (size_t)(r->at - r->m->map.data), what, value, (long long)low,
                       (long long)high);
    r->at += sizeof value;
    return CARAT_OK;
}

static int take_entry(struct reader *r, struct imatrix_entry *e)
{
    int64_t length, calls;
    TRY(take_number(r, "a name's length", 1, TENSOR_NAME_BYTES_MAX, &length));
    TRY(need(r, length));
    char *name = arena_copy_text(&r->m->arena, (const char *)r->at, (size_t)length);
    if (!name) return err_no_memory(r->err, "importance matrix", (size_t)length);
    if (strlen(name) != (size_t)length)
        return err_set(r->err, CARAT_EFORMAT, "no importance matrix: byte %zu: a name with a NUL",
                       (size_t)(r->at - r->m->map.data));
    r->at += length;
    TRY(take_number(r, "a number of calls", 0, INT32_MAX, &calls));
    *e = (struct imatrix_entry){.name = name, .n_counts = 1};
    TRY(take_number(r, "a number of values", 1, INT32_MAX, &e->n_values));
    TRY(need(r, e->n_values * (int64_t)sizeof(float)));
    e->values = r->at;
    r->at += (size_t)e->n_values * sizeof(float);
    return CARAT_OK;
}

static int take_end(struct reader *r)
{
    int64_t chunks, length = 0;
    if (bytes_left_of(r) == 0) return CARAT_OK;
    TRY(take_number(r, "the number of chunks", 0, INT32_MAX, &chunks));
    r->m->chunks = (uint32_t)chunks;
    if (bytes_left_of(r) == 0) return CARAT_OK;
    TRY(take_number(r, "the length of the text's name", 0, DATASET_BYTES_MAX, &length));
    TRY(need(r, length));
    r->m->dataset = (struct gguf_string){(const char *)r->at, (size_t)length};
    return CARAT_OK;
}

static int read_dat(struct imatrix *m, struct carat_error *err)
{
    struct reader r = {m, m->map.data, err};
    int64_t n, n_max = (int64_t)(m->map.length / ENTRY_BYTES_MIN);
    if (n_max > TENSORS_MAX) n_max = TENSORS_MAX;
    TRY(take_number(&r, "the number of entries", 1, n_max, &n));
    m->n = (size_t)n;
    m->entries = arena_take(&m->arena, m->n, sizeof *m->entries);
    if (!m->entries) return err_no_memory(err, "importance matrix", m->n * sizeof *m->entries);
    for (size_t i = 0; i < m->n; i++) TRY(take_entry(&r, &m->entries[i]));
    TRY(take_end(&r));
    return finish(m, err);
}

/* ---- Interface --------------------------------------------------------------------------- */

static int read_file(struct imatrix *m, const char *path, struct carat_error *err)
{
    TRY(os_map_open(&m->map, path, err));
    m->is_mapped = true;
    if (m->map.length >= 4 && memcmp(m->map.data, "GGUF", 4) == 0) {
        TRY(gguf_open(&m->g, path, err));
        int status = read_gguf(m, err);
        return status ? part_within_file(err, path) : CARAT_OK;
    }
    int status = read_dat(m, err);
    return status ? part_within_file(err, path) : CARAT_OK;
}

int imatrix_open(struct imatrix **out, const char *path, struct carat_error *err)
{
    struct carat_error unused;
    if (!err) err = &unused;
    struct imatrix *m = mem_alloc(1, sizeof *m);
    *out = m;
    if (!m) return err_no_memory(err, "importance matrix", sizeof *m);
    int status = read_file(m, path, err);
    if (!status) return CARAT_OK;
    imatrix_close(m);
    *out = NULL;
    return status;
}

void imatrix_close(struct imatrix *m)
{
    if (!m) return;
    gguf_close(m->g);
    if (m->is_mapped) os_map_close(&m->map);
    arena_deinit(&m->arena);
    mem_free(m);
}

size_t imatrix_count(const struct imatrix *m)
{
    return m->n;
}

const struct imatrix_entry *imatrix_at(const struct imatrix *m, size_t i)
{
    carat_assert(i < m->n);
    return &m->entries[i];
}

const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name)
{
    size_t at = order_find(m->order, m->n, name_at, m->entries, name);
    return at < m->n ? &m->entries[m->order[at]] : NULL;
}

uint32_t imatrix_chunks(const struct imatrix *m)
{
    return m->chunks;
}

struct gguf_string imatrix_dataset(const struct imatrix *m)
{
    return m->dataset;
}

void imatrix_read(const struct imatrix_entry *e, int64_t index, int64_t n_rows, float *out)
{
    int64_t cols = e->n_values / n_rows;
    double sum = 0.0;
    carat_assert(e->n_values % n_rows == 0 && index < n_rows);
    for (int64_t i = 0; i < cols; i++) sum += float_at(e->values, index * cols + i);
    int64_t count = e->n_counts == n_rows ? index : 0;
    bool is_empty = !(sum > 0.0) || (e->counts && float_at(e->counts, count) <= 0.0f);
    for (int64_t i = 0; i < cols; i++) {
        double value = (double)float_at(e->values, index * cols + i) * (double)cols / sum;
        out[i] = is_empty ? 1.0f : fmaxf((float)value, importance_min);
    }
}
