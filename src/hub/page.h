/* Short texts from a server: lists and manifests. */
#ifndef HUB_PAGE_H
#define HUB_PAGE_H

#include "base/buf.h"
#include "hub/fetch.h"

enum { PAGE_BYTES_MAX = 1 << 24 };

/* Reads a text of at most PAGE_BYTES_MAX bytes into *out, with the retries of `watch`. `accept` is
 * the header of that name. */
int page_read(struct fetch *f, const char *url, const char *accept, const struct hub_watch *watch,
              struct buf *out, struct fetch_head *head, struct carat_error *err);

#endif
