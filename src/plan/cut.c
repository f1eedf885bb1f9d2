/* A cut of a plan. When a pass goes back and forth between devices, each device has one plan, so
 * that its weights and memory are prepared once. Backends run whole plans, so the plan is cut
 * wherever rows come in. */
#include <string.h>

#include "base/mem.h"
#include "plan/emit.h"

/* Whether a later cut reads what ops [first, end) write. */
static bool lives_on(const struct plan *p, int32_t id, int32_t first, int32_t end)
{
    const struct plan_buf *b = &p->bufs[id];
    return end < p->n_ops && b->first_op >= first && b->first_op < end && b->last_op >= end;
}

int plan_cut(const struct plan *p, int32_t first, int32_t end, struct plan *out,
             struct carat_error *err)
{
    size_t n_ops = (size_t)(end - first), n_bufs = (size_t)p->n_bufs;
    plan_init(out, p->rows_max[ROWS_TOKEN], p->rows_max[ROWS_OUT], p->caches, p->n_caches);
    out->ops = mem_alloc(n_ops, sizeof *out->ops);
    out->bufs = mem_alloc(n_bufs, sizeof *out->bufs);
    if (!out->ops || !out->bufs) {
        plan_deinit(out);
        return err_no_memory(err, "plan", n_ops * sizeof *out->ops + n_bufs * sizeof *out->bufs);
    }
    memcpy(out->ops, p->ops + first, n_ops * sizeof *out->ops);
    memcpy(out->bufs, p->bufs, n_bufs * sizeof *out->bufs);
    out->is_all_out = p->is_all_out;
    memcpy(out->usual, p->usual, sizeof out->usual);
    out->n_usual = p->n_usual;
    out->n_ops = out->ops_capacity = end - first;
    out->n_bufs = out->bufs_capacity = p->n_bufs;
    out->bytes = p->bytes;
    if (end == p->n_ops) {
        out->logits = p->logits;
        out->hidden = p->hidden;
    }
    for (int32_t i = 0; i < p->n_bufs; i++) { /* negative: before this cut */
        out->bufs[i].first_op -= first;
        out->bufs[i].last_op -= first;
    }
    for (int32_t i = 0; i < p->n_bufs; i++)
        if (lives_on(p, i, first, end)) emit_output(out, (buf_id)i);
    if (!out->failed) return CARAT_OK;
    plan_deinit(out);
    return err_no_memory(err, "plan", n_ops * sizeof *out->ops);
}
