/* A list of files of a repository or a folder. Zeroed is empty. */
#ifndef HUB_FILES_H
#define HUB_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { HUB_SHA256_HEX = 64, HUB_FILES_MAX = 10000 };

struct hub_file {
    char *path;                      /* relative; owned */
    uint64_t size;                   /* bytes; 0: unknown */
    char sha256[HUB_SHA256_HEX + 1]; /* lower case hexadecimal digits; "": unknown */
};

struct hub_files {
    struct hub_file *at; /* owned */
    size_t n, room;
};

/* Appends a copy. `sha256` may be NULL. CARAT_ENETWORK: there are more than HUB_FILES_MAX. */
int hub_files_add(struct hub_files *files, const char *path, size_t length, uint64_t size,
                  const char *sha256, struct carat_error *err);
/* Drops one; the others keep their places until hub_files_pack closes the gaps. */
void hub_files_drop(struct hub_files *files, size_t i);
void hub_files_pack(struct hub_files *files);
uint64_t hub_files_bytes(const struct hub_files *files); /* the sum of all sizes */
void hub_files_free(struct hub_files *files);

#endif
