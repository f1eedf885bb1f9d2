#include "server/guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "server/keys.h"

struct names {
    char **text; /* [n] */
    size_t n;
};

struct busy_key {
    uint64_t fairness;
    int32_t count;
};

struct guard {
    struct keys keys;
    struct names hosts, origins;
    bool is_local;
    int32_t requests_per_key;
    struct hash_key salt_secret;
    struct busy_key *busy; /* [n_busy], keys with requests */
    size_t n_busy, room;
};

/* --- opening --- */

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->n; i++) mem_free(names->text[i]);
    mem_free(names->text);
    *names = (struct names){0};
}

static int copy_names(struct names *out, const char *const *names, size_t n,
                      struct carat_error *err)
{
    out->text = mem_alloc(n + 1, sizeof *out->text);
    if (!out->text) return err_no_memory(err, "guard", (n + 1) * sizeof *out->text);
    for (; out->n < n; out->n++) {
        out->text[out->n] = mem_copy_text(names[out->n], strlen(names[out->n]));
        if (!out->text[out->n]) return err_no_memory(err, "guard", strlen(names[out->n]));
    }
    return CARAT_OK;
}

/* Names that no request could ever have are mistakes: addresses of pages, ports, patterns. */
static int check_hosts(const char *const *hosts, size_t n, struct carat_error *err)
{
    struct in6_addr six;
    for (size_t i = 0; i < n; i++) {
        const char *host = hosts[i];
        if (strcmp(host, "*") == 0 || inet_pton(AF_INET6, host, &six) == 1) continue;
        if (!host[strcspn(host, "*/:@[] ")]) continue;
        err_set(err, CARAT_EUSAGE, "--allowed-host: \"%s\" is no name of a host", host);
        err_hint(err, "without scheme and port, such as chat.example.org; \"*\" allows any");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static bool is_origin(const char *text)
{
    const char *scheme_end = strstr(text, "://");
    if (!scheme_end) return strcmp(text, "*") == 0 || strcmp(text, "null") == 0;
    const char *authority = scheme_end + 3;
    const size_t length = strcspn(authority, "*/@?# ");
    const char *rest = authority + length;
    return scheme_end > text && length > 0 && (!*rest || strcmp(rest, "/") == 0);
}

static int check_origins(const char *const *origins, size_t n, struct carat_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (is_origin(origins[i])) continue;
        err_set(err, CARAT_EUSAGE, "--cors-origin: \"%s\" is no origin", origins[i]);
        err_hint(err, "scheme, host and port, such as https://chat.example.org or "
                      "http://10.0.0.5:3000; \"*\" allows any");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static int open_parts(struct guard *g, const struct guard_options *o, struct carat_error *err)
{
    TRY(check_hosts(o->allowed_hosts, o->n_allowed_hosts, err));
    TRY(check_origins(o->origins, o->n_origins, err));
    TRY(copy_names(&g->hosts, o->allowed_hosts, o->n_allowed_hosts, err));
    TRY(copy_names(&g->origins, o->origins, o->n_origins, err));
    return keys_open(&g->keys, o->keys, o->n_keys, o->key_file, err);
}

int guard_open(struct guard **out, const struct guard_options *options, struct carat_error *err)
{
    *out = NULL;
    struct guard *g = mem_alloc(1, sizeof *g);
    if (!g) return err_no_memory(err, "guard", sizeof *g);
    g->is_local = options->is_local;
    g->requests_per_key = options->requests_per_key;
    g->salt_secret = options->salt_secret ? *options->salt_secret : hash_key_random();
    const int status = open_parts(g, options, err);
    if (status == CARAT_OK) {
        *out = g;
    } else {
        guard_close(g);
    }
    return status;
}

void guard_close(struct guard *g)
{
    if (!g) return;
    keys_close(&g->keys);
    free_names(&g->hosts);
    free_names(&g->origins);
    mem_free(g->busy);
    mem_free(g);
}

int guard_reload(struct guard *g, struct carat_error *err)
{
    return keys_reload(&g->keys, err);
}

bool guard_has_keys(const struct guard *g)
{
    return g->keys.n > 0;
}

/* --- names of hosts --- */

struct host {
    const char *name; /* not ended by a NUL, without brackets */
    size_t length;
    bool is_valid;
};

/* "name", "name:port", "1.2.3.4:port", "[::1]:port". */
static struct host host_of(const char *text)
{
    struct host h = {.name = text, .length = strcspn(text, ":/")};
    const char *rest = text + h.length;
    if (*text == '[') {
        h.name = text + 1;
        h.length = strcspn(h.name, "]");
        rest = h.name + h.length;
        if (*rest++ != ']') return h;
    }
    h.is_valid = h.length > 0 && (*rest == '\0' || *rest == ':');
    if (h.is_valid && *rest == ':') h.is_valid = rest[1 + strspn(rest + 1, "0123456789")] == '\0';
    if (h.length > 1 && h.name[h.length - 1] == '.') h.length--; /* "localhost." */
    return h;
}

static bool is_host(struct host h, const char *name)
{
    return h.length == strlen(name) && strncasecmp(h.name, name, h.length) == 0;
}

/* Returns 0: a name, 1: an address, 2: an address of this machine alone. */
static int address_kind(struct host h)
{
    char text[INET6_ADDRSTRLEN] = {0};
    struct in_addr four;
    struct in6_addr six;
    if (h.length >= sizeof text) return 0;
    memcpy(text, h.name, h.length);
    if (inet_pton(AF_INET, text, &four) == 1) return (ntohl(four.s_addr) >> 24) == 127 ? 2 : 1;
    if (inet_pton(AF_INET6, text, &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six) ? 2 : 1;
    return 0;
}

static bool is_loopback(struct host h)
{
    return is_host(h, "localhost") || address_kind(h) == 2;
}

static bool is_host_allowed(const struct guard *g, const char *text)
{
    const struct host h = host_of(text);
    if (!h.is_valid) return false;
    if (is_loopback(h)) return true;
    /* A client that says an address has looked up no name, so this is no DNS rebinding. */
    if (!g->is_local && address_kind(h) == 1) return true;
    for (size_t i = 0; i < g->hosts.n; i++)
        if (strcmp(g->hosts.text[i], "*") == 0 || is_host(h, g->hosts.text[i])) return true;
    return false;
}

/* --- pages --- */

static bool is_origin_listed(const struct guard *g, const char *origin)
{
    for (size_t i = 0; i < g->origins.n; i++) {
        const char *listed = g->origins.text[i];
        const size_t length = strlen(listed), slash = length > 0 && listed[length - 1] == '/';
        if (strcmp(listed, "*") == 0) return true;
        if (strncasecmp(listed, origin, length - slash) == 0 && origin[length - slash] == '\0')
            return true;
    }
    return false;
}

static bool is_origin_allowed(const struct guard *g, const struct guard_view *v)
{
    if (strlen(v->origin) >= GUARD_TEXT_MAX) return false;
    if (is_origin_listed(g, v->origin)) return true;
    const char *scheme_end = strstr(v->origin, "://");
    if (!scheme_end) return false;
    const bool is_plain = strncasecmp(v->origin, "http://", 7) == 0;
    if (!is_plain && strncasecmp(v->origin, "https://", 8) != 0) return false;
    const char *authority = scheme_end + 3;
    const struct host h = host_of(authority);
    if (!h.is_valid) return false;
    /* The server's own page: the scheme may differ behind a proxy that ends TLS. */
    return is_loopback(h) || (v->host && strcasecmp(authority, v->host) == 0);
}

static void add_field(struct guard_pass *pass, const char *name, const char *value)
{
    if (pass->n_fields == GUARD_FIELDS_MAX) return;
    pass->fields[pass->n_fields++] = (struct http_field){name, value};
}

/* Names of headers as a preflight lists them, and nothing else. */
static bool is_header_list(const char *text)
{
    if (strlen(text) >= GUARD_TEXT_MAX) return false;
    for (; *text; text++) {
        const char c = *text;
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && !strchr("-_, ", c)) return false;
    }
    return true;
}

static void allow_origin(const struct guard_view *v, bool is_preflight, struct guard_pass *pass)
{
    (void)snprintf(pass->origin, sizeof pass->origin, "%s", v->origin);
    add_field(pass, "Access-Control-Allow-Origin", pass->origin);
    add_field(pass, "Vary", "Origin");
    if (!is_preflight) {
        add_field(pass, "Access-Control-Expose-Headers",
                  "x-request-id, Server-Timing, Retry-After");
        return;
    }
    add_field(pass, "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
    const char *headers = v->asked_headers;
    if (!headers || !is_header_list(headers)) headers = "authorization, content-type, x-api-key";
    (void)snprintf(pass->headers, sizeof pass->headers, "%s", headers);
    add_field(pass, "Access-Control-Allow-Headers", pass->headers);
    add_field(pass, "Access-Control-Max-Age", "600");
    if (v->asked_network) add_field(pass, "Access-Control-Allow-Private-Network", "true");
}

/* --- deciding --- */

static bool has_key(const struct guard *g, const char *text, uint64_t *id)
{
    return text && *text && keys_find(&g->keys, text, strlen(text), id);
}

static const char *bearer(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0) return NULL;
    return authorization + 7 + strspn(authorization + 7, " ");
}

static bool check_key(const struct guard *g, const struct guard_view *v, struct guard_pass *pass)
{
    uint64_t id = 0;
    const char *key = bearer(v->authorization);
    bool is_known = has_key(g, key, &id);
    if (!is_known) is_known = has_key(g, key = v->x_api_key, &id);
    if (is_known) {
        pass->fairness = id;
        /* Made of the key itself: ids differ from process to process. */
        pass->salt = hash_bytes(g->salt_secret, key, strlen(key));
        return true;
    }
    add_field(pass, "WWW-Authenticate", "Bearer");
    const bool has_some = v->authorization || v->x_api_key;
    pass->error = api_error_make(401, "invalid_api_key", "%s",
                                 has_some ? "this key is not one of the server's"
                                          : "this server wants a key: send it as "
                                            "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
    return false;
}

static bool refuse_query_key(const struct guard_view *v, struct guard_pass *pass)
{
    pass->error = api_error_make(400, "key_in_query",
                                 "the query has a key (\"%s\"), and what stands in an address ends "
                                 "in logs: send it as \"Authorization: Bearer KEY\"",
                                 v->query_key);
    return false;
}

bool guard_decide(const struct guard *g, const struct guard_view *v, bool is_open,
                  struct guard_pass *pass)
{
    *pass = (struct guard_pass){0};
    const bool has_keys = g->keys.n > 0;
    if (!has_keys && v->host && !v->is_unix && !is_host_allowed(g, v->host)) {
        pass->error = api_error_make(
            403, "host_not_allowed",
            "the Host header says \"%.100s\", which is no name of this server: start it with "
            "--allowed-host or with keys",
            v->host);
        return false;
    }
    const bool is_known_page = v->origin && is_origin_allowed(g, v);
    if (v->origin && !is_known_page && !has_keys) {
        pass->error = api_error_make(
            403, "origin_not_allowed",
            "pages of \"%.100s\" may not use this server: start it with --cors-origin", v->origin);
        return false;
    }
    const bool is_preflight = v->origin && v->asked_method && strcmp(v->method, "OPTIONS") == 0;
    if (is_known_page) allow_origin(v, is_preflight, pass);
    if (is_preflight) return false; /* never has a key: 204, with fields or without */
    if (is_open || !has_keys) return true;
    if (v->query_key) return refuse_query_key(v, pass);
    return check_key(g, v, pass);
}

bool guard_check(struct guard *g, const struct http_request *q, bool is_open,
                 struct guard_pass *pass)
{
    static const char *const names[] = {"key",    "api_key",   "api-key",
                                        "apikey", "x-api-key", "access_token"};
    struct guard_view v = {
        .method = q->method,
        .host = http_header(q, "Host", 0),
        .origin = http_header(q, "Origin", 0),
        .authorization = http_header(q, "Authorization", 0),
        .x_api_key = http_header(q, "x-api-key", 0),
        .asked_method = http_header(q, "Access-Control-Request-Method", 0),
        .asked_headers = http_header(q, "Access-Control-Request-Headers", 0),
        .asked_network = http_header(q, "Access-Control-Request-Private-Network", 0),
        .is_unix = strcmp(q->client, "unix") == 0,
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (http_query(q, names[i])) v.query_key = names[i];
    return guard_decide(g, &v, is_open, pass);
}

/* --- how many at a time --- */

bool guard_enter(struct guard *g, struct guard_pass *pass)
{
    if (g->requests_per_key <= 0 || pass->fairness == 0) return true;
    size_t i = 0;
    while (i < g->n_busy && g->busy[i].fairness != pass->fairness) i++;
    if (i == g->n_busy && i == g->room) {
        struct busy_key *grown = mem_resize(g->busy, g->room * 2 + 8, sizeof *grown);
        if (!grown) {
            pass->error = api_error_make(503, NULL, "the server has no memory for this request");
            return false;
        }
        g->busy = grown;
        g->room = g->room * 2 + 8;
    }
    if (i == g->n_busy) g->busy[g->n_busy++] = (struct busy_key){.fairness = pass->fairness};
    if (g->busy[i].count >= g->requests_per_key) {
        pass->error = api_error_make(429, "too_many_requests",
                                     "this key has %d requests at this time, and %d are allowed "
                                     "(--requests-per-key)",
                                     (int)g->busy[i].count, (int)g->requests_per_key);
        pass->error.retry_after = 1;
        return false;
    }
    g->busy[i].count++;
    return true;
}

void guard_leave(struct guard *g, const struct guard_pass *pass)
{
    for (size_t i = 0; i < g->n_busy; i++) {
        if (g->busy[i].fairness != pass->fairness) continue;
        if (--g->busy[i].count == 0) g->busy[i] = g->busy[--g->n_busy];
        return;
    }
}

/* --- starting --- */

static bool is_local_socket(int fd)
{
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&name, &length) != 0) return false;
    if (name.ss_family == AF_UNIX) return true;
    if (name.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)&name)->sin_addr.s_addr) >> 24 == 127;
    return name.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&name)->sin6_addr);
}

bool guard_is_local(const struct http_options *o)
{
    if (o->listen_fd >= 0) return is_local_socket(o->listen_fd);
    if (o->unix_path) return true;
    const struct host h = {.name = o->host, .length = strlen(o->host)};
    return is_loopback(h);
}

int guard_allows_start(const struct http_options *o, bool has_keys, bool is_insecure,
                       struct carat_error *err)
{
    if (has_keys || is_insecure || guard_is_local(o)) return CARAT_OK;
    const char *where = o->listen_fd >= 0 ? "the socket that was given" : o->host;
    (void)err_set(err, CARAT_EUSAGE,
                  "server: %s can be reached from other machines, and there are no keys", where);
    err_hint(err, "give keys by --api-key or --api-key-file, or say --insecure");
    return CARAT_EUSAGE;
}
