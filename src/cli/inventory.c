#include "cli/inventory.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/models.h"
#include "hub/check.h"
#include "hub/record.h"

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

static bool is_known(const struct inventory *list, const struct stat *facts)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].device == facts->st_dev && list->at[i].inode == facts->st_ino) return true;
    return false;
}

/* The time of the record of a downloaded file, which look-ups set. Without a record, the time of
 * the last access to the file. */
static time_t time_of_use(const char *path, const struct stat *facts)
{
    struct buf record = {0};
    struct stat times;
    buf_printf(&record, "%s.json", path);
    bool has_record = !record.failed && stat(buf_text(&record), &times) == 0;
    buf_deinit(&record);
    return has_record ? times.st_mtim.tv_sec : facts->st_atim.tv_sec;
}

static void add_path(struct inventory *list, const char *name, size_t length, const char *path)
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

static void add_file(struct inventory *list, const char *folder, const char *file)
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
    struct inventory *list = user;
    (void)kind;
    if (!list->failed) add_path(list, name, strlen(name), path);
}

/* How far an unfinished download is. */
static void describe_part(struct found *f)
{
    struct record record;
    struct stat facts;
    f->is_part = true;
    f->sha256[0] = '\0';
    bool is_there = record_read(f->path, &record) && stat(f->path, &facts) == 0;
    if (!is_there) return;
    f->have = (uint64_t)facts.st_size;
    f->expected = record.size;
}

static void add_part(void *user, const char *name, const char *path, enum store_kind kind)
{
    struct inventory *list = user;
    size_t n = list->n;
    add_downloaded(list, name, path, kind);
    if (list->n > n && !list->failed) describe_part(&list->at[n]);
}

static bool add_store(void *user, const struct store *store)
{
    struct inventory *list = user;
    if (store_each(store, add_downloaded, list, NULL) == CARAT_EMEMORY ||
        store_each_part(store, add_part, list, NULL) == CARAT_EMEMORY)
        list->failed = true;
    return list->failed;
}

static bool add_folder(void *user, const char *folder)
{
    struct inventory *list = user;
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

int inventory_take(struct inventory *list, const char *only, struct carat_error *err)
{
    if (only[0])
        add_folder(list, only);
    else
        models_each_folder(add_folder, list);
    models_each_store(only, add_store, list);
    if (list->n > 0) qsort(list->at, list->n, sizeof *list->at, by_name);
    return list->failed ? err_no_memory(err, "list", list->n * sizeof *list->at) : CARAT_OK;
}

void inventory_free(struct inventory *list)
{
    for (size_t i = 0; i < list->n; i++) {
        mem_free(list->at[i].name);
        mem_free(list->at[i].path);
    }
    mem_free(list->at);
    *list = (struct inventory){0};
}
