/* The target of a request ("/v1/models?x=1"): checked byte by byte, decoded once.
 *
 * What two readers may take for different paths is refused: "..", ".", a backslash, a fragment,
 * control characters, an encoded NUL, broken escapes. So a path that was compared is the path. */
#ifndef SERVER_HTTP_TARGET_H
#define SERVER_HTTP_TARGET_H

#include <stdbool.h>
#include <stddef.h>

struct http_target {
    char *path;              /* decoded; "" when it was refused */
    char *query;             /* pairs "key\0value\0", decoded */
    size_t n_query;          /* how many */
    const char *authority;   /* of "http://host:port/path", else NULL; not ended by a NUL */
    size_t authority_length; /* of it */
    size_t raw_length;       /* of the target as it came */
    char *memory;            /* that all of them point into */
};

/* Returns NULL, or why it is refused: one sentence, or "" when memory is short. The target is to
 * be freed in each case. */
const char *http_target_read(struct http_target *t, const char *raw);
void http_target_free(struct http_target *t);
/* The first value of that key; NULL: it is not there. */
const char *http_target_query(const struct http_target *t, const char *key);

#endif
