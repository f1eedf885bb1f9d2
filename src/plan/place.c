/* Memory for the buffers of a plan: first fit in order of first use. The program is a straight
 * line, so it is known exactly how long each buffer lives. Only a handful live at any time, and
 * first fit in this order stays within a few per cent of the least memory possible. */
#include <string.h>

#include "base/mem.h"
#include "plan/plan.h"

enum { ALIGNMENT = 256 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The lowest offset where `bytes` fit between the live buffers, which are sorted by offset; *at is
 * the place in that list. */
static size_t first_gap(const struct plan *p, const buf_id *live, int32_t n_live, size_t bytes,
                        int32_t *at)
{
    size_t end = 0;
    for (int32_t i = 0; i < n_live; i++) {
        const struct plan_buf *b = &p->bufs[live[i]];
        if (b->offset >= end + bytes) {
            *at = i;
            return end;
        }
        end = b->offset + aligned(plan_buf_bytes(p, live[i]));
    }
    *at = n_live;
    return end;
}

/* Drops buffers that were read for the last time before op `begin`, where a run of ops that are
 * done in one go begins. Buffers that the run itself reads stay live while it writes its
 * outputs. */
static int32_t drop_dead(const struct plan *p, buf_id *live, int32_t n_live, int32_t begin)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n_live; i++)
        if (p->bufs[live[i]].last_op >= begin) live[kept++] = live[i];
    return kept;
}

/* Offsets for all buffers, so that two that live at the same time never overlap; the total goes to
 * p->bytes. */
static int place_bufs(struct plan *p, struct carat_error *err)
{
    /* Buffers are numbered in the order in which they are first written. */
    buf_id *live = mem_alloc((size_t)p->n_bufs + 1, sizeof *live);
    if (!live) return err_no_memory(err, "plan", (size_t)p->n_bufs * sizeof *live);
    int32_t n_live = 0;
    p->bytes = 0;
    for (int32_t i = 0; i < p->n_bufs; i++) {
        struct plan_buf *b = &p->bufs[i];
        b->offset = 0;
        if (plan_buf_is_internal(p, (buf_id)i)) continue;
        n_live = drop_dead(p, live, n_live, plan_window_begin(p, b->first_op));
        size_t bytes = aligned(plan_buf_bytes(p, (buf_id)i));
        int32_t at;
        b->offset = first_gap(p, live, n_live, bytes, &at);
        memmove(live + at + 1, live + at, (size_t)(n_live - at) * sizeof *live);
        live[at] = (buf_id)i;
        n_live++;
        if (b->offset + bytes > p->bytes) p->bytes = b->offset + bytes;
    }
    mem_free(live);
    return CARAT_OK;
}

int plan_close(struct plan *p, struct carat_error *err)
{
    if (p->failed) return err_no_memory(err, "plan", (size_t)p->n_ops * sizeof *p->ops);
    if (p->logits != BUF_NONE) p->bufs[p->logits].last_op = p->n_ops;
    return place_bufs(p, err);
}
