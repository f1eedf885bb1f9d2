/* carat rm: removes a model that pull has loaded, or what an unfinished download has left. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/models.h"
#include "cli/offer.h"
#include "cli/session.h"
#include "cli/size_text.h"
#include "cli/terminal.h"
#include "hub/choose.h"
#include "hub/lock.h"
#include "hub/walk.h"

struct removal {
    const struct hub_name *name;
    struct hub_files files; /* absolute paths of what goes: models, records, parts */
    struct buf store;       /* where they are */
    struct buf elsewhere;   /* the path of one that pull did not make */
    uint64_t bytes;
    struct carat_error *err;
    int status;
};

/* Adds a file that is there. */
static void add_file(struct removal *r, const char *path, const char *ending)
{
    struct buf whole = {0};
    struct stat facts;
    buf_printf(&whole, "%s%s", path, ending);
    if (r->status == CARAT_OK && lstat(buf_text(&whole), &facts) == 0 && S_ISREG(facts.st_mode)) {
        r->bytes += (uint64_t)facts.st_size;
        r->status = hub_files_add(&r->files, buf_text(&whole), whole.length,
                                  (uint64_t)facts.st_size, NULL, r->err);
    }
    buf_deinit(&whole);
}

static void add_model_file(struct removal *r, const char *path)
{
    static const char *const endings[] = {"",          ".json", ".part", ".part.json",
                                          ".json.new", ".bad",  ".lock", ".part.json.new"};
    if (lock_owner(path) >= 0 && r->status == CARAT_OK)
        r->status = err_set(r->err, CARAT_EBUSY, "%.300s: process %ld is downloading it", path,
                            lock_owner(path));
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) add_file(r, path, endings[i]);
}

/* All parts of the model whose first file is `path`. */
static void add_model(struct removal *r, const char *path)
{
    struct hub_files files = {0};
    struct buf folder = {0}, whole = {0};
    const char *slash = strrchr(path, '/');
    buf_add(&folder, path, (size_t)(slash - path));
    r->status = walk_files(buf_text(&folder), ".gguf", &files, r->err);
    if (r->status == CARAT_OK) hub_choose(&files, "", slash + 1, NULL);
    for (size_t i = 0; i < files.n && r->status == CARAT_OK; i++) {
        buf_clear(&whole);
        buf_printf(&whole, "%s/%s", buf_text(&folder), files.at[i].path);
        add_model_file(r, buf_text(&whole));
    }
    hub_files_free(&files);
    buf_deinit(&folder);
    buf_deinit(&whole);
}

/* Files of a download that was not finished, by their endings. */
static void add_unfinished(struct removal *r, const char *store, const char *ending)
{
    struct hub_files files = {0};
    struct buf folder = {0}, path = {0};
    char tag[HUB_TAG_MAX];
    store_add_folder(store, r->name, &folder);
    if (walk_files(buf_text(&folder), ending, &files, NULL) != CARAT_OK) files.n = 0;
    for (size_t i = 0; i < files.n && r->status == CARAT_OK; i++) {
        char *file = files.at[i].path, *name = strchr(file, '/'); /* without the version */
        file[strlen(file) - strlen(ending) + strlen(".gguf")] = '\0';
        name = name ? name + 1 : file;
        const struct hub_name *wanted = r->name;
        bool is_it = true;
        if (wanted->file[0])
            is_it = strcmp(wanted->kind == HUB_URL ? file : name, wanted->file) == 0;
        else if (wanted->kind == HUB_HF)
            is_it = strcasecmp(hub_tag_of_path(file, tag),
                               wanted->tag[0] ? wanted->tag : HUB_TAG_DEFAULT) == 0;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", buf_text(&folder), file);
        if (is_it) add_model_file(r, buf_text(&path));
    }
    hub_files_free(&files);
    buf_deinit(&folder);
    buf_deinit(&path);
}

static bool look_in(void *user, const struct store *store)
{
    struct removal *r = user;
    struct buf path = {0}, record = {0};
    struct stat facts;
    if (store_find(store, r->name, false, &path)) {
        buf_printf(&record, "%s.json", buf_text(&path));
        bool is_ours = store->kind == STORE_OWN && stat(buf_text(&record), &facts) == 0;
        if (is_ours)
            add_model(r, buf_text(&path));
        else if (!r->elsewhere.length)
            buf_add_text(&r->elsewhere, buf_text(&path));
    }
    if (store->kind == STORE_OWN && r->files.n == 0) {
        add_unfinished(r, store->folder, ".gguf.part");
        add_unfinished(r, store->folder, ".gguf.bad");
    }
    if (r->files.n) buf_add_text(&r->store, store->folder);
    buf_deinit(&path);
    buf_deinit(&record);
    return r->files.n > 0 || r->status != CARAT_OK;
}

static int find(const struct options *o, struct removal *r, struct carat_error *err)
{
    models_each_store(opt_text(o, OPT_DIR), look_in, r);
    if (r->status != CARAT_OK || r->files.n) return r->status;
    if (r->elsewhere.length) {
        err_set(err, CARAT_EUSAGE, "%.300s: pull did not make this file, so it is not removed",
                buf_text(&r->elsewhere));
        err_hint(err, "remove it with the program that did, or with rm");
        return CARAT_EUSAGE;
    }
    err_set(err, CARAT_EFORMAT, "%.200s: no model of this name was downloaded", o->arguments[0]);
    err_hint(err, "`carat ls` lists the models");
    return CARAT_EFORMAT;
}

/* Removes the folders above `path` that have become empty, up to the store's own. */
static void remove_folders(const char *path, const struct buf *store)
{
    struct buf folder = {0};
    buf_add_text(&folder, path);
    bool is_empty = !folder.failed;
    while (is_empty) {
        char *slash = strrchr(folder.data, '/');
        if (!slash || (size_t)(slash - folder.data) <= store->length) break;
        *slash = '\0';
        is_empty = rmdir(folder.data) == 0;
    }
    buf_deinit(&folder);
}

static int remove_all(const struct removal *r, struct carat_error *err)
{
    int status = CARAT_OK;
    for (size_t i = 0; i < r->files.n && status == CARAT_OK; i++) {
        const char *path = r->files.at[i].path;
        if (unlink(path) != 0 && errno != ENOENT)
            status =
                err_set(err, CARAT_EIO, "%.300s: cannot be removed: %s", path, strerror(errno));
        remove_folders(path, &r->store);
    }
    char size[SIZE_TEXT_MAX];
    if (status == CARAT_OK)
        note("removed %zu file%s, %s", r->files.n, r->files.n == 1 ? "" : "s",
             size_text(r->bytes, size));
    return status;
}

static int ask_and_remove(const struct options *o, const struct removal *r, struct carat_error *err)
{
    if (opt_is_set(o, OPT_YES)) return remove_all(r, err);
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        err_set(err, CARAT_EUSAGE,
                "rm: nothing is removed, because there is no terminal to ask on");
        err_hint(err, "carat rm --yes %.150s", o->arguments[0]);
        return CARAT_EUSAGE;
    }
    for (size_t i = 0; i < r->files.n; i++) err_printf("  %s\n", r->files.at[i].path);
    char size[SIZE_TEXT_MAX];
    if (ask_yes("Remove these files? %s", size_text(r->bytes, size))) return remove_all(r, err);
    note("nothing was removed");
    return CARAT_OK;
}

int command_rm(const struct options *o)
{
    struct carat_error err = {0};
    struct hub_name name;
    struct removal r = {.name = &name, .err = &err};
    int status = CARAT_OK;
    if (o->n_arguments == 0) {
        status = err_set(&err, CARAT_EUSAGE, "rm: NAME is missing");
        err_hint(&err, "`carat ls` lists the names");
    }
    if (status == CARAT_OK) status = no_more_arguments(o, 1, &err);
    if (status == CARAT_OK) status = model_hub_name(o->arguments[0], &name, &err);
    if (status == CARAT_OK) status = find(o, &r, &err);
    if (status == CARAT_OK) status = ask_and_remove(o, &r, &err);
    hub_files_free(&r.files);
    buf_deinit(&r.store);
    buf_deinit(&r.elsewhere);
    return status == CARAT_OK ? 0 : report(&err);
}
