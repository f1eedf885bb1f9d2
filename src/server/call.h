/* A request from its headers to the last byte of its reply, whatever it asks for.
 *
 * The thread of the server owns all calls. It hands one to a worker, which gives it back through
 * the inbox; in between only `is_gone` may be touched. Jobs are with the replicas until their DONE
 * was taken, and news of a job puts its call into the inbox, too. So a call is freed when the
 * client is gone, no worker has it, and all its jobs are done. */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include <stdatomic.h>

#include "server/generation.h"
#include "server/grammars.h"
#include "server/guard.h"
#include "server/http.h"
#include "server/inbox.h"
#include "server/request_id.h"
#include "server/routes.h"
#include "server/trace_context.h"
#include "server/workers.h"

enum call_stage {
    CALL_READING,   /* its body */
    CALL_AT_WORKER, /* queued there, or worked on */
    CALL_RUNNING,   /* has jobs */
    CALL_ENDING     /* the reply is given, jobs may still be about to end */
};

struct call {
    struct call *next, *previous; /* of all calls */
    struct news news;
    struct work work;
    struct http_request *q; /* NULL after on_closed */
    const struct route *route;
    enum call_stage stage;
    atomic_bool is_gone;          /* the client: a worker need not go on */
    char id[REQUEST_ID_MAX];      /* the client's own, if it gave one */
    char unique[REQUEST_ID_MADE]; /* in any case ours */
    char client[64], method[16];
    struct trace_context trace; /* zeroed: nothing is recorded */
    enum api_family family;
    int status; /* of the reply; 0: none yet */
    size_t bytes_in, bytes_out;
    struct guard_pass pass;
    uint64_t session;       /* of the header x-session-id; 0: there is none */
    bool is_counted;        /* by the guard, as one of its key's */
    double began, received; /* os_seconds(): headers, last byte of the body */

    /* A worker's. */
    struct buf body; /* of the request; later of the reply to a TEXT route */
    struct ask ask;
    struct prompts prompts;
    carat_grammar *grammar; /* NULL: none */
    struct generation *answers;
    int32_t n_answers;
    struct reply *reply;
    size_t held; /* bytes, as counted by the service */
    struct api_error error;
    bool has_failed; /* with `error` */

    /* While it runs. */
    int32_t n_done;
    bool is_stream;  /* the reply has begun, bit by bit */
    bool is_blocked; /* the client reads too slowly: on_room goes on */
    double last_sent;
    const char *finish; /* of the first answer; for log and metrics; "" */
};

/* NULL: out of memory. Its id is the client's x-request-id if that is [A-Za-z0-9._-]{1,64}. */
struct call *call_open(struct http_request *q);
void call_close(struct call *c, struct grammars *grammars); /* where its grammar is from */

#endif
