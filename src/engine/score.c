/* Forward passes without requests: logits of a given text, and timing. Both use slots of an idle
 * engine directly, and leave nothing in the prefix cache. */
#include <math.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "carat_inspect.h"
#include "engine/engine.h"

static int check_idle(const carat_engine *e, struct carat_error *err)
{
    if (engine_is_idle(e)) return CARAT_OK;
    return err_set(err, CARAT_EBUSY, "requests are running; wait for them or cancel them");
}

static int check_tokens(const carat_engine *e, const int32_t *tokens, int32_t n, const int32_t *at,
                        int32_t n_at, struct carat_error *err)
{
    int32_t n_vocab = e->model->config.n_vocab;
    if (n < 1) return err_set(err, CARAT_EUSAGE, "tokens: at least one expected");
    if (n > e->runner->layout.n_ctx)
        return err_set(err, CARAT_ECONTEXT, "%d tokens exceed the available context size of %d", n,
                       e->runner->layout.n_ctx);
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return err_set(err, CARAT_EUSAGE, "token %d: 0 to %d expected, %d found", i,
                           n_vocab - 1, tokens[i]);
    for (int32_t i = 0; at && i < n_at; i++)
        if (at[i] < 0 || at[i] >= n || (i > 0 && at[i] <= at[i - 1]))
            return err_set(err, CARAT_EUSAGE, "position %d: rising numbers from 0 to %d expected",
                           at[i], n - 1);
    return CARAT_OK;
}

static bool is_finite_row(const float *row, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!isfinite(row[i])) return false;
    return true;
}

static int hand_over(carat_engine *e, carat_logits_fn take, void *user, struct carat_error *err)
{
    int32_t n_vocab = e->model->config.n_vocab;
    for (int32_t r = 0; r < e->step.n_out; r++) {
        int32_t position = e->step.position[e->step.out_row[r]];
        const float *row;
        TRY(runner_logits(e->runner, &e->step, r, &row, err));
        if (!is_finite_row(row, n_vocab))
            return err_set(err, CARAT_ENUMERIC,
                           "the model produced non-finite logits at position %d", position);
        int status = take(user, position, row, n_vocab);
        if (status) return status;
    }
    return CARAT_OK;
}

/* Takes pages for rows of a slot. Cached pages are evicted if that is necessary. */
static int take_pages(carat_engine *e, int32_t slot, int32_t position, int32_t n,
                      struct carat_error *err)
{
    if (paging_extend(&e->paging, slot, position, n) == n) return CARAT_OK;
    return err_set(
        err, CARAT_EMEMORY,
        "sequence %d has no memory for its position %d: the caches of all sequences have "
        "room for %lld positions",
        slot, position, (long long)e->runner->layout.memory.cache_positions);
}

static void release_pages(carat_engine *e)
{
    for (int32_t slot = 0; slot < e->paging.n_seq; slot++) paging_release(&e->paging, slot);
}

static int score(carat_engine *e, const int32_t *tokens, int32_t n, const int32_t *at, int32_t n_at,
                 carat_logits_fn take, void *user, struct carat_error *err)
{
    int32_t next_at = 0;
    for (int32_t position = 0; position < n;) {
        int32_t first = position;
        batch_clear(&e->step);
        while (position < n && e->step.n_token < e->runner->layout.chunk &&
               e->step.n_out < e->runner->layout.outs_max) {
            bool is_out = !at || (next_at < n_at && at[next_at] == position);
            next_at += at && is_out;
            batch_add(&e->step, tokens[position], position, 0, is_out);
            position++;
        }
        TRY(take_pages(e, 0, first, position - first, err));
        TRY(runner_run(e->runner, &e->step, err));
        paging_slide(&e->paging, 0, position);
        TRY(hand_over(e, take, user, err));
    }
    return CARAT_OK;
}

int carat_score(carat_engine *e, const int32_t *tokens, int32_t n, const int32_t *at, int32_t n_at,
                carat_logits_fn take, void *user, struct carat_error *err)
{
    TRY(check_idle(e, err));
    TRY(check_tokens(e, tokens, n, at, n_at, err));
    int status = score(e, tokens, n, at, n_at, take, user, err);
    release_pages(e);
    return status;
}

static int32_t random_id(const carat_engine *e, struct rng *rng)
{
    return (int32_t)rng_below(rng, (uint32_t)e->model->config.n_vocab);
}

/* `n` tokens of sequence `s` from `position` on; logits for the last one. */
static int prefill(carat_engine *e, int32_t s, int32_t position, const int32_t *ids, int32_t n,
                   struct carat_error *err)
{
    int32_t chunk = e->runner->layout.chunk;
    for (int32_t done = 0; done < n;) {
        int32_t first = done;
        batch_clear(&e->step);
        for (; done < n && e->step.n_token < chunk; done++)
            batch_add(&e->step, ids[done], position + done, s, done == n - 1);
        e->step.n_short = position + n < SHORT_PROMPT ? e->step.n_token : 0;
        e->step.next_id = ids + done;
        e->step.n_next = n - done < chunk ? n - done : chunk;
        TRY(take_pages(e, s, position + first, done - first, err));
        TRY(runner_run(e->runner, &e->step, err));
        paging_slide(&e->paging, s, position + done);
    }
    return CARAT_OK;
}

/* The steps of carat_measure; `ids` is room for the longer of depth and prompt. */
static int measure_run(carat_engine *e, const struct carat_measure *what, int32_t users,
                       int32_t *ids, double *seconds, struct carat_error *err)
{
    struct rng rng = {.state = 1};
    for (int32_t i = 0; i < what->depth; i++) ids[i] = random_id(e, &rng);
    for (int32_t s = 0; s < users; s++) TRY(prefill(e, s, 0, ids, what->depth, err));
    for (int32_t i = 0; i < what->n_prompt; i++) ids[i] = random_id(e, &rng);
    double begin = os_seconds();
    for (int32_t s = 0; s < users; s++) TRY(prefill(e, s, what->depth, ids, what->n_prompt, err));
    for (int32_t i = 0; i < what->n_gen; i++) {
        int32_t position = what->depth + what->n_prompt + i;
        batch_clear(&e->step);
        for (int32_t s = 0; s < users; s++) {
            batch_add(&e->step, random_id(e, &rng), position, s, true);
            TRY(take_pages(e, s, position, 1, err));
        }
        e->step.n_decode = users;
        TRY(runner_run(e->runner, &e->step, err));
        for (int32_t s = 0; s < users; s++) paging_slide(&e->paging, s, position + 1);
    }
    *seconds = os_seconds() - begin;
    return CARAT_OK;
}

int carat_measure(carat_engine *e, const struct carat_measure *what, double *seconds,
                  struct carat_error *err)
{
    int32_t users = what->users > 0 ? what->users : 1;
    int64_t positions = (int64_t)what->depth + what->n_prompt + what->n_gen;
    TRY(check_idle(e, err));
    if (users > e->runner->layout.n_seq)
        return err_set(err, CARAT_EUSAGE, "%d users, but the engine has %d sequences", users,
                       e->runner->layout.n_seq);
    if (what->depth < 0 || what->n_prompt < 0 || what->n_gen < 0)
        return err_set(err, CARAT_EUSAGE,
                       "depth, prompt and generated tokens must not be negative");
    if (positions > e->runner->layout.n_ctx)
        return err_set(err, CARAT_ECONTEXT,
                       "%lld positions exceed the available context size of %d",
                       (long long)positions, e->runner->layout.n_ctx);
    size_t n = (size_t)(what->depth > what->n_prompt ? what->depth : what->n_prompt);
    int32_t *ids = mem_alloc(n, sizeof *ids);
    if (!ids) return err_no_memory(err, "tokens", n * sizeof *ids);
    int status = measure_run(e, what, users, ids, seconds, err);
    release_pages(e);
    mem_free(ids);
    return status;
}

int carat_measure_roofline(carat_engine *e, struct carat_roofline *out, struct carat_error *err)
{
    struct device_limits limits;
    TRY(runner_check(e->runner, err));
    TRY(check_idle(e, err));
    TRY(runner_measure_limits(e->runner, &limits, err));
    *out =
        (struct carat_roofline){limits.read_bytes, limits.int8_operations, limits.fp16_operations};
    return CARAT_OK;
}

static void add_work(struct carat_work *total, const struct plans *plans, int32_t n_token,
                     int32_t n_out, int32_t context)
{
    struct plan_work step = plans_count_work(plans, n_token, n_out, context);
    total->bytes += step.weight_bytes + step.cache_bytes;
    total->operations += step.operations;
}

void carat_measure_work(const carat_engine *e, const struct carat_measure *what,
                        struct carat_work *out)
{
    const struct plans *plans = &e->runner->layout.plans;
    int32_t users = what->users > 0 ? what->users : 1, chunk = e->runner->layout.chunk;
    *out = (struct carat_work){0};
    for (int32_t done = 0, n; done < what->n_prompt; done += n) {
        n = what->n_prompt - done < chunk ? what->n_prompt - done : chunk;
        for (int32_t s = 0; s < users; s++)
            add_work(out, plans, n, done + n == what->n_prompt, what->depth + done + n);
    }
    for (int32_t i = 0; i < what->n_gen; i++)
        add_work(out, plans, users, users, what->depth + what->n_prompt + i + 1);
}
