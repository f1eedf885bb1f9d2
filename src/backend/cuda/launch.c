#include "backend/cuda/launch.h"

#include "backend/cuda/act.h"
#include "backend/cuda/profile.h"
#include "backend/cuda/start.h"

static void mark_time(struct device *d, const struct record_mark *mark, int32_t n_rows)
{
    struct time_work work = {.kind = mark->kind};
    bool is_int8 = mark->operands == ACT_INT8 || mark->operands == ACT_FINE;
    if (mark->n_w > 0)
        work = time_work_for_weights(mark->kind, mark->n_w, mark->w, n_rows * mark->n_used, is_int8,
                                     act_is_half(mark->operands));
    profile_mark(d->profile, d->queue.stream, work);
}

/* The next record from i on that a step with these rows starts; r->n: none. */
static int32_t find_started(const struct device *d, const struct records *r, int32_t i,
                            const struct step_rows *rows)
{
    bool has_prompts = rows->n_decode[ROWS_TOKEN] < rows->n[ROWS_TOKEN];
    for (; i < r->n; i++) {
        enum row_class c = r->all[i].rows_class;
        int32_t n = rows->n[c];
        if (n > 0 && r->all[i].size == step_size_for(d, c, n, has_prompts)) break;
    }
    return i;
}

static struct launch_rows rows_of(const struct step_rows *rows, enum row_class c)
{
    return (struct launch_rows){rows->n[c], rows->n_decode[c], rows->n_runs[c]};
}

/* A norm and what reads it may be one launch: a router of a few rows, or a product of one row. So
 * may heads of one row and their attention. */
static bool start_both(const struct device *d, const struct record *a, const struct record *b,
                       struct launch_rows rows)
{
    if (a->rows_class != b->rows_class) return false;
    if (a->start == start_norm && b->start == start_router)
        return start_router_normed(&d->queue, a->args, b->args, rows);
    if (rows.n != 1) return false;
    if (a->start == start_norm && b->start == start_matvec)
        return start_normed(&d->queue, a->args, b->args, rows);
    return a->start == start_heads && b->start == start_attention_split &&
           start_attention_own(&d->queue, a->args, b->args, rows);
}

void records_launch(struct device *d, const struct records *r, const struct step_rows *rows)
{
    if (d->profile) profile_begin(d->profile, d->queue.stream);
    for (int32_t i = find_started(d, r, 0, rows), next; i < r->n; i = next) {
        const struct record *record = &r->all[i];
        struct launch_rows now = rows_of(rows, record->rows_class);
        next = find_started(d, r, i + 1, rows);
        if (next < r->n && start_both(d, record, &r->all[next], now)) {
            record = &r->all[next];
            next = find_started(d, r, next + 1, rows);
        } else {
            record->start(&d->queue, record->args, now);
        }
        if (!d->failure && (d->failure = cudaPeekAtLastError()) != cudaSuccess)
            d->failed_op = record->op;
        if (d->profile && record->mark.kind) mark_time(d, &record->mark, now.n);
    }
}
