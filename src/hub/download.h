/* One file from a server to the disk. It is loaded as FILE.part and takes its name when it is
 * whole, has the right sha256 and is on the disk. A part stays, and the next download continues it.
 * A file with the wrong sha256 is kept as FILE.bad. FILE.json has its record. */
#ifndef HUB_DOWNLOAD_H
#define HUB_DOWNLOAD_H

#include "hub/fetch.h"
#include "hub/record.h"
#include "hub/watch.h"

struct download {
    const char *url, *path; /* where from, where to; folders are made */
    struct record record;   /* what it should be */
    int connections;        /* at most, at once */
};

/* CARAT_OK also when the file is there already. CARAT_ENETWORK, CARAT_EIO and CARAT_EBUSY (stopped)
 * keep the part, CARAT_ECHECKSUM keeps the file as FILE.bad. */
int download_file(struct fetch *f, const struct download *what, const struct hub_watch *watch,
                  struct carat_error *err);

/* Bytes that are still to be loaded, as far as the disk shows; the record's size must be known. */
uint64_t download_left(const struct download *what);

/* Free bytes in the folder of `path`, or the nearest one above it that is there; its name goes to
 * *folder. BYTES_MAX if nothing is known. */
uint64_t download_room(const char *path, struct buf *folder);

/* CARAT_EIO: the folder of `path`, or the nearest one there is, has no room for this many bytes. */
int download_check_room(const char *path, uint64_t bytes, struct carat_error *err);

#endif
