/* Guesses of a test in place of those of engine/draft.h, which the answers of random models hardly
 * ever confirm: tokens of answers that are known beforehand, and wrong ones among them. For
 * programs linked with --wrap of draft_find, draft_share, draft_asks and draft_pays. */
#ifndef SUPPORT_GUESSES_H
#define SUPPORT_GUESSES_H

#include <stdint.h>

enum { GUESSES_MAX = 64, GUESSES_WRONG = 5 /* one guess in so many is wrong */ };

void guesses_clear(void);

/* A prompt and its answer, which are borrowed. Of two that begin alike either may be taken. */
void guesses_add(const int32_t *prompt, int32_t n_prompt, const int32_t *answer, int32_t n_answer);

#endif
