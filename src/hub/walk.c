#include "hub/walk.h"

#include <dirent.h>
#include <strings.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 6 };

struct walk {
    struct buf path; /* of the folder that is read */
    size_t begin;    /* bytes of `path` before the part that is handed out */
    const char *ending;
    struct hub_files *files;
};

static bool has_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), length = strlen(ending);
    return n > length && strcasecmp(name + n - length, ending) == 0;
}

static int walk_folder(struct walk *w, int depth, struct carat_error *err);

static int walk_entry(struct walk *w, const char *name, int depth, struct carat_error *err)
{
    struct stat facts, link;
    size_t length = w->path.length;
    buf_printf(&w->path, "/%s", name);
    if (w->path.failed) return err_no_memory(err, name, strlen(name));
    int status = CARAT_OK;
    const char *path = buf_text(&w->path);
    bool is_there = lstat(path, &link) == 0 && stat(path, &facts) == 0;
    if (is_there && S_ISDIR(link.st_mode) && depth < DEPTH_MAX)
        status = walk_folder(w, depth + 1, err);
    else if (is_there && S_ISREG(facts.st_mode) && has_ending(name, w->ending))
        status = hub_files_add(w->files, path + w->begin, w->path.length - w->begin,
                               (uint64_t)facts.st_size, NULL, err);
    w->path.length = length;
    w->path.data[length] = '\0';
    return status;
}

static int walk_folder(struct walk *w, int depth, struct carat_error *err)
{
    int status = CARAT_OK;
    DIR *d = opendir(buf_text(&w->path));
    for (struct dirent *entry; status == CARAT_OK && d && (entry = readdir(d));)
        if (entry->d_name[0] != '.') status = walk_entry(w, entry->d_name, depth, err);
    if (d) closedir(d);
    return status;
}

int walk_files(const char *folder, const char *ending, struct hub_files *files,
               struct carat_error *err)
{
    struct walk w = {.ending = ending, .files = files};
    buf_add_text(&w.path, folder);
    w.begin = w.path.length + 1;
    int status =
        w.path.failed ? err_no_memory(err, folder, strlen(folder)) : walk_folder(&w, 0, err);
    buf_deinit(&w.path);
    return status;
}
