/* A server as the target of a load: prompts as ids to /v1/completions, streamed, over libcurl. A
 * request is cancelled by closing its connection. What other servers do not tell is left out: ids
 * of tokens (then each piece of text is a token), times in the queue, cached tokens. */
#ifndef CLI_LOAD_HTTP_H
#define CLI_LOAD_HTTP_H

#include "cli/load_plan.h"
#include "cli/load_target.h"

struct load_http;

struct load_http_options {
    const char *url; /* "http://127.0.0.1:8080", with or without "/v1" */
    const char *key; /* "": none */
    const struct load_plan *plan;
};

struct load_server { /* what it says of itself */
    char model[64];
    struct carat_model_info info; /* n_vocab, n_params, n_ctx_train, file_bytes */
    struct carat_memory memory;   /* n_ctx */
    int32_t n_seq;
};

/* Asks the server for its facts. CARAT_ENETWORK: it does not answer, or not so. CARAT_EUNSUPPORTED:
 * built without libcurl. Texts of `options` are copied, the plan is borrowed. */
int load_http_open(struct load_http **out, const struct load_http_options *options,
                   struct load_server *server, struct carat_error *err);
struct load_target *load_http_target(struct load_http *h);
void load_http_close(struct load_http *h); /* NULL is fine */

#endif
