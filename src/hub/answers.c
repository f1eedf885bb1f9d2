#include "hub/answers.h"

#include <string.h>
#include <strings.h>

#include "hub/name.h"
#include "json/json_tree.h"

/* The most bytes that a file may have: 2^50. */
static const int64_t SIZE_MOST = (int64_t)1 << 50;

static int wrong(const char *member, const char *expected, const struct carat_value *found,
                 struct carat_error *err)
{
    return err_set(err, CARAT_ENETWORK, "\"%s\": %s expected, %s found", member, expected,
                   json_kind_name(found));
}

static int read_json(struct json_tree *tree, const char *text, size_t length,
                     struct carat_error *err)
{
    int status = json_tree_read(tree, text, length, JSON_PLAIN, err);
    if (status == CARAT_EUSAGE && err) err->code = CARAT_ENETWORK;
    return status == CARAT_EUSAGE ? CARAT_ENETWORK : status;
}

static bool is_hex(const struct carat_value *v, size_t digits)
{
    if (v->kind != CARAT_STRING || v->as.string.length != digits) return false;
    for (size_t i = 0; i < digits; i++) {
        char c = v->as.string.data[i];
        if (!c || !strchr("0123456789abcdef", c)) return false;
    }
    return true;
}

/* The digits of "sha256:DIGITS", or of DIGITS alone: lists of files have either. NULL: `v` is
 * neither. */
static const char *sha256_of(const struct carat_value *v)
{
    static const char prefix[] = "sha256:";
    struct carat_value hex = *v;
    size_t n = sizeof prefix - 1;
    if (v->kind == CARAT_STRING && v->as.string.length == n + HUB_SHA256_HEX &&
        memcmp(v->as.string.data, prefix, n) == 0) {
        hex.as.string.data += n;
        hex.as.string.length -= n;
    }
    return is_hex(&hex, HUB_SHA256_HEX) ? hex.as.string.data : NULL;
}

static int read_size(const struct carat_value *object, uint64_t *size, struct carat_error *err)
{
    const struct carat_value *v = json_member(object, "size");
    if (v->kind != CARAT_INT) return wrong("size", "an integer", v, err);
    if (v->as.integer <= 0 || v->as.integer > SIZE_MOST)
        return err_set(err, CARAT_ENETWORK, "\"size\": 1 to %lld bytes expected, %lld found",
                       (long long)SIZE_MOST, (long long)v->as.integer);
    *size = (uint64_t)v->as.integer;
    return CARAT_OK;
}

static bool is_model_file(const struct carat_value *path)
{
    const char *text = path->as.string.data;
    size_t n = path->as.string.length;
    return n > 5 && strncasecmp(text + n - 5, ".gguf", 5) == 0;
}

static int add_entry(const struct carat_value *entry, struct hub_files *files,
                     struct carat_error *err)
{
    char shown[JSON_SHOWN_MAX];
    uint64_t size = 0;
    const char *sha256 = NULL;
    if (entry->kind != CARAT_OBJECT)
        return err_set(err, CARAT_ENETWORK, "a list of objects expected, %s found in it",
                       json_kind_name(entry));
    const struct carat_value *path = json_member(entry, "path"), *lfs = json_member(entry, "lfs");
    if (!json_text_is(json_member(entry, "type"), "file")) return CARAT_OK;
    if (path->kind != CARAT_STRING) return wrong("path", "a string", path, err);
    if (!is_model_file(path)) return CARAT_OK;
    if (!hub_path_is_safe(path->as.string.data, path->as.string.length))
        return err_set(err, CARAT_ENETWORK,
                       "\"path\": a relative path without \"..\" expected, "
                       "\"%s\" found",
                       json_shown(path, shown));
    if (lfs->kind != CARAT_NULL && lfs->kind != CARAT_OBJECT)
        return wrong("lfs", "an object", lfs, err);
    TRY(read_size(lfs->kind == CARAT_OBJECT ? lfs : entry, &size, err));
    if (lfs->kind == CARAT_OBJECT) {
        sha256 = sha256_of(json_member(lfs, "oid"));
        if (!sha256)
            return err_set(err, CARAT_ENETWORK,
                           "\"oid\": a sha256 of %d lower case digits "
                           "expected",
                           HUB_SHA256_HEX);
    }
    return hub_files_add(files, path->as.string.data, path->as.string.length, size, sha256, err);
}

int hub_tree_read(const char *text, size_t length, struct hub_files *files, struct carat_error *err)
{
    struct json_tree tree = {0};
    TRY(read_json(&tree, text, length, err));
    const struct carat_value *root = &tree.root;
    int status = CARAT_OK;
    if (root->kind != CARAT_ARRAY)
        status = err_set(err, CARAT_ENETWORK, "a list of files expected, %s found",
                         json_kind_name(root));
    for (size_t i = 0; status == CARAT_OK && i < root->as.array.count; i++)
        status = add_entry(&root->as.array.items[i], files, err);
    json_tree_free(&tree);
    return status;
}

int hub_commit_read(const char *text, size_t length, char commit[HUB_COMMIT_HEX + 1],
                    struct carat_error *err)
{
    struct json_tree tree = {0};
    TRY(read_json(&tree, text, length, err));
    const struct carat_value *sha = json_member(&tree.root, "sha");
    int status = CARAT_OK;
    if (is_hex(sha, HUB_COMMIT_HEX)) {
        memcpy(commit, sha->as.string.data, HUB_COMMIT_HEX);
        commit[HUB_COMMIT_HEX] = '\0';
    } else {
        status = wrong("sha", "a commit of 40 lower case digits", sha, err);
    }
    json_tree_free(&tree);
    return status;
}

/* ---- ollama ----------------------------------------------------------------------------- */

static int add_layer(const struct carat_value *layer, const char *path, struct hub_files *files,
                     struct carat_error *err)
{
    const struct carat_value *digest = json_member(layer, "digest");
    const char *sha256 = sha256_of(digest);
    uint64_t size = 0;
    TRY(read_size(layer, &size, err));
    if (!sha256 || sha256 == digest->as.string.data)
        return wrong("digest", "\"sha256:\" and 64 digits", digest, err);
    return hub_files_add(files, path, strlen(path), size, sha256, err);
}

int ollama_manifest_read(const char *text, size_t length, const char *path, struct hub_files *files,
                         struct carat_error *err)
{
    struct json_tree tree = {0};
    TRY(read_json(&tree, text, length, err));
    const struct carat_value *layers = json_member(&tree.root, "layers"), *model = NULL;
    int status = CARAT_OK;
    if (layers->kind != CARAT_ARRAY) status = wrong("layers", "a list", layers, err);
    for (size_t i = 0; status == CARAT_OK && i < layers->as.array.count && !model; i++) {
        const struct carat_value *layer = &layers->as.array.items[i];
        const struct carat_value *kind = json_member(layer, "mediaType");
        if (json_text_is(kind, "application/vnd.ollama.image.model")) model = layer;
    }
    if (status == CARAT_OK && !model)
        status = err_set(err, CARAT_ENETWORK, "the manifest has no layer with a model");
    if (status == CARAT_OK) status = add_layer(model, path, files, err);
    json_tree_free(&tree);
    return status;
}
