#include "cli/load_engine.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/status.h"

static int send(void *self, int32_t index, const struct carat_request *given,
                struct carat_error *err)
{
    struct load_engine *e = self;
    struct carat_request request = *given;
    request.user = &e->requests[index];
    return carat_submit(e->engine, &request, &e->requests[index], err);
}

static void cancel(void *self, int32_t index)
{
    struct load_engine *e = self;
    carat_cancel(e->engine, e->requests[index]);
}

static enum load_outcome outcome_of(enum carat_finish finish)
{
    return finish == CARAT_FINISH_CANCELLED  ? LOAD_CANCELLED
           : finish == CARAT_FINISH_DEADLINE ? LOAD_EXPIRED
           : finish == CARAT_FINISH_ERROR    ? LOAD_FAILED
                                             : LOAD_COMPLETED;
}

/* All events of a step have the time at which the step returned. */
static int step(void *self, double seconds, struct carat_error *err)
{
    struct load_engine *e = self;
    const struct carat_event *event;
    (void)seconds;
    int status = carat_step(e->engine, err);
    if (status < 0) return status;
    double now = os_seconds();
    while ((event = carat_next_event(e->engine))) {
        const struct load_event told = {
            .kind = event->kind,
            .index = (int32_t)((carat_request_id *)event->user - e->requests),
            .seconds = now,
            .done = event->done,
            .total = event->total,
            .id = event->id,
            .outcome = outcome_of(event->finish),
            .queue_seconds = event->queue_seconds,
            .n_cached = event->n_cached,
            .n_preempted = event->n_preempted,
            .message = event->message,
        };
        e->target.on_event(e->target.user, &told);
    }
    return CARAT_OK;
}

static void look(void *self, struct carat_stats *out)
{
    struct load_engine *e = self;
    *out = *carat_engine_stats(e->engine);
}

int load_engine_init(struct load_engine *e, const carat_model *model, carat_engine *engine,
                     size_t n, struct carat_error *err)
{
    int32_t n_vocab = carat_model_info(model)->n_vocab;
    *e = (struct load_engine){.engine = engine, .n = n};
    e->requests = mem_alloc(n, sizeof *e->requests);
    e->is_banned = mem_alloc((size_t)n_vocab, sizeof *e->is_banned);
    if (!e->requests || !e->is_banned) return err_no_memory(err, "load", n * sizeof *e->requests);
    for (int32_t id = 0; id < n_vocab; id++) e->is_banned[id] = carat_token_is_control(model, id);
    e->target = (struct load_target){.self = e,
                                     .n_vocab = n_vocab,
                                     .is_banned = e->is_banned,
                                     .has_steps = true,
                                     .send = send,
                                     .cancel = cancel,
                                     .go_on = step,
                                     .look = look};
    return CARAT_OK;
}

void load_engine_deinit(struct load_engine *e)
{
    mem_free(e->requests);
    mem_free(e->is_banned);
}
