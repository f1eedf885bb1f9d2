/* One request's timeline: from its prompt to its last token. A slot of the engine; its index
 * is the number under which the caches know it. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "carat.h"
#include "engine/sample.h"

enum sequence_state { SEQUENCE_FREE, SEQUENCE_PREFILL, SEQUENCE_DECODE };

struct sequence {
    enum sequence_state state;
    carat_request_id request;
    struct sampler *sampler;
    int32_t *ids; /* the prompt, then the answer */
    int32_t n_prompt, max_tokens, n_generated;
    int32_t n_cached; /* positions whose keys and values are in the caches */
    int32_t last_id;  /* the newest token, not yet in the caches */
    bool ignore_stop, want_logprob;
    int32_t n_top; /* how many likeliest ids are wanted with it */
    carat_on_logits_fn on_logits;
    void *on_logits_user;
    double started, first_token; /* seconds of the monotonic clock */

    int32_t n_rows, out_row; /* in the current step; out_row -1: no logits wanted */
};

/* Takes a checked request into a free slot. */
int sequence_start(struct sequence *s, const struct carat_request *request, carat_request_id id,
                   const struct sampler_options *sampler, int32_t n_ctx, struct carat_error *err);

/* Takes in a token of the answer. */
void sequence_add(struct sequence *s, int32_t id);

/* The DONE event of a sequence that ends now; frees the slot. */
struct carat_event sequence_end(struct sequence *s, enum carat_finish finish, double now);

#endif
