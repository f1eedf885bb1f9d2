#include "hub/store.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "hub/answers.h"
#include "hub/choose.h"
#include "hub/record.h"
#include "hub/walk.h"

/* ---- Paths ------------------------------------------------------------------------------ */

/* Of carat's own store: models by where they came from. */
static const char *const own_folders[] = {
    [HUB_NONE] = "", [HUB_HF] = "hf", [HUB_OLLAMA] = "ollama", [HUB_URL] = "url"};

/* "https://host:port/path?query" -> "host:port/path" */
static void add_place(const struct hub_name *name, struct buf *out)
{
    const char *host = strstr(name->url, "://");
    if (host) buf_printf(out, "%.*s", (int)strcspn(host + 3, "/?#"), host + 3);
}

void store_add_folder(const char *folder, const struct hub_name *name, struct buf *out)
{
    buf_printf(out, "%s/%s/", folder, own_folders[name->kind]);
    if (name->kind == HUB_URL)
        add_place(name, out);
    else
        buf_printf(out, "%s/%s", name->owner, name->repository);
}

void store_add_path(const char *folder, const struct hub_name *name, const char *version,
                    const char *file, struct buf *out)
{
    store_add_folder(folder, name, out);
    if (version[0]) buf_printf(out, "/%.12s", version);
    buf_printf(out, "/%s", file);
}

/* ---- Finding ---------------------------------------------------------------------------- */

/* The newest of the files that were offered. */
struct newest {
    struct buf path;
    struct timespec time;
    bool takes_only; /* a single model, whatever it is, if the name does not say which */
};

static void offer(struct newest *best, const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode)) return;
    struct timespec t = facts.st_mtim;
    bool is_newer = t.tv_sec > best->time.tv_sec ||
                    (t.tv_sec == best->time.tv_sec && t.tv_nsec > best->time.tv_nsec);
    if (best->path.length && !is_newer) return;
    best->time = t;
    buf_clear(&best->path);
    buf_add_text(&best->path, path);
}

static bool take(struct newest *best, struct buf *path)
{
    bool is_found = best->path.length > 0 && !best->path.failed;
    if (is_found) buf_add_text(path, buf_text(&best->path));
    buf_deinit(&best->path);
    return is_found && !path->failed;
}

/* Offers the model of that tag or file in a folder. */
static void offer_model(struct newest *best, const char *folder, const struct hub_name *name)
{
    struct hub_files files = {0};
    struct buf path = {0};
    bool is_chosen = walk_files(folder, ".gguf", &files, NULL) == CARAT_OK &&
                     hub_choose(&files, name->tag, name->file, NULL) == CARAT_OK;
    bool is_only = best->takes_only && !name->tag[0] && !name->file[0] && files.n == 1;
    if (is_chosen || is_only) {
        buf_printf(&path, "%s/%s", folder, files.at[0].path);
        if (!path.failed) offer(best, buf_text(&path));
    }
    hub_files_free(&files);
    buf_deinit(&path);
}

/* Offers what each folder in `folder` that begins with `version` has. */
static void offer_versions(struct newest *best, const char *folder, const char *version,
                           const struct hub_name *name)
{
    struct buf path = {0};
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, version, strlen(version)) != 0)
            continue;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", folder, entry->d_name);
        if (!path.failed) offer_model(best, buf_text(&path), name);
    }
    if (d) closedir(d);
    buf_deinit(&path);
}

/* Whether a revision can be compared with the names of folders: it is a commit. */
static bool is_commit(const char *revision)
{
    size_t n = strlen(revision);
    return n >= 7 && n <= HUB_COMMIT_HEX && revision[strspn(revision, "0123456789abcdef")] == '\0';
}

static bool find_own(const char *folder, const struct hub_name *name, bool takes_only,
                     struct buf *path)
{
    struct newest best = {.takes_only = takes_only};
    struct buf at = {0};
    char version[13] = "";
    struct hub_name wanted = *name;
    if (name->kind == HUB_URL) {
        store_add_path(folder, name, "", name->file, &at);
        offer(&best, buf_text(&at));
    } else {
        if (name->kind == HUB_OLLAMA)
            snprintf(wanted.file, sizeof wanted.file, "%s-%s.gguf", name->repository, name->tag);
        if (is_commit(name->revision)) snprintf(version, sizeof version, "%.12s", name->revision);
        store_add_folder(folder, name, &at);
        offer_versions(&best, buf_text(&at), version, &wanted);
    }
    buf_deinit(&at);
    return take(&best, path);
}

static bool read_text(const char *path, size_t bytes_max, struct buf *out)
{
    return file_read_bounded(path, 0, bytes_max, out) == FILE_WHOLE && out->length > 0;
}

/* FOLDER/models--USER--REPO/refs/REVISION has the commit whose files are in snapshots/COMMIT. */
static bool find_in_hf_cache(const char *folder, const struct hub_name *name, bool takes_only,
                             struct buf *path)
{
    struct newest best = {.takes_only = takes_only};
    struct buf at = {0}, text = {0};
    char commit[HUB_COMMIT_HEX + 1] = "";
    if (name->kind != HUB_HF) return false;
    const char *revision = name->revision[0] ? name->revision : "main";
    buf_printf(&at, "%s/models--%s--%s/refs/%s", folder, name->owner, name->repository, revision);
    if (read_text(buf_text(&at), 64, &text) && !is_commit(revision))
        snprintf(commit, sizeof commit, "%.*s", (int)strspn(buf_text(&text), "0123456789abcdef"),
                 buf_text(&text));
    if (is_commit(revision)) snprintf(commit, sizeof commit, "%s", revision);
    buf_clear(&at);
    buf_printf(&at, "%s/models--%s--%s/snapshots", folder, name->owner, name->repository);
    if (commit[0]) offer_versions(&best, buf_text(&at), commit, name);
    /* Files that a later commit did not change may be in the folder of an earlier one only. */
    if (!best.path.length && !name->revision[0]) offer_versions(&best, buf_text(&at), "", name);
    buf_deinit(&at);
    buf_deinit(&text);
    return take(&best, path);
}

/* The blob that a manifest names. */
static bool blob_of(const char *folder, const char *manifest, struct buf *path)
{
    struct buf text = {0};
    struct hub_files files = {0};
    struct stat facts;
    bool is_read =
        read_text(manifest, 1 << 20, &text) &&
        ollama_manifest_read(buf_text(&text), text.length, "model", &files, NULL) == CARAT_OK;
    if (is_read) buf_printf(path, "%s/blobs/sha256-%s", folder, files.at[0].sha256);
    /* A blob has another name until it is whole. */
    bool is_there = is_read && !path->failed && stat(buf_text(path), &facts) == 0 &&
                    (uint64_t)facts.st_size == files.at[0].size;
    if (!is_there) buf_clear(path);
    hub_files_free(&files);
    buf_deinit(&text);
    return is_there;
}

static bool find_in_ollama(const char *folder, const struct hub_name *name, struct buf *path)
{
    struct buf manifest = {0};
    if (name->kind != HUB_OLLAMA) return false;
    buf_printf(&manifest, "%s/manifests/registry.ollama.ai/%s/%s/%s", folder, name->owner,
               name->repository, name->tag);
    bool is_found = !manifest.failed && blob_of(folder, buf_text(&manifest), path);
    buf_deinit(&manifest);
    return is_found;
}

bool store_find(const struct store *store, const struct hub_name *name, bool takes_only,
                struct buf *path)
{
    buf_clear(path);
    switch (store->kind) {
    case STORE_OWN: return find_own(store->folder, name, takes_only, path);
    case STORE_HF_CACHE: return find_in_hf_cache(store->folder, name, takes_only, path);
    case STORE_OLLAMA: return find_in_ollama(store->folder, name, path);
    }
    return false;
}

/* ---- Listing ---------------------------------------------------------------------------- */

struct listing {
    const struct store *store;
    bool needs_file; /* its quantisation is not its own in the folder */
    store_fn visit;
    void *user;
};

/* Cuts the next part of a path off; "" if there is none. */
static char *next_part(char **at)
{
    char *part = *at, *slash = strchr(part, '/');
    *at = slash ? slash + 1 : part + strlen(part);
    if (slash) *slash = '\0';
    return part;
}

static void visit_name(const struct listing *l, const char *folder, const char *name,
                       const char *path)
{
    struct buf whole = {0};
    buf_printf(&whole, "%s/%s", folder, path);
    if (!whole.failed) l->visit(l->user, name, buf_text(&whole), l->store->kind);
    buf_deinit(&whole);
}

/* hf:USER/REPO:TAG, or with the file where its name has no tag. */
static void visit_hf(const struct listing *l, const char *folder, const char *owner,
                     const char *repository, const char *file, const char *path)
{
    char tag[HUB_TAG_MAX], text[4 * HUB_PATH_MAX];
    hub_tag_of_path(file, tag);
    if (l->needs_file) tag[0] = '\0';
    snprintf(text, sizeof text, "hf:%s/%s%s%s", owner, repository, tag[0] ? ":" : "/",
             tag[0] ? tag : file);
    visit_name(l, folder, text, path);
}

/* KIND/..., a path in carat's own store. */
static void visit_own(const struct listing *l, const char *path)
{
    char copy[2 * HUB_PATH_MAX], text[2 * HUB_PATH_MAX + 16];
    snprintf(copy, sizeof copy, "%s", path);
    char *at = copy, *kind = next_part(&at);
    if (strcmp(kind, "url") == 0) {
        struct url url;
        snprintf(text, sizeof text, "http://%s", at);
        bool is_local = url_read(text, &url) && url_is_loopback(&url);
        if (!is_local) snprintf(text, sizeof text, "https://%s", at);
        visit_name(l, l->store->folder, text, path);
        return;
    }
    char *owner = next_part(&at), *name = next_part(&at);
    next_part(&at); /* the version */
    size_t n = strlen(name), length = strlen(at);
    if (strcmp(kind, "hf") == 0) {
        visit_hf(l, l->store->folder, owner, name, at, path);
    } else if (strncmp(at, name, n) == 0 && at[n] == '-' && length > n + 6) {
        bool is_library = strcmp(owner, "library") == 0;
        snprintf(text, sizeof text, "ollama:%s%s%s:%.*s", is_library ? "" : owner,
                 is_library ? "" : "/", name, (int)(length - n - 6), at + n + 1);
        visit_name(l, l->store->folder, text, path);
    }
}

/* models--USER--REPO/snapshots/COMMIT/FILE */
static void visit_hf_cache(const struct listing *l, const char *path)
{
    static const char prefix[] = "models--";
    char copy[2 * HUB_PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    char *at = copy, *folder = next_part(&at), *kind = next_part(&at);
    char *owner = folder + sizeof prefix - 1;
    char *dashes = strncmp(folder, prefix, sizeof prefix - 1) == 0 ? strstr(owner, "--") : NULL;
    if (!dashes || strcmp(kind, "snapshots") != 0) return;
    *dashes = '\0';
    next_part(&at); /* the commit */
    visit_hf(l, l->store->folder, owner, dashes + 2, at, path);
}

/* registry.ollama.ai/OWNER/NAME/TAG */
static void visit_ollama(const struct listing *l, const char *path)
{
    char copy[2 * HUB_PATH_MAX], text[4 * HUB_WORD_MAX];
    struct buf manifest = {0}, blob = {0};
    snprintf(copy, sizeof copy, "%s", path);
    char *at = copy, *registry = next_part(&at), *owner = next_part(&at), *name = next_part(&at);
    bool is_library = strcmp(owner, "library") == 0;
    buf_printf(&manifest, "%s/manifests/%s", l->store->folder, path);
    if (strcmp(registry, "registry.ollama.ai") == 0 && at[0] && !strchr(at, '/') &&
        blob_of(l->store->folder, buf_text(&manifest), &blob)) {
        snprintf(text, sizeof text, "ollama:%.120s%s%.120s:%.120s", is_library ? "" : owner,
                 is_library ? "" : "/", name, at);
        l->visit(l->user, text, buf_text(&blob), l->store->kind);
    }
    buf_deinit(&manifest);
    buf_deinit(&blob);
}

/* Bytes of "USER/REPO/VERSION/", and of "models--USER--REPO/snapshots/COMMIT/". */
static size_t version_length(const char *path)
{
    const char *at = path;
    for (int n = 0; n < 3 && at; n++) {
        at = strchr(at, '/');
        if (at) at++;
    }
    return at ? (size_t)(at - path) : 0;
}

int store_each(const struct store *store, store_fn visit, void *user, struct carat_error *err)
{
    struct listing l = {.store = store, .visit = visit, .user = user};
    struct hub_files files = {0};
    struct buf folder = {0};
    bool is_ollama = store->kind == STORE_OLLAMA;
    int status = CARAT_OK;
    size_t end = store->kind == STORE_OWN ? HUB_URL + 1 : HUB_HF + 1; /* others have one folder */
    for (size_t i = HUB_HF; i < end && status == CARAT_OK; i++) {
        struct buf path = {0};
        const char *kind = store->kind == STORE_OWN ? own_folders[i]
                           : is_ollama              ? "manifests"
                                                    : ".";
        buf_clear(&folder);
        buf_printf(&folder, "%s/%s", store->folder, kind);
        status = walk_files(buf_text(&folder), is_ollama ? "" : ".gguf", &files, err);
        for (size_t k = 0; k < files.n && status == CARAT_OK; k++) {
            const char *file = files.at[k].path;
            buf_clear(&path);
            buf_printf(&path, "%s/%s", kind, file);
            bool is_drafter = !is_ollama && hub_is_drafter(file);
            l.needs_file =
                is_drafter || (!is_ollama && !hub_tag_is_own(&files, k, version_length(file)));
            if (path.failed)
                status = err_no_memory(err, file, strlen(file));
            else if (is_ollama)
                visit_ollama(&l, file);
            else if (!hub_is_model(file) && !is_drafter)
                continue;
            else if (store->kind == STORE_OWN)
                visit_own(&l, buf_text(&path));
            else
                visit_hf_cache(&l, file);
        }
        hub_files_free(&files);
        buf_deinit(&path);
    }
    buf_deinit(&folder);
    return status;
}

int store_each_part(const struct store *store, store_fn visit, void *user, struct carat_error *err)
{
    int status = CARAT_OK;
    if (store->kind != STORE_OWN) return CARAT_OK;
    for (size_t i = HUB_HF; i <= HUB_URL && status == CARAT_OK; i++) {
        struct hub_files files = {0};
        struct buf path = {0};
        struct record record;
        buf_printf(&path, "%s/%s", store->folder, own_folders[i]);
        size_t length = path.length;
        status = walk_files(buf_text(&path), ".gguf.part", &files, err);
        for (size_t k = 0; k < files.n && !path.failed && status == CARAT_OK; k++) {
            path.length = length;
            buf_printf(&path, "/%s", files.at[k].path);
            bool is_ours = !path.failed && record_read(buf_text(&path), &record);
            if (is_ours) visit(user, record.source, buf_text(&path), store->kind);
        }
        if (path.failed) status = err_no_memory(err, "path", length);
        hub_files_free(&files);
        buf_deinit(&path);
    }
    return status;
}
