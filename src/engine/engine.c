#include "engine/engine.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "engine/limits.h"

/* What a text model must not say: the file's own list, and the marks of images and sound. */
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

static int take_host_memory(carat_engine *e, struct carat_error *err)
{
    const struct layout *y = &e->layout;
    size_t n_seq = (size_t)y->n_seq, n_vocab = (size_t)e->model->config.n_vocab;
    e->events_size = y->n_seq * EVENTS_PER_SEQUENCE;
    e->sequences = arena_take(&e->arena, n_seq, sizeof *e->sequences);
    e->events = arena_take(&e->arena, (size_t)e->events_size, sizeof *e->events);
    e->row = arena_take(&e->arena, n_vocab, sizeof *e->row);
    if (!e->sequences || !e->events || !e->row)
        return err_no_memory(err, "engine", n_vocab * sizeof *e->row);
    TRY(batch_init(&e->step, &e->arena, y->chunk + y->n_seq, err));
    return list_suppressed(e, err);
}

static int take(const struct target *t, size_t bytes, void **out, struct carat_error *err)
{
    return bytes ? t->backend->alloc(t->device, bytes, out, err) : CARAT_OK;
}

/* The buffers of the second device, which is the host, are what goes to and from the first. */
static void share_buffers(carat_engine *e)
{
    const struct target *near = &e->layout.targets[SITE_NEAR];
    if (near->backend->share && e->memory[SITE_FAR])
        near->backend->share(near->device, e->memory[SITE_FAR], e->layout.plans.bytes[SITE_FAR]);
}

static void unshare_buffers(carat_engine *e)
{
    const struct target *near = &e->layout.targets[SITE_NEAR];
    if (e->memory[SITE_FAR] && near->backend->unshare)
        near->backend->unshare(near->device, e->memory[SITE_FAR]);
}

/* One piece for all caches of a site: a device may round each piece up to 2 MB. */
static int take_caches(carat_engine *e, enum site site, struct carat_error *err)
{
    struct layout *y = &e->layout;
    TRY(take(&y->targets[site], layout_kv_bytes(&y->sites[site]), &e->kv[site], err));
    char *next = e->kv[site];
    for (int32_t l = 0; l < e->model->config.n_kv_layer; l++) {
        if (gemma_site(&y->split, l) != site) continue;
        y->caches[l].k = next;
        y->caches[l].v = next + y->k_bytes[l];
        next += 2 * y->k_bytes[l];
    }
    return CARAT_OK;
}

static int take_site_memory(carat_engine *e, enum site site, struct carat_error *err)
{
    const struct layout *y = &e->layout;
    const struct target *t = &y->targets[site];
    struct weights *w = &e->weights[site];
    if (!t->device) return CARAT_OK;
    TRY(take_caches(e, site, err));
    TRY(take(t, y->plans.bytes[site], &e->memory[site], err));
    if (site == SITE_FAR) share_buffers(e);
    TRY(take(t, y->plans.scratch_bytes[site], &e->scratch[site], err));
    for (int32_t *n = &e->n_loaded[site]; *n < w->n_all; ++*n)
        TRY(t->backend->weight_load(t->device, &w->all[*n], err));
    return CARAT_OK;
}

static int take_device_memory(carat_engine *e, struct carat_error *err)
{
    struct layout *y = &e->layout;
    for (int i = 0; i < SITE_COUNT; i++) TRY(take_site_memory(e, (enum site)i, err));
    return plans_bind(&y->plans, y->targets, y->placements, e->memory, e->scratch, err);
}

static int start(carat_engine *e, const struct carat_engine_options *options,
                 struct carat_error *err)
{
    struct buf note = {0};
    struct layout_source from = {.model = e->model,
                                 .near = &e->weights[SITE_NEAR],
                                 .far = &e->weights[SITE_FAR],
                                 .arena = &e->arena};
    int status = weights_bind(&e->weights[SITE_NEAR], &e->model->config, e->model->gguf, &e->arena,
                              &note, err);
    buf_deinit(&note);
    TRY(status);
    TRY(layout_init(&e->layout, &from, options, err));
    if (options && options->planned) options->planned(options->progress_user, &e->layout.memory);
    TRY(take_host_memory(e, err));
    TRY(take_device_memory(e, err));
    arena_seal(&e->arena);
    return CARAT_OK;
}

static int open_engine(carat_engine **out, const carat_model *model,
                       const struct carat_engine_options *options, bool *is_table_pinned,
                       struct carat_error *err)
{
    *out = NULL;
    *is_table_pinned = false;
    carat_engine *e = mem_alloc(1, sizeof *e);
    if (!e) return err_no_memory(err, "engine", sizeof *e);
    e->model = model;
    int status = start(e, options, err);
    *is_table_pinned = e->layout.setup.ple_place == CARAT_PLE_PINNED;
    if (status)
        carat_engine_close(e);
    else
        *out = e;
    return status;
}

/* How much memory the system lets us pin is known when it is done: if that fails, a table for which
 * nobody asked for a place stays in the file. */
int carat_engine_open(carat_engine **out, const carat_model *model,
                      const struct carat_engine_options *options, struct carat_error *err)
{
    bool is_table_pinned;
    struct carat_engine_options o = options ? *options : (struct carat_engine_options){0};
    int status = open_engine(out, model, &o, &is_table_pinned, err);
    if (status != CARAT_EMEMORY || o.ple_place != CARAT_PLE_AUTO || !is_table_pinned) return status;
    o.ple_place = CARAT_PLE_HOST;
    TRY(open_engine(out, model, &o, &is_table_pinned, err));
    (*out)->layout.setup.ple_reason = CARAT_REASON_MEMORY;
    return CARAT_OK;
}

static void give_back(const struct target *t, void *memory)
{
    if (memory) t->backend->free(t->device, memory);
}

/* Programs go before the memory that they use. */
static void give_device_memory(carat_engine *e)
{
    struct layout *y = &e->layout;
    plans_deinit(&y->plans, y->targets);
    unshare_buffers(e);
    for (int i = 0; i < SITE_COUNT; i++) {
        const struct target *t = &y->targets[i];
        for (int32_t k = 0; k < e->n_loaded[i]; k++)
            t->backend->weight_unload(t->device, &e->weights[i].all[k]);
        give_back(t, e->kv[i]);
        give_back(t, e->memory[i]);
        give_back(t, e->scratch[i]);
    }
}

void carat_engine_close(carat_engine *e)
{
    if (!e) return;
    struct layout *y = &e->layout;
    for (int32_t i = 0; e->sequences && i < y->n_seq; i++)
        if (e->sequences[i].state != SEQUENCE_FREE)
            sequence_end(&e->sequences[i], CARAT_FINISH_CANCELLED, 0);
    give_device_memory(e);
    layout_deinit(y);
    arena_deinit(&e->arena);
    mem_free(e);
}

const struct carat_memory *carat_engine_memory(const carat_engine *e)
{
    return &e->layout.memory;
}

const struct carat_setup *carat_engine_setup(const carat_engine *e)
{
    return &e->layout.setup;
}

bool engine_is_idle(const carat_engine *e)
{
    for (int32_t i = 0; i < e->layout.n_seq; i++)
        if (e->sequences[i].state != SEQUENCE_FREE) return false;
    return true;
}

/* Where a buffer of the bucket's plan of a site lies. */
static char *buffer_at(const carat_engine *e, const struct bucket *b, enum site site, buf_id id)
{
    return (char *)e->memory[site] + plan_buf_at(&b->plans[site], id)->offset;
}

/* Copies what the segment reads of the other device. One of the two is the host, in whose memory
 * the other reads and writes. */
static void carry_inputs(carat_engine *e, const struct bucket *b, const struct segment *s)
{
    const struct target *here = &e->layout.targets[s->site];
    enum site other = SITE_COUNT - 1 - s->site;
    const struct target *there = &e->layout.targets[other];
    for (int32_t i = 0; i < s->plan->n_ops && s->plan->ops[i].code == OP_INPUT; i++) {
        const struct op *op = &s->plan->ops[i];
        const struct plan_buf *input = plan_buf_at(s->plan, op->out[0]);
        int32_t rows = input->rows == ROWS_TOKEN ? e->step.n_token : e->step.n_out;
        size_t bytes = (size_t)rows * (size_t)input->cols * sizeof(float);
        if (bytes == 0) continue;
        char *to = buffer_at(e, b, s->site, op->out[0]);
        const char *from = buffer_at(e, b, other, (buf_id)op->p.input.from);
        if (here->backend->is_host)
            there->backend->download(there->device, to, from, bytes);
        else
            here->backend->upload(here->device, to, from, bytes);
    }
}

/* Segments of the two devices take turns. Each waits once for the one before it: the host's for
 * rows and their copies; before the other's the host is done, and its rows stay as they are until
 * it is its turn again. */
static int run_segments(carat_engine *e, const struct bucket *b, struct carat_error *err)
{
    const struct target *before = NULL;
    for (int32_t i = 0; i < b->n_segments; i++) {
        const struct segment *s = &b->segments[i];
        const struct target *t = &e->layout.targets[s->site];
        if (before && !t->backend->is_host) TRY(before->backend->fence(before->device, err));
        carry_inputs(e, b, s);
        if (before && t->backend->is_host) TRY(before->backend->fence(before->device, err));
        t->backend->run(s->program, &e->step);
        before = t;
    }
    return before->backend->fence(before->device, err);
}

int engine_check(const carat_engine *e, struct carat_error *err)
{
    if (err && e->loss.code) *err = e->loss;
    return (int)e->loss.code;
}

/* Remembers why a device failed, for everybody who asks again. */
static int lose(carat_engine *e, const struct carat_error *why, struct carat_error *err)
{
    e->loss = *why;
    err_set(&e->loss, CARAT_EDEVICE, "%.400s; this process has to be started again", why->message);
    return engine_check(e, err);
}

int engine_run(carat_engine *e, struct carat_error *err)
{
    struct carat_error why = {0};
    TRY(engine_check(e, err));
    const struct bucket *b = plans_get(&e->layout.plans, e->step.n_token, e->step.n_out);
    return run_segments(e, b, &why) ? lose(e, &why, err) : CARAT_OK;
}

int engine_logits(carat_engine *e, int32_t out, const float **row, struct carat_error *err)
{
    struct carat_error why = {0};
    const struct bucket *b = plans_get(&e->layout.plans, e->step.n_token, e->step.n_out);
    const struct segment *last = bucket_last(b);
    const struct target *t = &e->layout.targets[last->site];
    size_t row_bytes = (size_t)e->model->config.n_vocab * sizeof(float);
    t->backend->download(t->device, e->row,
                         buffer_at(e, b, last->site, last->plan->logits) + (size_t)out * row_bytes,
                         row_bytes);
    *row = e->row;
    return t->backend->fence(t->device, &why) ? lose(e, &why, err) : CARAT_OK;
}

/* ---- Requests --------------------------------------------------------------------------- */

static int check_request(const carat_engine *e, const struct carat_request *r,
                         struct carat_error *err)
{
    if (r->n_prompt < 1) return err_set(err, CARAT_EUSAGE, "prompt: at least one token expected");
    if (r->n_prompt > (size_t)e->layout.n_ctx - 1) {
        err_set(err, CARAT_ECONTEXT,
                "prompt of %zu tokens exceeds the available context size of %d", r->n_prompt,
                e->layout.n_ctx);
        err_hint(err, "shorten the prompt or raise the context size (-c); one position is kept "
                      "for the answer");
        return CARAT_ECONTEXT;
    }
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= e->model->config.n_vocab)
            return err_set(err, CARAT_EUSAGE, "prompt: token %zu: 0 to %d expected, %d found", i,
                           e->model->config.n_vocab - 1, r->prompt[i]);
    return sample_check(&r->sampling, err);
}

int carat_submit(carat_engine *e, const struct carat_request *request, carat_request_id *out,
                 struct carat_error *err)
{
    *out = 0;
    TRY(engine_check(e, err));
    TRY(check_request(e, request, err));
    for (int32_t i = 0; i < e->layout.n_seq; i++) {
        if (e->sequences[i].state != SEQUENCE_FREE) continue;
        struct sampler_options sampler = {
            .n_vocab = e->model->config.n_vocab,
            .sampling = request->sampling,
            .bias = request->bias,
            .n_bias = request->n_bias,
            .suppressed = e->suppressed,
            .n_suppressed = e->n_suppressed,
        };
        TRY(sequence_start(&e->sequences[i], request, e->last_request + 1, &sampler,
                           e->layout.n_ctx, err));
        *out = ++e->last_request;
        return CARAT_OK;
    }
    err_set(err, CARAT_EBUSY, "all %d sequences are taken", e->layout.n_seq);
    return CARAT_EBUSY;
}

int carat_cancel(carat_engine *e, carat_request_id request)
{
    for (int32_t i = 0; i < e->layout.n_seq; i++)
        if (e->sequences[i].state != SEQUENCE_FREE && e->sequences[i].request == request) {
            e->sequences[i].is_cancelled = true;
            return CARAT_OK;
        }
    return CARAT_EUSAGE;
}

static void add_event(carat_engine *e, struct carat_event event)
{
    e->events[(e->events_first + e->events_count++) % e->events_size] = event;
}

bool carat_next_event(carat_engine *e, struct carat_event *out)
{
    if (e->events_count == 0) return false;
    *out = e->events[e->events_first];
    e->events_first = (e->events_first + 1) % e->events_size;
    e->events_count--;
    return true;
}

static void end(carat_engine *e, struct sequence *s, enum carat_finish finish, const char *message)
{
    struct carat_event event = sequence_end(s, finish, os_seconds());
    if (message) event.message = message;
    add_event(e, event);
}

/* The next token, or -1; from the device's best pairs where they are enough, else from the row. */
static int pick(carat_engine *e, const struct sequence *s, int32_t *id, float *logprob,
                struct carat_error *err)
{
    const struct segment *last =
        bucket_last(plans_get(&e->layout.plans, e->step.n_token, e->step.n_out));
    const struct backend *backend = e->layout.targets[last->site].backend;
    const struct logit_pair *best;
    const float *row;
    int n = 0;
    if (backend->best && !s->want_logprob) n = backend->best(last->program, s->out_row, &best);
    if (sample_takes_best(s->sampler, n)) {
        *id = sample_pick_best(s->sampler, best, n);
        return CARAT_OK;
    }
    TRY(engine_logits(e, s->out_row, &row, err));
    *id = sample_pick(s->sampler, row, s->want_logprob ? logprob : NULL);
    return CARAT_OK;
}

/* The sequence's new logits become its next token, or its end. */
static int take_token(carat_engine *e, struct sequence *s, struct carat_error *err)
{
    float logprob = 0;
    int32_t id;
    TRY(pick(e, s, &id, &logprob, err));
    if (s->first_token <= 0) s->first_token = os_seconds();
    s->state = SEQUENCE_DECODE;
    if (id < 0) {
        end(e, s, CARAT_FINISH_ERROR, "the model produced non-finite logits");
        return CARAT_OK;
    }
    s->last_id = id;
    if (!s->ignore_stop && vocab_is_stop(e->model->vocab, id)) {
        end(e, s, CARAT_FINISH_STOP, NULL);
        return CARAT_OK;
    }
    sample_accept(s->sampler, id);
    s->n_generated++;
    add_event(e,
              (struct carat_event){
                  .request = s->request, .kind = CARAT_EVENT_TOKEN, .id = id, .logprob = logprob});
    if (s->n_generated >= s->max_tokens || s->n_cached >= e->layout.n_ctx)
        end(e, s, CARAT_FINISH_LENGTH, NULL);
    return CARAT_OK;
}

static int after_step(carat_engine *e, struct sequence *s, struct carat_error *err)
{
    if (s->state == SEQUENCE_FREE || s->n_rows == 0) return CARAT_OK;
    s->n_cached += s->n_rows;
    if (s->state == SEQUENCE_PREFILL)
        add_event(e, (struct carat_event){.request = s->request,
                                          .kind = CARAT_EVENT_PROGRESS,
                                          .done = s->n_cached,
                                          .total = s->n_prompt});
    return s->out_row >= 0 ? take_token(e, s, err) : CARAT_OK;
}

/* The rows of e->step, and what becomes of them. */
static int run_step(carat_engine *e, struct carat_error *err)
{
    TRY(engine_run(e, err));
    for (int32_t i = 0; i < e->layout.n_seq; i++) TRY(after_step(e, &e->sequences[i], err));
    return CARAT_OK;
}

/* With the device go all requests: those that run and those that wait. */
static void end_all(carat_engine *e)
{
    for (int32_t i = 0; i < e->layout.n_seq; i++)
        if (e->sequences[i].state != SEQUENCE_FREE)
            end(e, &e->sequences[i], CARAT_FINISH_ERROR, e->loss.message);
}

int carat_step(carat_engine *e, struct carat_error *err)
{
    int32_t n_seq = e->layout.n_seq;
    TRY(engine_check(e, err));
    if (e->events_count > e->events_size - 3 * n_seq)
        return err_set(err, CARAT_EBUSY, "events of the last step have not been taken");
    for (int32_t i = 0; i < n_seq; i++) {
        struct sequence *s = &e->sequences[i];
        if (s->state != SEQUENCE_FREE && s->is_cancelled) end(e, s, CARAT_FINISH_CANCELLED, NULL);
    }
    batch_next(&e->step, e->sequences, n_seq, e->layout.chunk);
    if (e->step.n_token == 0) return 0;
    double now = os_seconds();
    for (int32_t i = 0; i < n_seq; i++)
        if (e->sequences[i].n_rows > 0 && e->sequences[i].started <= 0)
            e->sequences[i].started = now;
    int status = run_step(e, err);
    if (status) end_all(e);
    return status ? status : !engine_is_idle(e);
}
