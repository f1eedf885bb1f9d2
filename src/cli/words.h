/* Lists of words in one string, as the tables of options have them. */
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th of words that blanks separate, in `out`; NULL at the end. */
const char *word_at(const char *words, int n, char *out, size_t size);

/* One of the words of "a|b" or "[a|b]"? */
bool is_word_of(const char *word, const char *words);

#endif
