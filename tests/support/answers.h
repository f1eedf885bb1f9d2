/* Requests to an engine of support/engines.h, and what came back for each of them. */
#ifndef SUPPORT_ANSWERS_H
#define SUPPORT_ANSWERS_H

#include "support/engines.h"

enum { ANSWER_MAX = 256, N_MIXED = 4 };

struct answer {
    carat_request_id request;
    int32_t ids[ANSWER_MAX];
    float logprobs[ANSWER_MAX];
    int32_t n, progress;
    bool is_done;
    struct carat_event done;
};

/* A request for the likeliest tokens and their log-probabilities, `max_tokens` of them. */
struct carat_request greedy_request(const int32_t *prompt, size_t n, int32_t max_tokens);

/* Request i of N_MIXED. Their prompts (written to `prompt`) differ in length. Every second
 * request draws its tokens, from a generator of its own. */
struct carat_request mixed_request(int i, int32_t prompt[128]);

/* A failure of the engine, or an event out of order, ends the running case. */
carat_request_id submit(carat_engine *e, const struct carat_request *request);
void take_events(carat_engine *e, struct answer *answers, size_t n);
void run_all(carat_engine *e, struct answer *answers, size_t n); /* until every request is done */
struct answer ask(carat_engine *e, const struct carat_request *request); /* submit and run_all */

/* The same ids and the same bits of their log-probabilities. */
void check_same(const struct answer *a, const struct answer *b);

#endif
