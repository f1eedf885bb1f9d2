/* What the prefix caches of all engines got and lost, from the engines' threads to the one that
 * publishes it: a ring of records that nobody waits for. When it is full, what comes is dropped and
 * the next record says so. */
#ifndef SERVER_KV_QUEUE_H
#define SERVER_KV_QUEUE_H

#include <pthread.h>

#include "base/buf.h"
#include "carat.h"

enum { KV_IDS_MAX = 64, KV_QUEUE = 1 << 14, KV_BATCH = 256 };

struct kv_record {
    uint64_t block, parent; /* as in struct carat_cache_event */
    uint32_t engine;
    uint16_t n_ids; /* 0: the block was removed */
    bool is_gap;    /* records before this one were dropped */
    int32_t ids[KV_IDS_MAX];
};

struct kv_queue {
    pthread_mutex_t mutex;
    struct kv_record *ring; /* owned: [KV_QUEUE] */
    size_t first, n;
    bool is_gap; /* records were dropped since the last one */
};

int kv_queue_open(struct kv_queue *q, struct carat_error *err);
void kv_queue_close(struct kv_queue *q);

/* Any thread; takes no longer than a copy. Returns whether the ring was empty: then whoever takes
 * must be woken. */
bool kv_queue_add(struct kv_queue *q, uint32_t engine, const struct carat_cache_event *event);

/* Moves up to KV_BATCH records of one engine, without a gap after the first, to `out`. */
size_t kv_queue_take(struct kv_queue *q, struct kv_record *out);

/* Appends a batch as vLLM's publishers write it: [seconds, [events], engine]. Blocks that follow
 * each other are one event. */
void kv_batch_add(struct buf *out, double seconds, const struct kv_record *records, size_t n);

/* A batch that says that nothing is cached. */
void kv_batch_add_cleared(struct buf *out, double seconds, uint32_t engine);

#endif
