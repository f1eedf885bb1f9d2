/* Opening, closing and walking a GGUF file. The directory is built once by part_parse and
 * (for several parts) split_open; afterwards everything is read-only. */
#include "gguf/gguf.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "gguf/internal.h"

static int join_tensors(struct gguf *g, struct carat_error *err)
{
    size_t n = 0;
    for (int i = 0; i < g->n_part; i++) {
        n += g->parts[i].n_tensor;
        g->file_bytes += g->parts[i].length;
    }
    g->n_tensor = n;
    g->tensors = g->parts[0].tensors;
    if (g->n_part > 1) {
        g->tensors = arena_take(&g->arena, n, sizeof *g->tensors);
        if (!g->tensors) return err_no_memory(err, "tensors", n * sizeof *g->tensors);
        struct gguf_tensor *next = g->tensors;
        for (int i = 0; i < g->n_part; i++) {
            if (g->parts[i].n_tensor)
                memcpy(next, g->parts[i].tensors, g->parts[i].n_tensor * sizeof *next);
            next += g->parts[i].n_tensor;
        }
    }
    int status = tensors_order(g->tensors, n, &g->arena, &g->tensor_order, err);
    return status == CARAT_OK ? CARAT_OK : part_within_file(err, g->path);
}

static int open_file(struct gguf *g, struct carat_error *err)
{
    TRY(part_open(&g->parts[0], 0, g->path, &g->arena, err));
    TRY(split_open(g, err));
    return join_tensors(g, err);
}

static int open_image(struct gguf *g, const void *data, size_t length, struct carat_error *err)
{
    g->parts[0].data = data;
    g->parts[0].length = length;
    int status = part_parse(&g->parts[0], 0, &g->arena, err);
    if (status != CARAT_OK) return part_within_file(err, g->path);
    return join_tensors(g, err);
}

/* Both ways to open: `data` is NULL for a file. */
static int open_any(struct gguf **out, const void *data, size_t length, const char *path,
                    struct carat_error *err)
{
    struct carat_error unused;
    if (!err) err = &unused;
    *out = NULL;
    struct gguf *g = mem_alloc(1, sizeof *g);
    if (!g) return err_no_memory(err, "GGUF file", sizeof *g);
    int status = CARAT_OK;
    g->path = arena_copy_text(&g->arena, path, strlen(path));
    g->parts = arena_take(&g->arena, 1, sizeof *g->parts);
    if (!g->path || !g->parts) {
        status = err_no_memory(err, "GGUF file", sizeof *g->parts);
    } else {
        g->n_part = 1;
        status = data ? open_image(g, data, length, err) : open_file(g, err);
    }
    if (status != CARAT_OK) {
        gguf_close(g);
        return status;
    }
    *out = g;
    return CARAT_OK;
}

int gguf_open(struct gguf **out, const char *path, struct carat_error *err)
{
    return open_any(out, NULL, 0, path, err);
}

int gguf_open_memory(struct gguf **out, const void *data, size_t length, const char *name,
                     struct carat_error *err)
{
    carat_assert(data && ((uintptr_t)data & 7) == 0);
    return open_any(out, data, length, name, err);
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    for (int i = 0; i < g->n_part; i++) part_close(&g->parts[i]);
    arena_deinit(&g->arena);
    mem_free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->parts[0].version;
}

uint32_t gguf_alignment(const struct gguf *g)
{
    return g->parts[0].alignment;
}

int gguf_part_count(const struct gguf *g)
{
    return g->n_part;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->file_bytes;
}

size_t gguf_kv_count(const struct gguf *g)
{
    return g->parts[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    carat_assert(i < g->parts[0].n_kv);
    return &g->parts[0].kvs[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return part_find(&g->parts[0], key);
}

size_t gguf_tensor_count(const struct gguf *g)
{
    return g->n_tensor;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    carat_assert(i < g->n_tensor);
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    size_t at = order_find(g->tensor_order, g->n_tensor, tensor_name_at, g->tensors, name);
    return at < g->n_tensor ? &g->tensors[g->tensor_order[at]] : NULL;
}
