/* A pass that several sites compute is recorded as one plan, each op with its site. This file makes
 * a plan for each site of it. Where an op reads what another site has written, the rows are carried
 * over: an OUTPUT there, an INPUT here. Everything that a run of ops needs from elsewhere comes in
 * at the beginning of the run. What has come in once stays. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "plan/emit.h"

struct division {
    const struct plan *whole;
    struct plan *parts;
    buf_id *places; /* [site][buffer of the whole]: its number in the site's plan, or BUF_NONE */
};

static buf_id *part_buffer(const struct division *d, int32_t site, buf_id x)
{
    return &d->places[site * d->whole->n_bufs + x];
}

/* Where the run of ops of one site that begins at `first` ends. */
static int32_t run_end(const struct plan *p, int32_t first)
{
    int32_t i = first;
    while (i < p->n_ops && p->ops[i].site == p->ops[first].site) i++;
    return i;
}

static int32_t count_runs(const struct plan *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_ops; i = run_end(p, i)) n++;
    return n;
}

static void carry(struct division *d, int32_t site, buf_id x, uint16_t layer)
{
    int32_t home = d->whole->ops[d->whole->bufs[x].first_op].site;
    struct plan *to = &d->parts[site], *from = &d->parts[home];
    to->layer = from->layer = layer;
    emit_output(from, *part_buffer(d, home, x));
    *part_buffer(d, site, x) = emit_carried(to, home, from, *part_buffer(d, home, x));
}

static void copy_op(struct division *d, const struct op *from)
{
    struct plan *part = &d->parts[from->site];
    struct op op = *from;
    for (int k = 0; k < 3; k++)
        if (op.in[k] != BUF_NONE) op.in[k] = *part_buffer(d, op.site, op.in[k]);
    for (int k = 0; k < 2; k++) {
        if (op.out[k] == BUF_NONE) continue;
        const struct plan_buf *b = plan_buf_at(d->whole, op.out[k]);
        op.out[k] = *part_buffer(d, op.site, op.out[k]) = plan_buf_add(part, b->rows, b->cols);
    }
    part->layer = from->layer;
    plan_emit(part, &op);
}

/* Whether the run reads the buffer, which was written before it. */
static bool reads(const struct plan *p, int32_t first, int32_t end, buf_id x)
{
    if (p->bufs[x].last_op < first) return false;
    for (int32_t i = first; i < end; i++)
        for (int k = 0; k < 3; k++)
            if (p->ops[i].in[k] == x) return true;
    return false;
}

/* Brings in what the run reads from other sites. The newest comes first: it is read first, so its
 * memory is free again soonest. This counts as work of the layer before. */
static void carry_in(struct division *d, int32_t first, int32_t end)
{
    const struct plan *whole = d->whole;
    int32_t site = whole->ops[first].site;
    for (int32_t x = whole->n_bufs; x-- > 0;)
        if (whole->bufs[x].first_op < first && *part_buffer(d, site, (buf_id)x) == BUF_NONE &&
            reads(whole, first, end, (buf_id)x))
            carry(d, site, (buf_id)x, whole->ops[first - 1].layer);
}

static void divide_run(struct division *d, int32_t first, int32_t end)
{
    if (first > 0) carry_in(d, first, end);
    for (int32_t i = first; i < end; i++) copy_op(d, &d->whole->ops[i]);
}

/* A run ends in its site's plan where the next one of that site begins. */
static void find_ends(const struct division *d, struct plan_run *runs, int32_t n_runs)
{
    int32_t end[SITES_MAX];
    for (int i = 0; i < SITES_MAX; i++) end[i] = -1;
    for (int32_t i = n_runs; i-- > 0;) {
        struct plan_run *r = &runs[i];
        r->end = end[r->site] >= 0 ? end[r->site] : d->parts[r->site].n_ops;
        end[r->site] = r->first;
    }
}

static int divide_all(struct division *d, int32_t n_sites, struct plan_run *runs,
                      struct carat_error *err)
{
    const struct plan *whole = d->whole;
    int32_t n = 0;
    for (int32_t first = 0, end; first < whole->n_ops; first = end) {
        end = run_end(whole, first);
        int32_t site = whole->ops[first].site;
        carat_assert(site < n_sites);
        runs[n++] = (struct plan_run){.site = site, .first = d->parts[site].n_ops};
        divide_run(d, first, end);
        for (int32_t i = 0; i < n_sites; i++)
            if (d->parts[i].failed) return err_no_memory(err, "plan", sizeof *d->parts);
    }
    find_ends(d, runs, n);
    int32_t last = runs[n - 1].site;
    if (whole->logits != BUF_NONE) d->parts[last].logits = *part_buffer(d, last, whole->logits);
    if (whole->hidden != BUF_NONE) d->parts[last].hidden = *part_buffer(d, last, whole->hidden);
    return CARAT_OK;
}

int plan_divide(struct plan *whole, struct plan *parts, int32_t n_sites, struct plan_run **runs,
                int32_t *n_runs, struct carat_error *err)
{
    size_t n_places = (size_t)n_sites * (size_t)whole->n_bufs;
    *n_runs = count_runs(whole);
    *runs = NULL;
    if (whole->failed) return err_no_memory(err, "plan", (size_t)whole->n_ops * sizeof(struct op));
    struct plan_run *list = mem_alloc((size_t)*n_runs, sizeof *list);
    if (!list) return err_no_memory(err, "plan", (size_t)*n_runs * sizeof *list);
    if (*n_runs == 1) {
        list[0] = (struct plan_run){.site = whole->ops[0].site, .end = whole->n_ops};
        parts[list[0].site] = *whole;
        *whole = (struct plan){0};
        *runs = list;
        return CARAT_OK;
    }
    for (int32_t i = 0; i < n_sites; i++) parts[i].site = (uint8_t)i;
    struct division d = {whole, parts, mem_alloc(n_places, sizeof(buf_id))};
    int status = d.places ? CARAT_OK : err_no_memory(err, "plan", n_places * sizeof(buf_id));
    if (!status) memset(d.places, 0xFF, n_places * sizeof(buf_id)); /* BUF_NONE */
    if (!status) status = divide_all(&d, n_sites, list, err);
    mem_free(d.places);
    if (status)
        mem_free(list);
    else
        *runs = list;
    return status;
}
