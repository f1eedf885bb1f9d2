/* Who may ask what, from the headers alone: keys, names of the server, pages of other sites.
 *
 * With keys every route is closed except those that the caller calls open. Without keys the server
 * is for this machine: a page of another site in somebody's browser must not use it, neither
 * directly (Origin) nor by a name that it lets point here (Host: DNS rebinding, CVE-2024-28224).
 * One thread: that of the server. */
#ifndef SERVER_GUARD_H
#define SERVER_GUARD_H

#include "api/api_error.h"
#include "base/hash.h"
#include "server/http.h"

struct guard;

struct guard_options {
    const char *const *keys; /* [n_keys] */
    size_t n_keys;
    const char *key_file;             /* NULL: none; read again by guard_reload */
    const char *const *allowed_hosts; /* names that the server may be called by; "*": any */
    size_t n_allowed_hosts;
    const char *const *origins; /* "https://chat.example", whose pages may use it; "*": any */
    size_t n_origins;
    bool is_local;            /* nobody outside this machine can connect: guard_is_local */
    int32_t requests_per_key; /* at the same time; 0: no limit */
    const struct hash_key *salt_secret; /* that salts are made with; NULL: a new one */
};

/* Copies what it needs. The errors of keys_open. */
int guard_open(struct guard **out, const struct guard_options *options, struct carat_error *err);
void guard_close(struct guard *g); /* NULL is fine */
/* The file of keys is read again. On failure everything stays. */
int guard_reload(struct guard *g, struct carat_error *err);
bool guard_has_keys(const struct guard *g);

/* Whether only this machine reaches a server of these options. */
bool guard_is_local(const struct http_options *options);
/* Before the server listens. CARAT_EUSAGE: it would be open to others without keys. */
int guard_allows_start(const struct http_options *options, bool has_keys, bool is_insecure,
                       struct carat_error *err);

enum { GUARD_FIELDS_MAX = 8, GUARD_TEXT_MAX = 512 };
/* Stays where it is: `fields` points into it. */
struct guard_pass {
    struct api_error error; /* when refused; status 0: a preflight, whose reply is 204 */
    struct http_field fields[GUARD_FIELDS_MAX]; /* to be added to the reply, whatever it is */
    size_t n_fields;
    uint64_t salt, fairness; /* of the key; 0: there are no keys */
    char origin[GUARD_TEXT_MAX], headers[GUARD_TEXT_MAX];
};

/* What guard_decide looks at; NULL: there is no such header. */
struct guard_view {
    const char *method, *host, *origin, *authorization, *x_api_key;
    const char *asked_method, *asked_headers, *asked_network; /* of a preflight */
    const char *query_key;                                    /* the name of a key in the query */
    bool is_unix;
};

/* True: go on. False: reply with pass->error, or 204 when its status is 0. */
bool guard_check(struct guard *g, const struct http_request *q, bool is_open,
                 struct guard_pass *pass);
bool guard_decide(const struct guard *g, const struct guard_view *view, bool is_open,
                  struct guard_pass *pass);

/* A request of a key begins: false, and pass->error is 429, when it has too many at this time.
 * After true, guard_leave is due when the request is over. */
bool guard_enter(struct guard *g, struct guard_pass *pass);
void guard_leave(struct guard *g, const struct guard_pass *pass);

#endif
