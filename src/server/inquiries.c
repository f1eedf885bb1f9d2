#include "server/inquiries.h"

#include <stdio.h>
#include <string.h>

#include "server/facts.h"
#include "server/page.h"
#include "server/respond.h"

static void look(const struct service *s, struct replicas_now *now)
{
    *now = (struct replicas_now){0};
    if (s->replicas) replicas_look(s->replicas, now);
}

static struct facts facts_of(const struct service *s)
{
    struct replicas_now now;
    look(s, &now);
    return (struct facts){
        .model = s->options->model,
        .alias = s->options->alias,
        .build = s->options->build,
        .since = s->since,
        .sampling = s->options->sampling,
        .n_ctx = s->n_ctx,
        .n_seq = now.n_seq,
        .n_busy = now.running,
    };
}

/* ---- Health ------------------------------------------------------------------------------- */

static void answer_ready(const struct service *s, struct call *c)
{
    static const char *const names[] = {
        [SERVICE_LOADING] = "loading",
        [SERVICE_READY] = "ok",
        [SERVICE_DRAINING] = "draining",
        [SERVICE_ENDING] = "draining",
    };
    const struct http_field retry = {"Retry-After", "5"};
    struct replicas_now now;
    struct buf body = {0};
    look(s, &now);
    bool is_ready = s->state == SERVICE_READY && now.n_failed < now.n;
    facts_health(s->state == SERVICE_READY && !is_ready ? "failed" : names[s->state], &body);
    respond_buf(c, is_ready ? 200 : 503, "application/json", &retry, is_ready ? 0 : 1, &body);
    buf_deinit(&body);
}

/* Without what was counted before the first request. */
static struct carat_stats counts_since(const struct carat_stats *now,
                                       const struct carat_stats *before)
{
    struct carat_stats s = *now;
    s.submitted -= before->submitted;
    for (int i = 0; i < CARAT_FINISH_COUNT; i++) s.finished[i] -= before->finished[i];
    s.lookups -= before->lookups;
    s.hits -= before->hits;
    s.prompt_tokens -= before->prompt_tokens;
    s.cached_tokens -= before->cached_tokens;
    s.steps -= before->steps;
    s.rows -= before->rows;
    s.prompt_rows -= before->prompt_rows;
    s.drafted -= before->drafted;
    s.accepted -= before->accepted;
    s.evicted_pages -= before->evicted_pages;
    s.evicted_anchors -= before->evicted_anchors;
    s.preemptions -= before->preemptions;
    return s;
}

static void answer_metrics(struct service *s, struct call *c)
{
    enum { PAGE_TOKENS = 64 };
    struct replicas_now now;
    struct buf body = {0};
    look(s, &now);
    const struct carat_memory *memory = s->replicas ? replicas_memory(s->replicas, 0) : NULL;
    int64_t cached_bytes = 0;
    if (memory)
        cached_bytes = now.stats.pages_local.cached * (int64_t)memory->page_bytes_local +
                       now.stats.pages_global.cached * (int64_t)memory->page_bytes_global;
    const struct http_counts connections = http_count(s->http);
    const struct metrics_now facts = {
        .engine = counts_since(&now.stats, &s->before),
        .running = now.running,
        .waiting = now.waiting + (s->workers ? workers_waiting(s->workers) : 0),
        .calls = s->n_calls,
        .idle = connections.idle,
        .reading = connections.reading,
        .answering = connections.waiting,
        .writing = connections.writing,
        .streams = s->n_streams,
        .pages_all = now.pages_all,
        .page_tokens = PAGE_TOKENS,
        .cached_bytes = cached_bytes,
        .engines = now.n,
        .engines_failed = now.n_failed,
        .is_ready = s->state == SERVICE_READY,
    };
    metrics_write(s->metrics, &facts, &body);
    respond_buf(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, &body);
    buf_deinit(&body);
}

/* ---- The page ----------------------------------------------------------------------------- */

static bool has_word(const struct call *c, const char *header, const char *word)
{
    const char *value = http_header(c->q, header, 0);
    return value && strstr(value, word);
}

/* "gzip;q=0" says no. */
static bool takes_gzip(const struct call *c)
{
    const char *value = http_header(c->q, "Accept-Encoding", 0);
    const char *word = value ? strstr(value, "gzip") : NULL;
    float quality = 1;
    if (word) (void)sscanf(word, "gzip ; q = %f", &quality);
    return word && quality > 0;
}

/* Weak tags and strong ones of the same text are the same here, and a star means any. */
static bool is_known_to(const struct call *c, const char *etag)
{
    const char *star = http_header(c->q, "If-None-Match", 0);
    const char *text = strchr(etag, '"');
    return text && (has_word(c, "If-None-Match", text) || (star && strcmp(star, "*") == 0));
}

static void answer_file(struct call *c, const char *path)
{
    const struct page_file *file = page_find(path);
    if (!file) {
        struct api_error error = api_error_make(404, NULL, "there is no such file here");
        respond_error(c, &error);
        return;
    }
    bool is_gzip = takes_gzip(c);
    bool is_known = is_known_to(c, file->etag);
    const struct http_field fields[] = {
        {"ETag", file->etag},
        {"Cache-Control", "no-cache"},
        {"Vary", "Accept, Accept-Encoding"},
        {"Content-Security-Policy", PAGE_POLICY},
        {"Referrer-Policy", "no-referrer"},
        {"Content-Encoding", "gzip"},
    };
    size_t n = sizeof fields / sizeof *fields - !(is_gzip && !is_known);
    const unsigned char *data = is_gzip ? file->gzip : file->plain;
    size_t length = is_gzip ? file->gzip_length : file->plain_length;
    respond_fields(c, is_known ? 304 : 200, file->type, fields, n, (const char *)data,
                   is_known ? 0 : length);
}

/* Clients of ollama ask whether it runs. */
static void answer_root(struct call *c)
{
    static const char line[] = "Ollama is running";
    if (has_word(c, "Accept", "text/html") && page_find("/"))
        answer_file(c, "/");
    else
        respond_bytes(c, 200, "text/plain; charset=utf-8", line, sizeof line - 1);
}

/* ---- Models ------------------------------------------------------------------------------- */

static void answer_model(const struct service *s, struct call *c, const struct facts *facts,
                         struct buf *body)
{
    const char *id = strrchr(c->q->path, '/') + 1;
    const char *whole = c->q->path + strlen("/v1/models/"); /* a name may have slashes */
    if (strcmp(id, facts->alias) == 0 || strcmp(whole, facts->alias) == 0 ||
        !s->options->is_strict_model) {
        facts_model(facts, body);
        return;
    }
    struct api_error error = api_error_make(
        404, "model_not_found", "there is no model of that name here, only %s", facts->alias);
    respond_error(c, &error);
}

void inquiries_answer(struct service *s, struct call *c)
{
    const struct facts facts = facts_of(s);
    struct buf body = {0};
    switch (c->route->kind) {
    case ROUTE_LIVE: facts_health("ok", &body); break;
    case ROUTE_READY: answer_ready(s, c); break;
    case ROUTE_METRICS: answer_metrics(s, c); break;
    case ROUTE_MODELS: facts_models(&facts, &body); break;
    case ROUTE_MODEL: answer_model(s, c, &facts, &body); break;
    case ROUTE_PROPS: facts_props(&facts, &body); break;
    case ROUTE_SLOTS: facts_slots(&facts, &body); break;
    case ROUTE_TAGS: facts_tags(&facts, false, &body); break;
    case ROUTE_PS: facts_tags(&facts, true, &body); break;
    case ROUTE_SHOW: facts_show(&facts, &body); break;
    case ROUTE_VERSION: facts_version(&body); break;
    case ROUTE_ROOT: answer_root(c); break;
    case ROUTE_FILE: answer_file(c, c->q->path); break;
    case ROUTE_ANSWER:
    case ROUTE_TEXT:
    case ROUTE_DRAIN:
    case ROUTE_ABSENT: break;
    }
    if (c->stage != CALL_ENDING) respond_json(c, 200, &body);
    buf_deinit(&body);
}
