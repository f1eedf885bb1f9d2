#include "engine/options.h"

#include "base/sized.h"
#include "engine/limits.h"

#define MAX_ITL_MS 50.0

static int complete_queue(struct carat_engine_options *o, struct carat_error *err)
{
    int32_t n_seq = o->n_seq > 0 ? o->n_seq : 1;
    if (o->n_queue < 0 || o->n_queue > QUEUE_MAX)
        return err_set(err, CARAT_EUSAGE, "requests that may wait: 0 to %d expected, %d found",
                       QUEUE_MAX, o->n_queue);
    if (o->n_queue == 0 && n_seq <= SEQUENCES_MAX) o->n_queue = 4 * n_seq + 64;
    if (!(o->max_itl_ms >= 0))
        return err_set(err, CARAT_EUSAGE, "milliseconds of a step: 0 or more expected, %g found",
                       o->max_itl_ms);
    if (o->max_itl_ms == 0) o->max_itl_ms = MAX_ITL_MS;
    return CARAT_OK;
}

/* A step may have a decode row of every sequence, and only up to STEADY_ROWS rows are computed
 * alike on all backends. */
static int check_deterministic(const struct carat_engine_options *o, struct carat_error *err)
{
    if (!o->deterministic || o->n_seq <= STEADY_ROWS) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "deterministic: 1 to %d sequences expected, %d found", STEADY_ROWS,
            o->n_seq);
    err_hint(err, "steps of more rows round in another way; take fewer sequences");
    return CARAT_EUSAGE;
}

static int check_drafts(const struct carat_engine_options *o, struct carat_error *err)
{
    if (o->n_draft >= 0 && o->n_draft <= CARAT_DRAFT_MAX) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "tokens to guess in a step: 0 to %d expected, %d found",
                   CARAT_DRAFT_MAX, o->n_draft);
}

int options_copy(struct carat_engine_options *out, const struct carat_engine_options *given,
                 struct carat_error *err)
{
    *out = (struct carat_engine_options){0};
    if (given)
        TRY(sized_copy(out, sizeof *out, SIZED_THROUGH(struct carat_engine_options, decode_matmul),
                       given, "engine options", err));
    TRY(complete_queue(out, err));
    TRY(check_drafts(out, err));
    return check_deterministic(out, err);
}
