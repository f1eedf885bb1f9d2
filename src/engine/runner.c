#include "engine/runner.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "engine/fit.h"

/* ---- Memory ----------------------------------------------------------------------------- */

/* Calls `f` for each device with each host buffer that its rows are copied to or from. */
static void for_shared(struct runner *r,
                       void (*f)(const struct target *device, void *host, size_t bytes))
{
    struct layout *y = &r->layout;
    for (int32_t i = 0; i < y->n_targets; i++) {
        const struct target *t = &y->targets[i];
        if (t->backend->is_host || !t->backend->share) continue;
        for (int32_t k = 0; k < y->n_targets; k++)
            if (y->targets[k].backend->is_host && y->targets[k].memory)
                f(t, y->targets[k].memory, y->plans.bytes[k]);
        if (r->staging) f(t, r->staging, y->plans.staging_bytes);
        if (r->masks) f(t, r->masks, layout_mask_bytes(y));
        if (r->hidden) f(t, r->hidden, layout_hidden_bytes(y));
        f(t, r->row, (size_t)y->config->n_vocab * sizeof *r->row);
    }
}

static void share(const struct target *device, void *host, size_t bytes)
{
    device->backend->share(device->device, host, bytes);
}

static void unshare(const struct target *device, void *host, size_t bytes)
{
    (void)bytes;
    device->backend->unshare(device->device, host);
}

/* Memory in pages of its own, as devices pin whole pages. */
static void *take_pages(struct runner *r, size_t bytes)
{
    enum { PAGE = 4096 };
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    char *taken = bytes > 0 ? arena_take(&r->arena, whole + PAGE, 1) : NULL;
    return taken ? taken + (PAGE - (uintptr_t)taken % PAGE) % PAGE : NULL;
}

static int take_memory(struct runner *r, struct carat_error *err)
{
    struct layout *y = &r->layout;
    size_t n_vocab = (size_t)y->config->n_vocab, staging = y->plans.staging_bytes;
    r->row = take_pages(r, n_vocab * sizeof *r->row);
    size_t masks = layout_mask_bytes(y);
    r->staging = take_pages(r, staging);
    r->masks = take_pages(r, masks);
    size_t hidden = layout_hidden_bytes(y);
    r->hidden = take_pages(r, hidden);
    if (!r->row || (staging > 0 && !r->staging) || (masks > 0 && !r->masks) ||
        (hidden > 0 && !r->hidden))
        return err_no_memory(err, "rows on the host",
                             n_vocab * sizeof *r->row + staging + masks + hidden);
    if (!tables_init(&r->tables, &y->caches, &r->arena))
        return err_no_memory(err, "tables of pages", tables_bytes(&y->caches));
    if (!y->shares_pages) tables_set_fixed(&r->tables);
    for (int32_t i = 0; i < y->n_targets; i++) {
        struct target *t = &y->targets[i];
        TRY(target_take(t, y->plans.bytes[i], y->plans.scratch_bytes[i], err));
        caches_lay_out(&y->caches, y->config, &y->split, t, i);
    }
    for_shared(r, share);
    r->are_shared = true;
    return plans_bind(&y->plans, y->targets, err);
}

/* Programs go before the memory that they use. */
static void give_memory(struct runner *r)
{
    struct layout *y = &r->layout;
    plans_deinit(&y->plans, y->targets);
    if (r->are_shared) for_shared(r, unshare);
    for (int32_t i = 0; i < y->n_targets; i++) target_give(&y->targets[i]);
}

/* ---- Opening and closing ---------------------------------------------------------------- */

static int prepare(struct runner *r, const struct layout_source *source,
                   const struct carat_engine_options *options, struct carat_error *err)
{
    struct layout_source from = *source;
    from.arena = &r->arena;
    TRY(layout_init(&r->layout, &from, options, err));
    for (int32_t i = 0; i < r->layout.n_targets && r->layout.shares_pages; i++)
        if (!r->layout.targets[i].backend->is_host)
            r->least = share_least_of((enum share_kind)options->cascade);
    if (options->planned) options->planned(options->progress_user, &r->layout.memory);
    TRY(take_memory(r, err));
    arena_seal(&r->arena);
    return CARAT_OK;
}

static int open_once(struct runner **out, const struct layout_source *source,
                     const struct carat_engine_options *options, bool *is_table_pinned,
                     struct carat_error *err)
{
    *out = NULL;
    *is_table_pinned = false;
    struct runner *r = mem_alloc(1, sizeof *r);
    if (!r) return err_no_memory(err, "runner", sizeof *r);
    int status = prepare(r, source, options, err);
    *is_table_pinned = r->layout.setup.ple_place == CARAT_PLE_PINNED;
    if (status)
        runner_close(r);
    else
        *out = r;
    return status;
}

/* Only pinning shows how much memory the system lets us pin. If it fails, a table for which the
 * user chose no place stays in the file. */
int runner_open(struct runner **out, const struct layout_source *source,
                const struct carat_engine_options *options, struct carat_error *err)
{
    bool is_table_pinned;
    struct carat_engine_options o = options ? *options : (struct carat_engine_options){0};
    int status = open_once(out, source, &o, &is_table_pinned, err);
    if (status != CARAT_EMEMORY || o.ple_place != CARAT_PLE_AUTO || !is_table_pinned) return status;
    o.ple_place = CARAT_PLE_HOST;
    TRY(open_once(out, source, &o, &is_table_pinned, err));
    (*out)->layout.setup.ple_reason = CARAT_REASON_MEMORY;
    return CARAT_OK;
}

void runner_close(struct runner *r)
{
    if (!r) return;
    give_memory(r);
    layout_deinit(&r->layout);
    arena_deinit(&r->arena);
    mem_free(r);
}

/* ---- Rows from one device to another ---------------------------------------------------- */

/* Address of a buffer of a site's plan. */
static char *buffer_at(const struct runner *r, const struct bucket *b, int32_t site, buf_id id)
{
    return (char *)r->layout.targets[site].memory + plan_buf_at(&b->plans[site], id)->offset;
}

/* What a segment reads from outside is uploaded. What it reads from other devices goes through host
 * memory: the buffers of the host, if one of the two is the host, else staging. Rows are first
 * copied out of the other devices and, once they have arrived, into this one. `staged`: bytes of
 * staging that earlier segments of the step have used. */
struct crossings {
    struct runner *r;
    const struct bucket *bucket;
    const struct step *step;
    size_t staged;
};

enum direction { OUT_OF_DEVICES, INTO_THIS_ONE };

static void carry(const struct crossings *c, const struct segment *s, const struct crossing *x,
                  size_t bytes, char *staging, enum direction direction)
{
    struct runner *r = c->r;
    const struct target *here = &r->layout.targets[s->site];
    if (x->from_site == SITE_OUTSIDE) {
        if (direction == INTO_THIS_ONE)
            here->backend->upload(here->device, buffer_at(r, c->bucket, s->site, x->to), r->hidden,
                                  bytes);
        return;
    }
    const struct target *there = &r->layout.targets[x->from_site];
    char *to = buffer_at(r, c->bucket, s->site, x->to);
    char *from = buffer_at(r, c->bucket, x->from_site, x->from);
    bool is_staged = target_needs_staging(there, here);
    if (direction == INTO_THIS_ONE) {
        if (there->backend->is_host || is_staged)
            here->backend->upload(here->device, to, is_staged ? staging : from, bytes);
    } else if (!there->backend->is_host) {
        there->backend->download(there->device, is_staged ? staging : to, from, bytes);
        r->is_busy[x->from_site] = true;
    }
}

/* Returns the bytes of staging used so far in the step. */
static size_t carry_all(const struct crossings *c, const struct segment *s,
                        enum direction direction)
{
    const struct target *targets = c->r->layout.targets;
    size_t staged = c->staged;
    struct crossing x;
    for (int32_t i = 0; segment_crossing(s, i, &x); i++) {
        int32_t rows = x.rows == ROWS_TOKEN ? c->step->n_token : c->step->n_out;
        size_t bytes = (size_t)rows * x.row_bytes;
        if (bytes == 0) continue;
        char *staging = c->r->staging ? c->r->staging + staged : NULL;
        carry(c, s, &x, bytes, staging, direction);
        if (crossing_needs_staging(&x, s, targets)) staged += bytes;
    }
    return staged;
}

/* ---- Running ---------------------------------------------------------------------------- */

/* Waits until all targets but `site` are done. */
static int wait_for_others(struct runner *r, int32_t site, struct carat_error *err)
{
    for (int32_t i = 0; i < r->layout.n_targets; i++) {
        const struct target *t = &r->layout.targets[i];
        if (i == site || !r->is_busy[i]) continue;
        r->is_busy[i] = false;
        TRY(t->backend->fence(t->device, err));
    }
    return CARAT_OK;
}

/* The step with the pages that its rows share. They are searched for in every step: comparing the
 * tables takes a few microseconds. */
static const struct step *with_shared_pages(struct runner *r, const struct step *step)
{
    const struct table *t = &r->tables.of[KV_GLOBAL];
    bool is_any = r->least.rows > 0 && share_find(&r->share, t->wanted, t->slots, step, r->least);
    r->step = *step;
    r->step.leader = is_any ? r->share.leader : NULL;
    r->step.shared = is_any ? r->share.shared : NULL;
    return &r->step;
}

/* Starts the segments one after the other. Each waits once for all other devices, after their
 * copies have been queued. So the host never computes on rows that a device still reads or
 * writes. */
static int start_segments(struct runner *r, const struct bucket *b, const struct step *step,
                          struct carat_error *err)
{
    struct crossings c = {.r = r, .bucket = b, .step = step};
    const struct layout *y = &r->layout;
    const struct step *shared = with_shared_pages(r, step);
    r->n_runs++;
    tables_send(&r->tables, &y->caches, y->targets, y->n_targets, r->is_busy);
    for (int32_t i = 0; i < b->n_segments; i++) {
        const struct segment *s = &b->segments[i];
        carry_all(&c, s, OUT_OF_DEVICES);
        TRY(wait_for_others(r, s->site, err));
        c.staged = carry_all(&c, s, INTO_THIS_ONE);
        r->layout.targets[s->site].backend->run(s->program, shared);
        r->is_busy[s->site] = true;
    }
    return CARAT_OK;
}

int runner_check(const struct runner *r, struct carat_error *err)
{
    if (err && r->loss.code) *err = r->loss;
    return (int)r->loss.code;
}

/* Remembers why a device failed, for every later call. */
static int lose(struct runner *r, const struct carat_error *why, struct carat_error *err)
{
    r->loss = *why;
    err_set(&r->loss, CARAT_EDEVICE, "%.400s; this process has to be started again", why->message);
    return runner_check(r, err);
}

static const struct bucket *bucket_for_step(const struct runner *r, const struct step *step)
{
    return plans_get(&r->layout.plans, step->n_token, step->n_decode, step->n_out);
}

int runner_start(struct runner *r, const struct step *step, struct carat_error *err)
{
    struct carat_error why = {0};
    TRY(runner_check(r, err));
    return start_segments(r, bucket_for_step(r, step), step, &why) ? lose(r, &why, err) : CARAT_OK;
}

int runner_wait(struct runner *r, struct carat_error *err)
{
    struct carat_error why = {0};
    TRY(runner_check(r, err));
    return wait_for_others(r, -1, &why) ? lose(r, &why, err) : CARAT_OK;
}

int runner_run(struct runner *r, const struct step *step, struct carat_error *err)
{
    TRY(runner_start(r, step, err));
    return runner_wait(r, err);
}

void runner_set_page(struct runner *r, enum kv_kind kind, int32_t sequence, int32_t slot,
                     int32_t page)
{
    carat_assert(page >= 0 && page < r->layout.caches.n_pages[kind]);
    tables_set(&r->tables, kind, sequence, slot, page);
}

int32_t runner_page(const struct runner *r, enum kv_kind kind, int32_t sequence, int32_t slot)
{
    return tables_get(&r->tables, kind, sequence, slot);
}

/* ---- Pages ------------------------------------------------------------------------------ */

size_t runner_page_bytes(const struct runner *r, enum kv_kind kind)
{
    return (size_t)caches_page_bytes(&r->layout.caches, kind);
}

static char *page_at(const struct runner *r, int32_t site, enum kv_kind kind, int32_t page)
{
    const struct caches *k = &r->layout.caches;
    carat_assert(page > 0 && page < k->n_pages[kind]);
    return k->pools[site][kind] + (size_t)page * (size_t)k->page_bytes[site][kind];
}

int runner_read_page(struct runner *r, enum kv_kind kind, int32_t page, void *out,
                     struct carat_error *err)
{
    struct carat_error why = {0};
    char *at = out;
    TRY(runner_check(r, err));
    for (int32_t i = 0; i < r->layout.n_targets; i++) {
        const struct target *t = &r->layout.targets[i];
        const size_t bytes = (size_t)r->layout.caches.page_bytes[i][kind];
        if (bytes == 0) continue;
        t->backend->download(t->device, at, page_at(r, i, kind, page), bytes);
        r->is_busy[i] = true;
        at += bytes;
    }
    return wait_for_others(r, -1, &why) ? lose(r, &why, err) : CARAT_OK;
}

int runner_write_page(struct runner *r, enum kv_kind kind, int32_t page, const void *bytes,
                      struct carat_error *err)
{
    struct carat_error why = {0};
    const char *at = bytes;
    TRY(runner_check(r, err));
    for (int32_t i = 0; i < r->layout.n_targets; i++) {
        const struct target *t = &r->layout.targets[i];
        const size_t n = (size_t)r->layout.caches.page_bytes[i][kind];
        if (n == 0) continue;
        t->backend->upload(t->device, page_at(r, i, kind, page), at, n);
        r->is_busy[i] = true;
        at += n;
    }
    return wait_for_others(r, -1, &why) ? lose(r, &why, err) : CARAT_OK;
}

/* ---- The drafter ------------------------------------------------------------------------ */

/* Starts copying a row of a bucket's `hidden` to the host. */
static void download_hidden(struct runner *r, const struct bucket *b, int32_t first, int32_t n,
                            float *to)
{
    const struct segment *last = bucket_last(b);
    const struct target *t = &r->layout.targets[last->site];
    size_t row_bytes = (size_t)r->layout.config->n_embd * sizeof(float);
    t->backend->download(
        t->device, to, buffer_at(r, b, last->site, last->plan->hidden) + (size_t)first * row_bytes,
        (size_t)n * row_bytes);
    r->is_busy[last->site] = true;
}

float *runner_hidden(struct runner *r, int32_t row)
{
    return r->hidden + (size_t)row * (size_t)r->layout.config->n_embd;
}

/* Rows that lie near each other come in one copy: starting one takes as long as some hundred
 * kilobytes. */
int runner_take_hidden(struct runner *r, const struct step *step, const int32_t *outs, int32_t n,
                       struct carat_error *err)
{
    const struct bucket *b = bucket_for_step(r, step);
    size_t row_bytes = (size_t)r->layout.config->n_embd * sizeof(float);
    int32_t first = outs[0], n_all = outs[n - 1] - first + 1;
    TRY(runner_check(r, err));
    if (n_all > DRAFT_ROWS) {
        for (int32_t i = 0; i < n; i++) download_hidden(r, b, outs[i], 1, runner_hidden(r, i));
        return runner_wait(r, err);
    }
    download_hidden(r, b, first, n_all, r->hidden);
    TRY(runner_wait(r, err));
    for (int32_t i = 0; i < n; i++)
        memmove(runner_hidden(r, i), runner_hidden(r, outs[i] - first), row_bytes);
    return CARAT_OK;
}

int runner_draft(struct runner *r, const struct step *step, struct carat_error *err)
{
    struct carat_error why = {0};
    const struct bucket *b = plans_get_draft(&r->layout.plans, step->n_token);
    TRY(runner_check(r, err));
    if (start_segments(r, b, step, &why)) return lose(r, &why, err);
    download_hidden(r, b, 0, step->n_token, r->hidden);
    return runner_wait(r, err);
}

/* ---- Logits ----------------------------------------------------------------------------- */

/* Row `out` of a bucket's logits, on the host. */
static int download_logits(struct runner *r, const struct bucket *b, int32_t out,
                           struct carat_error *err)
{
    struct carat_error why = {0};
    const struct segment *last = bucket_last(b);
    const struct target *t = &r->layout.targets[last->site];
    size_t row_bytes = (size_t)r->layout.config->n_vocab * sizeof(float);
    t->backend->download(t->device, r->row,
                         buffer_at(r, b, last->site, last->plan->logits) + (size_t)out * row_bytes,
                         row_bytes);
    return t->backend->fence(t->device, &why) ? lose(r, &why, err) : CARAT_OK;
}

static int best_of(const struct runner *r, const struct bucket *b, int32_t out,
                   const struct logit_pair **best)
{
    const struct segment *last = bucket_last(b);
    const struct backend *backend = r->layout.targets[last->site].backend;
    return backend->best ? backend->best(last->program, out, best) : 0;
}

int runner_logits(struct runner *r, const struct step *step, int32_t out, const float **row,
                  struct carat_error *err)
{
    *row = r->row;
    return download_logits(r, bucket_for_step(r, step), out, err);
}

int runner_best(const struct runner *r, const struct step *step, int32_t out,
                const struct logit_pair **best)
{
    return best_of(r, bucket_for_step(r, step), out, best);
}

/* The two largest of a row. NaN are passed over. */
static void find_two(const float *row, int32_t n, struct logit_pair out[2])
{
    out[0] = out[1] = (struct logit_pair){.id = 0, .logit = -INFINITY};
    for (int32_t i = 0; i < n; i++) {
        if (!(row[i] > out[1].logit)) continue;
        bool is_first = row[i] > out[0].logit;
        if (is_first) out[1] = out[0];
        out[!is_first] = (struct logit_pair){.id = i, .logit = row[i]};
    }
}

int runner_draft_best(struct runner *r, int32_t n_rows, int32_t row, struct logit_pair out[2],
                      struct carat_error *err)
{
    const struct bucket *b = plans_get_draft(&r->layout.plans, n_rows);
    const struct logit_pair *best;
    if (best_of(r, b, row, &best) >= 2) {
        out[0] = best[0];
        out[1] = best[1];
        return CARAT_OK;
    }
    TRY(download_logits(r, b, row, err));
    find_two(r->row, r->layout.config->n_vocab, out);
    return CARAT_OK;
}

/* ---- Within masks ----------------------------------------------------------------------- */

static const struct backend *last_backend(const struct runner *r, const struct segment *last)
{
    return r->layout.targets[last->site].backend;
}

int32_t runner_masks(const struct runner *r, const struct step *step)
{
    const struct segment *last = bucket_last(bucket_for_step(r, step));
    return last_backend(r, last)->best_allowed ? layout_masks(&r->layout) : 0;
}

int32_t runner_n_best(const struct runner *r, const struct step *step)
{
    return last_backend(r, bucket_last(bucket_for_step(r, step)))->n_best;
}

uint64_t *runner_mask(struct runner *r, int32_t i)
{
    return r->masks + (size_t)i * mask_words(r->layout.config->n_vocab);
}

void runner_best_allowed(struct runner *r, const struct step *step, int32_t n, const int32_t *rows)
{
    const struct segment *last = bucket_last(bucket_for_step(r, step));
    last_backend(r, last)->best_allowed(last->program, n, rows, r->masks);
    r->is_busy[last->site] = true;
}

/* ---- Looking inside --------------------------------------------------------------------- */

int runner_measure_limits(struct runner *r, struct device_limits *out, struct carat_error *err)
{
    const struct target *t = &r->layout.targets[FIRST_TARGET];
    TRY(runner_check(r, err));
    if (!t->backend->measure_limits)
        return err_set(err, CARAT_EDEVICE, "backend \"%s\" has no measure of its limits",
                       t->backend->name);
    t->backend->measure_limits(t->device, bytes_left(t->available, target_bytes(t)), out);
    return CARAT_OK;
}

void runner_print_profile(const struct runner *r, struct buf *out)
{
    for (int32_t i = 0; i < r->layout.n_targets; i++) {
        const struct target *t = &r->layout.targets[i];
        if (!t->backend->print_profile) continue;
        if (r->layout.n_targets > 1) buf_printf(out, "%s\n", t->backend->name);
        t->backend->print_profile(t->device, out);
    }
}
