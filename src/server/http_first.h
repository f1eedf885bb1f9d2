/* A look at the first bytes of a connection, before the library has them: what it would refuse in
 * words of its own, and clients that speak something else. Pure.
 *
 * Only what is certain from these bytes alone counts, so a head may be looked at again when more of
 * it has come. */
#ifndef SERVER_HTTP_FIRST_H
#define SERVER_HTTP_FIRST_H

#include <stdbool.h>
#include <stddef.h>

struct first_look {
    int status;      /* 0: nothing is wrong so far; else of the refusal */
    const char *why; /* one sentence */
    bool is_words;   /* begins like a request that is not encrypted */
    bool is_whole;   /* the end of the head is there, and nothing is wrong */
    char path[32];   /* the beginning of the target, as it was sent; "" when there is none */
};

/* `head_max`: longer heads are refused. */
void first_look(const char *bytes, size_t n, size_t head_max, struct first_look *out);

#endif
