#include "engine/masks.h"

#include <string.h>

#include "base/os.h"

/* Masks take a few microseconds each, the first ones of a grammar up to some hundreds. After this
 * many seconds a step computes no more of them: the remaining sequences check the best logits one
 * by one. */
static const double seconds_max = 2e-3;

/* Rows whose masks are in the runner's memory. */
struct masked {
    int32_t n, rows[MASKS_MAX];
};

static void search(carat_engine *e, struct masked *m)
{
    if (m->n > 0) runner_best_allowed(e->runner, &e->step, m->n, m->rows);
    m->n = 0;
}

int masks_search(carat_engine *e, struct carat_error *err)
{
    struct masked m = {.n = 0};
    int32_t most = runner_masks(e->runner, &e->step);
    int n_best = most > 0 ? runner_n_best(e->runner, &e->step) : 0;
    size_t bytes = mask_words(e->model->config.n_vocab) * sizeof(uint64_t);
    double seconds = 0;
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        struct sequence *s = e->slots[i];
        if (!s) continue;
        s->is_masked = false;
        if (s->out_row < 0 || !s->constraint || seconds > seconds_max) continue;
        double begin = os_seconds();
        const uint64_t *mask = constrain_mask(s->constraint, s->sampler, n_best);
        seconds += os_seconds() - begin;
        if (!mask || most == 0 || s->on_logits || s->want_logprob) continue;
        if (m.n == most) {
            search(e, &m);
            TRY(runner_wait(e->runner, err)); /* now the masks may be overwritten */
        }
        memcpy(runner_mask(e->runner, m.n), mask, bytes);
        m.rows[m.n++] = s->out_row;
        s->is_masked = true;
    }
    search(e, &m);
    return CARAT_OK;
}
