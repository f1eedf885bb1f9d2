/* SHA-256 as bytes come, by GnuTLS. A build without it answers with CARAT_EUNSUPPORTED. */
#ifndef HUB_SHA256_H
#define HUB_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "hub/files.h"

struct sha256; /* owned by whoever opened it; one thread at a time */

int sha256_open(struct sha256 **out, struct carat_error *err);
void sha256_restart(struct sha256 *sum); /* forgets all bytes */
void sha256_add(struct sha256 *sum, const void *bytes, size_t n);
/* Writes the digits of all bytes so far and forgets the bytes. */
void sha256_end(struct sha256 *sum, char hex[HUB_SHA256_HEX + 1]);
void sha256_close(struct sha256 *sum); /* NULL is fine */

/* Called between blocks with the bytes done; false stops the work. NULL: never stopped. */
typedef bool (*sha256_fn)(void *user, uint64_t done);

/* Adds the first `bytes` bytes of an open file, read from its beginning. CARAT_EBUSY: stopped.
 * CARAT_EIO: the file cannot be read or is shorter; `shown` names it. */
int sha256_add_file(struct sha256 *sum, int fd, uint64_t bytes, const char *shown, sha256_fn moved,
                    void *user, struct carat_error *err);

#endif
