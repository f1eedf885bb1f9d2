/* Opening, closing and walking a GGUF file. The directory is built once by part_parse and
 * (for several parts) split_open; afterwards everything is read-only. */
#include "gguf/gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "gguf/internal.h"

/* Puts the file's name in front of a message. Of a long path the end is shown. */
static int within_file(struct carat_error *err, const char *path)
{
    char shown[GGUF_PRINTABLE_BYTES];
    size_t length = strlen(path), kept = GGUF_PRINTABLE_BYTES - 8;
    const char *tail = length > kept ? path + length - kept : path;
    return err_within(err, "%s%s", tail > path ? "..." : "",
                      gguf_printable(shown, tail, strlen(tail)));
}

int part_open(struct part *part, int index, const char *path, struct arena *arena,
              struct carat_error *err)
{
    TRY(os_map_open(&part->map, path, err));
    part->is_mapped = true;
    part->data = part->map.data;
    part->length = part->map.length;
    int status = part_parse(part, index, arena, err);
    return status == CARAT_OK ? CARAT_OK : within_file(err, path);
}

static void part_close(struct part *part)
{
    if (part->is_mapped) os_map_close(&part->map);
    part->is_mapped = false;
}

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
    return status == CARAT_OK ? CARAT_OK : within_file(err, g->path);
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
    if (status != CARAT_OK) return within_file(err, g->path);
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

const char *gguf_type_name(enum gguf_type type)
{
    static const char *const names[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = "u8",         [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
        [GGUF_U32] = "u32",       [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
        [GGUF_STRING] = "string", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
        [GGUF_F64] = "f64"};
    carat_assert((unsigned)type < GGUF_TYPE_COUNT);
    return names[type];
}

/* What a terminal might obey instead of show: C0 and C1 controls, DEL, direction marks. */
static bool is_unprintable(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

const char *gguf_printable(char out[GGUF_PRINTABLE_BYTES], const char *text, size_t length)
{
    size_t used = 0;
    for (size_t i = 0; i < length;) {
        uint32_t code_point;
        int n = utf8_read(text + i, length - i, &code_point);
        bool as_it_is = n > 0 && !is_unprintable(code_point);
        if (n == 0) n = 1;
        size_t needed = as_it_is ? (size_t)n : (size_t)n * 4;
        if (used + needed + sizeof "..." > GGUF_PRINTABLE_BYTES) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (as_it_is) memcpy(out + used, text + i, needed);
        for (int k = 0; !as_it_is && k < n; k++)
            snprintf(out + used + 4 * k, 5, "\\x%02x", (unsigned)(uint8_t)text[i + (size_t)k]);
        used += needed;
        i += (size_t)n;
    }
    out[used] = '\0';
    return out;
}
