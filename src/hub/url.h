/* Addresses: what may be asked, and what of an address may be shown. No network here. */
#ifndef HUB_URL_H
#define HUB_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { URL_MAX = 4096, URL_HOST_MAX = 256 };

struct url {
    bool is_https;           /* else http */
    char host[URL_HOST_MAX]; /* lower case, without brackets */
    int port;
    const char *path; /* borrowed from the text: from the first slash on, or "" */
};

/* Reads "http[s]://host[:port][/path]". False: anything else, among it user names, passwords,
 * blanks, control characters and bytes above 126, so that no two readers see different hosts. */
bool url_read(const char *text, struct url *out);

bool url_is_loopback(const struct url *url); /* this machine, by name or number */
bool url_is_same_origin(const struct url *a, const struct url *b);

/* Appends the address without what may be secret: query, fragment, user and password. */
void url_add_shown(struct buf *out, const char *text);

/* Appends bytes with all but letters, digits, "-._~" and `kept` as %XX. */
void url_add_escaped(struct buf *out, const char *text, const char *kept);

#endif
