/* One answer: prompt ids in, parts out, with stop strings and Ctrl-C. For run, chat and doctor. */
#ifndef CLI_GENERATE_H
#define CLI_GENERATE_H

#include "base/buf.h"
#include "carat.h"
#include "cli/options.h"
#include "cli/session.h"
#include "json/chat_request.h"

/* How to sample and where to stop, from the options. Too big for the stack; not to be copied. */
struct generation {
    struct carat_sampling sampling; /* may borrow the breakers */
    char breakers[CARAT_DRY_BREAKERS_MAX][CARAT_DRY_BREAKER_BYTES_MAX + 1];
    const char *breaker_list[CARAT_DRY_BREAKERS_MAX];
    size_t n_breakers;
    int32_t max_tokens;
    bool ignore_stop;
    int32_t max_thinking;      /* tokens of a thought; 0: no limit */
    bool is_raw, show_special; /* text as it is, thoughts and calls included */
    struct carat_logit_bias bias[CARAT_BIAS_MAX];
    size_t n_bias;
    const char *const *stops; /* borrowed */
    size_t n_stops;
    const carat_grammar *grammar; /* borrowed; NULL: the answer is free */
    bool want_logprobs;
    int32_t n_top_logprobs;
};
int generation_read(struct generation *g, const struct options *o, const carat_model *model,
                    struct carat_error *err);
/* Takes what a request says instead, except for what flags say. Borrows from the request, whose
 * defaults were g->sampling. */
int generation_take(struct generation *g, const struct options *o, const carat_model *model,
                    const struct chat_request *request, struct carat_error *err);

enum answer_end {
    ANSWER_STOP,
    ANSWER_LENGTH,  /* as many tokens as were asked for */
    ANSWER_CONTEXT, /* the context was full before the answer ended */
    ANSWER_STOP_TEXT,
    ANSWER_INTERRUPTED
};

struct answer {
    struct buf text, thinking; /* all of it */
    struct buf calls;          /* JSON objects, one a line */
    struct buf logprobs;       /* JSON objects, one a token, commas between them */
    enum answer_end end;
    bool is_cut_in_thought;                  /* ended inside a thought, without a stop token */
    int32_t stop_id;                         /* ANSWER_STOP: the token */
    int32_t n_prompt, n_cached, n_generated; /* n_cached: of n_prompt */
    int32_t n_drafted, n_accepted;           /* tokens that were guessed, and guessed right */
    double prefill_seconds, decode_seconds;
};
void answer_deinit(struct answer *a);
const char *answer_end_name(enum answer_end end);
/* OpenAI's word for it: "tool_calls" when the answer ended with one. */
const char *answer_finish_reason(const struct answer *a);

/* Called with every piece as it comes: text to show, a thought, or a tool call as JSON. A false
 * result (nobody can read on) ends the answer. */
typedef bool (*part_fn)(void *user, enum carat_part_kind kind, const char *text, size_t length);

/* Runs one request on an idle engine to its end. */
int generate(struct session *s, const struct generation *g, const int32_t *prompt, size_t n_prompt,
             part_fn show, void *user, struct answer *answer, struct carat_error *err);

/* "prompt 230 tokens, 192 of them from the cache, first token after 0.120 s (316.7 t/s); answer 40
 * tokens ..." The first rate is that of the tokens that were computed. */
void answer_stats(const struct answer *a, char *out, size_t size);

#endif
