/* What a grammar takes and what it does not, as lists of texts. */
#ifndef SUPPORT_TAKES_H
#define SUPPORT_TAKES_H

#include "support/grammars.h"

/* A list that ends with NULL. */
#define TEXTS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* Fails unless the grammar takes all good texts and no bad one. `source` is for the message. */
void assert_takes(const carat_grammar *g, const struct grammar_fixture *f, const char *source,
                  const char *const *good, const char *const *bad);

#endif
