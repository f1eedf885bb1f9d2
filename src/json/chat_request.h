/* A chat request of OpenAI's API: what it says besides messages and tools.
 *
 * Rules
 * 1. A member that is absent or null leaves the default. Unknown members are ignored, but what
 *    would change an answer's meaning is refused by its name (images, audio, more answers).
 * 2. CARAT_EUSAGE names the member, e.g. "messages[1].content[0].type". The messages themselves are
 *    checked by carat_chat_tokenize; tools, tool_choice and response_format by whoever makes a
 *    grammar of them. */
#ifndef JSON_CHAT_REQUEST_H
#define JSON_CHAT_REQUEST_H

#include "json/json_tree.h"

struct chat_request {
    struct json_tree json;          /* owned; all that follows borrows from it */
    struct carat_value root;        /* as carat_chat_tokenize takes it */
    struct carat_sampling sampling; /* top_p 0: the likeliest token only */
    bool has_seed;
    int32_t n;            /* answers */
    int32_t max_tokens;   /* -1: to the end of the context */
    int32_t thinking_max; /* tokens of a thought, after which it is closed; 0: no limit */
    bool ignores_stop;    /* ignore_eos: measuring */
    const char **stops;   /* texts end with a NUL */
    size_t n_stops;
    struct carat_logit_bias *bias;
    size_t n_bias;
    bool want_logprobs;
    int32_t n_top_logprobs;
};

/* Reads `length` bytes of JSON. `defaults` is what the request does not say about sampling. A
 * zeroed request is a valid empty one. */
int chat_request_read(struct chat_request *r, const char *text, size_t length,
                      const struct carat_sampling *defaults, struct carat_error *err);
/* The same for a request that is a tree already. r->json, which is left as it is, owns what `root`
 * borrows, or outlives it. "n" may be up to n_max. After a failure, too: chat_request_close. */
int chat_request_take(struct chat_request *r, struct carat_value root,
                      const struct carat_sampling *defaults, int32_t n_max,
                      struct carat_error *err);
void chat_request_close(struct chat_request *r);

/* What is wrong with the type of a part of a message's content, at `path`. CARAT_EUNSUPPORTED: one
 * that is no text. CARAT_EUSAGE: there is none. */
int chat_request_refuse_part(const char *path, const struct carat_value *type,
                             struct carat_error *err);

/* Adds a member to `root`, or replaces it. `value` has to live as long as the request. */
int chat_request_put(struct chat_request *r, const char *key, struct carat_value value,
                     struct carat_error *err);

#endif
