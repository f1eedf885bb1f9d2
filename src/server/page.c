#include "server/page.h"

#include <string.h>

const struct page_file *page_find(const char *path)
{
    for (const struct page_file *file = page_files; file->path; file++)
        if (!strcmp(file->path, path)) return file;
    return NULL;
}
