#include "server/traces.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/os.h"
#include "server/log.h"
#include "server/otlp_reply.h"
#include "server/pairs.h"

enum { SPANS_MAX = 2048, BATCH = 256 };
enum { SEND_SECONDS = 1 };             /* that a span waits for others */
enum { TRIES = 4, PAUSE_SECONDS = 1 }; /* of a batch; each pause is twice the one before */

struct traces {
    struct otlp_client *client;
    struct span_source source;
    struct metrics *metrics;
    pthread_mutex_t mutex; /* over ring, first, n, stops */
    pthread_cond_t cond;   /* spans have come, or it ends */
    struct span *ring;     /* [SPANS_MAX] */
    size_t first, n;
    bool stops;
    pthread_t thread;
    bool has_lock, has_thread;
    /* The thread's own. */
    struct span *batch; /* [BATCH] */
    bool is_failing;
};

void traces_add(struct traces *t, const struct span *span)
{
    pthread_mutex_lock(&t->mutex);
    const bool is_full = t->n == SPANS_MAX;
    if (!is_full) t->ring[(t->first + t->n++) % SPANS_MAX] = *span;
    const bool is_news = !is_full && (t->n == 1 || t->n == BATCH);
    pthread_mutex_unlock(&t->mutex);
    if (is_news) pthread_cond_signal(&t->cond);
    if (is_full) metrics_add(t->metrics, METRICS_TRACES_DROPPED, 1);
}

/* ---- The thread -------------------------------------------------------------------------- */

/* Until somebody signals, or that moment of os_seconds(). Returns whether there is time left. */
static bool wait_until(struct traces *t, double until)
{
    struct timespec at;
    const double left = until - os_seconds();
    if (left <= 0) return false;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const double nanoseconds = (double)at.tv_nsec + (left - (double)(time_t)left) * 1e9;
    at.tv_sec += (time_t)left + (nanoseconds >= 1e9);
    at.tv_nsec = (long)(nanoseconds >= 1e9 ? nanoseconds - 1e9 : nanoseconds);
    pthread_cond_timedwait(&t->cond, &t->mutex, &at);
    return true;
}

/* Waits for the next batch. 0: there is none, it ends. */
static size_t take_batch(struct traces *t)
{
    size_t n = 0;
    pthread_mutex_lock(&t->mutex);
    while (t->n == 0 && !t->stops) pthread_cond_wait(&t->cond, &t->mutex);
    const double due = os_seconds() + SEND_SECONDS;
    while (t->n < BATCH && !t->stops && wait_until(t, due)) {
    }
    for (; n < BATCH && t->n > 0; n++, t->n--) {
        t->batch[n] = t->ring[t->first];
        t->first = (t->first + 1) % SPANS_MAX;
    }
    pthread_mutex_unlock(&t->mutex);
    return n;
}

/* Returns whether it goes on: at the end nothing is waited for. */
static bool pause_for(struct traces *t, double seconds)
{
    const double until = os_seconds() + seconds;
    pthread_mutex_lock(&t->mutex);
    while (!t->stops && wait_until(t, until)) {
    }
    const bool goes_on = !t->stops;
    pthread_mutex_unlock(&t->mutex);
    return goes_on;
}

static enum otlp_result send_batch(struct traces *t, const struct buf *body, struct buf *reply,
                                   char why[96])
{
    enum otlp_result result = OTLP_LATER;
    double seconds = PAUSE_SECONDS;
    bool goes_on = true;
    for (int i = 0; i < TRIES && goes_on && result == OTLP_LATER; i++) {
        if (i > 0) {
            goes_on = pause_for(t, seconds); /* at the end there is one more try */
            seconds *= 2;
        }
        result = otlp_post(t->client, body, reply, why);
    }
    return result;
}

/* The log has one line when it begins to fail, and one when it works again. */
static void tell(struct traces *t, size_t n, size_t dropped, const char *why)
{
    const bool is_taken = dropped == 0;
    metrics_add(t->metrics, METRICS_TRACES_SENT, n - dropped);
    metrics_add(t->metrics, METRICS_TRACES_DROPPED, dropped);
    if (is_taken != t->is_failing) return;
    t->is_failing = !is_taken;
    const struct log_field fields[] = {LOG_TEXT_FIELD("url", otlp_url(t->client)),
                                       LOG_TEXT_FIELD("why", why)};
    if (is_taken)
        log_event(LOG_INFO, "traces_sent_again", fields, 1);
    else
        log_event(LOG_WARN, "traces_dropped", fields, 2);
}

static void *run(void *user)
{
    struct traces *t = user;
    size_t n;
    while ((n = take_batch(t)) > 0) {
        struct buf body = {0}, reply = {0};
        char why[96] = "no memory is left";
        size_t dropped = n;
        spans_write(&body, &t->source, t->batch, n);
        if (!body.failed && send_batch(t, &body, &reply, why) == OTLP_TAKEN) {
            (void)snprintf(why, sizeof why, "it has refused some of them");
            dropped = otlp_reply_rejected(buf_text(&reply), reply.length, n);
        }
        tell(t, n, dropped, why);
        buf_deinit(&body);
        buf_deinit(&reply);
    }
    return NULL;
}

/* ---- Opening ----------------------------------------------------------------------------- */

static int check_attributes(const char *at, struct carat_error *err)
{
    struct pair pair;
    int found;
    while ((found = pairs_next(&at, &pair)) > 0) {
    }
    if (found == 0) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "OTEL_RESOURCE_ATTRIBUTES: NAME=VALUE,NAME=VALUE expected");
}

static int start(struct traces *t, const struct traces_options *o, struct carat_error *err)
{
    pthread_condattr_t attributes;
    TRY(check_attributes(o->source.attributes, err));
    TRY(otlp_open(&t->client, &o->collector, err));
    t->ring = mem_alloc(SPANS_MAX, sizeof *t->ring);
    t->batch = mem_alloc(BATCH, sizeof *t->batch);
    if (!t->ring || !t->batch) return err_no_memory(err, "traces", SPANS_MAX * sizeof *t->ring);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->cond, &attributes);
    pthread_condattr_destroy(&attributes);
    t->has_lock = true;
    const int problem = pthread_create(&t->thread, NULL, run, t);
    if (problem) return err_set(err, CARAT_EMEMORY, "no thread: %s", strerror(problem));
    t->has_thread = true;
    return CARAT_OK;
}

int traces_open(struct traces **out, const struct traces_options *options, struct metrics *metrics,
                struct carat_error *err)
{
    struct traces *t = *out = mem_alloc(1, sizeof *t);
    if (!t) return err_no_memory(err, "traces", sizeof *t);
    t->source = options->source;
    t->metrics = metrics;
    int status = start(t, options, err);
    if (status == CARAT_OK) return CARAT_OK;
    traces_close(t);
    *out = NULL;
    return status;
}

void traces_close(struct traces *t)
{
    if (!t) return;
    if (t->has_thread) {
        pthread_mutex_lock(&t->mutex);
        t->stops = true;
        pthread_mutex_unlock(&t->mutex);
        otlp_end_within(t->client, TRACES_END_SECONDS);
        pthread_cond_signal(&t->cond);
        pthread_join(t->thread, NULL);
    }
    if (t->has_lock) {
        pthread_cond_destroy(&t->cond);
        pthread_mutex_destroy(&t->mutex);
    }
    otlp_close(t->client);
    mem_free(t->ring);
    mem_free(t->batch);
    mem_free(t);
}

const char *traces_url(const struct traces *t)
{
    return otlp_url(t->client);
}
