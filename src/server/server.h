/* `carat serve`: a model behind HTTP.
 *
 * Threads: the caller's, which owns connections and calls and writes all replies; a few workers,
 * which read bodies, render, tokenise and compile grammars; one for each engine.
 * docs/ARCHITECTURE.md has the way of a request through them.
 *
 * The files of this folder, in the order in which a request meets them:
 *
 *   server.c      opens and closes everything, signals, the end; prefixes.c, notify.c, log.c
 *   http.c        HTTP: the loop. http_listener.c its socket, http_watch.c deadlines, http_entry.c
 *                 newcomers (http_first.c looks at their bytes), http_exchange.c requests and
 *                 replies (http_target.c, http_framing.c: what is refused), http_refusal.c,
 *                 http_linger.c, http_tls.c; request_id.c
 *   dispatch.c    calls (call.c, service.h) as their parts arrive; routes.c, guard.c with keys.c
 *   inquiries.c   what is known at once: facts.c, metrics.c (exposition.c, process_facts.c), page.c
 *   prepare.c     in a worker (workers.c): prompts.c and grammars.c, or texts.c; pieces.c
 *   answering.c   jobs and their events; generation.c makes parts of them, respond.c replies,
 *                 problems.c errors
 *   replicas.c    the engines: affinity.c chooses one, replica.c is its thread, job.c an answer's
 *                 ring, inbox.c the way back; warmup.c
 *   kv_events.c   tells routers what engines have cached: kv_queue.c, msgpack.c
 *   traces.c      tells a collector of requests: trace_context.c, call_span.c, span.c,
 *                 otlp_client.c, otlp_reply.c, pairs.c */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "carat.h"
#include "server/guard.h"
#include "server/http.h"
#include "server/prefixes.h"
#include "server/traces.h"

struct server_options {
    const carat_model *model;
    const char *alias;                          /* the model's name here */
    const char *build;                          /* "carat-0.1.0-1a2b3c4" */
    struct carat_sampling sampling;             /* what requests do not say */
    const struct carat_engine_options *engines; /* [n_engines] */
    size_t n_engines;
    struct http_options http;
    struct guard_options guard;
    bool is_insecure;        /* open to others without keys, wanted by the user */
    int32_t queue_max;       /* requests that wait for a sequence, or for a worker */
    double request_seconds;  /* the longest that a request may take; 0: no limit */
    double ping_seconds;     /* of silence in a stream; 0: never */
    double shutdown_seconds; /* for what runs, after the first signal */
    bool says_reasoning;     /* thoughts are in "reasoning", not in "reasoning_content" */
    bool is_strict_model;    /* other names of models than `alias` are refused */
    bool is_metrics_open;    /* /metrics needs no key */
    const char *kv_events;   /* addresses and topic of kv_events.h; kv_events "": none */
    const char *kv_events_replay, *kv_events_topic;
    struct traces_options traces; /* collector.url "": none */
    struct prefixes_options prefixes;
    void *user;
    /* The engines are there, requests are taken. */
    void (*on_ready)(void *user, uint16_t port, const struct carat_setup *setup);
};

/* Serves until SIGTERM or SIGINT. *signal_number is the signal if there was a second one, which
 * ended it at once; else 0. */
int server_run(const struct server_options *options, int *signal_number, struct carat_error *err);

#endif
