/* The keys that clients may use. Only digests under secrets of this process are kept, and a key is
 * compared with all of them in the same time, whichever it equals and wherever it differs. One
 * thread. */
#ifndef SERVER_KEYS_H
#define SERVER_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

enum { KEY_HASHES = 4 }; /* of 64 bits each */

struct key_digest {
    uint64_t part[KEY_HASHES];
};

struct keys {
    struct hash_key secrets[KEY_HASHES];
    struct key_digest *digests; /* [n]; first those of the command line */
    size_t n, n_given;
    char *file; /* NULL: none */
};

/* `given` may be empty, `file` NULL: then there are no keys. Blanks around a key do not count. A
 * file has one key a line; empty lines and those that begin with '#' do not count.
 * CARAT_EUSAGE: a key is empty or has control characters, or the file has none. CARAT_EIO: it
 * cannot be read. */
int keys_open(struct keys *k, const char *const *given, size_t n, const char *file,
              struct carat_error *err);
void keys_close(struct keys *k);
/* Reads the file again. On failure the keys stay what they were. */
int keys_reload(struct keys *k, struct carat_error *err);

/* Whether it is one of them. *id says which: a number, never 0, that nobody outside can compute. */
bool keys_find(const struct keys *k, const char *key, size_t length, uint64_t *id);

#endif
