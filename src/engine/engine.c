#include "engine/engine.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/sized.h"
#include "engine/limits.h"
#include "engine/logprob.h"
#include "engine/options.h"

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

static int take_memory(carat_engine *e, struct carat_error *err)
{
    const struct layout *y = &e->runner->layout;
    size_t n_seq = (size_t)y->n_seq;
    e->events_size = y->n_seq * EVENTS_PER_SEQUENCE;
    e->sequences = arena_take(&e->arena, n_seq, sizeof *e->sequences);
    e->cancels = arena_take(&e->arena, n_seq, sizeof *e->cancels);
    e->events = arena_take(&e->arena, (size_t)e->events_size, sizeof *e->events);
    e->tops =
        arena_take(&e->arena, (size_t)e->events_size * CARAT_TOP_LOGPROBS_MAX, sizeof *e->tops);
    if (!e->sequences || !e->cancels || !e->events || !e->tops)
        return err_no_memory(err, "engine", (size_t)e->events_size * sizeof *e->events);
    TRY(batch_init(&e->step, &e->arena, y->chunk + y->n_seq, err));
    TRY(list_suppressed(e, err));
    arena_seal(&e->arena);
    return CARAT_OK;
}

/* Host memory of an engine: a row of logits per sequence to choose tokens from, and a few megabytes
 * for requests, stacks and page tables. All is counted, because a process that takes the last byte
 * of its cgroup is killed without a message. */
static uint64_t host_bytes(const carat_model *model, const struct carat_engine_options *options)
{
    uint64_t n_seq = options && options->n_seq > 0 ? (uint64_t)options->n_seq : 1;
    return HOST_REST + n_seq * (uint64_t)model->config.n_vocab * sizeof(float);
}

struct layout_source engine_source(const carat_model *model,
                                   const struct carat_engine_options *options)
{
    return (struct layout_source){.config = &model->config,
                                  .gguf = model->gguf,
                                  .weights = &model->weights,
                                  .outs_max = SCORE_ROWS,
                                  .host_bytes = host_bytes(model, options)};
}

int carat_engine_open(carat_engine **out, const carat_model *model,
                      const struct carat_engine_options *options, struct carat_error *err)
{
    *out = NULL;
    struct carat_engine_options o;
    TRY(options_copy(&o, options, err));
    carat_engine *e = mem_alloc(1, sizeof *e);
    if (!e) return err_no_memory(err, "engine", sizeof *e);
    e->model = model;
    struct layout_source source = engine_source(model, &o);
    int status = runner_open(&e->runner, &source, &o, err);
    if (!status) status = take_memory(e, err);
    if (status)
        carat_engine_close(e);
    else
        *out = e;
    return status;
}

void carat_engine_close(carat_engine *e)
{
    if (!e) return;
    for (int32_t i = 0; e->sequences && i < e->runner->layout.n_seq; i++)
        if (e->sequences[i].state != SEQUENCE_FREE)
            sequence_end(&e->sequences[i], CARAT_FINISH_CANCELLED, 0);
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

bool engine_is_idle(const carat_engine *e)
{
    for (int32_t i = 0; i < e->runner->layout.n_seq; i++)
        if (e->sequences[i].state != SEQUENCE_FREE) return false;
    return true;
}

/* ---- Requests --------------------------------------------------------------------------- */

static int check_request(const carat_engine *e, const struct carat_request *r,
                         struct carat_error *err)
{
    if (r->n_prompt < 1) return err_set(err, CARAT_EUSAGE, "prompt: at least one token expected");
    if (r->n_prompt > (size_t)e->runner->layout.n_ctx - 1) {
        err_set(err, CARAT_ECONTEXT,
                "prompt of %zu tokens exceeds the available context size of %d", r->n_prompt,
                e->runner->layout.n_ctx);
        err_hint(err, "shorten the prompt or raise the context size (-c); one position is kept "
                      "for the answer");
        return CARAT_ECONTEXT;
    }
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= e->model->config.n_vocab)
            return err_set(err, CARAT_EUSAGE, "prompt: token %zu: 0 to %d expected, %d found", i,
                           e->model->config.n_vocab - 1, r->prompt[i]);
    if (r->n_top_logprobs < 0 || r->n_top_logprobs > CARAT_TOP_LOGPROBS_MAX)
        return err_set(err, CARAT_EUSAGE, "n_top_logprobs: 0 to %d expected, %d found",
                       CARAT_TOP_LOGPROBS_MAX, r->n_top_logprobs);
    return sample_check(&r->sampling, err);
}

int carat_submit(carat_engine *e, const struct carat_request *given, carat_request_id *out,
                 struct carat_error *err)
{
    struct carat_request r, *request = &r;
    *out = 0;
    TRY(runner_check(e->runner, err));
    TRY(sized_copy(&r, sizeof r, SIZED_THROUGH(struct carat_request, on_logits_user), given,
                   "request", err));
    TRY(check_request(e, request, err));
    for (int32_t i = 0; i < e->runner->layout.n_seq; i++) {
        if (e->sequences[i].state != SEQUENCE_FREE) continue;
        struct sampler_options sampler = {
            .n_vocab = e->model->config.n_vocab,
            .sampling = request->sampling,
            .bias = request->bias,
            .n_bias = request->n_bias,
            .suppressed = e->suppressed,
            .n_suppressed = e->n_suppressed,
            .changes_row = request->on_logits != NULL,
        };
        TRY(sequence_start(&e->sequences[i], request, e->last_request + 1, &sampler,
                           e->runner->layout.n_ctx, err));
        *out = ++e->last_request;
        cancel_begin(&e->cancels[i], *out);
        return CARAT_OK;
    }
    err_set(err, CARAT_EBUSY, "all %d sequences are taken", e->runner->layout.n_seq);
    return CARAT_EBUSY;
}

int carat_cancel(carat_engine *e, carat_request_id request)
{
    for (int32_t i = 0; i < e->runner->layout.n_seq; i++)
        if (cancel_ask(&e->cancels[i], request)) return CARAT_OK;
    return CARAT_EUSAGE;
}

static int32_t next_place(const carat_engine *e)
{
    return (e->events_first + e->events_count) % e->events_size;
}

static void add_event(carat_engine *e, struct carat_event event)
{
    e->events[next_place(e)] = event;
    e->events_count++;
}

const struct carat_event *carat_next_event(carat_engine *e)
{
    if (e->events_count == 0) return NULL;
    const struct carat_event *event = &e->events[e->events_first];
    e->events_first = (e->events_first + 1) % e->events_size;
    e->events_count--;
    return event;
}

static void end(carat_engine *e, struct sequence *s, enum carat_finish finish, const char *message)
{
    struct carat_event event = sequence_end(s, finish, os_seconds());
    cancel_end(&e->cancels[s - e->sequences]);
    if (message) event.message = message;
    add_event(e, event);
}

/* Puts the next token, or -1, and its log-probabilities into the event. Uses the device's best
 * pairs if they are enough, else the row. */
static int pick(carat_engine *e, const struct sequence *s, struct carat_event *event,
                struct carat_error *err)
{
    int32_t n_vocab = e->model->config.n_vocab;
    const struct logit_pair *best = NULL;
    const float *row;
    int n = s->want_logprob ? 0 : runner_best(e->runner, &e->step, s->out_row, &best);
    if (sample_takes_best(s->sampler, n)) {
        event->id = sample_pick_best(s->sampler, best, n);
        return CARAT_OK;
    }
    TRY(runner_logits(e->runner, &e->step, s->out_row, &row, err));
    const float *changed = row;
    if (s->on_logits) {
        float *copy = sample_copy(s->sampler, row);
        s->on_logits(s->on_logits_user, s->ids, (size_t)(s->n_prompt + s->n_generated), copy,
                     n_vocab);
        changed = copy;
    }
    event->id = sample_pick(s->sampler, changed);
    if (event->id < 0 || !s->want_logprob) return CARAT_OK;
    struct carat_logprob *top = e->tops + (size_t)next_place(e) * CARAT_TOP_LOGPROBS_MAX;
    event->n_top = s->n_top < n_vocab ? s->n_top : n_vocab;
    event->top = event->n_top ? top : NULL;
    event->logprob = logprob_compute(row, n_vocab, event->id, top, event->n_top);
    return CARAT_OK;
}

/* Turns the sequence's new logits into its next token, or its end. */
static int take_token(carat_engine *e, struct sequence *s, struct carat_error *err)
{
    struct carat_event event = {.request = s->request, .kind = CARAT_EVENT_TOKEN};
    TRY(pick(e, s, &event, err));
    if (s->first_token <= 0) s->first_token = os_seconds();
    s->state = SEQUENCE_DECODE;
    if (event.id < 0) {
        end(e, s, CARAT_FINISH_ERROR,
            s->on_logits ? "no token can be sampled: the model or on_logits gave NaN or +infinity, "
                           "or on_logits has banned all ids"
                         : "the model produced non-finite logits");
        return CARAT_OK;
    }
    s->last_id = event.id;
    if (!s->ignore_stop && vocab_is_stop(e->model->vocab, event.id)) {
        end(e, s, CARAT_FINISH_STOP, NULL);
        return CARAT_OK;
    }
    sequence_add(s, event.id);
    add_event(e, event);
    if (s->n_generated >= s->max_tokens || s->n_cached >= e->runner->layout.n_ctx)
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

/* Runs the rows of e->step and gives each sequence its results. */
static int run_step(carat_engine *e, struct carat_error *err)
{
    TRY(runner_run(e->runner, &e->step, err));
    for (int32_t i = 0; i < e->runner->layout.n_seq; i++) TRY(after_step(e, &e->sequences[i], err));
    return CARAT_OK;
}

/* When the device is lost, all requests end: those that run and those that wait. */
static void end_all(carat_engine *e)
{
    for (int32_t i = 0; i < e->runner->layout.n_seq; i++)
        if (e->sequences[i].state != SEQUENCE_FREE)
            end(e, &e->sequences[i], CARAT_FINISH_ERROR, e->runner->loss.message);
}

int carat_step(carat_engine *e, struct carat_error *err)
{
    int32_t n_seq = e->runner->layout.n_seq;
    TRY(runner_check(e->runner, err));
    if (e->events_count > e->events_size - 3 * n_seq)
        return err_set(err, CARAT_EBUSY, "events of the last step have not been taken");
    for (int32_t i = 0; i < n_seq; i++) {
        struct sequence *s = &e->sequences[i];
        if (s->state != SEQUENCE_FREE && cancel_is_wanted(&e->cancels[i], s->request))
            end(e, s, CARAT_FINISH_CANCELLED, NULL);
    }
    batch_next(&e->step, e->sequences, n_seq, e->runner->layout.chunk);
    if (e->step.n_token == 0) return 0;
    double now = os_seconds();
    for (int32_t i = 0; i < n_seq; i++)
        if (e->sequences[i].n_rows > 0 && e->sequences[i].started <= 0)
            e->sequences[i].started = now;
    int status = run_step(e, err);
    if (status) end_all(e);
    return status ? status : !engine_is_idle(e);
}
