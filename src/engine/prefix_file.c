#include "engine/prefix_file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

_Static_assert(sizeof(struct prefix_header) == 120, "a file has the header as it is");
_Static_assert(sizeof(struct saved_block) == 16 && sizeof(struct saved_anchor) == 16,
               "a file has the lists as they are");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers of the file are little endian"
#endif

uint64_t prefix_sum(uint64_t sum, const void *bytes, size_t n)
{
    return hash_bytes((struct hash_key){sum, n}, bytes, n);
}

uint64_t prefix_file_bytes(const struct prefix_header *h)
{
    const uint64_t blocks = (uint64_t)h->n_blocks, anchors = (uint64_t)h->n_anchors;
    const uint64_t block = sizeof(struct saved_block) + (uint64_t)h->origin.page * sizeof(int32_t);
    const uint64_t anchor = sizeof(struct saved_anchor) + (uint64_t)h->n_refs * sizeof(int32_t);
    uint64_t sum = sizeof *h + sizeof h->sum + blocks * block + anchors * anchor;
    sum = bytes_add(sum, bytes_multiply(blocks, h->origin.page_bytes[KV_GLOBAL]));
    return bytes_add(sum, bytes_multiply((uint64_t)h->n_locals, h->origin.page_bytes[KV_LOCAL]));
}

bool prefix_file_is_ours(int fd)
{
    char magic[sizeof PREFIX_MAGIC];
    struct stat facts;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
    ssize_t n = pread(fd, magic, sizeof magic, 0);
    return n == 0 || (n > 0 && memcmp(magic, PREFIX_MAGIC, (size_t)n) == 0);
}
