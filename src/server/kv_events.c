#include "server/kv_events.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "server/kv_queue.h"

#ifdef CARAT_HAVE_ZMQ

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum { ENGINES_MAX = 64, ENDPOINT_MAX = 256 };
enum { KEPT = 4096, KEPT_BYTES = 32 << 20, UNREAD = 1024 }; /* batches that wait for a reader */

/* What an engine's thread gets. */
struct source {
    struct kv_events *events;
    uint32_t engine;
};

struct kept { /* a batch that was sent */
    uint64_t number;
    struct buf batch;
};

struct kv_events {
    struct kv_queue queue;
    struct source sources[ENGINES_MAX];
    size_t n_engines;
    int wake; /* eventfd: records have come, or it ends */
    atomic_bool stops;
    pthread_t thread;
    bool has_thread;
    char endpoint[ENDPOINT_MAX], topic[256];

    /* The thread's own. */
    void *context, *publisher, *replay; /* replay: NULL without one */
    uint64_t number;                    /* of the next batch */
    struct kept *kept;                  /* [KEPT]: a ring */
    size_t first_kept, n_kept, kept_bytes;
    struct kv_record records[KV_BATCH];
};

/* ---- Engines' threads ------------------------------------------------------------------- */

static void wake(struct kv_events *k)
{
    uint64_t one = 1;
    ssize_t ignored = write(k->wake, &one, sizeof one); /* full: it is awake anyway */
    (void)ignored;
}

static void note_event(void *user, const struct carat_cache_event *event)
{
    const struct source *s = user;
    if (kv_queue_add(&s->events->queue, s->engine, event)) wake(s->events);
}

void kv_events_watch(struct kv_events *k, size_t i, struct carat_engine_options *options)
{
    options->on_cache = note_event;
    options->on_cache_user = &k->sources[i];
}

/* ---- The thread: sending ---------------------------------------------------------------- */

static void put_number(unsigned char out[8], uint64_t number)
{
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(number >> 8 * (7 - i));
}

static void drop_oldest(struct kv_events *k)
{
    struct kept *oldest = &k->kept[k->first_kept];
    k->kept_bytes -= oldest->batch.length;
    buf_deinit(&oldest->batch);
    k->first_kept = (k->first_kept + 1) % KEPT;
    k->n_kept--;
}

static void keep(struct kv_events *k, struct buf *batch)
{
    while (k->n_kept > 0 && (k->n_kept == KEPT || k->kept_bytes + batch->length > KEPT_BYTES))
        drop_oldest(k);
    k->kept[(k->first_kept + k->n_kept++) % KEPT] = (struct kept){k->number, *batch};
    k->kept_bytes += batch->length;
    *batch = (struct buf){0};
}

/* Sends a batch to whoever listens, and keeps it. Who reads slowly loses messages. */
static void publish(struct kv_events *k, struct buf *batch)
{
    unsigned char number[8];
    if (!batch->failed) {
        put_number(number, k->number);
        zmq_send(k->publisher, k->topic, strlen(k->topic), ZMQ_SNDMORE | ZMQ_DONTWAIT);
        zmq_send(k->publisher, number, sizeof number, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        zmq_send(k->publisher, batch->data, batch->length, ZMQ_DONTWAIT);
        if (k->replay) keep(k, batch);
    }
    k->number++; /* one that could not be made is missing */
    buf_deinit(batch);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void publish_records(struct kv_events *k)
{
    size_t n;
    while ((n = kv_queue_take(&k->queue, k->records)) > 0) {
        struct buf batch = {0};
        if (k->records[0].is_gap) k->number++;
        kv_batch_add(&batch, seconds_now(), k->records, n);
        publish(k, &batch);
    }
}

/* ---- The thread: replay ----------------------------------------------------------------- */

static void reply(struct kv_events *k, zmq_msg_t *whom, const unsigned char number[8],
                  const struct buf *batch)
{
    zmq_send(k->replay, zmq_msg_data(whom), zmq_msg_size(whom), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(k->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(k->replay, number, 8, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(k->replay, batch ? batch->data : "", batch ? batch->length : 0, ZMQ_DONTWAIT);
}

/* Reads a request: who asks, an empty frame, a number. False: it is none. */
static bool read_request(struct kv_events *k, zmq_msg_t *whom, uint64_t *number)
{
    unsigned char bytes[8] = {0};
    int n = 0, more = zmq_msg_recv(whom, k->replay, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(whom);
    bool is_good = more;
    for (; more; n++) {
        zmq_msg_t frame;
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, k->replay, ZMQ_DONTWAIT) < 0) return false;
        size_t length = zmq_msg_size(&frame);
        is_good = is_good && length == (n == 0 ? 0u : 8u) && n < 2;
        if (is_good && n == 1) memcpy(bytes, zmq_msg_data(&frame), 8);
        more = zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
    *number = 0;
    for (int i = 0; i < 8; i++) *number = *number << 8 | bytes[i];
    return is_good && n == 2;
}

/* All batches from a number on that are still here, then one with the number -1. */
static void serve_replay(struct kv_events *k)
{
    uint64_t from;
    unsigned char number[8];
    zmq_msg_t whom;
    zmq_msg_init(&whom);
    if (read_request(k, &whom, &from)) {
        for (size_t i = 0; i < k->n_kept; i++) {
            const struct kept *kept = &k->kept[(k->first_kept + i) % KEPT];
            if (kept->number < from) continue;
            put_number(number, kept->number);
            reply(k, &whom, number, &kept->batch);
        }
        put_number(number, UINT64_MAX);
        reply(k, &whom, number, NULL);
    }
    zmq_msg_close(&whom);
}

static void *run(void *user)
{
    struct kv_events *k = user;
    for (size_t i = 0; i < k->n_engines; i++) {
        struct buf batch = {0};
        kv_batch_add_cleared(&batch, seconds_now(), (uint32_t)i);
        publish(k, &batch);
    }
    zmq_pollitem_t items[] = {{.fd = k->wake, .events = ZMQ_POLLIN},
                              {.socket = k->replay, .events = ZMQ_POLLIN}};
    while (!atomic_load(&k->stops)) {
        uint64_t ignored;
        if (zmq_poll(items, k->replay ? 2 : 1, -1) < 0 && errno != EINTR) break;
        if (items[0].revents && read(k->wake, &ignored, sizeof ignored) < 0) continue;
        publish_records(k);
        if (k->replay && items[1].revents) serve_replay(k);
    }
    publish_records(k);
    return NULL;
}

/* ---- Opening ---------------------------------------------------------------------------- */

static bool begins(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool is_local(const char *address)
{
    bool is_number = begins(address, "tcp://127.");
    if (is_number) is_number = address[6 + strspn(address + 6, "0123456789.")] == ':';
    return is_number || begins(address, "ipc://") || begins(address, "tcp://localhost:") ||
           begins(address, "tcp://[::1]:");
}

static int check_address(const char *option, const char *address, bool is_insecure,
                         struct carat_error *err)
{
    if (!begins(address, "tcp://") && !begins(address, "ipc://")) {
        err_set(err, CARAT_EUSAGE, "%s: tcp://HOST:PORT or ipc://PATH expected, %.200s found",
                option, address);
        return CARAT_EUSAGE;
    }
    if (is_local(address) || is_insecure) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s: %.200s is not on this machine alone", option, address);
    err_hint(err, "events have the token ids of prompts, and whoever connects reads them: use "
                  "tcp://127.0.0.1:PORT, or --insecure where the network is trusted");
    return CARAT_EUSAGE;
}

static int open_socket(void **out, struct kv_events *k, int kind, const char *address,
                       struct carat_error *err)
{
    const int linger_ms = 200, most = kind == ZMQ_PUB ? UNREAD : KEPT + 1, is_v6 = 1;
    const int64_t bytes_max = 4096; /* of a message that comes */
    bool connects = address[0] == '>';
    *out = zmq_socket(k->context, kind);
    if (!*out) return err_set(err, CARAT_EMEMORY, "libzmq: %s", zmq_strerror(zmq_errno()));
    zmq_setsockopt(*out, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(*out, ZMQ_SNDHWM, &most, sizeof most);
    zmq_setsockopt(*out, ZMQ_IPV6, &is_v6, sizeof is_v6);
    zmq_setsockopt(*out, ZMQ_MAXMSGSIZE, &bytes_max, sizeof bytes_max);
    int status = connects ? zmq_connect(*out, address + 1) : zmq_bind(*out, address);
    if (status == 0) return CARAT_OK;
    return err_set(err, CARAT_EIO, "%.200s: %s: %s", address,
                   connects ? "cannot be connected to" : "cannot be listened at",
                   zmq_strerror(zmq_errno()));
}

static int open_sockets(struct kv_events *k, const struct kv_events_options *o,
                        struct carat_error *err)
{
    const char *address = o->endpoint + (o->endpoint[0] == '>');
    size_t length = sizeof k->endpoint;
    TRY(check_address("--kv-events", address, o->is_insecure, err));
    if (o->replay[0]) TRY(check_address("--kv-events-replay", o->replay, o->is_insecure, err));
    k->context = zmq_ctx_new();
    if (!k->context) return err_no_memory(err, "libzmq", 0);
    TRY(open_socket(&k->publisher, k, ZMQ_PUB, o->endpoint, err));
    if (o->replay[0]) TRY(open_socket(&k->replay, k, ZMQ_ROUTER, o->replay, err));
    if (zmq_getsockopt(k->publisher, ZMQ_LAST_ENDPOINT, k->endpoint, &length) != 0)
        snprintf(k->endpoint, sizeof k->endpoint, "%s", o->endpoint);
    return CARAT_OK;
}

static int open_parts(struct kv_events *k, const struct kv_events_options *options,
                      struct carat_error *err)
{
    k->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (k->wake < 0) return err_set(err, CARAT_EIO, "eventfd: %s", strerror(errno));
    k->n_engines = options->n_engines < ENGINES_MAX ? options->n_engines : ENGINES_MAX;
    for (size_t i = 0; i < k->n_engines; i++) k->sources[i] = (struct source){k, (uint32_t)i};
    snprintf(k->topic, sizeof k->topic, "%s", options->topic);
    TRY(kv_queue_open(&k->queue, err));
    k->kept = mem_alloc(KEPT, sizeof *k->kept);
    if (!k->kept) return err_no_memory(err, "cache events", KEPT * sizeof *k->kept);
    TRY(open_sockets(k, options, err));
    int problem = pthread_create(&k->thread, NULL, run, k);
    if (problem) return err_set(err, CARAT_EMEMORY, "no thread: %s", strerror(problem));
    k->has_thread = true;
    return CARAT_OK;
}

int kv_events_open(struct kv_events **out, const struct kv_events_options *options,
                   struct carat_error *err)
{
    *out = NULL;
    struct kv_events *k = mem_alloc(1, sizeof *k);
    if (!k) return err_no_memory(err, "cache events", sizeof *k);
    int status = open_parts(k, options, err);
    if (status == CARAT_OK)
        *out = k;
    else
        kv_events_close(k);
    return status;
}

void kv_events_close(struct kv_events *k)
{
    if (!k) return;
    atomic_store(&k->stops, true);
    if (k->has_thread) {
        wake(k);
        pthread_join(k->thread, NULL);
    }
    if (k->publisher) zmq_close(k->publisher);
    if (k->replay) zmq_close(k->replay);
    if (k->context) zmq_ctx_term(k->context);
    while (k->n_kept > 0) drop_oldest(k);
    mem_free(k->kept);
    kv_queue_close(&k->queue);
    if (k->wake >= 0) close(k->wake);
    mem_free(k);
}

const char *kv_events_endpoint(const struct kv_events *k)
{
    return k->endpoint;
}

#else

int kv_events_open(struct kv_events **out, const struct kv_events_options *options,
                   struct carat_error *err)
{
    (void)options;
    *out = NULL;
    err_set(err, CARAT_EUNSUPPORTED, "--kv-events: carat was built without libzmq");
    err_hint(err, "install libzmq3-dev and build again");
    return CARAT_EUNSUPPORTED;
}

void kv_events_close(struct kv_events *k)
{
    (void)k;
}

void kv_events_watch(struct kv_events *k, size_t i, struct carat_engine_options *options)
{
    (void)k, (void)i, (void)options;
}

const char *kv_events_endpoint(const struct kv_events *k)
{
    (void)k;
    return "";
}

#endif
