#include "cli/load_http.h"

#include "base/status.h"

#ifndef CARAT_HAVE_FETCH

int load_http_open(struct load_http **out, const struct load_http_options *options,
                   struct load_server *server, struct carat_error *err)
{
    (void)options;
    *out = NULL;
    *server = (struct load_server){.n_seq = 0};
    err_set(err, CARAT_EUNSUPPORTED, "--url: built without libcurl");
    err_hint(err, "install libcurl4-gnutls-dev (or another libcurl) and build again");
    return CARAT_EUNSUPPORTED;
}

struct load_target *load_http_target(struct load_http *h)
{
    (void)h;
    return NULL;
}

void load_http_close(struct load_http *h)
{
    (void)h;
}

#else

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/mem.h"
#include "base/os.h"
#include "cli/files.h"
#include "cli/load_stream.h"
#include "json/json_tree.h"

enum { ERROR_BODY_MAX = 4096, FACTS_MAX = 1 << 20, FACTS_SECONDS = 10, CONNECTIONS_KEPT = 2048 };

/* A request on its way. Places are used again. */
struct transfer {
    struct load_http *http;
    CURL *easy;
    int32_t index; /* -1: free */
    bool is_cancelled;
    struct buf body; /* of the request */
    struct buf refusal;
    struct load_stream stream;
    double seconds; /* when the last bytes came */
    char problem[CURL_ERROR_SIZE];
};

struct load_http {
    struct load_target target;
    const struct load_plan *plan;
    CURLM *multi;
    struct curl_slist *headers;
    struct buf url, model;
    struct buf schemas[LOAD_GROUPS_MAX];
    struct transfer **transfers; /* [n] */
    struct transfer **by_index;  /* [plan->n]; NULL: not under way */
    size_t n, capacity;
    int32_t n_cancelled; /* and not yet told */
    int64_t n_told;      /* events */
    bool *is_banned;
    int32_t plain_id; /* stands for a token whose id the server does not tell */
};

/* ---- Events ----------------------------------------------------------------------------- */

static void tell(struct load_http *h, const struct load_event *event)
{
    h->n_told++;
    h->target.on_event(h->target.user, event);
}

static void on_stream_event(void *user, const struct load_event *event)
{
    struct transfer *t = user;
    struct load_event told = *event;
    told.index = t->index;
    told.seconds = t->seconds;
    if (told.id < 0 || told.id >= t->http->target.n_vocab) told.id = t->http->plain_id;
    if (!t->is_cancelled) tell(t->http, &told);
}

/* Returning fewer bytes than came ends the transfer. */
static size_t on_bytes(char *bytes, size_t size, size_t count, void *user)
{
    struct transfer *t = user;
    size_t n = size * count;
    long status = 0;
    t->seconds = os_seconds();
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200)
        load_stream_read(&t->stream, bytes, n, on_stream_event, t);
    else if (t->refusal.length < ERROR_BODY_MAX)
        buf_add(&t->refusal, bytes, n);
    return t->is_cancelled ? 0 : n;
}

static enum load_outcome outcome_of(const struct transfer *t, CURLcode code, long status)
{
    const struct load_stream *s = &t->stream;
    if (t->is_cancelled) return LOAD_CANCELLED;
    if (code == CURLE_OPERATION_TIMEDOUT) return LOAD_EXPIRED;
    bool is_whole = code == CURLE_OK && status == 200 && s->is_finished && s->is_done;
    return is_whole && !s->error[0] && !s->line.failed ? LOAD_COMPLETED : LOAD_FAILED;
}

static void write_message(const struct transfer *t, CURLcode code, long status,
                          char out[2 * LOAD_ERROR_MAX])
{
    char said[LOAD_ERROR_MAX];
    size_t size = 2 * LOAD_ERROR_MAX;
    load_stream_message(buf_text(&t->refusal), t->refusal.length, said);
    if (t->stream.error[0])
        snprintf(out, size, "%s", t->stream.error);
    else if (code == CURLE_OK && status != 200)
        snprintf(out, size, "HTTP status %ld: %s", status, said);
    else if (code == CURLE_OK)
        snprintf(out, size, "the stream ended before the answer");
    else
        snprintf(out, size, "%s", t->problem[0] ? t->problem : curl_easy_strerror(code));
}

/* Tells the end of a transfer; its place is free then. */
static void end_transfer(struct load_http *h, struct transfer *t, CURLcode code)
{
    char message[2 * LOAD_ERROR_MAX];
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    write_message(t, code, status, message);
    const struct load_event event = {
        .kind = CARAT_EVENT_DONE,
        .index = t->index,
        .seconds = t->is_cancelled || code != CURLE_OK ? os_seconds() : t->seconds,
        .outcome = outcome_of(t, code, status),
        .queue_seconds = t->stream.queue_seconds,
        .n_cached = t->stream.n_cached,
        .message = message,
    };
    curl_multi_remove_handle(h->multi, t->easy);
    h->n_cancelled -= t->is_cancelled;
    h->by_index[t->index] = NULL;
    t->index = -1;
    tell(h, &event);
}

/* ---- Sending ---------------------------------------------------------------------------- */

static void write_body(const struct load_http *h, int32_t index, const struct carat_request *r,
                       struct buf *out)
{
    const struct load_request *planned = &h->plan->requests[index];
    const struct buf *schema = &h->schemas[planned->group];
    struct json j = {.out = out};
    json_begin_object(&j);
    json_key_string(&j, "model", buf_text(&h->model));
    json_key_array(&j, "prompt");
    for (size_t i = 0; i < r->n_prompt; i++) json_int(&j, r->prompt[i]);
    json_end_array(&j);
    json_key_int(&j, "max_tokens", r->max_tokens);
    json_key_double(&j, "temperature", (double)r->sampling.temperature);
    json_key_int(&j, "top_k", 0);
    json_key_int(&j, "top_p", 1);
    json_key_int(&j, "min_p", 0);
    json_key_int(&j, "seed", (int64_t)r->sampling.seed);
    json_key_bool(&j, "ignore_eos", r->ignore_stop);
    json_key_bool(&j, "stream", true);
    json_key_object(&j, "stream_options");
    json_key_bool(&j, "include_usage", true);
    json_end_object(&j);
    json_key_bool(&j, "return_token_ids", true);
    json_key_bool(&j, "return_progress", planned->cancel_when >= 1 && planned->cancel_when < 2);
    json_key_bool(&j, "cache_prompt", !r->no_cache);
    if (r->cache_salt) {
        json_key(&j, "cache_salt");
        char salt[24];
        snprintf(salt, sizeof salt, "%llu", (unsigned long long)r->cache_salt);
        json_put_string(&j, salt);
    }
    if (schema->length) {
        buf_add_text(out, ",\"json_schema\":");
        buf_add(out, schema->data, schema->length);
    }
    json_end_object(&j);
}

static void set_up(const struct load_http *h, struct transfer *t, double deadline)
{
    CURL *e = t->easy;
    curl_easy_reset(e);
    curl_easy_setopt(e, CURLOPT_URL, buf_text(&h->url));
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE, (long)t->body.length);
    curl_easy_setopt(e, CURLOPT_POSTFIELDS, buf_text(&t->body));
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->problem);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (deadline > 0) curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)ceil(deadline * 1e3));
}

static struct transfer *add_transfer(struct load_http *h)
{
    if (h->n == h->capacity) {
        size_t more = h->capacity ? 2 * h->capacity : 64;
        struct transfer **all = mem_resize(h->transfers, more, sizeof(struct transfer *));
        if (!all) return NULL;
        h->transfers = all;
        h->capacity = more;
    }
    struct transfer *t = mem_alloc(1, sizeof *t);
    if (!t) return NULL;
    *t = (struct transfer){.http = h, .easy = curl_easy_init(), .index = -1};
    h->transfers[h->n++] = t;
    return t->easy ? t : NULL;
}

static struct transfer *free_transfer(struct load_http *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->transfers[i]->index < 0 && h->transfers[i]->easy) return h->transfers[i];
    return add_transfer(h);
}

static int send_request(void *self, int32_t index, const struct carat_request *request,
                        struct carat_error *err)
{
    struct load_http *h = self;
    struct transfer *t = free_transfer(h);
    if (!t) return err_no_memory(err, "requests", sizeof *t);
    struct buf line = t->stream.line;
    buf_clear(&line);
    buf_clear(&t->body);
    buf_clear(&t->refusal);
    t->stream = (struct load_stream){.line = line};
    t->is_cancelled = false;
    t->problem[0] = '\0';
    write_body(h, index, request, &t->body);
    if (t->body.failed) return err_no_memory(err, "request", t->body.length);
    set_up(h, t, request->deadline_seconds);
    if (curl_multi_add_handle(h->multi, t->easy) != CURLM_OK)
        return err_set(err, CARAT_ENETWORK, "--url: a request cannot be sent");
    t->index = index;
    h->by_index[index] = t;
    return CARAT_OK;
}

/* Closing the connection is how clients cancel. */
static void cancel(void *self, int32_t index)
{
    struct load_http *h = self;
    struct transfer *t = h->by_index[index];
    if (!t || t->is_cancelled) return;
    t->is_cancelled = true;
    h->n_cancelled++;
}

/* ---- The loop --------------------------------------------------------------------------- */

static void take_ends(struct load_http *h)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(h->multi, &left))) {
        struct transfer *t = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
        end_transfer(h, t, code);
    }
    for (size_t i = 0; i < h->n && h->n_cancelled > 0; i++)
        if (h->transfers[i]->index >= 0 && h->transfers[i]->is_cancelled)
            end_transfer(h, h->transfers[i], CURLE_ABORTED_BY_CALLBACK);
}

static int go_on(void *self, double seconds, struct carat_error *err)
{
    struct load_http *h = self;
    int64_t before = h->n_told;
    int running;
    CURLMcode code = curl_multi_perform(h->multi, &running);
    if (code == CURLM_OK) take_ends(h);
    if (code == CURLM_OK && h->n_told == before)
        code = curl_multi_poll(h->multi, NULL, 0, (int)ceil(seconds * 1e3), NULL);
    if (code == CURLM_OK) return CARAT_OK;
    return err_set(err, CARAT_ENETWORK, "--url: %s", curl_multi_strerror(code));
}

/* A server tells its counts elsewhere (/metrics). */
static void look(void *self, struct carat_stats *out)
{
    (void)self;
    *out = (struct carat_stats){.steps = 0};
}

/* ---- What the server says of itself ----------------------------------------------------- */

static size_t on_facts(char *bytes, size_t size, size_t count, void *user)
{
    struct buf *out = user;
    if (out->length + size * count > FACTS_MAX) return 0;
    buf_add(out, bytes, size * count);
    return out->failed ? 0 : size * count;
}

static int get(const struct load_http *h, const char *base, const char *path, struct buf *out,
               struct carat_error *err)
{
    char problem[CURL_ERROR_SIZE] = "", said[LOAD_ERROR_MAX];
    struct buf url = {0};
    long status = 0;
    CURL *e = curl_easy_init();
    if (!e) return err_no_memory(err, "request", sizeof problem);
    buf_printf(&url, "%s%s", base, path);
    curl_easy_setopt(e, CURLOPT_URL, buf_text(&url));
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_facts);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, problem);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TIMEOUT, (long)FACTS_SECONDS);
    CURLcode code = curl_easy_perform(e);
    curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(e);
    load_stream_message(buf_text(out), out->length, said);
    if (code != CURLE_OK)
        err_set(err, CARAT_ENETWORK, "--url: %s: %s", buf_text(&url),
                problem[0] ? problem : curl_easy_strerror(code));
    else if (status != 200)
        err_set(err, CARAT_ENETWORK, "--url: %s: HTTP status %ld: %s", buf_text(&url), status,
                said);
    buf_deinit(&url);
    return code == CURLE_OK && status == 200 ? CARAT_OK : CARAT_ENETWORK;
}

static int64_t whole(const struct carat_value *object, const char *key)
{
    const struct carat_value *value = json_member(object, key);
    return value->kind == CARAT_INT && value->as.integer >= 0 ? value->as.integer : 0;
}

static void ban(struct load_http *h, const struct carat_value *ranges)
{
    for (size_t i = 0; ranges->kind == CARAT_ARRAY && i < ranges->as.array.count; i++) {
        const struct carat_value *r = &ranges->as.array.items[i];
        if (r->kind != CARAT_ARRAY || r->as.array.count != 2) continue;
        const struct carat_value *ends = r->as.array.items;
        if (ends[0].kind != CARAT_INT || ends[1].kind != CARAT_INT) continue;
        for (int64_t id = ends[0].as.integer; id <= ends[1].as.integer; id++)
            if (id >= 0 && id < h->target.n_vocab) h->is_banned[id] = true;
    }
    while (h->plain_id + 1 < h->target.n_vocab && h->is_banned[h->plain_id]) h->plain_id++;
}

static int take_props(struct load_http *h, const struct carat_value *props,
                      struct load_server *server, struct carat_error *err)
{
    enum { VOCABULARY_MAX = 1 << 24 };
    int64_t n_vocab = whole(props, "n_vocab");
    if (n_vocab < 1 || n_vocab > VOCABULARY_MAX)
        return err_set(err, CARAT_ENETWORK,
                       "--url: /props of the server does not say how many tokens there are "
                       "(n_vocab)");
    h->target.n_vocab = server->info.n_vocab = (int32_t)n_vocab;
    h->is_banned = mem_alloc((size_t)n_vocab, sizeof *h->is_banned);
    if (!h->is_banned) return err_no_memory(err, "vocabulary", (size_t)n_vocab);
    h->target.is_banned = h->is_banned;
    ban(h, json_member(props, "special_tokens"));
    server->memory.n_ctx =
        (int32_t)whole(json_member(props, "default_generation_settings"), "n_ctx");
    server->n_seq = (int32_t)whole(props, "total_slots");
    return CARAT_OK;
}

static void take_model(struct load_http *h, const struct carat_value *models,
                       struct load_server *server)
{
    static const struct carat_value nothing = {.kind = CARAT_NULL};
    const struct carat_value *list = json_member(models, "data");
    bool has_any = list->kind == CARAT_ARRAY && list->as.array.count > 0;
    const struct carat_value *first = has_any ? list->as.array.items : &nothing;
    const struct carat_value *id = json_member(first, "id"), *meta = json_member(first, "meta");
    if (id->kind == CARAT_STRING) buf_add(&h->model, id->as.string.data, id->as.string.length);
    snprintf(server->model, sizeof server->model, "%s", buf_text(&h->model));
    server->info.n_params = whole(meta, "n_params");
    server->info.file_bytes = (uint64_t)whole(meta, "size");
    server->info.n_ctx_train = (int32_t)whole(meta, "n_ctx_train");
}

static int ask_server(struct load_http *h, const char *base, struct load_server *server,
                      struct carat_error *err)
{
    struct buf props = {0}, models = {0};
    struct json_tree tree = {.documents = NULL};
    int status = get(h, base, "/props", &props, err);
    if (status == CARAT_OK) status = get(h, base, "/v1/models", &models, err);
    if (status == CARAT_OK)
        status = json_tree_read(&tree, buf_text(&props), props.length, JSON_PLAIN, err);
    if (status == CARAT_OK) status = take_props(h, &tree.root, server, err);
    json_tree_free(&tree);
    tree = (struct json_tree){.documents = NULL};
    if (status == CARAT_OK)
        status = json_tree_read(&tree, buf_text(&models), models.length, JSON_PLAIN, err);
    if (status == CARAT_OK) take_model(h, &tree.root, server);
    json_tree_free(&tree);
    buf_deinit(&props);
    buf_deinit(&models);
    return status;
}

/* ---- Opening and closing ---------------------------------------------------------------- */

static int read_schemas(struct load_http *h, struct carat_error *err)
{
    for (size_t i = 0; i < h->plan->n_groups; i++) {
        const struct load_group *g = &h->plan->groups[i];
        if (!g->schema[0]) continue;
        if (file_read(g->schema, &h->schemas[i], err))
            return err_within(err, "--load %s: schema", g->name);
    }
    return CARAT_OK;
}

static void add_header(struct load_http *h, const char *line)
{
    struct curl_slist *more = curl_slist_append(h->headers, line);
    if (more) h->headers = more;
}

static int begin(struct load_http *h, const struct load_http_options *o, struct load_server *server,
                 struct carat_error *err)
{
    struct buf base = {0}, bearer = {0};
    size_t n = strlen(o->url);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h->multi = curl_multi_init()))
        return err_set(err, CARAT_EINTERNAL, "libcurl cannot start");
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
    while (n > 0 && o->url[n - 1] == '/') n--;
    if (n > 3 && memcmp(o->url + n - 3, "/v1", 3) == 0) n -= 3;
    buf_add(&base, o->url, n);
    buf_printf(&h->url, "%s/v1/completions", buf_text(&base));
    buf_printf(&bearer, "Authorization: Bearer %s", o->key);
    add_header(h, "Content-Type: application/json");
    add_header(h, "Expect:");
    if (o->key[0]) add_header(h, buf_text(&bearer));
    h->by_index = mem_alloc(h->plan->n, sizeof(struct transfer *));
    int status = h->by_index ? read_schemas(h, err) : err_no_memory(err, "load", h->plan->n);
    if (status == CARAT_OK) status = ask_server(h, buf_text(&base), server, err);
    buf_deinit(&base);
    buf_deinit(&bearer);
    return status;
}

int load_http_open(struct load_http **out, const struct load_http_options *options,
                   struct load_server *server, struct carat_error *err)
{
    *out = NULL;
    *server = (struct load_server){.n_seq = 0};
    struct load_http *h = mem_alloc(1, sizeof *h);
    if (!h) return err_no_memory(err, "load", sizeof *h);
    h->plan = options->plan;
    h->target = (struct load_target){
        .self = h, .send = send_request, .cancel = cancel, .go_on = go_on, .look = look};
    int status = begin(h, options, server, err);
    if (status)
        load_http_close(h);
    else
        *out = h;
    return status;
}

struct load_target *load_http_target(struct load_http *h)
{
    return &h->target;
}

static void close_transfer(struct load_http *h, struct transfer *t)
{
    if (t->index >= 0) curl_multi_remove_handle(h->multi, t->easy);
    curl_easy_cleanup(t->easy);
    load_stream_deinit(&t->stream);
    buf_deinit(&t->body);
    buf_deinit(&t->refusal);
    mem_free(t);
}

void load_http_close(struct load_http *h)
{
    if (!h) return;
    for (size_t i = 0; i < h->n; i++) close_transfer(h, h->transfers[i]);
    curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->headers);
    for (size_t i = 0; i < LOAD_GROUPS_MAX; i++) buf_deinit(&h->schemas[i]);
    buf_deinit(&h->url);
    buf_deinit(&h->model);
    mem_free(h->transfers);
    mem_free(h->by_index);
    mem_free(h->is_banned);
    mem_free(h);
    curl_global_cleanup();
}

#endif
