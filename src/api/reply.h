/* Answers in the words of an API: a stream of events, or one JSON body.
 *
 * Calling order: reply_open; reply_begin; then for each answer in any order reply_progress,
 * reply_token and reply_part, and once reply_answer_done; at the end reply_comment, if there is
 * anything to say, and reply_finish. reply_fail in place of what is left. Each appends to `out`
 * what is to be sent now: events of a stream, or nothing until reply_finish writes the whole body.
 *
 * Pure: the caller gives clocks and names. One thread at a time. Running out of memory shows in
 * out->failed. */
#ifndef API_REPLY_H
#define API_REPLY_H

#include "api/api_error.h"
#include "api/ask.h"
#include "base/buf.h"

struct reply;

struct reply_facts {
    const char *id;    /* of this request alone, even if a client repeats its own x-request-id:
                       [A-Za-z0-9._-]{1,64}; replies put "chatcmpl-" and so on before it */
    const char *model; /* as the client named it, or the server's name for it */
    int64_t created;   /* seconds since 1970 */
    const char *fingerprint; /* system_fingerprint: the build */
    int32_t n_prompt;        /* tokens of all prompts; -1: not known yet */
};

struct reply_token {   /* of one token, when log-probabilities are wanted */
    const char *bytes; /* of the token itself, perhaps part of a character */
    size_t length;
    float logprob;
    const struct reply_top {
        const char *bytes;
        size_t length;
        float logprob;
        int32_t id;
    } * top; /* [n_top], the best first */
    size_t n_top;
    int32_t id;
    bool is_text; /* of the visible answer, not of a thought or a call */
};

enum reply_end { REPLY_STOP, REPLY_STOP_TEXT, REPLY_LENGTH };

struct reply_usage {
    int32_t n_prompt, n_cached, n_generated, n_thinking; /* tokens; n_thinking of n_generated */
    int32_t n_drafted, n_accepted; /* tokens that were guessed, and guessed right */
    double queue_seconds, prefill_seconds, decode_seconds;
};

struct reply_done { /* how one answer ended */
    enum reply_end end;
    const char *stop;       /* STOP_TEXT: which */
    bool is_cut_in_thought; /* LENGTH, inside a thought */
    struct reply_usage usage;
};

/* `ask` and the texts of `facts` are borrowed until reply_close. Answers are numbered from 0 to
 * n times max(n_prompts, 1) - 1, those of the first prompt first. */
int reply_open(struct reply **out, const struct ask *ask, const struct reply_facts *facts,
               struct carat_error *err);
void reply_close(struct reply *r); /* NULL is fine */

const char *reply_content_type(const struct reply *r); /* "text/event-stream" ... */

void reply_begin(struct reply *r, struct buf *out);
void reply_progress(struct reply *r, int32_t answer, int32_t done, int32_t total, int32_t cached,
                    struct buf *out);
/* The usage so far: what the next chunk says when ask->wants_timings. */
void reply_usage_now(struct reply *r, int32_t answer, const struct reply_usage *usage);
/* Log-probabilities of a token, before the parts that it makes. */
void reply_token(struct reply *r, int32_t answer, const struct reply_token *token, struct buf *out);
/* With ask.wants_ids: reply_id for each token, before the parts that it makes, and reply_ids_end
 * after them, so that its id is sent even if it made no part. */
void reply_id(struct reply *r, int32_t answer, int32_t id, struct buf *out);
void reply_ids_end(struct reply *r, int32_t answer, struct buf *out);
/* Parts come from carat_answer with streams_calls: text, thoughts, and calls piece by piece. */
void reply_part(struct reply *r, int32_t answer, const struct carat_part *part, struct buf *out);
void reply_answer_done(struct reply *r, int32_t answer, const struct reply_done *done,
                       struct buf *out);
/* Before reply_finish: one line about the reply, for people who debug. Only streams that have
 * comments say it. */
void reply_comment(const struct reply *r, const char *text, struct buf *out);
void reply_finish(struct reply *r, struct buf *out);
/* The error as an event of the stream, or as the body. Nothing may follow. */
void reply_fail(struct reply *r, const struct api_error *error, struct buf *out);
/* What keeps a silent stream alive. */
void reply_ping(const struct reply *r, struct buf *out);

#endif
