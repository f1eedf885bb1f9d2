/* Files split into parts, NAME-00001-of-00003.gguf and so on: each part is a GGUF file of its
 * own with the keys split.no (from 0), split.count and split.tensors.count. The first part
 * holds the metadata of the model; any part may be named to open all of them. */
#include "gguf/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "-00001-of-00003.gguf"; room for any int, so that the compiler does not warn */
enum { SUFFIX_BYTES = 20, SUFFIX_ROOM = 40 };

/* Reads five digits. */
static bool read_digits(const char *text, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

/* Part number (from 1) and count from the file's name. */
static bool read_suffix(const char *path, uint32_t *number, uint32_t *count)
{
    size_t length = strlen(path);
    if (length < SUFFIX_BYTES) return false;
    const char *suffix = path + length - SUFFIX_BYTES;
    return suffix[0] == '-' && read_digits(suffix + 1, number) &&
           memcmp(suffix + 6, "-of-", 4) == 0 && read_digits(suffix + 10, count) &&
           memcmp(suffix + 15, ".gguf", 5) == 0;
}

/* A split.* key; absent leaves *out. */
static int split_key(const struct part *part, const char *key, int64_t *out,
                     struct carat_error *err)
{
    const struct gguf_kv *kv = part_find(part, key);
    if (!kv) return CARAT_OK;
    switch (kv->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32: *out = (int64_t)kv->value.u; return CARAT_OK;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32: *out = kv->value.i; return CARAT_OK;
    default:
        return err_set(err, CARAT_EFORMAT, "key \"%s\": is %s, u16 or i32 is expected", key,
                       gguf_type_name(kv->type));
    }
}

struct split_keys {
    int64_t number, count, tensors; /* -1: absent */
};

static int read_keys(const struct part *part, struct split_keys *keys, struct carat_error *err)
{
    *keys = (struct split_keys){-1, -1, -1};
    TRY(split_key(part, "split.no", &keys->number, err));
    TRY(split_key(part, "split.count", &keys->count, err));
    return split_key(part, "split.tensors.count", &keys->tensors, err);
}

/* The keys of a part must say that it is part `index` of wanted->count. */
static int check_part(const struct part *part, uint32_t index, const struct split_keys *wanted,
                      struct carat_error *err)
{
    struct split_keys keys;
    TRY(read_keys(part, &keys, err));
    if (keys.count != wanted->count)
        return err_set(err, CARAT_EFORMAT,
                       "key \"split.count\": is %" PRId64 ", %" PRId64
                       " is expected; the parts belong to different files",
                       keys.count, wanted->count);
    if (keys.number != (int64_t)index)
        return err_set(err, CARAT_EFORMAT,
                       "key \"split.no\": is %" PRId64 ", %" PRIu32
                       " is expected; a part was renamed or is there twice",
                       keys.number, index);
    if (keys.tensors >= 0 && wanted->tensors >= 0 && keys.tensors != wanted->tensors)
        return err_set(err, CARAT_EFORMAT,
                       "key \"split.tensors.count\": is %" PRId64 ", %" PRId64
                       " is expected; the parts belong to different files",
                       keys.tensors, wanted->tensors);
    return CARAT_OK;
}

/* Parts after the first repeat the architecture or leave it out. */
static int check_architecture(const struct gguf *g, struct carat_error *err)
{
    static const char key[] = "general.architecture";
    const struct gguf_kv *first = part_find(&g->parts[0], key);
    for (int i = 1; i < g->n_part; i++) {
        const struct gguf_kv *kv = part_find(&g->parts[i], key);
        if (!kv || kv->type != GGUF_STRING || !first || first->type != GGUF_STRING) continue;
        const struct gguf_string *a = &first->value.s, *b = &kv->value.s;
        if (a->length == b->length && memcmp(a->data, b->data, a->length) == 0) continue;
        char found[GGUF_PRINTABLE_BYTES], expected[GGUF_PRINTABLE_BYTES];
        return err_set(err, CARAT_EFORMAT,
                       "%s: part %d: the architecture is \"%s\", \"%s\" is expected as in part 1",
                       g->path, i + 1, gguf_printable(found, b->data, b->length),
                       gguf_printable(expected, a->data, a->length));
    }
    return CARAT_OK;
}

/* Opens all parts except `named`, which is open already. */
static int open_others(struct gguf *g, uint32_t named, const struct split_keys *wanted,
                       struct carat_error *err)
{
    size_t stem = strlen(g->path) - SUFFIX_BYTES;
    char *path = arena_take(&g->arena, stem + SUFFIX_ROOM, 1);
    if (!path) return err_no_memory(err, "a file name", stem);
    memcpy(path, g->path, stem);
    for (int i = 0; i < g->n_part; i++) {
        if (i == (int)named) continue;
        snprintf(path + stem, SUFFIX_ROOM, "-%05d-of-%05d.gguf", i + 1, g->n_part);
        int status = part_open(&g->parts[i], i, path, &g->arena, err);
        if (status == CARAT_OK) {
            status = check_part(&g->parts[i], (uint32_t)i, wanted, err);
            if (status != CARAT_OK) err_within(err, "%s", path);
        }
        if (status == CARAT_OK) continue;
        if (!g->parts[i].is_mapped && status == CARAT_EFORMAT)
            err_hint(err, "all %d parts of a split file must lie in one folder", g->n_part);
        return err_within(err, "part %d of %d", i + 1, g->n_part);
    }
    return CARAT_OK;
}

/* Reads part number and keys of the one open part; keys->count is -1 if it is no split file. */
static int read_named(const struct gguf *g, struct split_keys *keys, uint32_t *number,
                      struct carat_error *err)
{
    uint32_t count = 0;
    bool is_named = read_suffix(g->path, number, &count);
    int status = read_keys(&g->parts[0], keys, err);
    if (status != CARAT_OK) return err_within(err, "%s", g->path);
    if (keys->count < 0 && is_named && count > 1)
        return err_set(err, CARAT_EFORMAT,
                       "%s: the name says part %" PRIu32 " of %" PRIu32
                       ", but the file has no key \"split.count\"",
                       g->path, *number, count);
    if (keys->count >= 0 && keys->count <= 1) keys->count = -1;
    if (keys->count < 0) return CARAT_OK;
    if (keys->count > PARTS_MAX)
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"split.count\": is %" PRId64 ", at most %d parts are accepted",
                       g->path, keys->count, PARTS_MAX);
    if (!is_named) {
        err_set(err, CARAT_EFORMAT,
                "%s: this is part %" PRId64 " of %" PRId64
                ", but its name does not end in -%05" PRId64 "-of-%05" PRId64 ".gguf",
                g->path, keys->number + 1, keys->count, keys->number + 1, keys->count);
        err_hint(err, "give the parts their original names");
        return CARAT_EFORMAT;
    }
    if (keys->count != (int64_t)count || keys->number + 1 != (int64_t)*number)
        return err_set(err, CARAT_EFORMAT,
                       "%s: the name says part %" PRIu32 " of %" PRIu32
                       ", but the keys \"split.no\" and \"split.count\" say %" PRId64
                       " of %" PRId64,
                       g->path, *number, count, keys->number + 1, keys->count);
    return CARAT_OK;
}

int split_open(struct gguf *g, struct carat_error *err)
{
    struct split_keys keys;
    uint32_t number = 0;
    TRY(read_named(g, &keys, &number, err));
    if (keys.count < 0) return CARAT_OK;
    if (keys.number < 0) /* the name said part 0 and split.no is absent */
        return err_set(err, CARAT_EFORMAT, "%s: key \"split.no\" is missing or negative", g->path);

    struct part *parts = arena_take(&g->arena, (size_t)keys.count, sizeof *parts);
    if (!parts) return err_no_memory(err, "parts", (size_t)keys.count * sizeof *parts);
    uint32_t named = number - 1;
    if (named >= (uint32_t)keys.count)
        return err_set(err, CARAT_EFORMAT,
                       "%s: key \"split.no\": is %" PRIu32 ", less than %" PRId64 " is expected",
                       g->path, named, keys.count);
    parts[named] = g->parts[0];
    g->parts = parts;
    g->n_part = (int)keys.count;
    for (size_t i = 0; i < parts[named].n_tensor; i++) parts[named].tensors[i].part = (int)named;

    TRY(open_others(g, named, &keys, err));
    TRY(check_architecture(g, err));
    uint64_t n = 0;
    for (int i = 0; i < g->n_part; i++) n += parts[i].n_tensor;
    if (keys.tensors >= 0 && n != (uint64_t)keys.tensors)
        return err_set(err, CARAT_EFORMAT,
                       "%s: the parts hold %" PRIu64 " tensors, %" PRId64
                       " are expected by the key \"split.tensors.count\"",
                       g->path, n, keys.tensors);
    return CARAT_OK;
}
