#include "engine/plans.h"

#include "base/assert.h"
#include "base/mem.h"
#include "engine/draft.h"
#include "engine/limits.h"

static int32_t window_length(const void *user, const struct plan *plan, int32_t i)
{
    const struct target *target = user;
    return target->backend->window(target->device, plan, i);
}

static void raise_to(size_t *most, size_t value)
{
    if (value > *most) *most = value;
}

/* Ends the recording of one site's plan and notes what it needs. */
static int close_plan(struct plans *p, struct plan *plan, int32_t site, const struct target *target,
                      struct carat_error *err)
{
    if (target->backend->window) plan_mark_windows(plan, window_length, target);
    TRY(plan_close(plan, err));
    raise_to(&p->bytes[site], plan->bytes);
    raise_to(&p->scratch_bytes[site], target->backend->scratch_bytes(target->device, plan));
    return CARAT_OK;
}

static int close_plans(struct plans *p, struct bucket *b, const struct target *targets,
                       struct carat_error *err)
{
    for (int32_t i = 0; i < p->n_sites; i++)
        if (b->plans[i].n_ops > 0) TRY(close_plan(p, &b->plans[i], i, &targets[i], err));
    return CARAT_OK;
}

/* A segment for each run of a site's ops. */
static int add_segments(struct bucket *b, const struct plan_run *runs, int32_t n_runs,
                        struct carat_error *err)
{
    b->segments = mem_alloc((size_t)n_runs, sizeof *b->segments);
    if (!b->segments) return err_no_memory(err, "plan", (size_t)n_runs * sizeof *b->segments);
    for (int32_t i = 0; i < n_runs; i++) {
        const struct plan_run *r = &runs[i];
        struct segment *s = &b->segments[b->n_segments++];
        s->site = r->site;
        s->plan = &b->plans[r->site];
        if (r->end - r->first == s->plan->n_ops) continue;
        TRY(plan_cut(s->plan, r->first, r->end, &s->cut, err));
        s->plan = &s->cut;
    }
    return CARAT_OK;
}

bool segment_crossing(const struct segment *s, int32_t i, struct crossing *out)
{
    if (i >= s->plan->n_ops || s->plan->ops[i].code != OP_INPUT) return false;
    const struct op *op = &s->plan->ops[i];
    const struct plan_buf *b = plan_buf_at(s->plan, op->out[0]);
    *out = (struct crossing){.from_site = op->p.input.site,
                             .from = (buf_id)op->p.input.from,
                             .to = op->out[0],
                             .rows = b->rows,
                             .row_bytes = (size_t)b->cols * sizeof(float)};
    return true;
}

bool crossing_needs_staging(const struct crossing *c, const struct segment *s,
                            const struct target *targets)
{
    return c->from_site != SITE_OUTSIDE &&
           target_needs_staging(&targets[c->from_site], &targets[s->site]);
}

/* Bytes of all rows of a step that pass through the host on their way between two devices. */
static size_t staging_bytes(const struct bucket *b, const struct target *targets)
{
    size_t bytes = 0;
    struct crossing c;
    for (int32_t k = 0; k < b->n_segments; k++)
        for (int32_t i = 0; segment_crossing(&b->segments[k], i, &c); i++)
            if (crossing_needs_staging(&c, &b->segments[k], targets))
                bytes += (size_t)b->rows_max[c.rows] * c.row_bytes;
    return bytes;
}

static void close_bucket(struct bucket *b, int32_t n_sites, const struct target *targets)
{
    for (int32_t k = 0; b->segments && k < b->n_segments; k++) {
        struct segment *s = &b->segments[k];
        if (s->program) targets[s->site].backend->unbind(s->program);
        plan_deinit(&s->cut);
    }
    mem_free(b->segments);
    for (int32_t k = 0; k < n_sites; k++) plan_deinit(&b->plans[k]);
}

/* Records the pass of a bucket: the model's, or a drafter's. */
typedef void (*record_fn)(struct plan *whole, const struct plan_source *from);

static void record_model(struct plan *whole, const struct plan_source *from)
{
    const struct weights *weights[SITES_MAX];
    for (int32_t i = 0; i < from->n_targets; i++) weights[i] = from->targets[i].weights;
    if (from->drafter) plan_want_hidden(whole);
    gemma_forward(whole, from->config, weights, from->split);
}

static void record_draft(struct plan *whole, const struct plan_source *from, bool has_table)
{
    const struct weights *weights[SITES_MAX], *model_weights[SITES_MAX];
    for (int32_t i = 0; i < from->n_targets; i++) {
        weights[i] = from->targets[i].draft_weights;
        model_weights[i] = from->targets[i].weights;
    }
    struct drafter_parts parts = {from->drafter, weights, has_table ? model_weights : NULL,
                                  from->split};
    gemma_draft(whole, &parts);
}

static void record_drafter(struct plan *whole, const struct plan_source *from)
{
    record_draft(whole, from, true);
}

/* Without the model's table. */
static void record_drafter_alone(struct plan *whole, const struct plan_source *from)
{
    record_draft(whole, from, false);
}

static int fill_bucket(struct plans *p, struct bucket *b, const struct plan_source *from,
                       record_fn record, struct carat_error *err)
{
    int32_t n_caches = from->config->n_kv_layer, n_runs;
    int32_t rows = b->rows_max[ROWS_TOKEN], outs = b->rows_max[ROWS_OUT];
    struct plan whole;
    struct plan_run *runs;
    for (int32_t i = 0; i < p->n_sites; i++) {
        plan_init(&b->plans[i], rows, outs, from->caches, n_caches);
        if (b->is_all_out) plan_want_all(&b->plans[i]);
    }
    plan_init(&whole, rows, outs, from->caches, n_caches);
    if (b->is_all_out) plan_want_all(&whole);
    record(&whole, from);
    int status = plan_divide(&whole, b->plans, p->n_sites, &runs, &n_runs, err);
    plan_deinit(&whole);
    if (!status) status = close_plans(p, b, from->targets, err);
    if (!status) status = add_segments(b, runs, n_runs, err);
    if (!status) raise_to(&p->staging_bytes, staging_bytes(b, from->targets));
    mem_free(runs);
    return status;
}

/* `is_all_out`: for steps that want every row's logits. */
static int add_bucket(struct plans *p, const struct plan_source *from, int32_t rows, int32_t outs,
                      bool is_all_out, struct carat_error *err)
{
    carat_assert(p->n_buckets < BUCKETS_MAX);
    struct bucket *b = &p->buckets[p->n_buckets++];
    *b = (struct bucket){.rows_max = {rows, outs}, .is_all_out = is_all_out};
    return fill_bucket(p, b, from, record_model, err);
}

/* Steps that recur: prompts of usual lengths. Only a prompt's last chunk has a row whose logits are
 * wanted. `least`: rows of the bucket below, which takes shorter prompts. */
static void add_usual_prompts(struct bucket *b, int32_t n_sites, int32_t least, int32_t chunk)
{
    static const int32_t lengths[] = {4,   8,   16,  32,  64,  128, 160, 192, 224, 256,
                                      288, 320, 352, 384, 416, 448, 480, 512, 1024};
    int32_t most = chunk < b->rows_max[ROWS_TOKEN] ? chunk : b->rows_max[ROWS_TOKEN];
    for (int32_t site = 0; site < n_sites; site++) {
        struct plan *plan = &b->plans[site];
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            if (lengths[i] > least && lengths[i] <= most && lengths[i] != chunk)
                plan_add_usual(plan, lengths[i], 1);
        if (chunk > b->rows_max[ROWS_TOKEN]) continue;
        plan_add_usual(plan, chunk, 1);
        plan_add_usual(plan, chunk, 0);
    }
}

/* Decode steps are recorded with all rows of their bucket; in buckets of many rows, also with
 * fewer, in steps of GRAIN. With more than MOST rows a recording saves too little. `least`: rows of
 * the bucket below. */
static void add_usual_decode(struct bucket *b, int32_t n_sites, int32_t least)
{
    enum { GRAIN = 32, MOST = 256 };
    int32_t most = b->rows_max[ROWS_TOKEN], first = least < STEADY_ROWS ? most : least + GRAIN;
    for (int32_t site = 0; site < n_sites; site++)
        for (int32_t rows = first; rows < most + GRAIN && rows <= MOST; rows += GRAIN)
            plan_add_usual_decode(&b->plans[site], rows < most ? rows : most);
}

/* Steps of a few rows that do not want all logits: short prompts, alone or next to rows that
 * decode. */
static void add_usual_mixed(struct bucket *b, int32_t n_sites)
{
    int32_t n_out = b->rows_max[ROWS_OUT];
    for (int32_t site = 0; site < n_sites; site++)
        for (int32_t rows = 4; rows <= b->rows_max[ROWS_TOKEN]; rows *= 2) {
            if (rows > 4) plan_add_usual(&b->plans[site], rows, 1);
            plan_add_usual(&b->plans[site], rows, rows < n_out ? rows : n_out);
        }
}

/* Powers of two, and halfway between them from 16 to 64, where most servers decode. */
static int32_t next_rows(int32_t rows)
{
    if (rows < 16 || rows >= 64) return 2 * rows;
    return rows & (rows - 1) ? rows / 3 * 4 : rows / 2 * 3;
}

static bool replays(const struct plan_source *from)
{
    for (int32_t i = 0; i < from->n_targets; i++)
        if (from->targets[i].backend->replays) return true;
    return false;
}

/* If steps are recorded, adds a bucket for steps of a few rows that the decode buckets do not take.
 * A single sequence has no decode rows next to its prompt: the buckets of prompts are enough. */
static int add_mixed(struct plans *p, const struct plan_source *from, int32_t n_seq, int32_t chunk,
                     struct carat_error *err)
{
    if (!p->are_recorded || n_seq == 1 || chunk <= STEADY_ROWS) return CARAT_OK;
    int32_t outs = n_seq < STEADY_ROWS ? n_seq : STEADY_ROWS;
    TRY(add_bucket(p, from, STEADY_ROWS, outs, false, err));
    add_usual_mixed(&p->buckets[p->n_buckets - 1], p->n_sites);
    return CARAT_OK;
}

/* Decode buckets. Those of up to STEADY_ROWS rows are only for steps that want the logits of all
 * rows. */
static int add_decode(struct plans *p, const struct plan_source *from, int32_t n_seq, int32_t chunk,
                      struct carat_error *err)
{
    int32_t most = from->decode_rows;
    for (int32_t rows = 1, least = 0; least < most; rows = next_rows(rows)) {
        int32_t fitting = rows < most ? rows : most;
        if (fitting > STEADY_ROWS && least == STEADY_ROWS)
            TRY(add_mixed(p, from, n_seq, chunk, err));
        TRY(add_bucket(p, from, fitting, fitting, fitting <= STEADY_ROWS, err));
        add_usual_decode(&p->buckets[p->n_buckets - 1], p->n_sites, least);
        least = fitting;
    }
    return most > STEADY_ROWS ? CARAT_OK : add_mixed(p, from, n_seq, chunk, err);
}

/* Where the weights of a plan go: nowhere if it does nothing. */
static void place_plan(const struct target *t, const struct plan *plan, const struct room *room,
                       struct placement *out)
{
    *out = (struct placement){0};
    if (t->backend->place_weights && plan->n_ops > 0)
        t->backend->place_weights(t->device, plan, room, out);
}

/* What the weights of a drafter need on each device. The model's table is counted with the model's
 * plans. */
static int count_drafter(struct plans *p, const struct plan_source *from, struct carat_error *err)
{
    struct bucket b = {.rows_max = {1, 1}, .is_all_out = true};
    struct plans ignored = {.n_sites = p->n_sites};
    const struct room room = {0};
    int status = fill_bucket(&ignored, &b, from, record_drafter_alone, err);
    for (int32_t i = 0; i < p->n_sites && !status; i++) {
        struct placement placed;
        place_plan(&from->targets[i], &b.plans[i], &room, &placed);
        p->draft_bytes[i] = placed.device_bytes;
    }
    close_bucket(&b, p->n_sites, from->targets);
    return status;
}

/* A row for each sequence that guesses. */
static int add_drafts(struct plans *p, const struct plan_source *from, int32_t n_seq,
                      struct carat_error *err)
{
    int32_t most = n_seq < PASS_ROWS ? n_seq : PASS_ROWS;
    for (int32_t rows = 1, least = 0; least < most; rows *= 2) {
        carat_assert(p->n_drafts < DRAFT_BUCKETS_MAX);
        struct bucket *b = &p->drafts[p->n_drafts++];
        least = rows < most ? rows : most;
        *b = (struct bucket){.rows_max = {least, least}, .is_all_out = true};
        TRY(fill_bucket(p, b, from, record_drafter, err));
        add_usual_decode(b, p->n_sites, rows / 2);
    }
    return count_drafter(p, from, err);
}

int plans_compile(struct plans *p, const struct plan_source *from, int32_t n_seq, int32_t chunk,
                  int32_t outs, struct carat_error *err)
{
    *p = (struct plans){.n_sites = from->n_targets, .are_recorded = replays(from)};
    TRY(add_decode(p, from, n_seq, chunk, err));
    static const int32_t fixed[] = {128, 512};
    int32_t least = p->buckets[p->n_buckets - 1].rows_max[ROWS_TOKEN];
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (!p->are_recorded || fixed[i] <= n_seq || fixed[i] >= chunk) continue;
        TRY(add_bucket(p, from, fixed[i], n_seq, false, err));
        add_usual_prompts(&p->buckets[p->n_buckets - 1], p->n_sites, least, chunk);
        least = fixed[i];
    }
    int32_t most = outs > from->decode_rows ? outs : from->decode_rows;
    TRY(add_bucket(p, from, from->step_rows, most, false, err));
    add_usual_prompts(&p->buckets[p->n_buckets - 1], p->n_sites, least, chunk);
    return from->drafter ? add_drafts(p, from, n_seq, err) : CARAT_OK;
}

static bool is_cut(const struct bucket *b, const struct plan *plan)
{
    for (int32_t i = 0; i < b->n_segments; i++)
        if (b->segments[i].plan == plan) return false;
    return true;
}

/* A device prepares a weight for what the first plan that it sees does with it. Where plans are
 * cut, the first one must have all the site's work. So the uncut plan of the largest bucket is
 * bound first, and never run. */
static int prepare_weights(const struct bucket *largest, const struct target *t, int32_t site,
                           const struct placement *placement, struct carat_error *err)
{
    struct program *program;
    const struct plan *all = &largest->plans[site];
    if (all->n_ops == 0 || !is_cut(largest, all)) return CARAT_OK;
    TRY(t->backend->bind(t->device, all, placement, t->memory, t->scratch, &program, err));
    t->backend->unbind(program);
    return CARAT_OK;
}

/* Binds buckets, the largest first: it sets what all share. What makes weights faster is for the
 * model (`is_placed`); a drafter's have no room for that. */
static int bind_buckets(struct bucket *buckets, int32_t n, int32_t n_sites,
                        const struct target *targets, bool is_placed, struct carat_error *err)
{
    for (int32_t i = 0; i < n_sites && n > 0; i++)
        TRY(prepare_weights(&buckets[n - 1], &targets[i], i,
                            is_placed ? &targets[i].placement : NULL, err));
    for (int32_t i = n - 1; i >= 0; i--)
        for (int32_t k = 0; k < buckets[i].n_segments; k++) {
            struct segment *s = &buckets[i].segments[k];
            const struct target *t = &targets[s->site];
            TRY(t->backend->bind(t->device, s->plan, is_placed ? &t->placement : NULL, t->memory,
                                 t->scratch, &s->program, err));
        }
    return CARAT_OK;
}

int plans_bind(struct plans *p, const struct target *targets, struct carat_error *err)
{
    TRY(bind_buckets(p->buckets, p->n_buckets, p->n_sites, targets, true, err));
    return bind_buckets(p->drafts, p->n_drafts, p->n_sites, targets, false, err);
}

void plans_place(const struct plans *p, const struct target *target, int32_t site,
                 const struct room *room, struct placement *out)
{
    place_plan(target, &p->buckets[p->n_buckets - 1].plans[site], room, out);
}

void plans_deinit(struct plans *p, const struct target *targets)
{
    for (int32_t i = 0; i < p->n_buckets; i++) close_bucket(&p->buckets[i], p->n_sites, targets);
    for (int32_t i = 0; i < p->n_drafts; i++) close_bucket(&p->drafts[i], p->n_sites, targets);
    *p = (struct plans){0};
}

const struct bucket *plans_get_draft(const struct plans *p, int32_t rows)
{
    int32_t i = 0;
    while (i < p->n_drafts && p->drafts[i].rows_max[ROWS_TOKEN] < rows) i++;
    carat_assert(i < p->n_drafts);
    return &p->drafts[i];
}

const struct bucket *plans_get(const struct plans *p, int32_t n_token, int32_t n_decode,
                               int32_t n_out)
{
    for (int32_t i = 0; i < p->n_buckets; i++) {
        const struct bucket *b = &p->buckets[i];
        if (b->is_all_out && (n_out < n_token || n_decode < n_token)) continue;
        if (n_token <= b->rows_max[ROWS_TOKEN] && n_out <= b->rows_max[ROWS_OUT]) return b;
    }
    carat_assert(false && "a step larger than every plan");
    return NULL;
}

struct plan_work plans_count_work(const struct plans *p, int32_t n_token, int32_t n_out,
                                  int32_t context)
{
    struct plan_work sum = {0};
    const struct bucket *all = &p->buckets[p->n_buckets - 1];
    for (int32_t i = 0; i < p->n_sites; i++) {
        struct plan_work part = plan_step_work(&all->plans[i], n_token, n_out, context);
        sum.weight_bytes += part.weight_bytes;
        sum.cache_bytes += part.cache_bytes;
        sum.operations += part.operations;
    }
    return sum;
}

int plans_print(const struct plans *p, const struct target *targets, int32_t rows, int32_t outs,
                struct buf *out, struct carat_error *err)
{
    const int32_t *most = p->buckets[p->n_buckets - 1].rows_max;
    if (rows < 1 || rows > most[ROWS_TOKEN] || outs < 0 || outs > most[ROWS_OUT])
        return err_set(err, CARAT_EUSAGE,
                       "at most %d rows and %d outputs expected, %d and %d found", most[ROWS_TOKEN],
                       most[ROWS_OUT], rows, outs);
    const struct bucket *b = plans_get(p, rows, rows == outs ? rows : 0, outs);
    for (int32_t i = 0; i < b->n_segments; i++) {
        const struct segment *s = &b->segments[i];
        if (b->n_segments > 1)
            buf_printf(out, "# segment %d of %d, on %s\n", i + 1, b->n_segments,
                       targets[s->site].backend->name);
        plan_print(s->plan, out);
    }
    return CARAT_OK;
}
