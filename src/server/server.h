/* `carat serve`: a model behind HTTP.
 *
 * Threads: the caller's, which owns connections and calls and writes all replies; a few workers,
 * which read bodies, render, tokenise and compile grammars; one for each engine.
 * docs/ARCHITECTURE.md has the way of a request through them. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "carat.h"
#include "server/guard.h"
#include "server/http.h"
#include "server/traces.h"

struct server_options {
    const carat_model *model;
    const char *alias;                          /* the model's name here */
    const char *build;                          /* "carat 0.1.0 (1a2b3c4)" */
    struct carat_sampling sampling;             /* what requests do not say */
    const struct carat_engine_options *engines; /* [n_engines] */
    size_t n_engines;
    struct http_options http;
    struct guard_options guard;
    bool is_insecure;        /* open to others without keys, wanted by the user */
    int32_t queue_max;       /* requests that wait for a sequence, or for a worker */
    double request_seconds;  /* from the first to the last of an answer; 0: no limit */
    double ping_seconds;     /* of silence in a stream; 0: never */
    double shutdown_seconds; /* for what runs, after the first signal */
    bool says_reasoning;     /* thoughts are in "reasoning", not in "reasoning_content" */
    bool is_strict_model;    /* other names of models than `alias` are refused */
    bool is_metrics_open;    /* /metrics needs no key */
    const char *kv_events;   /* addresses and topic of kv_events.h; kv_events "": none */
    const char *kv_events_replay, *kv_events_topic;
    struct traces_options traces; /* collector.url "": none */
    void *user;
    /* The engines are there, requests are taken. */
    void (*on_ready)(void *user, uint16_t port, const struct carat_setup *setup);
};

/* Serves until SIGTERM or SIGINT. *signal_number is the signal if there was a second one, which
 * ended it at once; else 0. */
int server_run(const struct server_options *options, int *signal_number, struct carat_error *err);

#endif
