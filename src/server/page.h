/* The files of the page for browsers, which are part of the program (cmake/page.cmake). */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

#include <stddef.h>

/* Content-Security-Policy of every one of them: nothing from elsewhere, nothing inline. */
#define PAGE_POLICY                                                                                \
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

struct page_file {
    const char *path;                  /* "/", "/ui/app.js" */
    const char *type;                  /* "text/html; charset=utf-8" */
    const char *etag;                  /* with quotes; weak, so that it is that of both forms */
    const unsigned char *plain, *gzip; /* gzip: where the client accepts it */
    size_t plain_length, gzip_length;
};

/* All files; the last one has no path. */
extern const struct page_file page_files[];

/* NULL: there is no such file. */
const struct page_file *page_find(const char *path);

#endif
