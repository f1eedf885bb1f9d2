/* Which handler a method and a path belong to. Every route is closed by default: one that needs no
 * key says so here. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "api/api_error.h"

enum route_kind {
    ROUTE_ANSWER, /* asks the model, in the words of the API `part` */
    ROUTE_TEXT,   /* a worker makes something of the body: `part` */
    ROUTE_LIVE,
    ROUTE_READY,
    ROUTE_METRICS,
    ROUTE_MODELS,
    ROUTE_MODEL,
    ROUTE_PROPS,
    ROUTE_SLOTS,
    ROUTE_TAGS,
    ROUTE_VERSION,
    ROUTE_PS,
    ROUTE_SHOW,
    ROUTE_ROOT, /* "/": a page, or a line for clients of ollama */
    ROUTE_FILE, /* of the page */
    ROUTE_DRAIN,
    ROUTE_ABSENT /* 501: `name` says what carat does not do */
};

enum text_kind {
    TEXT_TOKENIZE,
    TEXT_DETOKENIZE,
    TEXT_TEMPLATE,
    TEXT_RENDER_CHAT,
    TEXT_RENDER_COMPLETION,
    TEXT_COUNT_MESSAGES,
    TEXT_COUNT_RESPONSES
};

struct route {
    const char *method; /* GET also answers HEAD */
    const char *path;   /* whole, or up to a star at its end */
    enum route_kind kind;
    int part;         /* ANSWER: an enum api; TEXT: an enum text_kind */
    bool is_open;     /* needs no key */
    const char *name; /* ABSENT */
};

/* NULL: there is none, and *status is 404, or 405 with the methods that there are in `allow`. */
enum { ROUTES_ALLOW_MAX = 40 };
const struct route *routes_find(const char *method, const char *path, int *status,
                                char allow[ROUTES_ALLOW_MAX]);

/* Its requests go to a worker; the others are answered at once. */
bool route_is_computed(const struct route *r);

/* In whose words errors of that path are. */
enum api_family routes_family(const char *path);

#endif
