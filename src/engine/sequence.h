/* A request and its sequence: from carat_submit to the DONE event. It waits in the queue, runs in a
 * slot, may lose the slot to make room, and goes on later. Its ids, sampler and answer stay. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "carat.h"
#include "engine/constrain.h"
#include "engine/draft.h"
#include "engine/marks.h"
#include "engine/sample.h"
#include "text/thought.h"

enum sequence_state {
    SEQUENCE_FREE,
    SEQUENCE_QUEUED,
    SEQUENCE_WAITING, /* queued until another one has read what both begin with */
    SEQUENCE_PREFILL, /* has a slot; reads ids that it knows */
    SEQUENCE_DECODE   /* has a slot; a step has its newest token, and guesses of the next ones */
};

struct sequence {
    enum sequence_state state;
    carat_request_id request; /* rising, so it is the order of arrival too */
    int32_t slot;             /* its number in steps and tables of pages; -1: it does not run */
    struct sampler *sampler;
    struct constraint *constraint; /* of its grammar, or NULL */
    int32_t *ids;                  /* the prompt, then the answer, then guesses */
    int32_t n_prompt, max_tokens, n_generated;
    int32_t n_cached; /* positions whose keys and values are in its pages; queued: those that it
                         found, or left, in the prefix cache, which may be gone when it starts */
    int32_t stop_id;  /* the stop token that came, which is not part of the answer */
    bool ignore_stop, want_logprob;
    int32_t n_top; /* how many likeliest ids are wanted with it */
    void *user;
    struct thought thought;
    int32_t max_thinking; /* 0: no limit */
    carat_on_logits_fn on_logits;
    void *on_logits_user;

    bool is_paused; /* gets no rows, and starts only after it was resumed */
    int32_t priority;
    int32_t key;    /* its place among the fairness keys */
    uint64_t since; /* prompt rows that the engine had computed when it came */

    bool has_cache; /* takes from the prefix cache, and leaves there what it has read */
    uint64_t salt;
    struct marks marks;
    int32_t leader; /* WAITING: the place of the one that reads */
    carat_request_id leader_request;
    int32_t wait_position; /* up to which it reads for both */

    double submitted, deadline;  /* seconds of the monotonic clock; deadline 0: none */
    double started, first_token; /* 0: not yet */
    int32_t n_reused;            /* prompt positions that came from the prefix cache */
    int32_t n_reported;          /* prompt positions of the last PROGRESS event */
    int32_t n_preempted;

    int32_t n_rows, out_row;       /* in the current step; the first with logits; -1: none wanted */
    bool is_masked;                /* the best pairs of out_row are those that its grammar allows */
    struct draft draft;            /* of the tokens after the newest one */
    int32_t n_drafted, n_accepted; /* guesses so far; those that were right */
    int32_t hidden_row;            /* the output row that gave the newest token, */
    uint64_t hidden_run;           /* in this of the runner's runs */
};

/* What the engine adds to a request. */
struct sequence_start {
    carat_request_id id;
    int32_t n_ctx;
    const struct vocab *vocab;
    int32_t turn_id, page; /* as marks_init wants them */
    uint64_t since;
    bool has_cache;
    const struct draft_chances *chances;
};

/* Takes a checked request into a free place, as QUEUED. CARAT_EMEMORY, or what sample_open says. */
int sequence_open(struct sequence *s, const struct carat_request *request,
                  const struct sequence_start *start, const struct sampler_options *sampler,
                  struct carat_error *err);

/* Takes in a token of the answer. */
void sequence_add(struct sequence *s, const struct vocab *v, int32_t id);

/* The DONE event of a sequence that ends now; frees its place. It has no slot any more. */
struct carat_event sequence_end(struct sequence *s, enum carat_finish finish, double now);

static inline bool sequence_runs(const struct sequence *s)
{
    return s->state == SEQUENCE_PREFILL || s->state == SEQUENCE_DECODE;
}

static inline bool sequence_is_queued(const struct sequence *s)
{
    return s->state == SEQUENCE_QUEUED || s->state == SEQUENCE_WAITING;
}

/* Ids of the prompt and the answer so far. */
static inline int32_t sequence_known(const struct sequence *s)
{
    return s->n_prompt + s->n_generated;
}

/* Up to where ids are read as a prompt's. One that lost its slot reads its answer too, unless
 * prompts are apart (layout.h): then it decodes it again. */
static inline int32_t sequence_read_end(const struct sequence *s, bool is_apart)
{
    return is_apart ? s->n_prompt : sequence_known(s);
}

#endif
