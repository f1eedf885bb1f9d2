/* The rest of a file by several connections at once. Each of them asks for one stretch after the
 * other. Bytes are handed out in order; stretches that are ahead wait in memory. So the disk always
 * has the beginning of the file, its sha256 is computed on the way, and a download that is killed
 * goes on as one that had a single connection. */
#ifndef HUB_RANGES_H
#define HUB_RANGES_H

#include "hub/fetch.h"
#include "hub/watch.h"

enum { RANGES_CONNECTIONS_MAX = 16 };

struct ranges_want {
    const char *url;
    const char *etag;     /* that all stretches must have; "": unknown */
    bool needs_etag;      /* nothing else tells whether stretches belong to one file */
    uint64_t first, size; /* bytes from `first` to the end of a file of `size` bytes */
    int connections;
};

struct ranges_sink { /* called in the thread that calls ranges_load */
    void *user;
    int (*add)(void *user, const void *bytes, size_t n, struct carat_error *err);
    /* A few times a second: bytes that are here beyond those that were added. */
    void (*moved)(void *user, uint64_t ahead);
};

/* Whether several connections pay for this many bytes. */
bool ranges_pay(uint64_t bytes, int connections);

/* CARAT_OK: all bytes were added. A failure of `add` is passed on; CARAT_EBUSY: stopped. A server
 * that takes fewer connections gets fewer. *is_odd: it answers a stretch with something else, which
 * a single connection should look into. Options and the functions of `watch` are those of `f`. */
int ranges_load(const struct fetch *f, const struct ranges_want *want,
                const struct ranges_sink *sink, const struct hub_watch *watch, bool *is_odd,
                struct carat_error *err);

#endif
