#include "hub/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#ifdef CARAT_HAVE_FETCH

#include <curl/curl.h>

enum { REDIRECTS_MAX = 5 };

struct fetch {
    CURL *curl;
    struct fetch_options options;
    struct url endpoint;
    char failure[CURL_ERROR_SIZE];
    char from[URL_MAX], to[URL_MAX]; /* a redirect that is kept: from an address to the last one */
};

/* A response while it comes. */
struct transfer {
    struct fetch *f;
    const struct fetch_sink *sink;
    struct fetch_head head;
    bool has_begun, is_taken; /* is_taken: the body goes to the sink */
    uint64_t dropped;         /* bytes of a body that nobody wants */
    int status;               /* of the sink, or of what the headers say */
    struct carat_error *err;
};

/* ---- Headers ---------------------------------------------------------------------------- */

/* The value of a header line of that name, without blanks at its end; false: another header. */
static bool header_is(const char *line, size_t n, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);
    if (n <= length || line[length] != ':' || strncasecmp(line, name, length) != 0) return false;
    const char *at = line + length + 1, *end = line + n;
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (end > at && strchr(" \t\r\n", end[-1])) end--;
    snprintf(value, size, "%.*s", (int)(end - at), at);
    return (size_t)(end - at) < size;
}

static bool read_number(const char **at, uint64_t *out)
{
    uint64_t value = 0;
    int digits = 0;
    for (; **at >= '0' && **at <= '9' && digits < 18; (*at)++, digits++)
        value = value * 10 + (uint64_t)(**at - '0');
    *out = value;
    return digits > 0;
}

/* "bytes 5-9/10", or "bytes 5-9/" with "*" after it. */
static bool read_range(const char *at, struct fetch_head *head)
{
    if (strncasecmp(at, "bytes ", 6) != 0) return false;
    at += 6;
    if (!read_number(&at, &head->first) || *at++ != '-') return false;
    if (!read_number(&at, &head->last) || *at++ != '/') return false;
    if (strcmp(at, "*") == 0) return true;
    return read_number(&at, &head->total) && *at == '\0';
}

/* <https://...>; rel="next" */
static void read_link(const char *at, struct fetch_head *head)
{
    const char *end = at[0] == '<' ? strchr(at, '>') : NULL;
    if (!end || !strstr(end, "rel=\"next\"") || strchr(end, ',')) return;
    snprintf(head->next, sizeof head->next, "%.*s", (int)(end - at - 1), at + 1);
}

/* "\"resolvers\";r=0;t=55" of Hugging Face: 55 seconds until more requests are allowed. */
static int read_limit(const char *at)
{
    const char *left = strstr(at, ";r=0"), *seconds = strstr(at, ";t=");
    return left && seconds ? (int)strtol(seconds + 3, NULL, 10) : 0;
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    struct transfer *t = user;
    size_t n = size * count;
    char value[URL_MAX];
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) t->head = (struct fetch_head){0};
    if (header_is(line, n, "etag", value, sizeof t->head.etag))
        memcpy(t->head.etag, value, strlen(value) + 1);
    if (header_is(line, n, "link", value, sizeof value)) read_link(value, &t->head);
    if (header_is(line, n, "retry-after", value, 8))
        t->head.retry_after_s = (int)strtol(value, NULL, 10);
    if (header_is(line, n, "ratelimit", value, 128) && !t->head.retry_after_s)
        t->head.retry_after_s = read_limit(value);
    if (header_is(line, n, "content-encoding", value, sizeof t->head.encoding) &&
        strcasecmp(value, "identity") != 0)
        memcpy(t->head.encoding, value, strlen(value) + 1);
    if (header_is(line, n, "content-length", value, 32)) {
        const char *at = value;
        t->head.has_length = read_number(&at, &t->head.length) && *at == '\0';
    }
    if (header_is(line, n, "accept-ranges", value, 32))
        t->head.accepts_ranges = strcasecmp(value, "bytes") == 0;
    if (header_is(line, n, "content-range", value, 128))
        t->head.has_range = read_range(value, &t->head);
    return n;
}

/* ---- Bodies ----------------------------------------------------------------------------- */

static void begin_body(struct transfer *t)
{
    t->has_begun = true;
    curl_easy_getinfo(t->f->curl, CURLINFO_RESPONSE_CODE, &t->head.status);
    t->is_taken = t->head.status == 200 || t->head.status == 206 || t->head.status == 416;
    if (t->is_taken && t->head.encoding[0])
        t->status = err_set(t->err, CARAT_ENETWORK,
                            "the server packs what it sends (Content-Encoding: %s), which nobody "
                            "asked for",
                            t->head.encoding);
    else if (t->is_taken)
        t->status = t->sink->begin(t->sink->user, &t->head, t->err);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    enum { DROPPED_MAX = 1 << 16 };
    struct transfer *t = user;
    size_t n = size * count;
    if (!t->has_begun) begin_body(t);
    if (t->status != CARAT_OK) return 0;
    if (t->is_taken && t->head.status != 416) {
        t->status = t->sink->add(t->sink->user, bytes, n, t->err);
        return t->status == CARAT_OK ? n : 0;
    }
    t->dropped += n;
    return t->dropped <= DROPPED_MAX ? n : 0; /* the text of an error page is not needed */
}

static int on_time(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct transfer *t = user;
    (void)a, (void)b, (void)c, (void)d;
    return !watch_goes_on(t->f->options.watch);
}

/* ---- One request ------------------------------------------------------------------------ */

static int blame(const char *url, struct carat_error *err, const char *what)
{
    struct buf shown = {0};
    url_add_shown(&shown, url);
    err_set(err, CARAT_ENETWORK, "%.300s: %s", buf_text(&shown), what);
    buf_deinit(&shown);
    return CARAT_ENETWORK;
}

static int check(const struct fetch *f, const char *url, struct carat_error *err)
{
    struct url to;
    const char *problem = NULL;
    if (!url_read(url, &to))
        problem = "is no address that may be asked: https://HOST/PATH expected";
    else if (to.is_https ||
             (url_is_loopback(&f->endpoint) && !f->endpoint.is_https && url_is_loopback(&to)))
        return CARAT_OK;
    else
        problem = "is not https";
    blame(url, err, problem);
    if (err) err->code = CARAT_EUSAGE;
    return CARAT_EUSAGE;
}

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
    struct buf line = {0};
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *more = line.failed ? NULL : curl_slist_append(*list, buf_text(&line));
    if (more) *list = more;
    buf_deinit(&line);
    return more != NULL;
}

static bool add_headers(const struct fetch *f, const char *url, const struct fetch_question *q,
                        struct curl_slist **list)
{
    struct url to;
    bool is_own = url_read(url, &to) && url_is_same_origin(&to, &f->endpoint);
    struct buf value = {0};
    bool is_done = add_header(list, "Accept", q->accept);
    if (is_own && f->options.token[0]) {
        buf_printf(&value, "Bearer %s", f->options.token);
        is_done = is_done && !value.failed && add_header(list, "Authorization", buf_text(&value));
    }
    if (q->first > 0 || q->last > 0) {
        buf_clear(&value);
        buf_printf(&value, "bytes=%llu-", (unsigned long long)q->first);
        if (q->last > 0) buf_printf(&value, "%llu", (unsigned long long)q->last);
        is_done = is_done && !value.failed && add_header(list, "Range", buf_text(&value));
        if (q->if_range[0]) is_done = is_done && add_header(list, "If-Range", q->if_range);
    }
    buf_deinit(&value);
    return is_done;
}

/* Whether no server was reached, or one answers no more. */
static bool is_unreached(CURLcode code)
{
    return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
           code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT;
}

/* Failures that may be over when asked again. */
static bool may_pass(CURLcode code)
{
    if (is_unreached(code)) return true;
    switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR: return true;
    default: return false;
    }
}

/* Asks `url` alone. *to: where it redirects to, "" if it does not. */
static int ask(struct fetch *f, const char *url, const struct fetch_question *q, struct transfer *t,
               char to[URL_MAX], bool *may_retry)
{
    struct curl_slist *headers = NULL;
    char *redirect = NULL;
    to[0] = '\0';
    TRY(check(f, url, t->err));
    if (!add_headers(f, url, q, &headers)) {
        curl_slist_free_all(headers);
        return err_no_memory(t->err, "request", strlen(url));
    }
    curl_easy_setopt(f->curl, CURLOPT_URL, url);
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(f->curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(f->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(f->curl, CURLOPT_XFERINFODATA, t);
    f->failure[0] = '\0';
    CURLcode code = curl_easy_perform(f->curl);
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &t->head.status);
    curl_easy_getinfo(f->curl, CURLINFO_REDIRECT_URL, &redirect);
    if (redirect) {
        if (strlen(redirect) >= URL_MAX) return blame(url, t->err, "redirects to a long address");
        memcpy(to, redirect, strlen(redirect) + 1);
        return CARAT_OK;
    }
    if (code == CURLE_OK && !t->has_begun) begin_body(t); /* an empty one */
    if (t->status != CARAT_OK) return t->status;
    if (code == CURLE_ABORTED_BY_CALLBACK) return watch_stopped(t->err);
    bool is_dropped = code == CURLE_WRITE_ERROR && t->has_begun && !t->is_taken;
    if (code == CURLE_OK || is_dropped) return CARAT_OK;
    *may_retry = may_pass(code);
    blame(url, t->err, f->failure[0] ? f->failure : curl_easy_strerror(code));
    if (is_unreached(code)) err_hint(t->err, "is there a network? Behind a proxy, set HTTPS_PROXY");
    return CARAT_ENETWORK;
}

static const char *meaning(const struct fetch_options *o, long status)
{
    bool has_token = o->token[0] != '\0';
    if (!o->takes_token && (status == 401 || status == 403))
        return status == 401 ? "401: it is not there, or not for everybody"
                             : "403: access is refused";
    switch (status) {
    case 401:
        return has_token ? "401: the token is not accepted, or there is no such model"
                         : "401: it is not there, or wants a token: set HF_TOKEN";
    case 403:
        return has_token ? "403: access is refused: accept the model's licence on its page, with "
                           "the account of this token; the token must be allowed to read it"
                         : "403: access is refused: accept the model's licence on its page, set "
                           "HF_TOKEN";
    case 404: return "404: there is no such model, revision or file";
    case 429: return "429: too many requests";
    default: return NULL;
    }
}

static int refuse_status(const struct fetch *f, const char *url, long status, bool *may_retry,
                         struct carat_error *err)
{
    char text[64];
    const char *known = meaning(&f->options, status);
    snprintf(text, sizeof text, "the server answers with status %ld", status);
    *may_retry = status == 408 || status == 429 || status >= 500;
    return blame(url, err, known ? known : text);
}

static void keep_redirect(struct fetch *f, const char *from, const char *to)
{
    memcpy(f->from, from, strlen(from) + 1);
    memcpy(f->to, to, strlen(to) + 1);
}

/* Asks `url` and follows redirects. */
static int walk(struct fetch *f, const char *url, const struct fetch_question *q,
                const struct fetch_sink *sink, struct fetch_head *head, bool *may_retry,
                struct carat_error *err)
{
    char at[URL_MAX], to[URL_MAX];
    *head = (struct fetch_head){0};
    *may_retry = false;
    if (strlen(url) >= URL_MAX) return blame(url, err, "is too long");
    memcpy(at, url, strlen(url) + 1);
    for (int n = 0; n <= REDIRECTS_MAX; n++) {
        struct transfer t = {.f = f, .sink = sink, .err = err};
        int status = ask(f, at, q, &t, to, may_retry);
        *head = t.head;
        if (n > 0 && status == CARAT_EUSAGE) { /* not the user's address */
            err_within(err, "a redirect leads to");
            err->code = CARAT_ENETWORK;
            return CARAT_ENETWORK;
        }
        if (status != CARAT_OK) return status;
        if (!to[0]) {
            if (!t.is_taken) return refuse_status(f, at, t.head.status, may_retry, err);
            if (n > 0) keep_redirect(f, url, at);
            return CARAT_OK;
        }
        memcpy(at, to, strlen(to) + 1);
    }
    return blame(url, err, "redirects more than five times");
}

/* A place that a redirect led to is good for some time only; then its server refuses it. */
int fetch_get(struct fetch *f, const struct fetch_question *q, const struct fetch_sink *sink,
              struct fetch_head *head, bool *may_retry, struct carat_error *err)
{
    if (q->keeps_redirect && f->to[0] && strcmp(f->from, q->url) == 0) {
        char url[URL_MAX];
        struct carat_error why = {0};
        memcpy(url, f->to, sizeof url);
        int status = walk(f, url, q, sink, head, may_retry, &why);
        if (status == CARAT_OK) return CARAT_OK;
        f->to[0] = '\0';
        if (head->status < 400) {
            if (err) *err = why;
            return status;
        }
    }
    return walk(f, q->url, q, sink, head, may_retry, err);
}

/* ---- The interface ---------------------------------------------------------------------- */

int fetch_open(struct fetch **out, const struct fetch_options *options, struct carat_error *err)
{
    struct fetch *f = *out = mem_alloc(1, sizeof *f);
    if (!f) return err_no_memory(err, "request", sizeof *f);
    f->options = *options;
    f->curl = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_easy_init() : NULL;
    if (!f->curl) return err_set(err, CARAT_EINTERNAL, "libcurl does not start");
    if (!url_read(options->endpoint, &f->endpoint))
        return blame(options->endpoint, err, "is no endpoint: https://HOST expected");
    CURL *c = f->curl;
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->failure);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(c, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    curl_easy_setopt(c, CURLOPT_USERAGENT, options->user_agent);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 1L << 19);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)options->stall_s);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1000L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)options->stall_s);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_time);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (options->ca_file[0]) curl_easy_setopt(c, CURLOPT_CAINFO, options->ca_file);
    if (options->ca_folder[0]) curl_easy_setopt(c, CURLOPT_CAPATH, options->ca_folder);
    return CARAT_OK;
}

int fetch_open_like(struct fetch **out, const struct fetch *f, const struct hub_watch *watch,
                    struct carat_error *err)
{
    struct fetch_options options = f->options;
    options.watch = watch;
    return fetch_open(out, &options, err);
}

void fetch_close(struct fetch *f)
{
    if (!f) return;
    if (f->curl) curl_easy_cleanup(f->curl);
    mem_free(f);
}

#else

int fetch_open(struct fetch **out, const struct fetch_options *options, struct carat_error *err)
{
    (void)options;
    *out = NULL;
    err_set(err, CARAT_EUNSUPPORTED, "nothing can be downloaded: carat was built without libcurl");
    err_hint(err, "install libcurl4-gnutls-dev, libgnutls28-dev and libjansson-dev, build again");
    return CARAT_EUNSUPPORTED;
}

int fetch_open_like(struct fetch **out, const struct fetch *f, const struct hub_watch *watch,
                    struct carat_error *err)
{
    (void)f, (void)watch;
    return fetch_open(out, NULL, err);
}

void fetch_close(struct fetch *f)
{
    (void)f;
}

int fetch_get(struct fetch *f, const struct fetch_question *q, const struct fetch_sink *sink,
              struct fetch_head *head, bool *may_retry, struct carat_error *err)
{
    (void)f, (void)q, (void)sink, (void)head;
    *may_retry = false;
    return err_set(err, CARAT_EUNSUPPORTED, "carat was built without libcurl");
}

#endif
