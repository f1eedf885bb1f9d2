/* Follows id by id whether the next token belongs to a thought, and counts the tokens of thoughts:
 * the parser (parser.h) without its texts. Calls inside a thought do not count. */
#ifndef TEXT_THOUGHT_H
#define TEXT_THOUGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/vocab.h"

/* What follows the mark of a call, in front of its name. */
#define CALL_HEADER "call:"
enum { CALL_HEADER_BYTES = sizeof CALL_HEADER - 1 };

enum thought_place { NO_THOUGHT, IN_A_THOUGHT, IN_A_CALL, IN_A_RESPONSE };

struct thought {
    enum thought_place place;
    bool is_back_to_thought; /* after the call */
    int32_t n_header;        /* bytes of "call:" that have come */
    int32_t n_tokens;        /* of thoughts, without their marks and those of the prompt */
};

/* The index of the prompt's last mark, or n_prompt. It says what the model is in the middle of;
 * *is_opening: in a thought, a call or a response. */
size_t thought_last_mark(const struct vocab *v, const int32_t *prompt, size_t n_prompt,
                         bool *is_opening);

/* The state that the prompt's last mark implies. */
struct thought thought_begin(const struct vocab *v, const int32_t *prompt, size_t n_prompt);

void thought_add(struct thought *t, const struct vocab *v, int32_t id);

static inline bool thought_is_open(const struct thought *t)
{
    return t->place == IN_A_THOUGHT;
}

#endif
