/* One GET at a time by libcurl. Redirects are followed here, at most five, each checked: https
 * only, and http only to this machine when the endpoint itself is http on this machine. The token
 * goes to the endpoint's own host, port and scheme and nowhere else. Proxies come from the
 * environment, as libcurl reads it.
 *
 * A build without libcurl answers with CARAT_EUNSUPPORTED. */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "hub/url.h"
#include "hub/watch.h"

struct fetch_options {    /* everything is borrowed until fetch_close */
    const char *endpoint; /* "https://host[:port][/path]" */
    const char *token;    /* "": none */
    bool takes_token;     /* so that a refusal may mean that the token is missing or wrong */
    const char *user_agent;
    const char *ca_file, *ca_folder; /* "": the system's */
    int stall_s;                     /* gives up after this many seconds with less than 1 kB/s */
    const struct hub_watch *watch;
};

struct fetch_head { /* of the last response */
    long status;
    char etag[256];              /* with its quotes; "": none */
    char next[URL_MAX];          /* the Link header's next page; "": none */
    bool accepts_ranges;         /* it says so */
    bool has_length, has_range;  /* Content-Length; a Content-Range of bytes that can be read */
    uint64_t length;             /* of the body */
    uint64_t first, last, total; /* of the range; total is 0 where it says "*" */
    int retry_after_s;
    char encoding[32]; /* of the body: "": plain */
};

struct fetch; /* one thread at a time */

int fetch_open(struct fetch **out, const struct fetch_options *options, struct carat_error *err);
/* The same with another watch, for another thread. */
int fetch_open_like(struct fetch **out, const struct fetch *f, const struct hub_watch *watch,
                    struct carat_error *err);
void fetch_close(struct fetch *f); /* NULL is fine */

/* What takes a body. A failure of either function ends the transfer and is passed on. */
struct fetch_sink {
    void *user;
    /* After the headers of a response with status 200, 206 or 416, before its body. */
    int (*begin)(void *user, const struct fetch_head *head, struct carat_error *err);
    int (*add)(void *user, const void *bytes, size_t n, struct carat_error *err);
};

struct fetch_question {
    const char *url, *accept;
    uint64_t first, last; /* bytes; 0, 0: no range is asked for; last 0: up to the end */
    const char *if_range; /* the ETag that the body must still have; "": any */
    bool keeps_redirect;  /* asks at once where the redirect of this address led to before */
};

/* Asks once. *may_retry: the failure may pass. A response of any other status than the three is a
 * failure. CARAT_ENETWORK has status and address; CARAT_EBUSY: stopped. */
int fetch_get(struct fetch *f, const struct fetch_question *question, const struct fetch_sink *sink,
              struct fetch_head *head, bool *may_retry, struct carat_error *err);

#endif
