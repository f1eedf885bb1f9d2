/* What the parts of the server share. Everything here belongs to the thread of the server, except
 * what says otherwise. */
#ifndef SERVER_SERVICE_H
#define SERVER_SERVICE_H

#include "base/hash.h"
#include "server/call.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/traces.h"

/* Bytes that may wait for a client. Beyond them no events are taken, and its sequence pauses. */
enum { UNSENT_MAX = 256 * 1024 };

/* Bytes that all bodies, and what was read from them, may take until they are answered. A tree
 * takes many times the bytes of its text. */
#define HELD_MAX ((size_t)1 << 30)

enum service_state {
    SERVICE_LOADING,
    SERVICE_READY,
    SERVICE_DRAINING, /* nothing new; what runs goes on */
    SERVICE_ENDING    /* the same, and the process ends after it */
};

struct service {
    const struct server_options *options; /* constant: any thread */
    enum service_state state;
    struct http *http;
    struct guard *guard;
    struct replicas *replicas; /* NULL while loading */
    struct workers *workers;
    struct metrics *metrics;
    struct traces *traces;     /* NULL: none; any thread */
    struct grammars *grammars; /* any thread */
    struct inbox inbox;
    atomic_size_t held; /* bytes of requests, of all calls; any thread */
    struct call *calls;
    int32_t n_calls, n_streams;
    int32_t n_ctx;               /* positions of a sequence; constant once READY */
    struct carat_stats before;   /* counts of the warm-up, in which clients have no part */
    int64_t since;               /* seconds since 1970 */
    struct hash_key secret;      /* for hashes of what clients choose */
    struct hash_key salt_secret; /* for salts, which saved prefixes are found by */
    struct buf out;              /* for one event at a time */
};

#endif
