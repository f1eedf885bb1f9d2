/* The models that can be called by name, and downloads that are not finished: what `ls` lists and
 * `verify` reads. */
#ifndef CLI_INVENTORY_H
#define CLI_INVENTORY_H

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

#include "base/status.h"
#include "hub/files.h"

struct found {
    char *name, *path;               /* owned; the path of the first file */
    char sha256[HUB_SHA256_HEX + 1]; /* as its record or its name says; "": unknown */
    time_t used;                     /* when it was last looked up or read */
    dev_t device;
    ino_t inode;
    bool is_part;            /* of a download that is not finished */
    uint64_t have, expected; /* bytes of that; 0: unknown */
};

struct inventory {    /* zeroed is empty */
    struct found *at; /* owned, sorted by name */
    size_t n, room;
    bool failed; /* out of memory */
};

/* Looks in all places of models, or in the folder `only` alone ("": all). A file that has several
 * names is in the list once. */
int inventory_take(struct inventory *list, const char *only, struct carat_error *err);
void inventory_free(struct inventory *list);

#endif
