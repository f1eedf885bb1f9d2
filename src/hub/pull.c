#include "hub/pull.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub/answers.h"
#include "hub/check.h"
#include "hub/choose.h"
#include "hub/download.h"
#include "hub/lock.h"
#include "hub/page.h"
#include "hub/store.h"

enum { PAGES_MAX = 200 };

/* ---- Asking registries ------------------------------------------------------------------ */

static int read_page(struct pull *p, const struct buf *url, const char *accept, struct buf *out,
                     struct fetch_head *head, struct carat_error *err)
{
    if (url->failed) return err_no_memory(err, "address", url->length);
    return page_read(p->fetch, buf_text(url), accept, p->options.watch, out, head, err);
}

static void add_repository(const struct pull *p, const char *kind, struct buf *url)
{
    buf_printf(url, "%s%s/%s/%s", buf_text(&p->endpoint), kind, p->name.owner, p->name.repository);
}

static int read_commit(struct pull *p, struct carat_error *err)
{
    struct buf url = {0}, text = {0};
    struct fetch_head head;
    add_repository(p, "/api/models", &url);
    buf_add_text(&url, "/revision/");
    url_add_escaped(&url, p->name.revision[0] ? p->name.revision : "main", "");
    int status = read_page(p, &url, "application/json", &text, &head, err);
    if (status == CARAT_OK) {
        status = hub_commit_read(buf_text(&text), text.length, p->version, err);
        if (status != CARAT_OK) err_within(err, "%s", buf_text(&url));
    }
    buf_deinit(&url);
    buf_deinit(&text);
    return status;
}

/* The next page of a list must be the endpoint's own. */
static int follow_list(const struct pull *p, const struct fetch_head *head, struct buf *url,
                       struct carat_error *err)
{
    struct url next, own;
    bool is_own = url_read(head->next, &next) && url_read(buf_text(&p->endpoint), &own) &&
                  url_is_same_origin(&next, &own);
    if (!is_own) return err_set(err, CARAT_ENETWORK, "the list of files goes on at another server");
    buf_clear(url);
    buf_add_text(url, head->next);
    return CARAT_OK;
}

static int read_tree(struct pull *p, struct carat_error *err)
{
    struct buf url = {0}, text = {0};
    struct fetch_head head = {0};
    int status = CARAT_OK;
    add_repository(p, "/api/models", &url);
    buf_printf(&url, "/tree/%s?recursive=true", p->version);
    for (int n = 0; status == CARAT_OK && (n == 0 || head.next[0]); n++) {
        if (n == PAGES_MAX)
            status =
                err_set(err, CARAT_ENETWORK, "the list of files has more than %d pages", PAGES_MAX);
        if (status == CARAT_OK && n > 0) status = follow_list(p, &head, &url, err);
        if (status == CARAT_OK) status = read_page(p, &url, "application/json", &text, &head, err);
        if (status != CARAT_OK) break;
        status = hub_tree_read(buf_text(&text), text.length, &p->files, err);
        struct buf shown = {0};
        url_add_shown(&shown, buf_text(&url));
        if (status != CARAT_OK) err_within(err, "%.200s", buf_text(&shown));
        buf_deinit(&shown);
    }
    buf_deinit(&url);
    buf_deinit(&text);
    return status;
}

static int open_hf(struct pull *p, struct carat_error *err)
{
    struct buf shown = {0};
    TRY(read_commit(p, err));
    TRY(read_tree(p, err));
    for (size_t i = 0; i < p->files.n; i++) p->has_drafter |= hub_is_drafter(p->files.at[i].path);
    int status = hub_choose(&p->files, p->name.tag, p->name.file, err);
    if (status == CARAT_OK && hub_is_drafter(p->files.at[0].path)) p->has_drafter = false;
    hub_name_add(&p->name, &shown);
    if (status != CARAT_OK) err_within(err, "%.200s", buf_text(&shown));
    buf_deinit(&shown);
    return status;
}

static int open_ollama(struct pull *p, struct carat_error *err)
{
    struct buf url = {0}, text = {0};
    struct fetch_head head;
    char file[2 * HUB_WORD_MAX + 8];
    snprintf(file, sizeof file, "%s-%s.gguf", p->name.repository, p->name.tag);
    add_repository(p, "/v2", &url);
    buf_printf(&url, "/manifests/%s", p->name.tag);
    int status = read_page(p, &url, "application/vnd.docker.distribution.manifest.v2+json", &text,
                           &head, err);
    if (status == CARAT_OK) {
        status = ollama_manifest_read(buf_text(&text), text.length, file, &p->files, err);
        if (status != CARAT_OK) err_within(err, "%.200s", buf_text(&url));
    }
    if (status == CARAT_OK) memcpy(p->version, p->files.at[0].sha256, sizeof p->files.at[0].sha256);
    buf_deinit(&url);
    buf_deinit(&text);
    return status;
}

/* ---- Where files go --------------------------------------------------------------------- */

/* Whether a version's folder has a file, or a part of it, that is this one. */
static bool has_begun(const struct pull *p, const char *version, const struct hub_file *file)
{
    static const char *const endings[] = {"", ".part"};
    struct stat facts;
    struct record record;
    bool is_it = false;
    for (int i = 0; i < 2 && !is_it && file->sha256[0]; i++) {
        struct buf path = {0};
        store_add_path(p->options.folder, &p->name, version, file->path, &path);
        buf_add_text(&path, endings[i]);
        is_it = !path.failed && stat(buf_text(&path), &facts) == 0 &&
                record_read(buf_text(&path), &record) && record.size == file->size &&
                strcmp(record.sha256, file->sha256) == 0;
        buf_deinit(&path);
    }
    return is_it;
}

/* A commit that changes other files has the same models: they stay where they are. */
static void choose_folder(struct pull *p)
{
    struct buf folder = {0};
    size_t most = 0;
    snprintf(p->folder, sizeof p->folder, "%.12s", p->version);
    if (!p->version[0]) return;
    store_add_folder(p->options.folder, &p->name, &folder);
    DIR *d = folder.failed ? NULL : opendir(buf_text(&folder));
    for (struct dirent *entry; d && (entry = readdir(d));) {
        size_t n = 0;
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= sizeof p->folder) continue;
        for (size_t i = 0; i < p->files.n; i++) n += has_begun(p, entry->d_name, &p->files.at[i]);
        if (n <= most) continue;
        most = n;
        snprintf(p->folder, sizeof p->folder, "%s", entry->d_name);
    }
    if (d) closedir(d);
    buf_deinit(&folder);
}

void pull_add_path(const struct pull *p, size_t i, struct buf *out)
{
    store_add_path(p->options.folder, &p->name, p->folder, p->files.at[i].path, out);
}

static void add_url(const struct pull *p, size_t i, struct buf *out)
{
    switch (p->name.kind) {
    case HUB_NONE: break;
    case HUB_HF:
        add_repository(p, "", out);
        buf_printf(out, "/resolve/%s/", p->version);
        url_add_escaped(out, p->files.at[i].path, "/");
        break;
    case HUB_OLLAMA:
        add_repository(p, "/v2", out);
        buf_printf(out, "/blobs/sha256:%s", p->files.at[i].sha256);
        break;
    case HUB_URL: buf_add_text(out, p->name.url); break;
    }
}

/* ---- The interface ---------------------------------------------------------------------- */

/* The endpoint of an address is its origin. Only names of Hugging Face take the token along. */
static void choose_endpoint(struct pull *p, const char **token)
{
    const char *given = p->options.endpoint;
    *token = "";
    if (p->name.kind == HUB_URL) {
        const char *host = strstr(p->name.url, "://") + 3;
        buf_printf(&p->endpoint, "%.*s", (int)(host - p->name.url + (long)strcspn(host, "/?#")),
                   p->name.url);
        return;
    }
    bool is_hf = p->name.kind == HUB_HF;
    if (is_hf) *token = p->options.token;
    buf_add_text(&p->endpoint, given[0] ? given : is_hf ? HUB_ENDPOINT_HF : HUB_ENDPOINT_OLLAMA);
    while (p->endpoint.length && p->endpoint.data[p->endpoint.length - 1] == '/')
        p->endpoint.data[--p->endpoint.length] = '\0';
}

int pull_open(struct pull *p, const struct hub_name *name, const struct pull_options *options,
              struct carat_error *err)
{
    const char *token;
    *p = (struct pull){.name = *name, .options = *options};
    choose_endpoint(p, &token);
    if (p->endpoint.failed) return err_no_memory(err, "address", p->endpoint.length);
    struct fetch_options how = {.endpoint = buf_text(&p->endpoint),
                                .token = token,
                                .takes_token = name->kind == HUB_HF,
                                .user_agent = options->user_agent,
                                .ca_file = options->ca_file,
                                .ca_folder = options->ca_folder,
                                .stall_s = options->stall_s,
                                .watch = options->watch};
    TRY(fetch_open(&p->fetch, &how, err));
    if (name->kind == HUB_HF) TRY(open_hf(p, err));
    if (name->kind == HUB_OLLAMA) TRY(open_ollama(p, err));
    if (name->kind == HUB_URL)
        TRY(hub_files_add(&p->files, name->file, strlen(name->file), 0, NULL, err));
    choose_folder(p);
    return CARAT_OK;
}

static void describe(const struct pull *p, size_t i, const char *url, const char *path,
                     struct download *out)
{
    struct buf source = {0};
    *out = (struct download){.url = url, .path = path, .connections = p->options.connections};
    out->record.size = p->files.at[i].size;
    memcpy(out->record.sha256, p->files.at[i].sha256, sizeof out->record.sha256);
    memcpy(out->record.revision, p->version, sizeof out->record.revision);
    hub_name_add(&p->name, &source);
    snprintf(out->record.source, sizeof out->record.source, "%s", buf_text(&source));
    buf_deinit(&source);
}

/* Calls `visit` with each file in order. */
typedef int (*file_fn)(struct pull *p, const struct download *what, void *user,
                       struct carat_error *err);
static int each_file(struct pull *p, file_fn visit, void *user, struct carat_error *err)
{
    int status = CARAT_OK;
    for (size_t i = 0; i < p->files.n && status == CARAT_OK; i++) {
        struct buf url = {0}, path = {0};
        struct download what;
        add_url(p, i, &url);
        pull_add_path(p, i, &path);
        describe(p, i, buf_text(&url), buf_text(&path), &what);
        status = url.failed || path.failed ? err_no_memory(err, "address", url.length)
                                           : visit(p, &what, user, err);
        buf_deinit(&url);
        buf_deinit(&path);
    }
    return status;
}

static int add_left(struct pull *p, const struct download *what, void *user,
                    struct carat_error *err)
{
    (void)p, (void)err;
    *(uint64_t *)user += download_left(what);
    return CARAT_OK;
}

uint64_t pull_bytes_left(const struct pull *p)
{
    struct pull view = *p; /* visitors may change it, this one does not */
    uint64_t bytes = 0;
    each_file(&view, add_left, &bytes, NULL);
    return bytes;
}

/* A file that is there and wrong becomes FILE.bad, unless another process has put a new one there
 * meanwhile. */
static int check_file(const struct pull *p, const struct download *what, struct carat_error *err)
{
    struct buf bad = {0};
    struct stat before, now;
    struct lock lock;
    char sum[HUB_SHA256_HEX + 1];
    struct record record;
    const char *wanted = what->record.sha256;
    if (!wanted[0] && record_read(what->path, &record)) wanted = record.sha256;
    bool is_there = stat(what->path, &before) == 0;
    TRY(check_sum(what->path, p->options.watch, sum, err));
    if (!wanted[0] || strcmp(sum, wanted) == 0) return CARAT_OK;
    buf_printf(&bad, "%s.bad", what->path);
    int status = lock_take(&lock, what->path, p->options.watch, err);
    bool is_same = is_there && stat(what->path, &now) == 0 && now.st_dev == before.st_dev &&
                   now.st_ino == before.st_ino;
    if (status == CARAT_OK && is_same) {
        watch_say(p->options.watch,
                  "%s: sha256 %s expected, %s found; kept as %s, downloading it again", what->path,
                  wanted, sum, buf_text(&bad));
        if (bad.failed || rename(what->path, buf_text(&bad)) != 0)
            status = err_set(err, CARAT_EIO, "%.300s: cannot be renamed: %s", what->path,
                             strerror(errno));
    }
    lock_give(&lock);
    buf_deinit(&bad);
    return status;
}

static int load_file(struct pull *p, const struct download *what, void *user,
                     struct carat_error *err)
{
    const bool *verifies = user;
    struct stat facts;
    if (*verifies && stat(what->path, &facts) == 0) TRY(check_file(p, what, err));
    return download_file(p->fetch, what, p->options.watch, err);
}

int pull_run(struct pull *p, bool verifies, struct carat_error *err)
{
    struct buf path = {0};
    pull_add_path(p, 0, &path);
    int status = download_check_room(buf_text(&path), pull_bytes_left(p), err);
    buf_deinit(&path);
    return status == CARAT_OK ? each_file(p, load_file, &verifies, err) : status;
}

void pull_close(struct pull *p)
{
    fetch_close(p->fetch);
    hub_files_free(&p->files);
    buf_deinit(&p->endpoint);
    *p = (struct pull){0};
}
