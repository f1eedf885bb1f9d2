/* Sends bodies to a collector of OpenTelemetry by libcurl: POST, no redirects, certificates are
 * checked. Whatever a collector does, a body takes 10 seconds at most, and of a reply no more than
 * 64 KB is read. A build without libcurl answers with CARAT_EUNSUPPORTED. */
#ifndef SERVER_OTLP_CLIENT_H
#define SERVER_OTLP_CLIENT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

struct otlp_client;

struct otlp_options {
    const char *url;    /* "http://127.0.0.1:4318"; "" for none */
    const char *name;   /* who gave it, for messages: "--otlp" */
    bool is_whole;      /* a path is as it is meant; else /v1/traces belongs at its end */
    const char *fields; /* more header fields (pairs.h), or "" */
    const char *ca_file;
    bool is_insecure; /* fields may go unencrypted to other machines */
};

/* CARAT_EUSAGE: such an address or such fields are not allowed. Asks nobody. */
int otlp_open(struct otlp_client **out, const struct otlp_options *options,
              struct carat_error *err);
void otlp_close(struct otlp_client *c); /* NULL is fine */

/* Where bodies go. Borrowed. */
const char *otlp_url(const struct otlp_client *c);

enum otlp_result {
    OTLP_TAKEN,
    OTLP_LATER,  /* nobody is there, or not now */
    OTLP_REFUSED /* the same body would be refused again */
};
/* One thread at a time. `reply`: the beginning of what it answers, at most OTLP_REPLY_MAX + 1 bytes
 * (otlp_reply.h). *why: a text without anything that the collector said; if not TAKEN. */
enum otlp_result otlp_post(struct otlp_client *c, const struct buf *body, struct buf *reply,
                           char why[96]);

/* Any thread: all that is still posted ends within so many seconds. */
void otlp_end_within(struct otlp_client *c, double seconds);

#endif
