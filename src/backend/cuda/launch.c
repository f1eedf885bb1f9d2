#include "backend/cuda/launch.h"

#include "backend/cuda/act.h"
#include "backend/cuda/profile.h"

static void mark_time(struct device *d, const struct record_mark *mark, int32_t n_rows)
{
    struct time_work work = {.kind = mark->kind};
    bool is_int8 = mark->operands == ACT_INT8 || mark->operands == ACT_FINE;
    if (mark->n_w > 0)
        work = time_work_for_weights(mark->kind, mark->n_w, mark->w, n_rows * mark->n_used, is_int8,
                                     act_is_half(mark->operands));
    profile_mark(d->profile, d->queue.stream, work);
}

void records_launch(struct device *d, const struct records *r, const struct step_rows *rows)
{
    bool has_prompts = rows->n_decode[ROWS_TOKEN] < rows->n[ROWS_TOKEN];
    if (d->profile) profile_begin(d->profile, d->queue.stream);
    for (int32_t i = 0; i < r->n; i++) {
        const struct record *record = &r->all[i];
        enum row_class c = record->rows_class;
        int32_t n = rows->n[c];
        if (n == 0 || record->size != step_size_for(d, c, n, has_prompts)) continue;
        record->start(&d->queue, record->args,
                      (struct launch_rows){n, rows->n_decode[c], rows->n_runs[c]});
        if (!d->failure && (d->failure = cudaPeekAtLastError()) != cudaSuccess)
            d->failed_op = record->op;
        if (d->profile && record->mark.kind) mark_time(d, &record->mark, n);
    }
}
