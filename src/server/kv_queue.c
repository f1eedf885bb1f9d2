#include "server/kv_queue.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "server/msgpack.h"

/* ---- The ring --------------------------------------------------------------------------- */

int kv_queue_open(struct kv_queue *q, struct carat_error *err)
{
    *q = (struct kv_queue){.ring = mem_alloc(KV_QUEUE, sizeof *q->ring)};
    if (!q->ring) return err_no_memory(err, "cache events", KV_QUEUE * sizeof *q->ring);
    pthread_mutex_init(&q->mutex, NULL);
    return CARAT_OK;
}

void kv_queue_close(struct kv_queue *q)
{
    if (q->ring) pthread_mutex_destroy(&q->mutex);
    mem_free(q->ring);
    q->ring = NULL;
}

static void fill(struct kv_record *r, uint32_t engine, const struct carat_cache_event *event)
{
    r->block = event->block;
    r->parent = event->parent;
    r->engine = engine;
    r->n_ids = event->is_removed ? 0 : (uint16_t)event->n_ids;
    if (r->n_ids) memcpy(r->ids, event->ids, r->n_ids * sizeof *r->ids);
}

bool kv_queue_add(struct kv_queue *q, uint32_t engine, const struct carat_cache_event *event)
{
    pthread_mutex_lock(&q->mutex);
    bool was_empty = q->n == 0;
    if (q->n == KV_QUEUE || event->n_ids > KV_IDS_MAX) {
        q->is_gap = true;
    } else {
        struct kv_record *r = &q->ring[(q->first + q->n++) % KV_QUEUE];
        fill(r, engine, event);
        r->is_gap = q->is_gap;
        q->is_gap = false;
    }
    pthread_mutex_unlock(&q->mutex);
    return was_empty;
}

size_t kv_queue_take(struct kv_queue *q, struct kv_record *out)
{
    size_t n = 0;
    pthread_mutex_lock(&q->mutex);
    while (n < KV_BATCH && q->n > 0) {
        const struct kv_record *r = &q->ring[q->first];
        if (n > 0 && (r->is_gap || r->engine != out[0].engine)) break;
        out[n++] = *r;
        q->first = (q->first + 1) % KV_QUEUE;
        q->n--;
    }
    pthread_mutex_unlock(&q->mutex);
    return n;
}

/* ---- Batches ---------------------------------------------------------------------------- */

/* How many records from i on are one event: blocks that continue each other, or removals. */
static size_t run_length(const struct kv_record *records, size_t i, size_t n)
{
    size_t end = i + 1;
    for (; end < n; end++) {
        const struct kv_record *before = &records[end - 1], *r = &records[end];
        if ((r->n_ids == 0) != (before->n_ids == 0)) break;
        if (r->n_ids && (r->parent != before->block || r->n_ids != before->n_ids)) break;
    }
    return end - i;
}

static void add_names(struct buf *out, const struct kv_record *records, size_t n)
{
    msgpack_array(out, (uint32_t)n);
    for (size_t i = 0; i < n; i++) msgpack_uint(out, records[i].block);
}

/* Tag, names, parent, ids, positions of a block, LoRA's number, medium, LoRA's name. */
static void add_stored(struct buf *out, const struct kv_record *records, size_t n)
{
    msgpack_array(out, 8);
    msgpack_text(out, "BlockStored");
    add_names(out, records, n);
    if (records->parent)
        msgpack_uint(out, records->parent);
    else
        msgpack_nil(out);
    msgpack_array(out, (uint32_t)(n * records->n_ids));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < records[i].n_ids; k++)
            msgpack_uint(out, (uint64_t)records[i].ids[k]);
    msgpack_uint(out, records->n_ids);
    msgpack_nil(out);
    msgpack_text(out, "GPU");
    msgpack_nil(out);
}

static void add_removed(struct buf *out, const struct kv_record *records, size_t n)
{
    msgpack_array(out, 3);
    msgpack_text(out, "BlockRemoved");
    add_names(out, records, n);
    msgpack_text(out, "GPU");
}

static void begin_batch(struct buf *out, double seconds, size_t n_events)
{
    msgpack_array(out, 3);
    msgpack_real(out, seconds);
    msgpack_array(out, (uint32_t)n_events);
}

void kv_batch_add(struct buf *out, double seconds, const struct kv_record *records, size_t n)
{
    size_t n_events = 0;
    for (size_t i = 0; i < n; i += run_length(records, i, n)) n_events++;
    begin_batch(out, seconds, n_events);
    for (size_t i = 0, length; i < n; i += length) {
        length = run_length(records, i, n);
        if (records[i].n_ids)
            add_stored(out, &records[i], length);
        else
            add_removed(out, &records[i], length);
    }
    msgpack_uint(out, records->engine);
}

void kv_batch_add_cleared(struct buf *out, double seconds, uint32_t engine)
{
    begin_batch(out, seconds, 1);
    msgpack_array(out, 1);
    msgpack_text(out, "AllBlocksCleared");
    msgpack_uint(out, engine);
}
