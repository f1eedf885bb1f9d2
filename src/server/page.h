/* The files of the page for browsers, which are part of the program. */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include <stddef.h>

struct page_file {
    const char *path;          /* "/", "/ui/app.js" */
    const char *type;          /* "text/html; charset=utf-8" */
    const unsigned char *data; /* gzip */
    size_t length;
    size_t plain_length;
    const char *etag; /* with quotes */
};

/* NULL: there is no such file. */
const struct page_file *page_find(const char *path);
/* The file as it was before gzip, for clients that do not take it. CARAT_EMEMORY ends in NULL;
 * freed with mem_free. */
char *page_plain(const struct page_file *file);

#endif
