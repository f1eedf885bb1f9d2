/* A small server on server/http.h alone, for test_http.py. Prints "port N", then one line for each
 * thing that it is told: "began TAG" (it has done what it can do at once), "room TAG",
 * "closed TAG sent" or "closed TAG cut", "refused STATUS CLIENT known|new: WHY".
 *
 *     http_echo [NAME=VALUE ...]     names: those of struct http_options; fail_after=N: the N-th
 *                                    allocation and all later ones fail, until SIGUSR1;
 *                                    busy_seconds=S: each tick takes this long
 *
 *     /echo              method, path and length of the body
 *     /early             answers before the body is read
 *     /hold              waits for ever
 *     /later?ms=         answers after that time
 *     /stream?n=&ms=&size=   n pieces, one each ms; with end=cut it ends in the middle
 *                        Both: with after=stop their time begins when the server is told to stop.
 *     /flood?size=       a stream that is never short of bytes, by on_room
 *     /big?size=         a whole reply of that many bytes
 *     /wakes?n=          calls http_wake n times from four threads; answers how often on_wake came
 *     /header?name=&n=   that header
 *     /query?key=        the value of that key
 *     /counts            connections: idle reading waiting writing
 *
 * Each takes tag=, which names it in the lines. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "base/os.h"
#include "server/http.h"

enum { HELD_MAX = 16384, THREADS = 4 };

struct held {
    struct http_request *request;
    char tag[32], kind[16];
    bool is_started, waits_for_stop;
    long left, size;
    double every, next;
};

static struct held *held[HELD_MAX];
static struct http *server;
static long on_wakes, wakes_each;
static pthread_t threads[THREADS];
static bool is_waking, is_stopping;
static struct http_request *wakes_request;
static double wakes_until;
static struct timespec busy;

static long number(const struct http_request *q, const char *key, long otherwise)
{
    const char *text = http_query(q, key);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void text_reply(struct http_request *q, int status, const char *text)
{
    const struct http_field type = {"Content-Type", "text/plain"};
    http_reply(q, status, &type, 1, text, strlen(text));
}

static struct held *hold(struct http_request *q, const char *kind)
{
    struct held *e = calloc(1, sizeof *e);
    const char *tag = http_query(q, "tag");
    e->request = q;
    e->waits_for_stop = http_query(q, "after") != NULL;
    (void)snprintf(e->tag, sizeof e->tag, "%s", tag ? tag : "-");
    (void)snprintf(e->kind, sizeof e->kind, "%s", kind);
    e->left = number(q, "n", 1);
    e->size = number(q, "size", 1);
    e->every = (double)number(q, "ms", 0) / 1000;
    e->next = os_seconds() + e->every;
    q->user = e;
    for (int i = 0; i < HELD_MAX; i++) {
        if (held[i]) continue;
        held[i] = e;
        break;
    }
    return e;
}

static void on_refused(void *user, const struct http_refusal *r, struct http_refusal_reply *reply)
{
    (void)user;
    (void)printf("refused %d %s %s: %s\n", r->status, r->client[0] ? r->client : "-",
                 r->known ? "known" : "new", r->why);
    if (!reply) return;
    reply->fields[reply->n_fields++] = (struct http_field){"x-request-id", r->id ? r->id : "own"};
    struct json j = {.out = &reply->body};
    json_begin_object(&j);
    json_key_object(&j, "error");
    json_key_string(&j, "message", r->why);
    json_key_string(&j, "path", strncmp(r->path, "/echo", 5) == 0 ? "/echo" : "");
    json_end_object(&j);
    json_end_object(&j);
}

static void on_headers(void *user, struct http_request *q)
{
    (void)user;
    (void)hold(q, q->path + 1);
    if (strcmp(q->path, "/early") == 0) text_reply(q, 401, "early\n");
}

static void *wake_often(void *user)
{
    (void)user;
    for (long i = 0; i < wakes_each; i++) http_wake(server);
    return NULL;
}

static void start_waking(struct http_request *q)
{
    wakes_each = number(q, "n", 1) / THREADS;
    on_wakes = 0;
    wakes_request = q;
    /* All before this thread is back in its loop. */
    for (int i = 0; i < THREADS; i++) (void)pthread_create(&threads[i], NULL, wake_often, NULL);
    for (int i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
    wakes_until = os_seconds() + 0.3; /* for those that should not come */
    is_waking = true;
}

static void flood(struct held *e)
{
    char *bytes = malloc((size_t)e->size);
    memset(bytes, 'x', (size_t)e->size);
    http_add(e->request, bytes, (size_t)e->size);
    free(bytes);
}

static void reply_big(struct http_request *q, size_t size)
{
    char *bytes = malloc(size + 1);
    for (size_t i = 0; i < size; i++) bytes[i] = (char)('a' + i % 26);
    http_reply(q, 200, NULL, 0, bytes, size);
    free(bytes);
}

static void answer(struct http_request *q)
{
    char text[4096];
    struct held *e = q->user;
    const struct http_field type = {"Content-Type", "text/event-stream"};
    if (strcmp(q->path, "/hold") == 0 || strcmp(q->path, "/later") == 0) return;
    if (strcmp(q->path, "/stream") == 0) {
        http_stream(q, 200, &type, 1);
        e->is_started = true;
    } else if (strcmp(q->path, "/flood") == 0) {
        http_stream(q, 200, &type, 1);
        flood(e);
    } else if (strcmp(q->path, "/big") == 0) {
        reply_big(q, (size_t)number(q, "size", 1));
    } else if (strcmp(q->path, "/wakes") == 0) {
        start_waking(q);
    } else if (strcmp(q->path, "/header") == 0) {
        const char *name = http_query(q, "name");
        const char *value = http_header(q, name ? name : "", (int)number(q, "n", 0));
        text_reply(q, value ? 200 : 404, value ? value : "none");
    } else if (strcmp(q->path, "/counts") == 0) {
        const struct http_counts n = http_count(server);
        (void)snprintf(text, sizeof text, "%zu %zu %zu %zu\n", n.idle, n.reading, n.waiting,
                       n.writing);
        text_reply(q, 200, text);
    } else if (strcmp(q->path, "/query") == 0) {
        const char *key = http_query(q, "key");
        const char *value = http_query(q, key ? key : "");
        text_reply(q, value ? 200 : 404, value ? value : "none");
    } else {
        (void)snprintf(text, sizeof text, "%s %s %zu %s %llu\n", q->method, q->path, q->body.length,
                       q->client, (unsigned long long)q->connection);
        text_reply(q, 200, text);
    }
}

static void on_request(void *user, struct http_request *q)
{
    const struct held *e = q->user;
    char tag[sizeof e->tag];
    (void)user;
    memcpy(tag, e->tag, sizeof tag);
    answer(q);
    if (strcmp(tag, "-") != 0) (void)printf("began %s\n", tag);
}

static void on_room(void *user, struct http_request *q)
{
    struct held *e = q->user;
    (void)user;
    if (strcmp(e->kind, "flood") == 0) {
        flood(e);
    } else {
        (void)printf("room %s\n", e->tag);
    }
}

static void on_closed(void *user, struct http_request *q, bool is_sent)
{
    struct held *e = q->user;
    (void)user;
    if (strcmp(e->tag, "-") != 0) (void)printf("closed %s %s\n", e->tag, is_sent ? "sent" : "cut");
    for (int i = 0; i < HELD_MAX; i++)
        if (held[i] == e) held[i] = NULL;
    if (wakes_request == q) wakes_request = NULL;
    free(e);
}

static atomic_int told; /* the last signal that nobody has looked at; 0: none */

static void on_signal(int number)
{
    atomic_store(&told, number);
    http_wake(server);
}

static void on_wake(void *user)
{
    struct carat_error err = {0};
    const int signal_number = atomic_exchange(&told, 0); /* the next comes when this is told */
    (void)user;
    on_wakes++;
    if (signal_number == SIGTERM || signal_number == SIGINT) {
        is_stopping = true;
        http_stop(server, signal_number == SIGINT);
    }
    if (signal_number == SIGHUP)
        (void)printf("reload %s\n", http_reload(server, &err) == CARAT_OK ? "ok" : err.message);
    if (signal_number == SIGUSR1) (void)printf("memory %d\n", mem_fail_after(-1));
}

static void step(struct held *e, double now)
{
    struct http_request *q = e->request;
    if (e->waits_for_stop) {
        e->waits_for_stop = !is_stopping;
        e->next = now + e->every;
    }
    if (now < e->next) return;
    e->next = now + e->every;
    if (strcmp(e->kind, "later") == 0) {
        e->next = now + 1e9;
        text_reply(q, 200, "later\n");
    } else if (strcmp(e->kind, "stream") == 0 && e->is_started) {
        if (e->left-- > 0) flood(e);
        if (e->left <= 0) {
            const char *end = http_query(q, "end");
            http_end(q, !end || strcmp(end, "cut") != 0);
            e->next = now + 1e9;
        }
    }
}

static void on_tick(void *user)
{
    (void)user;
    (void)nanosleep(&busy, NULL);
    const double now = os_seconds();
    for (int i = 0; i < HELD_MAX; i++)
        if (held[i]) step(held[i], now);
    if (is_waking && on_wakes > 0 && now >= wakes_until) {
        char text[32];
        is_waking = false;
        (void)snprintf(text, sizeof text, "%ld\n", on_wakes);
        if (wakes_request) text_reply(wakes_request, 200, text);
    }
}

static void set(struct http_options *o, const char *name, const char *value)
{
    const double x = strtod(value, NULL);
    if (strcmp(name, "host") == 0) o->host = value;
    if (strcmp(name, "port") == 0) o->port = (uint16_t)x;
    if (strcmp(name, "unix_path") == 0) o->unix_path = value;
    if (strcmp(name, "listen_fd") == 0) o->listen_fd = (int)x;
    if (strcmp(name, "certificate") == 0) o->certificate = value;
    if (strcmp(name, "private_key") == 0) o->private_key = value;
    if (strcmp(name, "connections_max") == 0) o->connections_max = (int32_t)x;
    if (strcmp(name, "header_bytes_max") == 0) o->header_bytes_max = (size_t)x;
    if (strcmp(name, "body_bytes_max") == 0) o->body_bytes_max = (size_t)x;
    if (strcmp(name, "bodies_bytes_max") == 0) o->bodies_bytes_max = (size_t)x;
    if (strcmp(name, "header_seconds") == 0) o->header_seconds = x;
    if (strcmp(name, "body_seconds") == 0) o->body_seconds = x;
    if (strcmp(name, "write_seconds") == 0) o->write_seconds = x;
    if (strcmp(name, "idle_seconds") == 0) o->idle_seconds = x;
    if (strcmp(name, "low_bytes") == 0) o->low_bytes = (size_t)x;
    if (strcmp(name, "busy_seconds") == 0) busy.tv_nsec = (long)(x * 1e9);
}

int main(int argc, char **argv)
{
    struct http_options options = {.host = "127.0.0.1",
                                   .listen_fd = -1,
                                   .connections_max = 20000,
                                   .header_bytes_max = 16384,
                                   .body_bytes_max = 1 << 20,
                                   .bodies_bytes_max = 1 << 26,
                                   .header_seconds = 10,
                                   .body_seconds = 10,
                                   .write_seconds = 10,
                                   .idle_seconds = 60,
                                   .low_bytes = 65536};
    const struct http_events events = {.on_refused = on_refused,
                                       .on_headers = on_headers,
                                       .on_request = on_request,
                                       .on_room = on_room,
                                       .on_closed = on_closed,
                                       .on_wake = on_wake,
                                       .on_tick = on_tick,
                                       .tick_seconds = 0.01};
    struct carat_error err = {0};
    long fail_after = -1;
    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) return 2;
        *equals = '\0';
        set(&options, argv[i], equals + 1);
        if (strcmp(argv[i], "fail_after") == 0) fail_after = strtol(equals + 1, NULL, 10);
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    int status = http_open(&server, &options, &events, &err);
    if (status == CARAT_OK) {
        (void)signal(SIGTERM, on_signal);
        (void)signal(SIGINT, on_signal);
        (void)signal(SIGHUP, on_signal);
        (void)signal(SIGUSR1, on_signal);
        /* Last: whoever reads the line may send a signal at once. */
        (void)printf("port %u\n", (unsigned)http_port(server));
        if (fail_after >= 0) (void)mem_fail_after(fail_after);
        status = http_run(server, &err);
    }
    (void)signal(SIGTERM, SIG_IGN); /* a handler must not find the server gone */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN);
    http_close(server);
    if (status != CARAT_OK) (void)printf("failed %d %s (%s)\n", status, err.message, err.hint);
    return carat_exit_status((enum carat_status)status);
}
