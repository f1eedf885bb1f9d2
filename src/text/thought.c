#include "text/thought.h"

static void end_call(struct thought *t)
{
    t->place = t->is_back_to_thought ? IN_A_THOUGHT : NO_THOUGHT;
}

/* What does not begin with "call:" is prose. */
static void follow_header(struct thought *t, const struct vocab *v, int32_t id)
{
    size_t length;
    const char *piece = vocab_piece(v, id, &length);
    char byte = vocab_class(v, id) == TOKEN_BYTE ? (char)vocab_byte_value(v, id) : 0;
    if (byte) piece = &byte, length = 1;
    for (size_t i = 0; i < length && t->n_header < CALL_HEADER_BYTES; i++, t->n_header++) {
        if (piece[i] == CALL_HEADER[t->n_header]) continue;
        end_call(t);
        return;
    }
}

static void begin_call(struct thought *t)
{
    if (t->place == IN_A_CALL) end_call(t);
    t->is_back_to_thought = t->place == IN_A_THOUGHT;
    t->place = IN_A_CALL;
    t->n_header = 0;
}

/* Whether the id is a mark that changes the place. */
static bool take_mark(struct thought *t, const struct vocab *v, int32_t id)
{
    if (id == vocab_special(v, VOCAB_CHANNEL_BEGIN)) {
        t->place = IN_A_THOUGHT;
    } else if (id == vocab_special(v, VOCAB_CHANNEL_END)) {
        if (t->place == IN_A_THOUGHT) t->place = NO_THOUGHT;
    } else if (id == vocab_special(v, VOCAB_CALL_BEGIN)) {
        begin_call(t);
    } else if (id == vocab_special(v, VOCAB_CALL_END)) {
        if (t->place == IN_A_CALL) end_call(t);
    } else if (id == vocab_special(v, VOCAB_RESPONSE_BEGIN)) {
        t->place = IN_A_RESPONSE;
    } else if (id == vocab_special(v, VOCAB_RESPONSE_END)) {
        if (t->place == IN_A_RESPONSE) t->place = NO_THOUGHT;
    } else if (vocab_is_stop(v, id)) {
        if (t->place == IN_A_CALL) end_call(t);
    } else {
        return vocab_class(v, id) == TOKEN_CONTROL;
    }
    return true;
}

void thought_add(struct thought *t, const struct vocab *v, int32_t id)
{
    bool was_open = thought_is_open(t), is_mark = id < 0 || take_mark(t, v, id);
    if (was_open && thought_is_open(t)) t->n_tokens++;
    if (!is_mark && t->place == IN_A_CALL) follow_header(t, v, id);
}

size_t thought_last_mark(const struct vocab *v, const int32_t *prompt, size_t n_prompt,
                         bool *is_opening)
{
    static const enum vocab_special marks[] = {
        VOCAB_CHANNEL_BEGIN, VOCAB_CALL_BEGIN,   VOCAB_RESPONSE_BEGIN, VOCAB_CHANNEL_END,
        VOCAB_CALL_END,      VOCAB_RESPONSE_END, VOCAB_TURN_BEGIN,     VOCAB_TURN_END};
    enum { N_OPENING = 3 };
    *is_opening = false;
    for (size_t i = n_prompt; i-- > 0;) {
        for (size_t k = 0; k < sizeof marks / sizeof *marks; k++) {
            if (prompt[i] < 0 || prompt[i] != vocab_special(v, marks[k])) continue;
            *is_opening = k < N_OPENING;
            return i;
        }
    }
    return n_prompt;
}

struct thought thought_begin(const struct vocab *v, const int32_t *prompt, size_t n_prompt)
{
    struct thought t = {.place = NO_THOUGHT};
    bool is_opening;
    size_t i = thought_last_mark(v, prompt, n_prompt, &is_opening);
    for (; is_opening && i < n_prompt; i++) thought_add(&t, v, prompt[i]);
    t.n_tokens = 0;
    return t;
}
