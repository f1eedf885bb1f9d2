/* Lists of words in one string, as in the tables of options. */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the n-th of the words that blanks separate to `out`; NULL at the end. */
const char *word_at(const char *words, int n, char *out, size_t size);

/* Whether `word` is one of the words of "a|b" or "[a|b]". */
bool word_is_in(const char *word, const char *words);

#endif
