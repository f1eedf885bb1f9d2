#include "engine/drafting.h"

#include <string.h>

#include "base/os.h"
#include "engine/constrain.h"

#define PASS_WEIGHT 0.1 /* of the newest measurement in what a pass takes */

/* A sequence that the drafter guesses for, and for how many more tokens it may. Its row of the
 * drafter's passes is its place in the list. */
struct asker {
    struct sequence *s;
    int32_t room;
};

struct asking {
    struct asker all[PASS_ROWS];
    int32_t n;
};

/* Whether guesses may take pages before they are known to be right: as long as there are so many
 * that nobody has to stop because of it. The tables have room for the rows of a chunk. */
static bool has_spare_pages(const carat_engine *e)
{
    enum { SPARE = 4 }; /* for each sequence */
    int64_t spare = SPARE * e->paging.n_seq;
    struct page_wants wants = {
        .of = {[KV_LOCAL] = e->paging.window > 0 ? spare : 0, [KV_GLOBAL] = spare}};
    return e->runner->layout.chunk > CARAT_DRAFT_MAX && paging_has_room(&e->paging, wants);
}

/* How many guesses fit: with them the answer stays within its limits. Without pages to spare its
 * rows stay within the page of the newest token, short of the end: then guesses take no memory, and
 * no page is given back because of rows that may not count. */
static int32_t draft_room(const carat_engine *e, const struct sequence *s)
{
    int32_t room = s->max_tokens - s->n_generated - 1;
    int32_t positions = e->runner->layout.n_ctx - s->n_cached - 1;
    int32_t page = KV_PAGE - 2 - s->n_cached % KV_PAGE;
    if (positions < room) room = positions;
    if (page < room && !has_spare_pages(e)) room = page;
    return room < e->n_draft ? room : e->n_draft;
}

/* Rows that are computed in a step of n: recorded ones have all rows of their bucket. */
static int32_t computed_rows(const carat_engine *e, int32_t n)
{
    const struct plans *p = &e->runner->layout.plans;
    return p->are_recorded ? plans_get(p, n, n, n)->rows_max[ROWS_TOKEN] : n;
}

/* Whether the row that gave the newest token is still on the device. */
static bool has_hidden(const carat_engine *e, const struct sequence *s)
{
    return e->runner->hidden && s->hidden_run == e->runner->n_runs;
}

/* The list is in the order of rows of the last step, in which those that have read a prompt come
 * last. */
static void ask(struct asking *a, struct sequence *s, int32_t room)
{
    int32_t i = a->n++;
    s->draft.found = 0;
    for (; i > 0 && a->all[i - 1].s->hidden_row > s->hidden_row; i--) a->all[i] = a->all[i - 1];
    a->all[i] = (struct asker){s, room};
}

/* ---- Passes ----------------------------------------------------------------------------- */

static int take_hidden(carat_engine *e, const struct asking *a, struct carat_error *err)
{
    int32_t outs[PASS_ROWS];
    for (int32_t i = 0; i < a->n; i++) outs[i] = a->all[i].s->hidden_row;
    return runner_take_hidden(e->runner, &e->step, outs, a->n, err);
}

static int run_pass(carat_engine *e, const struct asking *a, struct carat_error *err)
{
    struct step *step = &e->draft_step;
    batch_clear(step);
    for (int32_t i = 0; i < a->n; i++) {
        const struct sequence *s = a->all[i].s;
        int32_t newest = s->ids[sequence_known(s) + s->draft.found - 1];
        batch_add(step, newest, s->n_cached - 1, s->slot, true);
    }
    step->n_decode = a->n;
    return runner_draft(e->runner, step, err);
}

/* Takes a guess for each sequence. Those that have room for another one go on asking; after a token
 * that ends the answer nothing is guessed. */
static int take_guesses(carat_engine *e, struct asking *a, struct carat_error *err)
{
    size_t row_bytes = (size_t)e->model->config.n_embd * sizeof(float);
    int32_t n = a->n;
    a->n = 0;
    for (int32_t i = 0; i < n; i++) {
        struct logit_pair best[2];
        struct asker one = a->all[i];
        struct sequence *s = one.s;
        TRY(runner_draft_best(e->runner, n, i, best, err));
        if (best[0].id < 0) continue; /* the drafter gives no numbers */
        if (!s->ignore_stop && vocab_is_stop(e->model->vocab, best[0].id)) continue;
        draft_add(&s->draft, s->ids, sequence_known(s), best[0].id, best[0].logit - best[1].logit);
        if (--one.room == 0) continue;
        memmove(runner_hidden(e->runner, a->n), runner_hidden(e->runner, i), row_bytes);
        a->all[a->n++] = one;
    }
    return CARAT_OK;
}

/* Whether another pass pays, if it takes this share of a step. */
static bool pays(const struct asking *a, int32_t n_tokens, const double *times, int32_t most,
                 double cost)
{
    struct draft *drafts[PASS_ROWS];
    for (int32_t i = 0; i < a->n; i++) drafts[i] = &a->all[i].s->draft;
    return a->n > 0 && draft_pays(drafts, a->n, n_tokens, times, most, cost);
}

/* Adds what the passes take to `times`. */
static int run_passes(carat_engine *e, struct asking *a, const struct pace_step *rows,
                      double *times, int32_t most, struct carat_error *err)
{
    double step_seconds = pace_decode_seconds(&e->pace, rows);
    if (step_seconds <= 0) return CARAT_OK;
    for (int32_t passes = 0; pays(a, rows->n_decode, times, most, e->pass_seconds / step_seconds);
         passes++) {
        double begin = os_seconds();
        if (passes == 0) TRY(take_hidden(e, a, err));
        TRY(run_pass(e, a, err));
        TRY(take_guesses(e, a, err));
        double seconds = os_seconds() - begin;
        e->pass_seconds += (e->pass_seconds > 0 ? PASS_WEIGHT : 1) * (seconds - e->pass_seconds);
        e->drafting_seconds += seconds;
        for (int32_t i = 0; i <= most; i++) times[i] += seconds / step_seconds;
    }
    return CARAT_OK;
}

/* ---- All guesses of a step -------------------------------------------------------------- */

/* times[i]: what the step takes with i guesses. Without any, 1. */
static void estimate_times(const carat_engine *e, const struct pace_step *rows, int32_t most,
                           double *times)
{
    double cost = pace_row_cost(&e->pace, rows);
    int32_t least = computed_rows(e, rows->n_decode);
    for (int32_t i = 0; i <= most; i++)
        times[i] = 1 + cost * (computed_rows(e, rows->n_decode + i) - least);
}

/* How many guesses a step may have, so that its rows are computed as they would be without guesses.
 * Where sequences are many, at least one for each. */
static int32_t most_guesses(const carat_engine *e, const struct pace_step *rows)
{
    int32_t n = rows->n_decode, alike = e->runner->layout.alike_rows, most = engine_draft_rows(e);
    if (rows->n_prompt > 0 || n == 0) return 0;
    if (alike > 0 && n <= alike && most > alike) most = alike;
    return n <= DRAFT_FEW_ROWS || 2 * n <= most ? most - n : 0;
}

/* What follows from the sequence itself, without a drafter. */
static void find_guesses(struct sequence *s, int32_t room)
{
    int32_t known = sequence_known(s), n;
    draft_find(&s->draft, s->ids, known, room);
    if (!s->constraint || !draft_expects(&s->draft)) return;
    n = constrain_expect(s->constraint, s->ids[known - 1], s->ids + known, room);
    if (n > 0) draft_expect(&s->draft, n);
}

int drafting_add(carat_engine *e, const struct pace_step *rows, struct carat_error *err)
{
    double times[DRAFT_ROWS];
    struct asking asking = {.n = 0};
    int32_t most = most_guesses(e, rows), n = 0;
    if (most <= 0) return CARAT_OK;
    estimate_times(e, rows, most, times);
    for (int32_t i = 0; i < e->paging.n_seq; i++) {
        struct sequence *s = e->slots[i];
        int32_t room = s && s->n_rows > 0 ? draft_room(e, s) : 0;
        if (room <= 0 || s->n_cached != sequence_known(s) - 1) continue;
        if (rows->n_decode <= DRAFT_FEW_ROWS) find_guesses(s, room);
        e->drafts[n++] = &s->draft;
        if (has_hidden(e, s) && draft_asks(&s->draft)) ask(&asking, s, room);
    }
    TRY(run_passes(e, &asking, rows, times, most, err));
    draft_share(e->drafts, n, rows->n_decode, times, most);
    for (int32_t i = 0; i < e->paging.n_seq; i++)
        if (e->slots[i] && e->slots[i]->n_rows > 0) e->slots[i]->n_rows += e->slots[i]->draft.n;
    return CARAT_OK;
}
