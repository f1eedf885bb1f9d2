/* Publishes what the prefix caches get and lose, by libzmq, for routers that send a prompt to the
 * server which has its beginning. Messages are those of vLLM's publishers: topic, number (8 bytes,
 * the highest first), batch (kv_queue.h). Numbers count from 0; one that is missing means that
 * something was lost on the way. Those of the last batches can be asked for again at a second
 * address.
 *
 * A thread of its own does it; an engine's step never waits for it. A build without libzmq answers
 * with CARAT_EUNSUPPORTED. */
#ifndef SERVER_KV_EVENTS_H
#define SERVER_KV_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "carat.h"

struct kv_events;

struct kv_events_options {
    const char *endpoint; /* "tcp://127.0.0.1:5557": listens there; ">tcp://...": connects */
    const char *replay;   /* the second address; "": none */
    const char *topic;
    bool is_insecure; /* other machines may read the ids of prompts */
    size_t n_engines;
};

/* Listens, and publishes that nothing is cached. CARAT_EUSAGE: such an address is not allowed;
 * CARAT_EIO: nobody can listen there. */
int kv_events_open(struct kv_events **out, const struct kv_events_options *options,
                   struct carat_error *err);
void kv_events_close(struct kv_events *k); /* after the engines; NULL is fine */

/* Sets what options of engine i need to tell of its cache. */
void kv_events_watch(struct kv_events *k, size_t i, struct carat_engine_options *options);

/* The address that is listened at, with the port that was chosen for "*". Borrowed. */
const char *kv_events_endpoint(const struct kv_events *k);

#endif
