#include "engine/engine.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/sized.h"
#include "engine/drafter_file.h"
#include "engine/limits.h"
#include "engine/options.h"

/* Tokens that a text model must not produce: the file's own list, and the marks of images and
 * sound. */
static int list_suppressed(carat_engine *e, struct carat_error *err)
{
    static const enum vocab_special media[] = {VOCAB_IMAGE_BEGIN, VOCAB_IMAGE_END, VOCAB_IMAGE,
                                               VOCAB_AUDIO_BEGIN, VOCAB_AUDIO_END, VOCAB_AUDIO,
                                               VOCAB_VIDEO};
    size_t n_media = sizeof media / sizeof *media, n;
    const int32_t *listed = vocab_suppressed(e->model->vocab, &n);
    e->suppressed = arena_take(&e->arena, n + n_media, sizeof *e->suppressed);
    if (!e->suppressed) return err_no_memory(err, "engine", (n + n_media) * sizeof *listed);
    if (n) memcpy(e->suppressed, listed, n * sizeof *listed);
    for (size_t i = 0; i < n_media; i++) {
        int32_t id = vocab_special(e->model->vocab, media[i]);
        if (id >= 0) e->suppressed[n++] = id;
    }
    e->n_suppressed = n;
    return CARAT_OK;
}

static void tell_stored(void *user, uint64_t parent, uint64_t name, const int32_t *ids,
                        int32_t n_ids)
{
    const carat_engine *e = user;
    struct carat_cache_event event = {
        .block = name, .parent = parent, .ids = ids, .n_ids = (size_t)n_ids};
    e->on_cache(e->on_cache_user, &event);
}

static void tell_removed(void *user, uint64_t name)
{
    const carat_engine *e = user;
    struct carat_cache_event event = {.is_removed = true, .block = name};
    e->on_cache(e->on_cache_user, &event);
}

/* The most events of one step: every request may end, every slot has events of its own, and
 * guesses may be right. */
static int32_t step_events(const carat_engine *e)
{
    return e->n_requests + EVENTS_PER_SLOT * e->runner->layout.n_seq + engine_draft_rows(e);
}

static int take_memory(carat_engine *e, const struct carat_engine_options *o,
                       struct carat_error *err)
{
    const struct layout *y = &e->runner->layout;
    e->n_requests = y->n_seq + o->n_queue;
    e->step_rows = y->step_rows;
    e->n_draft = o->n_draft;
    draft_begin(&e->chances);
    e->is_apart = y->is_apart;
    e->has_cache = !o->no_prefix_cache;
    e->is_exact = o->precision == CARAT_PRECISION_FP32;
    e->is_steady = o->deterministic;
    size_t n = (size_t)e->n_requests;
    e->requests = arena_take(&e->arena, n, sizeof *e->requests);
    e->cancels = arena_take(&e->arena, n, sizeof *e->cancels);
    e->slots = arena_take(&e->arena, (size_t)y->n_seq, sizeof(struct sequence *));
    e->items = arena_take(&e->arena, n, sizeof *e->items);
    e->whose = arena_take(&e->arena, n, sizeof(struct sequence *));
    e->order = arena_take(&e->arena, n, sizeof *e->order);
    e->drafts = arena_take(&e->arena, (size_t)y->n_seq, sizeof(struct draft *));
    if (!e->requests || !e->cancels || !e->slots || !e->items || !e->whose || !e->order ||
        !e->drafts)
        return err_no_memory(err, "queue", n * sizeof *e->requests);
    TRY(events_init(&e->events, &e->arena, 2 * step_events(e), err));
    TRY(fairness_init(&e->fairness, &e->arena, e->n_requests, err));
    TRY(batch_init(&e->step, &e->arena, y->chunk + y->decode_rows, err));
    TRY(batch_init(&e->draft_step, &e->arena, DRAFT_ROWS, err));
    e->on_cache = o->on_cache;
    e->on_cache_user = o->on_cache_user;
    e->cache_watch = (struct prefix_watch){e, tell_stored, tell_removed};
    TRY(paging_init(&e->paging, e->runner, o->on_cache ? &e->cache_watch : NULL, &e->arena, err));
    TRY(list_suppressed(e, err));
    pace_init(&e->pace, o->max_itl_ms / 1e3);
    shifts_init(&e->shifts, pace_has_limit(&e->pace) ? engine_draft_rows(e) : SEQUENCES_MAX);
    arena_seal(&e->arena);
    return CARAT_OK;
}

/* Places for requests and events. */
static uint64_t queue_bytes(uint64_t n_seq, uint64_t n_requests)
{
    uint64_t event =
        2 * (sizeof(struct carat_event) + CARAT_TOP_LOGPROBS_MAX * sizeof(struct carat_logprob));
    uint64_t request = sizeof(struct sequence) + sizeof(struct cancel_slot) +
                       sizeof(struct schedule_item) + sizeof(struct sequence *) + sizeof(int32_t) +
                       sizeof(struct fair_key) + event;
    return n_requests * request + (n_seq * EVENTS_PER_SLOT + DRAFT_ROWS) * event;
}

/* Host memory of an engine: a row of logits per sequence to choose tokens from, the queue, and a
 * few megabytes for prompts, stacks and page tables. All is counted, because a process that takes
 * the last byte of its cgroup is killed without a message. */
static uint64_t host_bytes(const carat_model *model, const struct carat_engine_options *o)
{
    uint64_t n_seq = o->n_seq > 0 ? (uint64_t)o->n_seq : 1;
    return HOST_REST + n_seq * (uint64_t)model->config.n_vocab * sizeof(float) +
           queue_bytes(n_seq, n_seq + (uint64_t)o->n_queue);
}

struct layout_source engine_source(const carat_model *model,
                                   const struct carat_engine_options *options)
{
    bool has_drafter = options->drafter && options->n_draft > 0;
    return (struct layout_source){.config = &model->config,
                                  .gguf = model->gguf,
                                  .weights = &model->weights,
                                  .drafter = has_drafter ? &options->drafter->parts : NULL,
                                  .outs_max = SCORE_ROWS,
                                  .shares_pages = true,
                                  .host_bytes = host_bytes(model, options),
                                  .host_page_bytes = paging_page_bytes(model->config.window)};
}

int carat_engine_open(carat_engine **out, const carat_model *model,
                      const struct carat_engine_options *options, struct carat_error *err)
{
    *out = NULL;
    struct carat_engine_options o;
    TRY(options_copy(&o, options, err));
    if (o.drafter && o.drafter->model != model)
        return err_set(err, CARAT_EUSAGE, "%s: this drafter was opened for another model",
                       gguf_path(o.drafter->gguf));
    carat_engine *e = mem_alloc(1, sizeof *e);
    if (!e) return err_no_memory(err, "engine", sizeof *e);
    e->model = model;
    struct layout_source source = engine_source(model, &o);
    int status = runner_open(&e->runner, &source, &o, err);
    if (!status) status = take_memory(e, &o, err);
    if (status)
        carat_engine_close(e);
    else
        *out = e;
    return status;
}

void carat_engine_close(carat_engine *e)
{
    if (!e) return;
    for (int32_t i = 0; i < e->end; i++)
        if (e->requests[i].state != SEQUENCE_FREE)
            sequence_end(&e->requests[i], CARAT_FINISH_CANCELLED, 0);
    runner_close(e->runner);
    arena_deinit(&e->arena);
    mem_free(e);
}

const struct carat_memory *carat_engine_memory(const carat_engine *e)
{
    return &e->runner->layout.memory;
}

const struct carat_setup *carat_engine_setup(const carat_engine *e)
{
    return &e->runner->layout.setup;
}

/* ---- Requests --------------------------------------------------------------------------- */

static int check_request(const carat_engine *e, const struct carat_request *r,
                         struct carat_error *err)
{
    if (r->n_prompt < 1) return err_set(err, CARAT_EUSAGE, "prompt: at least one token expected");
    const struct layout *y = &e->runner->layout;
    if (r->n_prompt > (size_t)y->n_ctx - 1) {
        err_set(err, CARAT_ECONTEXT,
                "prompt of %zu tokens exceeds the available context size of %d", r->n_prompt,
                y->n_ctx);
        err_hint(err, "shorten the prompt%s; one position is kept for the answer",
                 y->n_ctx < y->config->n_ctx_train ? " or raise the context size (-c)"
                                                   : ", as the model has no more");
        return CARAT_ECONTEXT;
    }
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= e->model->config.n_vocab)
            return err_set(err, CARAT_EUSAGE, "prompt: token %zu: 0 to %d expected, %d found", i,
                           e->model->config.n_vocab - 1, r->prompt[i]);
    if (r->n_top_logprobs < 0 || r->n_top_logprobs > CARAT_TOP_LOGPROBS_MAX)
        return err_set(err, CARAT_EUSAGE, "n_top_logprobs: 0 to %d expected, %d found",
                       CARAT_TOP_LOGPROBS_MAX, r->n_top_logprobs);
    if (r->n_anchors > CARAT_ANCHORS_MAX)
        return err_set(err, CARAT_EUSAGE, "anchors: at most %d expected, %zu found",
                       CARAT_ANCHORS_MAX, r->n_anchors);
    for (size_t i = 0; i < r->n_anchors; i++)
        if (r->anchors[i] < 0 || (size_t)r->anchors[i] > r->n_prompt)
            return err_set(err, CARAT_EUSAGE, "anchors: positions 0 to %zu expected, %d found",
                           r->n_prompt, r->anchors[i]);
    return sample_check(&r->sampling, err);
}

static int32_t free_place(const carat_engine *e)
{
    int32_t place = 0;
    while (place < e->end && e->requests[place].state != SEQUENCE_FREE) place++;
    return place;
}

static int open_request(carat_engine *e, int32_t place, const struct carat_request *request,
                        struct carat_error *err)
{
    struct sampler_options sampler = {
        .n_vocab = e->model->config.n_vocab,
        .sampling = request->sampling,
        .bias = request->bias,
        .n_bias = request->n_bias,
        .suppressed = e->suppressed,
        .n_suppressed = e->n_suppressed,
        .vocab = e->model->vocab,
        .n_tokens = e->runner->layout.n_ctx,
        .changes_row = request->on_logits != NULL,
        .is_bound = request->grammar != NULL,
    };
    struct sequence_start start = {
        .id = e->last_request + 1,
        .n_ctx = e->runner->layout.n_ctx,
        .vocab = e->model->vocab,
        .turn_id = vocab_special(e->model->vocab, VOCAB_TURN_BEGIN),
        .page = KV_PAGE,
        .since = e->stats.prompt_rows,
        .has_cache = e->has_cache && !request->no_cache,
        .chances = &e->chances,
    };
    return sequence_open(&e->requests[place], request, &start, &sampler, err);
}

int carat_submit(carat_engine *e, const struct carat_request *given, carat_request_id *out,
                 struct carat_error *err)
{
    struct carat_request r;
    *out = 0;
    TRY(runner_check(e->runner, err));
    TRY(sized_copy(&r, sizeof r, SIZED_THROUGH(struct carat_request, max_thinking), given,
                   "request", err));
    TRY(check_request(e, &r, err));
    int32_t place = free_place(e);
    if (place == e->n_requests) {
        err_set(err, CARAT_EBUSY, "%d requests run or wait, as many as the queue has room for",
                e->n_requests);
        err_hint(err, "try again later, or open the engine with a longer queue (n_queue)");
        return CARAT_EBUSY;
    }
    TRY(open_request(e, place, &r, err));
    struct sequence *s = &e->requests[place];
    s->key = fairness_enter(&e->fairness, r.fairness_key);
    if (s->has_cache)
        s->n_cached = paging_find(&e->paging, s->salt, s->ids, s->n_prompt).n_blocks * KV_PAGE;
    if (e->end <= place) e->end = place + 1;
    e->stats.submitted++;
    *out = ++e->last_request;
    cancel_begin(&e->cancels[place], *out);
    return CARAT_OK;
}

int carat_cancel(carat_engine *e, carat_request_id request)
{
    for (int32_t i = 0; i < e->n_requests; i++)
        if (cancel_ask(&e->cancels[i], request)) return CARAT_OK;
    return CARAT_EUSAGE;
}

int carat_pause(carat_engine *e, carat_request_id request, bool is_paused)
{
    for (int32_t i = 0; i < e->end; i++) {
        struct sequence *s = &e->requests[i];
        if (s->state == SEQUENCE_FREE || s->request != request) continue;
        s->is_paused = is_paused;
        return CARAT_OK;
    }
    return CARAT_EUSAGE;
}

bool engine_has_work(const carat_engine *e)
{
    int32_t i = 0;
    while (i < e->end && (e->requests[i].state == SEQUENCE_FREE || e->requests[i].is_paused)) i++;
    return i < e->end;
}

const struct carat_event *carat_next_event(carat_engine *e)
{
    return events_next(&e->events);
}

/* ---- Looking inside --------------------------------------------------------------------- */

static void count_requests(carat_engine *e)
{
    int32_t n[SEQUENCE_DECODE + 1] = {0};
    for (int32_t i = 0; i < e->end; i++) n[e->requests[i].state]++;
    e->stats.queued = n[SEQUENCE_QUEUED];
    e->stats.waiting = n[SEQUENCE_WAITING];
    e->stats.prefilling = n[SEQUENCE_PREFILL];
    e->stats.decoding = n[SEQUENCE_DECODE];
}

static struct carat_page_counts count_pages(const struct paging *p, enum kv_kind kind)
{
    const struct page_pool *pool = prefix_pool(p->cache, kind);
    return (struct carat_page_counts){.all = pool->n_pages - 1,
                                      .free = pool->n_free,
                                      .referenced = pool->n_used,
                                      .cached = pool->n_cached};
}

const struct carat_stats *carat_engine_stats(carat_engine *e)
{
    struct prefix_counts counts = prefix_count(e->paging.cache);
    count_requests(e);
    e->stats.pages_local = count_pages(&e->paging, KV_LOCAL);
    e->stats.pages_global = count_pages(&e->paging, KV_GLOBAL);
    e->stats.anchors = counts.n_anchors;
    e->stats.evicted_pages = counts.evicted_blocks;
    e->stats.evicted_anchors = counts.evicted_anchors;
    return &e->stats;
}
