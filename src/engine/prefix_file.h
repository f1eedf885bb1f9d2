/* Files of saved prefixes: what a prefix cache holds (cache/saved.h), with its pages.
 *
 *     header          struct prefix_header, ended by its own checksum
 *     blocks, ids, anchors, refs           the arrays of struct saved, one after the other
 *     pages           of all blocks, then local ones: bytes as a device has them
 *     checksum        of everything before it
 *
 * Numbers are little endian. Nothing in a file is trusted: its length follows from its header, all
 * indices and ids are checked, and nothing is used before the checksum at its end was compared.
 * Only its owner may write it, because whoever can write it decides what is answered. It has mode
 * 0600, since it tells what was asked.
 *
 * Errors: CARAT_ECHECKSUM: the file is cut or damaged. CARAT_EUNSUPPORTED: it is sound, but of
 * another version, model or setting. CARAT_EUSAGE: it is something else, or others may write it.
 * CARAT_EIO, CARAT_EMEMORY. */
#ifndef ENGINE_PREFIX_FILE_H
#define ENGINE_PREFIX_FILE_H

#include "base/hash.h"
#include "cache/saved.h"

#define PREFIX_MAGIC "carat prefixes\n" /* and a NUL */
/* Version 2: layers without a V have cells that hold keys and values at once (plan/kv.h). */
enum { PREFIX_VERSION = 2, PREFIX_NOTE_BYTES = 16 };

/* What the keys and values in a file depend on. */
struct prefix_origin {
    uint64_t model[2]; /* hashes: of the model file, */
    uint64_t setting;  /* of devices and formats */
    uint64_t page_bytes[KV_KINDS];
    int32_t page, window;
};

struct prefix_header { /* without padding */
    char magic[16];
    uint32_t version, bytes; /* bytes: of this header */
    struct prefix_origin origin;
    int32_t n_blocks, n_locals, n_anchors, n_refs;
    uint8_t note[PREFIX_NOTE_BYTES]; /* the caller's own */
    uint64_t file_bytes;
    uint64_t sum; /* of what is before it */
};

/* A chain of checksums: `sum` is the checksum of what comes before these bytes. */
uint64_t prefix_sum(uint64_t sum, const void *bytes, size_t n);

/* Bytes of a whole file, from the counts and page_bytes of its header, which are not negative.
 * Saturates at BYTES_MAX. */
uint64_t prefix_file_bytes(const struct prefix_header *h);

/* Whether the open file is one of ours or empty; such a file may be replaced. */
bool prefix_file_is_ours(int fd);

#endif
