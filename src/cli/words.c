#include "cli/words.h"

#include <stdio.h>
#include <string.h>

const char *word_at(const char *words, int n, char *out, size_t size)
{
    words += strspn(words, " ");
    for (; n > 0 && *words; n--) {
        words += strcspn(words, " ");
        words += strspn(words, " ");
    }
    if (!*words) return NULL;
    snprintf(out, size, "%.*s", (int)strcspn(words, " "), words);
    return out;
}

bool word_is_in(const char *word, const char *words)
{
    size_t length = strlen(word);
    for (const char *at = words + (*words == '['); *at;) {
        size_t n = strcspn(at, "|]");
        if (n == length && strncmp(at, word, n) == 0) return true;
        at += n + (at[n] != '\0');
    }
    return false;
}
