#include "hub/ranges.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/os.h"

enum {
    PAY_LEAST = 8 << 20,     /* bytes */
    STRETCH_LEAST = 1 << 20, /* of one request */
    STRETCH_MOST = 16 << 20,
    MEMORY_MOST = 256 << 20, /* of all stretches that are loaded or wait */
    SLOTS_EACH = 2,          /* stretches for each connection */
    PROGRESS = 1 << 20       /* after this many bytes tries are counted anew */
};

/* A stretch that is loaded or waits until those before it are complete. */
struct slot {
    char *bytes; /* owned by struct ranges */
    uint64_t first;
    size_t length, have, added; /* bytes; length 0: the slot is free */
    bool is_left;               /* whoever was loading it gave up */
};

struct ranges {
    pthread_mutex_t mutex;
    pthread_cond_t news; /* for the caller: bytes have come, or it failed */
    pthread_cond_t room; /* for workers: a stretch can be taken, or all is over */
    const struct ranges_want *want;
    const struct hub_watch *watch; /* the caller's; only its thread calls the functions */
    struct slot slots[SLOTS_EACH * RANGES_CONNECTIONS_MAX];
    size_t n_slots, stretch;
    char *memory;
    uint64_t asked, added, come; /* bytes that were asked for, handed out, and that are here */
    int n_loading;               /* workers that load now; the others wait */
    atomic_bool stops;
    bool is_odd;
    int status; /* of the worker that failed first */
    struct carat_error why;
    char said[256]; /* what the caller should say */
};

struct worker {
    struct ranges *r;
    pthread_t thread;
    struct fetch *fetch;
    struct hub_watch watch;
    struct slot *slot;  /* not to be looked at once it is whole: it may be somebody else's then */
    uint64_t first;     /* place in the file of the request's bytes */
    size_t wanted, got; /* bytes of the request */
    int tries;          /* that failed in a row */
    uint64_t come;      /* of all workers when it failed last */
};

bool ranges_pay(uint64_t bytes, int connections)
{
    return connections > 1 && bytes >= PAY_LEAST;
}

/* ---- A worker --------------------------------------------------------------------------- */

static bool goes_on(void *user)
{
    struct worker *w = user;
    return !atomic_load(&w->r->stops);
}

static int refuse(const struct ranges *r, const char *what, struct carat_error *err)
{
    const char *slash = strrchr(r->want->url, '/');
    return err_set(err, CARAT_ENETWORK, "%.*s: %s",
                   slash ? (int)(strcspn(slash + 1, "?#") % 200) : 0, slash ? slash + 1 : "", what);
}

static int begin(void *user, const struct fetch_head *head, struct carat_error *err)
{
    const struct worker *w = user;
    const struct ranges_want *want = w->r->want;
    uint64_t first = w->first, last = w->first + w->wanted - 1;
    if (head->status != 206 || !head->has_range)
        return refuse(w->r, "the server does not send the part that was asked for", err);
    bool is_other = want->etag[0] && head->etag[0] && strcmp(want->etag, head->etag) != 0;
    if (is_other || (want->needs_etag && !head->etag[0]))
        return refuse(w->r, "has changed on the server", err);
    bool is_asked = head->first == first && head->last >= first && head->last <= last &&
                    (!head->total || head->total == want->size) &&
                    (!head->has_length || head->length == head->last - first + 1);
    return is_asked ? CARAT_OK
                    : refuse(w->r, "the server's Content-Range or Content-Length is wrong", err);
}

static int add(void *user, const void *bytes, size_t n, struct carat_error *err)
{
    struct worker *w = user;
    struct ranges *r = w->r;
    struct slot *s = w->slot;
    if (n > w->wanted - w->got) return refuse(r, "the server sends more than was asked for", err);
    if (n == 0) return CARAT_OK;
    memcpy(s->bytes + (w->first - s->first) + w->got, bytes, n); /* nobody else looks there yet */
    w->got += n;
    pthread_mutex_lock(&r->mutex);
    s->have += n;
    r->come += n;
    bool is_next = s->first + s->added == r->added;
    pthread_mutex_unlock(&r->mutex);
    if (is_next) pthread_cond_signal(&r->news);
    return CARAT_OK;
}

/* A stretch that somebody has given up, else the next one; NULL: there is none now. Locked. */
static struct slot *take_slot(struct ranges *r)
{
    struct slot *best = NULL, *empty = NULL;
    for (size_t i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];
        if (s->length == 0) empty = s;
        if (s->length && s->is_left && (!best || s->first < best->first)) best = s;
    }
    if (!best && empty && r->asked < r->want->size) {
        uint64_t left = r->want->size - r->asked;
        best = empty;
        best->first = r->asked;
        best->length = left < r->stretch ? (size_t)left : r->stretch;
        best->have = best->added = 0;
        r->asked += best->length;
    }
    if (best) best->is_left = false;
    return best;
}

static void fail(struct ranges *r, int status, bool is_odd, const struct carat_error *why)
{
    if (r->status != CARAT_OK) return;
    r->status = status;
    r->is_odd = is_odd;
    r->why = *why;
    pthread_cond_signal(&r->news);
}

/* After a request that did not bring the whole stretch: seconds to wait before the next one. While
 * others load, the server may simply want fewer connections, so nothing fails then. Locked. */
static double look_at_failure(struct worker *w, int status, bool may_retry, int retry_after_s,
                              const struct carat_error *why)
{
    struct ranges *r = w->r;
    w->slot->is_left = true;
    pthread_cond_broadcast(&r->room);
    if (atomic_load(&r->stops)) return 0;
    if (status != CARAT_OK && !may_retry) {
        fail(r, status, true, why);
        return 0;
    }
    if (r->come - w->come >= PROGRESS) w->tries = 0;
    w->come = r->come;
    if (w->tries >= r->watch->retries && r->n_loading == 0) {
        fail(r, CARAT_ENETWORK, false, why);
        return 0;
    }
    double seconds = watch_delay(w->tries++, retry_after_s);
    if (r->n_loading == 0)
        snprintf(r->said, sizeof r->said, "%.200s; trying again in %.1f s", why->message, seconds);
    return seconds;
}

/* Loads what the slot lacked when the worker took it. */
static int load_slot(struct worker *w, bool *may_retry, int *retry_after_s, struct carat_error *why)
{
    struct fetch_head head;
    struct fetch_sink sink = {w, begin, add};
    const struct ranges_want *want = w->r->want;
    struct fetch_question question = {.url = want->url,
                                      .accept = "*/*",
                                      .first = w->first,
                                      .last = w->first + w->wanted - 1,
                                      .keeps_redirect = true,
                                      .if_range = want->etag[0] == '"' ? want->etag : ""};
    int status = fetch_get(w->fetch, &question, &sink, &head, may_retry, why);
    *retry_after_s = head.retry_after_s;
    if (status == CARAT_OK && w->got == 0) {
        *may_retry = true;
        status = refuse(w->r, "the server sends nothing more", why);
    }
    return status;
}

static void *work(void *user)
{
    struct worker *w = user;
    struct ranges *r = w->r;
    pthread_mutex_lock(&r->mutex);
    while (!atomic_load(&r->stops)) {
        w->slot = take_slot(r);
        if (!w->slot) {
            pthread_cond_wait(&r->room, &r->mutex);
            continue;
        }
        w->first = w->slot->first + w->slot->have;
        w->wanted = w->slot->length - w->slot->have;
        w->got = 0;
        r->n_loading++;
        pthread_mutex_unlock(&r->mutex);
        bool may_retry = false;
        int retry_after_s = 0;
        double seconds = 0;
        struct carat_error why = {0};
        int status = load_slot(w, &may_retry, &retry_after_s, &why);
        pthread_mutex_lock(&r->mutex);
        r->n_loading--;
        bool is_whole = w->got == w->wanted;
        if (!is_whole && status == CARAT_OK)
            w->slot->is_left = true; /* the server may send less than it was asked for */
        else if (!is_whole)
            seconds = look_at_failure(w, status, may_retry, retry_after_s, &why);
        if (seconds <= 0) continue;
        pthread_mutex_unlock(&r->mutex);
        watch_sleep(&w->watch, seconds, NULL);
        pthread_mutex_lock(&r->mutex);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* ---- The caller ------------------------------------------------------------------------- */

/* The slot with the next byte to hand out, if that byte is here. Locked. */
static struct slot *next_slot(struct ranges *r)
{
    for (size_t i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];
        if (s->length && s->first + s->added == r->added) return s->have > s->added ? s : NULL;
    }
    return NULL;
}

/* Hands out what the slot has. Locked, but not while `add` works. */
static int hand_out(struct ranges *r, struct slot *s, const struct ranges_sink *sink,
                    struct carat_error *err)
{
    size_t n = s->have - s->added;
    pthread_mutex_unlock(&r->mutex);
    int status = sink->add(sink->user, s->bytes + s->added, n, err);
    pthread_mutex_lock(&r->mutex);
    s->added += n;
    r->added += n;
    if (s->added == s->length) {
        s->length = 0;
        pthread_cond_broadcast(&r->room);
    }
    return status;
}

/* Tells what is to be told and asks whether to go on. Locked, but not while it does that. */
static int look_around(struct ranges *r, const struct ranges_sink *sink, struct carat_error *err)
{
    char said[sizeof r->said];
    uint64_t ahead = r->want->first + r->come - r->added;
    memcpy(said, r->said, sizeof said);
    r->said[0] = '\0';
    pthread_mutex_unlock(&r->mutex);
    if (said[0]) watch_say(r->watch, "%s", said);
    sink->moved(sink->user, ahead);
    int status = watch_goes_on(r->watch) ? CARAT_OK : watch_stopped(err);
    pthread_mutex_lock(&r->mutex);
    return status;
}

static void wait_for_news(struct ranges *r, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&r->news, &r->mutex, &until);
}

static int take_all(struct ranges *r, const struct ranges_sink *sink, struct carat_error *err)
{
    static const double often = 0.1; /* seconds */
    double looked = os_seconds();
    int status = CARAT_OK;
    pthread_mutex_lock(&r->mutex);
    while (status == CARAT_OK && r->added < r->want->size) {
        struct slot *s = next_slot(r);
        if (s) {
            status = hand_out(r, s, sink, err);
        } else if (r->status != CARAT_OK) {
            status = r->status;
            if (err) *err = r->why;
        } else {
            wait_for_news(r, often);
        }
        if (status != CARAT_OK || os_seconds() < looked + often) continue;
        looked = os_seconds();
        status = look_around(r, sink, err);
    }
    atomic_store(&r->stops, true);
    pthread_cond_broadcast(&r->room);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

/* ---- Opening ---------------------------------------------------------------------------- */

static int open_slots(struct ranges *r, int n, struct carat_error *err)
{
    uint64_t left = r->want->size - r->want->first;
    r->n_slots = (size_t)n * SLOTS_EACH;
    uint64_t stretch = left / (4 * (uint64_t)n), most = MEMORY_MOST / r->n_slots;
    if (most > STRETCH_MOST) most = STRETCH_MOST;
    if (stretch > most) stretch = most;
    if (stretch < STRETCH_LEAST) stretch = STRETCH_LEAST;
    r->stretch = (size_t)stretch;
    r->memory = mem_alloc(r->n_slots, r->stretch);
    if (!r->memory) return err_no_memory(err, "download", r->n_slots * r->stretch);
    for (size_t i = 0; i < r->n_slots; i++) r->slots[i].bytes = r->memory + i * r->stretch;
    return CARAT_OK;
}

static int open_ranges(struct ranges *r, int n, struct carat_error *err)
{
    pthread_condattr_t kind;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->room, NULL);
    pthread_condattr_init(&kind);
    pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
    pthread_cond_init(&r->news, &kind);
    pthread_condattr_destroy(&kind);
    return open_slots(r, n, err);
}

static void close_ranges(struct ranges *r)
{
    pthread_mutex_destroy(&r->mutex);
    pthread_cond_destroy(&r->news);
    pthread_cond_destroy(&r->room);
    mem_free(r->memory);
}

/* Starts up to n workers; returns how many. One is enough to go on. */
static int start_workers(struct ranges *r, const struct fetch *f, struct worker *workers, int n,
                         struct carat_error *err)
{
    int started = 0;
    for (; started < n; started++) {
        struct worker *w = &workers[started];
        *w = (struct worker){.r = r, .watch = {.user = w, .goes_on = goes_on}};
        if (fetch_open_like(&w->fetch, f, &w->watch, err) != CARAT_OK) break;
        int problem = pthread_create(&w->thread, NULL, work, w);
        if (problem == 0) continue;
        err_set(err, CARAT_EMEMORY, "a thread cannot be started: %s", strerror(problem));
        break;
    }
    if (started < n) fetch_close(workers[started].fetch);
    return started;
}

int ranges_load(const struct fetch *f, const struct ranges_want *want,
                const struct ranges_sink *sink, const struct hub_watch *watch, bool *is_odd,
                struct carat_error *err)
{
    struct worker workers[RANGES_CONNECTIONS_MAX];
    int n = want->connections < RANGES_CONNECTIONS_MAX ? want->connections : RANGES_CONNECTIONS_MAX;
    int started = 0;
    struct ranges r = {.want = want, .watch = watch, .asked = want->first, .added = want->first};
    int status = open_ranges(&r, n, err);
    if (status == CARAT_OK) {
        started = start_workers(&r, f, workers, n, err);
        status = started ? take_all(&r, sink, err) : CARAT_EMEMORY;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        fetch_close(workers[i].fetch);
    }
    *is_odd = status != CARAT_OK && (r.is_odd || started == 0);
    close_ranges(&r);
    return status;
}
