#include "engine/runner.h"

#include "base/mem.h"

/* ---- Memory ----------------------------------------------------------------------------- */

static int take(const struct target *t, size_t bytes, void **out, struct carat_error *err)
{
    return bytes ? t->backend->alloc(t->device, bytes, out, err) : CARAT_OK;
}

/* The buffers of the second device, which is the host, are what goes to and from the first. */
static void share_buffers(struct runner *r)
{
    const struct target *near = &r->layout.targets[SITE_NEAR];
    if (near->backend->share && r->memory[SITE_FAR])
        near->backend->share(near->device, r->memory[SITE_FAR], r->layout.plans.bytes[SITE_FAR]);
}

static void unshare_buffers(struct runner *r)
{
    const struct target *near = &r->layout.targets[SITE_NEAR];
    if (r->memory[SITE_FAR] && near->backend->unshare)
        near->backend->unshare(near->device, r->memory[SITE_FAR]);
}

/* One piece for all caches of a site: a device may round each piece up to 2 MB. */
static int take_caches(struct runner *r, enum site site, struct carat_error *err)
{
    struct layout *y = &r->layout;
    TRY(take(&y->targets[site], layout_kv_bytes(&y->sites[site]), &r->kv[site], err));
    char *next = r->kv[site];
    for (int32_t l = 0; l < y->config->n_kv_layer; l++) {
        if ((enum site)y->split.layer[l] != site) continue;
        y->caches[l].k = next;
        y->caches[l].v = next + y->k_bytes[l];
        next += 2 * y->k_bytes[l];
    }
    return CARAT_OK;
}

static int take_site_memory(struct runner *r, enum site site, struct carat_error *err)
{
    const struct layout *y = &r->layout;
    const struct target *t = &y->targets[site];
    struct weights *w = &r->weights[site];
    if (!t->device) return CARAT_OK;
    TRY(take_caches(r, site, err));
    TRY(take(t, y->plans.bytes[site], &r->memory[site], err));
    if (site == SITE_FAR) share_buffers(r);
    TRY(take(t, y->plans.scratch_bytes[site], &r->scratch[site], err));
    for (int32_t *n = &r->n_loaded[site]; *n < w->n_all; ++*n)
        TRY(t->backend->weight_load(t->device, &w->all[*n], err));
    return CARAT_OK;
}

static int take_memory(struct runner *r, struct carat_error *err)
{
    struct layout *y = &r->layout;
    size_t n_vocab = (size_t)y->config->n_vocab;
    r->row = arena_take(&r->arena, n_vocab, sizeof *r->row);
    if (!r->row) return err_no_memory(err, "row of logits", n_vocab * sizeof *r->row);
    for (int i = 0; i < SITE_COUNT; i++) TRY(take_site_memory(r, (enum site)i, err));
    return plans_bind(&y->plans, y->targets, y->placements, r->memory, r->scratch, err);
}

static void give_back(const struct target *t, void *memory)
{
    if (memory) t->backend->free(t->device, memory);
}

/* Programs go before the memory that they use. */
static void give_memory(struct runner *r)
{
    struct layout *y = &r->layout;
    plans_deinit(&y->plans, y->targets);
    unshare_buffers(r);
    for (int i = 0; i < SITE_COUNT; i++) {
        const struct target *t = &y->targets[i];
        for (int32_t k = 0; k < r->n_loaded[i]; k++)
            t->backend->weight_unload(t->device, &r->weights[i].all[k]);
        give_back(t, r->kv[i]);
        give_back(t, r->memory[i]);
        give_back(t, r->scratch[i]);
    }
}

/* ---- Opening and closing ---------------------------------------------------------------- */

static int start(struct runner *r, const struct layout_model *model,
                 const struct carat_engine_options *options, struct carat_error *err)
{
    struct buf note = {0};
    struct layout_source from = {.model = *model,
                                 .near = &r->weights[SITE_NEAR],
                                 .far = &r->weights[SITE_FAR],
                                 .arena = &r->arena};
    int status =
        weights_bind(&r->weights[SITE_NEAR], model->config, model->gguf, &r->arena, &note, err);
    buf_deinit(&note);
    TRY(status);
    TRY(layout_init(&r->layout, &from, options, err));
    if (options->planned) options->planned(options->progress_user, &r->layout.memory);
    TRY(take_memory(r, err));
    arena_seal(&r->arena);
    return CARAT_OK;
}

static int open_once(struct runner **out, const struct layout_model *model,
                     const struct carat_engine_options *options, bool *is_table_pinned,
                     struct carat_error *err)
{
    *out = NULL;
    *is_table_pinned = false;
    struct runner *r = mem_alloc(1, sizeof *r);
    if (!r) return err_no_memory(err, "runner", sizeof *r);
    int status = start(r, model, options, err);
    *is_table_pinned = r->layout.setup.ple_place == CARAT_PLE_PINNED;
    if (status)
        runner_close(r);
    else
        *out = r;
    return status;
}

/* How much memory the system lets us pin is known only when it is done. If that fails, a table for
 * which nobody asked for a place stays in the file. */
int runner_open(struct runner **out, const struct layout_model *model,
                const struct carat_engine_options *options, struct carat_error *err)
{
    bool is_table_pinned;
    struct carat_engine_options o = options ? *options : (struct carat_engine_options){0};
    int status = open_once(out, model, &o, &is_table_pinned, err);
    if (status != CARAT_EMEMORY || o.ple_place != CARAT_PLE_AUTO || !is_table_pinned) return status;
    o.ple_place = CARAT_PLE_HOST;
    TRY(open_once(out, model, &o, &is_table_pinned, err));
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

/* ---- Running ---------------------------------------------------------------------------- */

/* Where a buffer of the bucket's plan of a site lies. */
static char *buffer_at(const struct runner *r, const struct bucket *b, int32_t site, buf_id id)
{
    return (char *)r->memory[site] + plan_buf_at(&b->plans[site], id)->offset;
}

/* Copies what the segment reads of the other device. One of the two is the host, in whose memory
 * the other reads and writes. */
static void carry_inputs(struct runner *r, const struct bucket *b, const struct segment *s,
                         const struct step *step)
{
    const struct target *here = &r->layout.targets[s->site];
    for (int32_t i = 0; i < s->plan->n_ops && s->plan->ops[i].code == OP_INPUT; i++) {
        const struct op *op = &s->plan->ops[i];
        const struct plan_buf *input = plan_buf_at(s->plan, op->out[0]);
        int32_t rows = input->rows == ROWS_TOKEN ? step->n_token : step->n_out;
        size_t bytes = (size_t)rows * (size_t)input->cols * sizeof(float);
        if (bytes == 0) continue;
        char *to = buffer_at(r, b, s->site, op->out[0]);
        const char *from = buffer_at(r, b, op->p.input.site, (buf_id)op->p.input.from);
        const struct target *there = &r->layout.targets[op->p.input.site];
        if (here->backend->is_host)
            there->backend->download(there->device, to, from, bytes);
        else
            here->backend->upload(here->device, to, from, bytes);
    }
}

/* Segments of the two devices take turns. A host segment waits until the device has finished and
 * its rows have arrived. A device segment needs no wait: what the host runs is done when it
 * returns. */
static int run_segments(struct runner *r, const struct bucket *b, const struct step *step,
                        struct carat_error *err)
{
    const struct target *before = NULL;
    for (int32_t i = 0; i < b->n_segments; i++) {
        const struct segment *s = &b->segments[i];
        const struct target *t = &r->layout.targets[s->site];
        if (before && !t->backend->is_host) TRY(before->backend->fence(before->device, err));
        carry_inputs(r, b, s, step);
        if (before && t->backend->is_host) TRY(before->backend->fence(before->device, err));
        t->backend->run(s->program, step);
        before = t;
    }
    return before->backend->fence(before->device, err);
}

int runner_check(const struct runner *r, struct carat_error *err)
{
    if (err && r->loss.code) *err = r->loss;
    return (int)r->loss.code;
}

/* Remembers why a device failed, for everybody who asks again. */
static int lose(struct runner *r, const struct carat_error *why, struct carat_error *err)
{
    r->loss = *why;
    err_set(&r->loss, CARAT_EDEVICE, "%.400s; this process has to be started again", why->message);
    return runner_check(r, err);
}

static const struct bucket *bucket_of(const struct runner *r, const struct step *step)
{
    return plans_get(&r->layout.plans, step->n_token, step->n_out);
}

int runner_run(struct runner *r, const struct step *step, struct carat_error *err)
{
    struct carat_error why = {0};
    TRY(runner_check(r, err));
    return run_segments(r, bucket_of(r, step), step, &why) ? lose(r, &why, err) : CARAT_OK;
}

int runner_logits(struct runner *r, const struct step *step, int32_t out, const float **row,
                  struct carat_error *err)
{
    struct carat_error why = {0};
    const struct bucket *b = bucket_of(r, step);
    const struct segment *last = bucket_last(b);
    const struct target *t = &r->layout.targets[last->site];
    size_t row_bytes = (size_t)r->layout.config->n_vocab * sizeof(float);
    t->backend->download(t->device, r->row,
                         buffer_at(r, b, last->site, last->plan->logits) + (size_t)out * row_bytes,
                         row_bytes);
    *row = r->row;
    return t->backend->fence(t->device, &why) ? lose(r, &why, err) : CARAT_OK;
}

int runner_best(const struct runner *r, const struct step *step, int32_t out,
                const struct logit_pair **best)
{
    const struct segment *last = bucket_last(bucket_of(r, step));
    const struct backend *backend = r->layout.targets[last->site].backend;
    return backend->best ? backend->best(last->program, out, best) : 0;
}

void runner_print_profile(const struct runner *r, struct buf *out)
{
    const struct target *targets = r->layout.targets;
    bool has_both = targets[SITE_FAR].device != NULL;
    for (int i = 0; i < SITE_COUNT; i++) {
        const struct target *t = &targets[i];
        if (!t->device || !t->backend->print_profile) continue;
        if (has_both) buf_printf(out, "%s\n", t->backend->name);
        t->backend->print_profile(t->device, out);
    }
}
