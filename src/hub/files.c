#include "hub/files.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

int hub_files_add(struct hub_files *files, const char *path, size_t length, uint64_t size,
                  const char *sha256, struct carat_error *err)
{
    if (files->n == HUB_FILES_MAX)
        return err_set(err, CARAT_ENETWORK, "more than %d files are listed", HUB_FILES_MAX);
    if (files->n == files->room) {
        size_t room = files->room ? 2 * files->room : 16;
        struct hub_file *more = mem_resize(files->at, room, sizeof *more);
        if (!more) return err_no_memory(err, "list of files", room * sizeof *more);
        files->at = more;
        files->room = room;
    }
    struct hub_file *file = &files->at[files->n];
    *file = (struct hub_file){.path = mem_copy_text(path, length), .size = size};
    if (!file->path) return err_no_memory(err, "list of files", length);
    if (sha256) memcpy(file->sha256, sha256, HUB_SHA256_HEX);
    files->n++;
    return CARAT_OK;
}

void hub_files_drop(struct hub_files *files, size_t i)
{
    mem_free(files->at[i].path);
    files->at[i].path = NULL;
}

void hub_files_pack(struct hub_files *files)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->n; i++)
        if (files->at[i].path) files->at[kept++] = files->at[i];
    files->n = kept;
}

uint64_t hub_files_bytes(const struct hub_files *files)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < files->n; i++) bytes = bytes_add(bytes, files->at[i].size);
    return bytes;
}

void hub_files_free(struct hub_files *files)
{
    for (size_t i = 0; i < files->n; i++) mem_free(files->at[i].path);
    mem_free(files->at);
    *files = (struct hub_files){0};
}
