#include "server/otlp_client.h"

#include "base/mem.h"

#ifdef CARAT_HAVE_FETCH

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "server/otlp_reply.h"
#include "server/pairs.h"

enum { CONNECT_SECONDS = 5, POST_SECONDS = 10, REPLY_MAX = 1 << 16 };

struct otlp_client {
    CURLM *multi;
    CURL *easy;
    CURLU *url;
    struct curl_slist *fields;
    char *text;      /* of the url */
    size_t received; /* bytes of a reply, and of its headers */
    struct buf *reply;
    atomic_llong ends_ms; /* os_seconds() in milliseconds, after which nothing is posted */
};

/* ---- Posting ----------------------------------------------------------------------------- */

static size_t on_head(char *bytes, size_t size, size_t count, void *user)
{
    struct otlp_client *c = user;
    (void)bytes;
    c->received += size * count;
    return c->received <= REPLY_MAX ? size * count : 0;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    struct otlp_client *c = user;
    const size_t n = size * count, room = OTLP_REPLY_MAX + 1 - c->reply->length;
    buf_add(c->reply, bytes, n < room ? n : room);
    return on_head(bytes, size, count, user);
}

static double seconds_left(struct otlp_client *c, double until)
{
    const double ends = (double)atomic_load(&c->ends_ms) / 1e3;
    return (ends < until ? ends : until) - os_seconds();
}

static CURLcode take_code(CURLM *multi)
{
    int left;
    const CURLMsg *message;
    CURLcode code = CURLE_OPERATION_TIMEDOUT; /* it has not ended */
    while ((message = curl_multi_info_read(multi, &left)))
        if (message->msg == CURLMSG_DONE) code = message->data.result;
    return code;
}

/* By curl_multi, as that can be woken while it waits. */
static CURLcode transfer(struct otlp_client *c)
{
    const double until = os_seconds() + POST_SECONDS;
    int running = 1;
    if (curl_multi_add_handle(c->multi, c->easy) != CURLM_OK) return CURLE_OUT_OF_MEMORY;
    while (curl_multi_perform(c->multi, &running) == CURLM_OK && running) {
        const double left = seconds_left(c, until);
        if (left <= 0) break;
        (void)curl_multi_poll(c->multi, NULL, 0, left < 1 ? (int)(left * 1e3) + 1 : 1000, NULL);
    }
    const CURLcode code = take_code(c->multi);
    (void)curl_multi_remove_handle(c->multi, c->easy);
    return code;
}

static bool may_pass(long status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

static bool is_final(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
}

enum otlp_result otlp_post(struct otlp_client *c, const struct buf *body, struct buf *reply,
                           char why[96])
{
    long status = 0;
    why[0] = '\0';
    buf_clear(reply);
    c->reply = reply;
    c->received = 0;
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, body->data);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->length);
    const CURLcode code = transfer(c);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, NULL);
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_WRITE_ERROR) {
        (void)snprintf(why, 96, "its reply is too long");
        return OTLP_REFUSED;
    }
    if (code != CURLE_OK) {
        (void)snprintf(why, 96, "%s", curl_easy_strerror(code));
        return is_final(code) ? OTLP_REFUSED : OTLP_LATER;
    }
    if (status >= 200 && status < 300) return OTLP_TAKEN;
    (void)snprintf(why, 96, "it answers with status %ld", status);
    return may_pass(status) ? OTLP_LATER : OTLP_REFUSED;
}

void otlp_end_within(struct otlp_client *c, double seconds)
{
    atomic_store(&c->ends_ms, (long long)((os_seconds() + seconds) * 1e3));
    (void)curl_multi_wakeup(c->multi);
}

/* ---- Opening ----------------------------------------------------------------------------- */

/* A part of the address; NULL if it has none. The caller frees it by curl_free. */
static char *part_of(CURLU *url, CURLUPart part)
{
    char *text = NULL;
    return curl_url_get(url, part, &text, 0) == CURLUE_OK ? text : NULL;
}

static bool is_loopback(const char *host)
{
    const bool is_number = strncmp(host, "127.", 4) == 0;
    if (is_number) return host[strspn(host, "0123456789.")] == '\0';
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0;
}

/* An address with a name or a password is not repeated: it may be a secret. */
static int refuse_url(const struct otlp_options *o, struct carat_error *err)
{
    const char *shown = strchr(o->url, '@') ? "another one" : o->url;
    err_set(err, CARAT_EUSAGE, "%s: http://HOST:PORT or https://HOST:PORT expected, %.200s found",
            o->name, shown);
    err_hint(err, "collectors take OTLP over HTTP at port 4318; that over gRPC is not spoken here");
    return CARAT_EUSAGE;
}

static int set_path(struct otlp_client *c, const struct otlp_options *o, struct carat_error *err)
{
    static const char end[] = "/v1/traces";
    enum { END = sizeof end - 1 };
    struct buf path = {0};
    char *given = part_of(c->url, CURLUPART_PATH);
    size_t n = given ? strlen(given) : 0;
    while (!o->is_whole && n > 0 && given[n - 1] == '/') n--;
    const bool has_end = n >= END && memcmp(given + n - END, end, END) == 0;
    if (n > 0) buf_add(&path, given, n);
    if (!o->is_whole && !has_end) buf_add_text(&path, end);
    const bool is_set =
        !path.failed && curl_url_set(c->url, CURLUPART_PATH, buf_text(&path), 0) == CURLUE_OK;
    curl_free(given);
    buf_deinit(&path);
    return is_set ? CARAT_OK : err_no_memory(err, "collector", n);
}

/* Refuses what is not meant for a collector; *is_near: it is on this machine; *is_https. */
static int check_url(struct otlp_client *c, const struct otlp_options *o, bool *is_near,
                     bool *is_https, struct carat_error *err)
{
    static const CURLUPart strange[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT};
    bool is_good = curl_url_set(c->url, CURLUPART_URL, o->url, 0) == CURLUE_OK;
    char *scheme = is_good ? part_of(c->url, CURLUPART_SCHEME) : NULL;
    char *host = is_good ? part_of(c->url, CURLUPART_HOST) : NULL;
    *is_https = scheme && strcmp(scheme, "https") == 0;
    is_good = host && scheme && (*is_https || strcmp(scheme, "http") == 0);
    *is_near = host && is_loopback(host);
    for (size_t i = 0; is_good && i < sizeof strange / sizeof *strange; i++) {
        char *found = part_of(c->url, strange[i]);
        is_good = !found;
        curl_free(found);
    }
    curl_free(scheme);
    curl_free(host);
    return is_good ? CARAT_OK : refuse_url(o, err);
}

static bool add_field(struct otlp_client *c, const char *name, const char *value)
{
    struct buf line = {0};
    buf_printf(&line, value[0] ? "%s: %s" : "%s;", name, value); /* curl's way to say nothing */
    struct curl_slist *more = line.failed ? NULL : curl_slist_append(c->fields, buf_text(&line));
    if (more) c->fields = more;
    buf_deinit(&line);
    return more != NULL;
}

/* Their values may be keys: no message shows them. */
static int add_fields(struct otlp_client *c, const struct otlp_options *o, bool is_safe,
                      struct carat_error *err)
{
    const char *at = o->fields;
    struct pair pair;
    int found;
    bool is_done = add_field(c, "Content-Type", "application/json");
    struct curl_slist *more = curl_slist_append(c->fields, "Expect:"); /* it is not asked before */
    if (more) c->fields = more;
    while ((found = pairs_next(&at, &pair)) > 0) {
        if (!is_safe) {
            err_set(err, CARAT_EUSAGE,
                    "OTEL_EXPORTER_OTLP_HEADERS: they would go to another "
                    "machine unencrypted");
            err_hint(err, "use https://, or --insecure where the network is trusted");
            return CARAT_EUSAGE;
        }
        is_done = is_done && add_field(c, pair.name, pair.value);
    }
    if (found < 0) {
        err_set(err, CARAT_EUSAGE, "OTEL_EXPORTER_OTLP_HEADERS: NAME=VALUE,NAME=VALUE expected");
        return CARAT_EUSAGE;
    }
    return is_done && more ? CARAT_OK : err_no_memory(err, "collector", 0);
}

static void set_options(struct otlp_client *c, const struct otlp_options *o, bool is_near)
{
    CURL *e = c->easy;
    (void)curl_easy_setopt(e, CURLOPT_CURLU, c->url);
    (void)curl_easy_setopt(e, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->fields);
    (void)curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    (void)curl_easy_setopt(e, CURLOPT_USERAGENT, "carat");
    (void)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_head);
    (void)curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
#if LIBCURL_VERSION_NUM >= 0x075700 /* a name server that is slow holds nobody up at the end */
    (void)curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
#endif
    if (is_near) (void)curl_easy_setopt(e, CURLOPT_PROXY, "");
    if (o->ca_file[0]) (void)curl_easy_setopt(e, CURLOPT_CAINFO, o->ca_file);
}

static int start(struct otlp_client *c, const struct otlp_options *o, struct carat_error *err)
{
    bool is_near, is_https;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, CARAT_EINTERNAL, "libcurl does not start");
    c->url = curl_url();
    c->easy = curl_easy_init();
    c->multi = curl_multi_init();
    if (!c->url || !c->easy || !c->multi) return err_no_memory(err, "collector", 0);
    TRY(check_url(c, o, &is_near, &is_https, err));
    TRY(set_path(c, o, err));
    TRY(add_fields(c, o, is_near || is_https || o->is_insecure, err));
    c->text = part_of(c->url, CURLUPART_URL);
    if (!c->text) return err_no_memory(err, "collector", strlen(o->url));
    set_options(c, o, is_near);
    return CARAT_OK;
}

int otlp_open(struct otlp_client **out, const struct otlp_options *options, struct carat_error *err)
{
    struct otlp_client *c = *out = mem_alloc(1, sizeof *c);
    if (!c) return err_no_memory(err, "collector", sizeof *c);
    atomic_init(&c->ends_ms, INT64_MAX);
    int status = start(c, options, err);
    if (status == CARAT_OK) return CARAT_OK;
    otlp_close(c);
    *out = NULL;
    return status;
}

void otlp_close(struct otlp_client *c)
{
    if (!c) return;
    curl_easy_cleanup(c->easy);
    curl_multi_cleanup(c->multi);
    curl_slist_free_all(c->fields);
    curl_free(c->text);
    curl_url_cleanup(c->url);
    mem_free(c);
}

const char *otlp_url(const struct otlp_client *c)
{
    return c->text;
}

#else

int otlp_open(struct otlp_client **out, const struct otlp_options *options, struct carat_error *err)
{
    *out = NULL;
    err_set(err, CARAT_EUNSUPPORTED, "%s: carat was built without libcurl", options->name);
    err_hint(err, "install libcurl4-gnutls-dev (or another libcurl) and build again");
    return CARAT_EUNSUPPORTED;
}

void otlp_close(struct otlp_client *c)
{
    (void)c;
}

const char *otlp_url(const struct otlp_client *c)
{
    (void)c;
    return "";
}

enum otlp_result otlp_post(struct otlp_client *c, const struct buf *body, struct buf *reply,
                           char why[96])
{
    (void)c, (void)body, (void)reply;
    why[0] = '\0';
    return OTLP_REFUSED;
}

void otlp_end_within(struct otlp_client *c, double seconds)
{
    (void)c, (void)seconds;
}

#endif
