/* "name=value,name=value" as OpenTelemetry's variables have it: %XX in values, blanks around names
 * and values do not count. Pure. */
#ifndef SERVER_PAIRS_H
#define SERVER_PAIRS_H

struct pair {
    char name[128], value[1024];
};

/* Takes the next pair of *at. 1: there is one; 0: none is left; -1: it is not well formed, or
 * longer than a pair may be, or has a control character. */
int pairs_next(const char **at, struct pair *out);

#endif
