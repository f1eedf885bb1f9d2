/* carat ls: the models that can be called by name. A broken file is listed as broken. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "carat.h"
#include "cli/command.h"
#include "cli/models.h"
#include "cli/session.h"
#include "cli/size_text.h"
#include "cli/terminal.h"
#include "hub/check.h"
#include "hub/record.h"

struct found {
    char *name, *path;               /* owned */
    char sha256[HUB_SHA256_HEX + 1]; /* "": unknown */
    time_t used;                     /* when it was last looked up or read */
    dev_t device;
    ino_t inode;
    bool is_part;     /* of a download that is not finished */
    bool is_readable; /* `facts` hold; else `error` says why not */
    struct carat_file_facts facts;
    struct carat_error error;
};

struct list {
    struct found *at; /* owned */
    size_t n, room;
    bool failed; /* out of memory */
};

/* A later part of a split file is not a model: "...-00002-of-00003.gguf". */
static bool is_later_part(const char *name, size_t length)
{
    const char *at = name + length - 14;
    if (length < 15 || strncmp(at + 5, "-of-", 4) != 0 || at[-1] != '-') return false;
    for (int i = 0; i < 14; i++)
        if ((i < 5 || i > 8) && (at[i] < '0' || at[i] > '9')) return false;
    return strncmp(at, "00001", 5) != 0;
}

/* The length of NAME in NAME.gguf; 0: this is no model's file name. */
static size_t model_name_length(const char *file)
{
    size_t n = strlen(file);
    if (n <= 5 || strcmp(file + n - 5, ".gguf") != 0) return 0;
    return is_later_part(file, n - 5) ? 0 : n - 5;
}

static bool is_known(const struct list *list, const struct stat *facts)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].device == facts->st_dev && list->at[i].inode == facts->st_ino) return true;
    return false;
}

/* The time of the record of a downloaded file, which look-ups set, else that of the last reading as
 * the system knows it. */
static time_t time_of_use(const char *path, const struct stat *facts)
{
    struct buf record = {0};
    struct stat times;
    buf_printf(&record, "%s.json", path);
    bool has_record = !record.failed && stat(buf_text(&record), &times) == 0;
    buf_deinit(&record);
    return has_record ? times.st_mtim.tv_sec : facts->st_atim.tv_sec;
}

static void add_path(struct list *list, const char *name, size_t length, const char *path)
{
    struct stat facts;
    bool is_new = stat(path, &facts) == 0 && !S_ISDIR(facts.st_mode) && !is_known(list, &facts);
    if (!is_new) return;
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        struct found *more = mem_resize(list->at, room, sizeof *more);
        if (!more) {
            list->failed = true;
            return;
        }
        list->at = more;
        list->room = room;
    }
    struct found *f = &list->at[list->n];
    *f = (struct found){.name = mem_copy_text(name, length),
                        .path = mem_copy_text(path, strlen(path)),
                        .used = time_of_use(path, &facts),
                        .device = facts.st_dev,
                        .inode = facts.st_ino};
    check_expected(path, f->sha256);
    list->n++;
    if (!f->name || !f->path) list->failed = true;
}

static void add_file(struct list *list, const char *folder, const char *file)
{
    size_t length = model_name_length(file);
    struct buf path = {0};
    buf_printf(&path, "%s/%s", folder, file);
    if (path.failed) list->failed = true;
    if (length > 0 && !path.failed) add_path(list, file, length, buf_text(&path));
    buf_deinit(&path);
}

static void add_downloaded(void *user, const char *name, const char *path, enum store_kind kind)
{
    struct list *list = user;
    (void)kind;
    if (!list->failed) add_path(list, name, strlen(name), path);
}

/* What an unfinished download says of itself. */
static void describe_part(struct found *f)
{
    struct record record;
    struct stat facts;
    char have[SIZE_TEXT_MAX], size[SIZE_TEXT_MAX];
    f->is_part = true;
    f->sha256[0] = '\0';
    bool is_there = record_read(f->path, &record) && stat(f->path, &facts) == 0;
    err_set(&f->error, CARAT_EFORMAT, "unfinished: %s of %s; `carat pull %.300s` goes on",
            size_text(is_there ? (uint64_t)facts.st_size : 0, have),
            is_there && record.size ? size_text(record.size, size) : "a file", f->name);
}

static void add_part(void *user, const char *name, const char *path, enum store_kind kind)
{
    struct list *list = user;
    size_t n = list->n;
    add_downloaded(list, name, path, kind);
    if (list->n > n && !list->failed) describe_part(&list->at[n]);
}

static bool add_store(void *user, const struct store *store)
{
    struct list *list = user;
    if (store_each(store, add_downloaded, list, NULL) == CARAT_EMEMORY ||
        store_each_part(store, add_part, list, NULL) == CARAT_EMEMORY)
        list->failed = true;
    return list->failed;
}

static bool add_folder(void *user, const char *folder)
{
    struct list *list = user;
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) add_file(list, folder, entry->d_name);
    if (d) closedir(d);
    return list->failed;
}

static int by_name(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->path, y->path);
}

/* ---- Output ----------------------------------------------------------------------------- */

static const char *file_problem(const struct found *f)
{
    return f->is_readable ? f->facts.problem : f->error.message;
}

static void print_line(const struct found *f)
{
    struct buf line = {0}, name = {0};
    add_escaped(&name, f->name, strlen(f->name), false);
    buf_printf(&line, "%-36s ", buf_text(&name));
    if (f->is_readable) {
        char size[SIZE_TEXT_MAX];
        buf_printf(&line, "%-14s %11s %8d  ", f->facts.quantisation,
                   size_text(f->facts.file_bytes, size), f->facts.n_ctx_train);
    } else {
        buf_printf(&line, "%-14s %11s %8s  ", f->is_part ? "unfinished" : "broken", "", "");
    }
    char day[16];
    struct tm local;
    strftime(day, sizeof day, "%Y-%m-%d", localtime_r(&f->used, &local));
    buf_printf(&line, "%-12.12s  %s  ", f->sha256[0] ? f->sha256 : "-", day);
    add_escaped(&line, f->path, strlen(f->path), false);
    out_printf("%s\n", buf_text(&line));
    if (file_problem(f)[0]) {
        buf_clear(&line);
        add_escaped(&line, file_problem(f), strlen(file_problem(f)), false);
        const char *what = f->is_part ? "" : f->is_readable ? "cannot run: " : "broken: ";
        out_printf("    %s%s\n", what, buf_text(&line));
    }
    buf_deinit(&line);
    buf_deinit(&name);
}

static void add_json(struct json *j, const struct found *f)
{
    json_begin_object(j);
    json_key(j, "name");
    json_put_string(j, f->name);
    json_key(j, "path");
    json_put_string(j, f->path);
    if (f->is_readable) {
        json_key(j, "title");
        json_put_string(j, f->facts.name);
        json_key(j, "quantisation");
        json_put_string(j, f->facts.quantisation);
        json_key(j, "bytes");
        json_int(j, (int64_t)f->facts.file_bytes);
        json_key(j, "n_params");
        json_int(j, f->facts.n_params);
        json_key(j, "n_ctx_train");
        json_int(j, f->facts.n_ctx_train);
    }
    json_key(j, "sha256");
    if (f->sha256[0])
        json_put_string(j, f->sha256);
    else
        json_put_null(j);
    char time_text[32];
    struct tm utc;
    strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&f->used, &utc));
    json_key(j, "used");
    json_put_string(j, time_text);
    json_key(j, "broken");
    json_bool(j, !f->is_readable);
    json_key(j, "problem");
    if (file_problem(f)[0])
        json_put_string(j, file_problem(f));
    else
        json_put_null(j);
    json_end_object(j);
}

static void print_models(const struct list *list)
{
    if (list->n == 0) {
        note("no model was found; `carat pull` loads one, or put NAME.gguf into ./models, "
             "$CARAT_MODELS or ~/.local/share/carat/models");
        return;
    }
    out_printf("%-36s %-14s %11s %8s  %-12s  %-10s  %s\n", "NAME", "QUANTISATION", "SIZE",
               "CONTEXT", "SHA256", "USED", "PATH");
    for (size_t i = 0; i < list->n; i++) print_line(&list->at[i]);
}

static void print_models_json(const struct list *list)
{
    struct buf b = {0};
    struct json j = {.out = &b};
    json_begin_array(&j);
    for (size_t i = 0; i < list->n; i++) add_json(&j, &list->at[i]);
    json_end_array(&j);
    out_printf("%s\n", buf_text(&b));
    buf_deinit(&b);
}

int command_ls(const struct options *o)
{
    struct carat_error err = {0};
    struct list list = {0};
    int status = no_more_arguments(o, 0, &err);
    if (status == CARAT_OK) {
        const char *only = opt_text(o, OPT_DIR);
        if (only[0])
            add_folder(&list, only);
        else
            models_each_folder(add_folder, &list);
        models_each_store(only, add_store, &list);
        if (list.failed) status = err_no_memory(&err, "list", list.n * sizeof *list.at);
    }
    if (list.n > 0) qsort(list.at, list.n, sizeof *list.at, by_name);
    for (size_t i = 0; i < list.n && status == CARAT_OK; i++) {
        struct found *f = &list.at[i];
        progress("looking at models", (int)i + 1, (int)list.n);
        if (f->is_part) continue;
        f->is_readable = carat_file_facts(f->path, true, &f->facts, &f->error) == CARAT_OK;
    }
    progress_end();
    if (status == CARAT_OK && opt_is_set(o, OPT_JSON))
        print_models_json(&list);
    else if (status == CARAT_OK)
        print_models(&list);
    for (size_t i = 0; i < list.n; i++) {
        mem_free(list.at[i].name);
        mem_free(list.at[i].path);
    }
    mem_free(list.at);
    return status == CARAT_OK ? 0 : report(&err);
}
