#include "server/metrics.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/exposition.h"
#include "server/process_facts.h"
#include "server/replicas.h"

/* Given by CMake to this file and src/cli/version.c. */
#ifndef CARAT_COMMIT
#define CARAT_COMMIT "unknown"
#endif

enum { REPLIES_MAX = 1024 }; /* pairs of a route and a status; what comes later counts as other */

struct replies {
    char route[64];
    int status;
    uint64_t n;
};

static const char *const finishes[] = {"stop",      "length", "tool_calls",
                                       "cancelled", "error",  "deadline"};
enum { FINISH_COUNT = sizeof finishes / sizeof *finishes };

/* ---- Histograms ------------------------------------------------------------------------- */

#define BOUNDS(name, ...)                                                                          \
    static const double name[] = {__VA_ARGS__};                                                    \
    static_assert(sizeof name / sizeof *name <= HISTOGRAM_BOUNDS_MAX, "too many buckets")
#define LENGTH(list) ((int)(sizeof(list) / sizeof *(list)))

/* The bounds of vLLM, with finer ones for small models on fast machines. */
BOUNDS(wait_bounds, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1,
       2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560);
BOUNDS(gap_bounds, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
       0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80);
BOUNDS(token_bounds, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000,
       100000, 200000, 500000);

/* X(ID, name, name of vLLM or NULL, bounds, help) */
#define HISTOGRAM_LIST(X)                                                                          \
    X(FIRST_TOKEN, "carat_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",        \
      wait_bounds, "From the last byte of a request to its first token.")                          \
    X(TOKEN_GAP, "carat_inter_token_latency_seconds", "vllm:time_per_output_token_seconds",        \
      gap_bounds, "Between two tokens of an answer.")                                              \
    X(WHOLE, "carat_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds", wait_bounds, \
      "From the last byte of a request to the end of its answer.")                                 \
    X(QUEUE, "carat_request_queue_time_seconds", "vllm:request_queue_time_seconds", wait_bounds,   \
      "In the engine, before the first step of a request.")                                        \
    X(PREFILL, "carat_request_prefill_time_seconds", "vllm:request_prefill_time_seconds",          \
      wait_bounds, "Reading the prompt of a request.")                                             \
    X(DECODE, "carat_request_decode_time_seconds", "vllm:request_decode_time_seconds",             \
      wait_bounds, "Making the tokens of an answer.")                                              \
    X(PROMPT, "carat_request_prompt_tokens", "vllm:request_prompt_tokens", token_bounds,           \
      "Tokens of the prompt of a request.")                                                        \
    X(GENERATION, "carat_request_generation_tokens", "vllm:request_generation_tokens",             \
      token_bounds, "Tokens of an answer.")

enum histogram_id {
#define X(id, name, other, bounds, help) HISTOGRAM_##id,
    HISTOGRAM_LIST(X)
#undef X
        HISTOGRAM_COUNT
};

static const struct histogram_spec {
    const char *name, *other, *help;
    const double *bounds;
    int n;
} histogram_specs[HISTOGRAM_COUNT] = {
#define X(id, name, other, bounds, help)                                                           \
    [HISTOGRAM_##id] = {name, other, help, bounds, LENGTH(bounds)},
    HISTOGRAM_LIST(X)
#undef X
};

/* ---- Counting --------------------------------------------------------------------------- */

struct metrics {
    pthread_mutex_t lock; /* over what changes */
    struct buf labels;    /* model="..." */
    struct buf other;     /* model_name="...", as vLLM has it */
    struct replies replies[REPLIES_MAX];
    size_t n_replies;
    uint64_t counts[METRICS_COUNT];
    uint64_t finished[FINISH_COUNT];
    uint64_t prompt_tokens, cached_tokens, generation_tokens;
    struct histogram histograms[HISTOGRAM_COUNT];
};

int metrics_open(struct metrics **out, const char *model, struct carat_error *err)
{
    struct metrics *m = mem_alloc(1, sizeof *m);
    if (!m) return err_no_memory(err, "metrics", sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    labels_add(&m->labels, "model", model);
    labels_add(&m->other, "model_name", model);
    for (int i = 0; i < HISTOGRAM_COUNT; i++) {
        m->histograms[i].bounds = histogram_specs[i].bounds;
        m->histograms[i].n = histogram_specs[i].n;
    }
    if (m->labels.failed || m->other.failed) {
        metrics_close(m);
        return err_no_memory(err, "metrics", strlen(model));
    }
    *out = m;
    return CARAT_OK;
}

void metrics_close(struct metrics *m)
{
    if (!m) return;
    pthread_mutex_destroy(&m->lock);
    buf_deinit(&m->labels);
    buf_deinit(&m->other);
    mem_free(m);
}

void metrics_reply(struct metrics *m, const char *route, int status)
{
    pthread_mutex_lock(&m->lock);
    size_t i = 0;
    while (i < m->n_replies &&
           (m->replies[i].status != status ||
            strncmp(m->replies[i].route, route, sizeof m->replies[i].route - 1) != 0))
        i++;
    if (i == REPLIES_MAX) i--;
    if (i == m->n_replies) {
        struct replies *r = &m->replies[m->n_replies++];
        bool is_last = m->n_replies == REPLIES_MAX;
        snprintf(r->route, sizeof r->route, "%s", is_last ? "other" : route);
        r->status = is_last ? 0 : status;
    }
    m->replies[i].n++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_add(struct metrics *m, enum metrics_count what, uint64_t n)
{
    pthread_mutex_lock(&m->lock);
    m->counts[what] += n;
    pthread_mutex_unlock(&m->lock);
}

void metrics_answer(struct metrics *m, const struct metrics_answer *a)
{
    int finish = 0;
    while (finish < FINISH_COUNT - 1 && strcmp(finishes[finish], a->finish) != 0) finish++;
    pthread_mutex_lock(&m->lock);
    m->finished[finish]++;
    m->prompt_tokens += (uint64_t)a->n_prompt;
    m->cached_tokens += (uint64_t)a->n_cached;
    m->generation_tokens += (uint64_t)a->n_generated;
    histogram_add(&m->histograms[HISTOGRAM_QUEUE], a->queue);
    histogram_add(&m->histograms[HISTOGRAM_PREFILL], a->prefill);
    histogram_add(&m->histograms[HISTOGRAM_DECODE], a->decode);
    histogram_add(&m->histograms[HISTOGRAM_WHOLE], a->whole);
    histogram_add(&m->histograms[HISTOGRAM_PROMPT], a->n_prompt);
    histogram_add(&m->histograms[HISTOGRAM_GENERATION], a->n_generated);
    if (a->n_generated > 0) histogram_add(&m->histograms[HISTOGRAM_FIRST_TOKEN], a->first_token);
    pthread_mutex_unlock(&m->lock);
}

void metrics_token_gap(struct metrics *m, double seconds)
{
    pthread_mutex_lock(&m->lock);
    histogram_add(&m->histograms[HISTOGRAM_TOKEN_GAP], seconds);
    pthread_mutex_unlock(&m->lock);
}

/* ---- Writing ---------------------------------------------------------------------------- */

/* A family with a sample for each of n values of a label, which comes after those in `common`. */
static void put_each(const struct buf *common, struct buf *out, const char *name,
                     enum family_kind kind, const char *help, const char *label, int n,
                     const char *const *words, const double *values)
{
    family_begin(out, name, kind, help);
    for (int i = 0; i < n; i++) {
        struct buf labels = {0};
        buf_add(&labels, common->data, common->length);
        labels_add(&labels, label, words[i]);
        out->failed |= labels.failed;
        sample_put(out, name, buf_text(&labels), values[i]);
        buf_deinit(&labels);
    }
}

static void put_replies(const struct metrics *m, struct buf *out)
{
    const char *name = "carat_requests_total";
    if (m->n_replies == 0) return;
    family_begin(out, name, FAMILY_COUNTER, "Replies sent, by route and status.");
    for (size_t i = 0; i < m->n_replies; i++) {
        struct buf labels = {0};
        char status[16];
        snprintf(status, sizeof status, "%d", m->replies[i].status);
        buf_add(&labels, m->labels.data, m->labels.length);
        labels_add(&labels, "route", m->replies[i].route);
        labels_add(&labels, "status", status);
        out->failed |= labels.failed;
        sample_put(out, name, buf_text(&labels), (double)m->replies[i].n);
        buf_deinit(&labels);
    }
}

/* A family of one sample, and again under the name that vLLM has for it (NULL: none). */
static void put_one(const struct metrics *m, struct buf *out, enum family_kind kind,
                    const char *name, const char *other, double value, const char *help)
{
    family_begin(out, name, kind, help);
    sample_put(out, name, buf_text(&m->labels), value);
    if (!other) return;
    family_begin(out, other, kind, help);
    sample_put(out, other, buf_text(&m->other), value);
}

static void put_cache(const struct metrics *m, const struct metrics_now *now, struct buf *out)
{
    static const char *const kinds[] = {"global", "swa"};
    const struct carat_page_counts *global = &now->engine.pages_global;
    const struct carat_page_counts *local = &now->engine.pages_local;
    double page = (double)now->page_tokens;
    double kv_usage = fmax(replicas_usage(global), replicas_usage(local));
    put_each(&m->labels, out, "carat_kv_cells", FAMILY_GAUGE,
             "Positions that keys and values have room for.", "kind", 2, kinds,
             (double[]){(double)global->all * page, (double)local->all * page});
    put_each(&m->labels, out, "carat_kv_cells_used", FAMILY_GAUGE, "Positions that requests hold.",
             "kind", 2, kinds,
             (double[]){(double)global->referenced * page, (double)local->referenced * page});
    put_each(&m->labels, out, "carat_kv_cells_cached", FAMILY_GAUGE,
             "Positions that only the prefix cache holds.", "kind", 2, kinds,
             (double[]){(double)global->cached * page, (double)local->cached * page});
    put_one(m, out, FAMILY_GAUGE, "carat_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc",
            kv_usage, "Share of the scarcer pool of pages that requests hold, 0 to 1.");
    family_begin(out, "vllm:gpu_cache_usage_perc", FAMILY_GAUGE, "As vllm:kv_cache_usage_perc.");
    sample_put(out, "vllm:gpu_cache_usage_perc", buf_text(&m->other), kv_usage);
    put_one(m, out, FAMILY_COUNTER, "carat_prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries_total", (double)now->engine.prompt_tokens,
            "Prompt tokens that were looked up in the prefix cache.");
    put_one(m, out, FAMILY_COUNTER, "carat_prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total", (double)now->engine.cached_tokens,
            "Prompt tokens that were found there, and not computed.");
    put_one(m, out, FAMILY_GAUGE, "carat_checkpoints", NULL, (double)now->engine.anchors,
            "Positions from which a request can go on without reading what is before.");
    put_one(m, out, FAMILY_GAUGE, "carat_checkpoint_bytes", NULL, (double)now->cached_bytes,
            "Memory that only the prefix cache holds.");
    put_one(m, out, FAMILY_COUNTER, "carat_evicted_pages_total", NULL,
            (double)now->engine.evicted_pages, "Pages that the prefix cache gave up for others.");

    char text[32];
    struct buf labels = {0};
    snprintf(text, sizeof text, "%lld", (long long)now->page_tokens);
    labels_add(&labels, "block_size", text);
    snprintf(text, sizeof text, "%lld", (long long)now->pages_all);
    labels_add(&labels, "num_gpu_blocks", text);
    family_begin(out, "vllm:cache_config_info", FAMILY_GAUGE, "Pages and their tokens.");
    sample_put(out, "vllm:cache_config_info", buf_text(&labels), 1);
    out->failed |= labels.failed;
    buf_deinit(&labels);
}

static void put_answers(const struct metrics *m, struct buf *out)
{
    double finished[FINISH_COUNT];
    for (int i = 0; i < FINISH_COUNT; i++) finished[i] = (double)m->finished[i];
    const char *help = "Answers that have ended, by their reason.";
    put_each(&m->labels, out, "carat_request_success_total", FAMILY_COUNTER, help, "finish_reason",
             FINISH_COUNT, finishes, finished);
    put_each(&m->other, out, "vllm:request_success_total", FAMILY_COUNTER, help, "finished_reason",
             FINISH_COUNT, finishes, finished);
    put_one(m, out, FAMILY_COUNTER, "carat_prompt_tokens_total", "vllm:prompt_tokens_total",
            (double)m->prompt_tokens, "Prompt tokens of answers that have ended.");
    put_one(m, out, FAMILY_COUNTER, "carat_prompt_tokens_cached_total", NULL,
            (double)m->cached_tokens, "Of these: tokens that came from the prefix cache.");
    put_one(m, out, FAMILY_COUNTER, "carat_generation_tokens_total", "vllm:generation_tokens_total",
            (double)m->generation_tokens, "Tokens of answers that have ended.");
}

static void put_requests(const struct metrics *m, const struct metrics_now *now, struct buf *out)
{
    static const char *const phases[] = {"queue", "prompt", "decode", "write"};
    const uint64_t *n = m->counts;
    put_replies(m, out);
    put_one(m, out, FAMILY_GAUGE, "carat_requests_running", "vllm:num_requests_running",
            now->running, "Requests that an engine reads or answers.");
    put_one(m, out, FAMILY_GAUGE, "carat_requests_waiting", "vllm:num_requests_waiting",
            now->waiting, "Requests that wait for an engine.");
    put_answers(m, out);
    put_one(m, out, FAMILY_COUNTER, "carat_queue_rejected_total", NULL,
            (double)n[METRICS_QUEUE_REJECTED], "Requests refused because too many waited.");
    put_each(&m->labels, out, "carat_cancelled_total", FAMILY_COUNTER,
             "Requests whose client left, by what was going on then.", "phase", 4, phases,
             (double[]){(double)n[METRICS_CANCELLED_QUEUE], (double)n[METRICS_CANCELLED_PROMPT],
                        (double)n[METRICS_CANCELLED_DECODE], (double)n[METRICS_CANCELLED_WRITE]});
    put_one(m, out, FAMILY_COUNTER, "carat_billing_header_stripped_total", NULL,
            (double)n[METRICS_BILLING_LINES],
            "Changing first lines of system prompts that were dropped.");
    for (int i = 0; i < HISTOGRAM_COUNT; i++) {
        const struct histogram_spec *spec = &histogram_specs[i];
        family_begin(out, spec->name, FAMILY_HISTOGRAM, spec->help);
        histogram_put(out, spec->name, buf_text(&m->labels), &m->histograms[i]);
        family_begin(out, spec->other, FAMILY_HISTOGRAM, spec->help);
        histogram_put(out, spec->other, buf_text(&m->other), &m->histograms[i]);
    }
}

static void put_server(const struct metrics *m, const struct metrics_now *now, struct buf *out)
{
    static const char *const states[] = {"idle", "reading", "waiting", "writing"};
    struct buf labels = {0};
    buf_add(&labels, m->labels.data, m->labels.length);
    labels_add(&labels, "version", carat_version());
    labels_add(&labels, "revision", CARAT_COMMIT);
    family_begin(out, "carat_build_info", FAMILY_GAUGE, "The build.");
    sample_put(out, "carat_build_info", buf_text(&labels), 1);
    out->failed |= labels.failed;
    buf_deinit(&labels);
    put_one(m, out, FAMILY_GAUGE, "carat_ready", NULL, now->is_ready,
            "1 while new requests are taken.");
    put_each(&m->labels, out, "carat_connections", FAMILY_GAUGE,
             "Open connections, by what their clients do: nothing, sending, waiting, reading.",
             "state", 4, states,
             (double[]){(double)now->idle, (double)now->reading, (double)now->answering,
                        (double)now->writing});
    put_one(m, out, FAMILY_COUNTER, "carat_connections_failed_total", NULL,
            (double)m->counts[METRICS_FAILED],
            "Connections closed without a reply: TLS failed, or a client had too many.");
    put_one(m, out, FAMILY_COUNTER, "carat_traces_sent_total", NULL,
            (double)m->counts[METRICS_TRACES_SENT],
            "Spans of requests that a collector has taken.");
    put_one(m, out, FAMILY_COUNTER, "carat_traces_dropped_total", NULL,
            (double)m->counts[METRICS_TRACES_DROPPED],
            "Spans of requests that no collector has taken in time.");
    put_one(m, out, FAMILY_GAUGE, "carat_requests_open", NULL, now->calls,
            "Requests from their headers to the last byte of their reply, of any route.");
    put_one(m, out, FAMILY_GAUGE, "carat_streams", NULL, now->streams, "Answers being streamed.");
    put_one(m, out, FAMILY_GAUGE, "carat_engines", NULL, now->engines, "Engines, failed ones too.");
    put_one(m, out, FAMILY_GAUGE, "carat_engines_failed", NULL, now->engines_failed,
            "Engines that have failed.");
    put_one(m, out, FAMILY_COUNTER, "carat_steps_total", NULL, (double)now->engine.steps,
            "Steps of all engines.");
    put_one(m, out, FAMILY_COUNTER, "carat_rows_total", NULL, (double)now->engine.rows,
            "Positions computed in them.");
    put_one(m, out, FAMILY_COUNTER, "carat_preemptions_total", "vllm:num_preemptions_total",
            (double)now->engine.preemptions, "Requests stopped to make room, which go on later.");
    put_one(m, out, FAMILY_COUNTER, "carat_drafted_tokens_total",
            "vllm:spec_decode_num_draft_tokens_total", (double)now->engine.drafted,
            "Tokens of answers that were guessed.");
    put_one(m, out, FAMILY_COUNTER, "carat_accepted_tokens_total",
            "vllm:spec_decode_num_accepted_tokens_total", (double)now->engine.accepted,
            "Of these: tokens that were guessed right.");
}

static void put_process(struct buf *out)
{
    struct process_facts f;
    process_facts_read(&f);
    const struct {
        const char *name, *help;
        enum family_kind kind;
        double value;
    } rows[] = {
        {"process_resident_memory_bytes", "Resident memory.", FAMILY_GAUGE, f.resident_bytes},
        {"process_virtual_memory_bytes", "Virtual memory.", FAMILY_GAUGE, f.virtual_bytes},
        {"process_cpu_seconds_total", "CPU time, user and system.", FAMILY_COUNTER, f.cpu_seconds},
        {"process_start_time_seconds", "Start, since 1970.", FAMILY_GAUGE, f.start_seconds},
        {"process_open_fds", "Open file descriptors.", FAMILY_GAUGE, f.open_files},
        {"process_max_fds", "The most that may be open.", FAMILY_GAUGE, f.open_files_max},
        {"process_threads", "Threads.", FAMILY_GAUGE, f.threads},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        family_begin(out, rows[i].name, rows[i].kind, rows[i].help);
        sample_put(out, rows[i].name, "", rows[i].value);
    }
}

void metrics_write(struct metrics *m, const struct metrics_now *now, struct buf *out)
{
    pthread_mutex_lock(&m->lock);
    put_requests(m, now, out);
    put_cache(m, now, out);
    put_server(m, now, out);
    pthread_mutex_unlock(&m->lock);
    put_process(out);
}
