/* One answer on its way: what the engine reports of it becomes parts, and parts become what the
 * client's API sends.
 *
 * Opened by a worker; the rest is called by the thread of the server. */
#ifndef SERVER_GENERATION_H
#define SERVER_GENERATION_H

#include "api/reply.h"
#include "server/prompts.h"
#include "server/replicas.h"

enum generation_phase { GENERATION_QUEUED, GENERATION_PROMPT, GENERATION_DECODE };

struct generation {
    struct job job; /* job.user is the call's */
    int32_t number; /* of the answer */
    bool is_submitted, is_cancelled;
    bool is_over; /* a stop string came: what follows is not wanted */
    bool is_done; /* DONE was taken: the engine has nothing of it any more */
    enum generation_phase phase;
    struct job_event done;                  /* is_done */
    double first_seconds, last_seconds;     /* os_seconds() of its first and newest token */
    int32_t n_tokens, n_thinking, n_cached; /* so far */
    bool has_called, is_calling;            /* a tool: ever, just now */
    bool is_dropped; /* max_tokens is 0: the one token that came is not told */
    const carat_model *model;
    const struct ask *ask;
    carat_answer *parts;
};

/* Borrows the ask, the prompt and the grammar (NULL: none) until it is closed. */
int generation_open(struct generation *g, const carat_model *model, const struct ask *ask,
                    const struct prompt *prompt, const carat_grammar *grammar, int32_t number,
                    struct carat_error *err);
void generation_close(struct generation *g); /* after is_done, or when it was never submitted */

/* Appends what the event makes. CARAT_EMEMORY. */
int generation_push(struct generation *g, const struct job_event *event, struct reply *reply,
                    struct buf *out, struct carat_error *err);
/* Once, after is_done of an answer that did not fail: its last parts and its end. */
int generation_end(struct generation *g, struct reply *reply, struct buf *out,
                   struct carat_error *err);
/* Before is_done too. */
struct reply_usage generation_usage(const struct generation *g);
/* It ended by CANCELLED, DEADLINE or ERROR, and not by a stop string (is_over). */
bool generation_has_failed(const struct generation *g);
const char *generation_finish_name(const struct generation *g);

#endif
