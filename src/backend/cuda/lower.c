#include "backend/cuda/lower.h"

#include "backend/cuda/lower_attention.h"
#include "backend/cuda/lower_experts.h"
#include "backend/cuda/lower_ffn.h"
#include "backend/cuda/lower_inputs.h"
#include "backend/cuda/lower_mixed.h"
#include "backend/cuda/lower_norm.h"
#include "backend/cuda/lower_project.h"
#include "backend/cuda/lower_single.h"
#include "backend/cuda/lowering.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/start.h"
#include "base/assert.h"
#include "base/mask.h"

static void lower_by_kind(struct lowering *l)
{
    switch (l->window.kind) {
    case WINDOW_PROJECT: lower_project(l); break;
    case WINDOW_ATTEND: lower_attend(l); break;
    case WINDOW_NORMS: lower_norms(l); break;
    case WINDOW_FFN: lower_ffn(l); break;
    case WINDOW_GATED: lower_gated(l); break;
    case WINDOW_INPUTS: lower_inputs(l); break;
    case WINDOW_PLE: lower_ple(l); break;
    case WINDOW_ROUTE: lower_route(l); break;
    case WINDOW_EXPERTS: lower_experts(l); break;
    case WINDOW_MIXED: lower_mixed(l); break;
    case WINDOW_LOGITS: lower_logits(l); break;
    case WINDOW_SINGLE: lower_single(l); break;
    }
}

/* The largest logits of each row. They are always searched for, wanted or not: reading a row once
 * more takes a hundredth of the time of its copy to the host. */
static void lower_best(struct lowering *l)
{
    buf_id logits = l->plan->logits;
    if (logits == BUF_NONE) return;
    int32_t rows = l->rows < BEST_ROWS_MAX ? l->rows : BEST_ROWS_MAX;
    struct topk_args args = {.step = lower_step(l),
                             .logits = lower_floats(l, logits),
                             .n_vocab = lower_cols(l, logits),
                             .out = l->device->best_host,
                             .scratch = scratch_take(&l->scratch, topk_scratch_bytes(rows))};
    lower_emit(l, start_topk, &args, sizeof args);
    lower_mark(l, "top k");
}

static struct masked_search lower_masked(struct lowering *l)
{
    buf_id logits = l->plan->logits;
    if (logits == BUF_NONE) return (struct masked_search){0};
    int32_t rows = l->plan->rows_max[ROWS_OUT], n_vocab = lower_cols(l, logits);
    if (rows > MASKED_ROWS_MAX) rows = MASKED_ROWS_MAX;
    scratch_begin_window(&l->scratch);
    size_t mask_bytes = mask_words(n_vocab) * sizeof(uint64_t);
    return (struct masked_search){.logits = lower_floats(l, logits),
                                  .n_vocab = n_vocab,
                                  .rows_max = rows,
                                  .masks = scratch_take(&l->scratch, (size_t)rows * mask_bytes),
                                  .scratch = scratch_take(&l->scratch, topk_scratch_bytes(rows))};
}

/* The run of ops from i on that plan_mark_windows marked. */
static struct window marked_window(const struct lowering *l, int32_t i)
{
    struct window w = window_at(l->plan, i);
    if (cuda_fuses(l->device) && w.n == l->plan->ops[i].window) return w;
    carat_assert(l->plan->ops[i].window == 1); /* else another backend marked the plan */
    return (struct window){WINDOW_SINGLE, i, 1};
}

static void forget_forms(struct lowering *l)
{
    for (int k = 0; k < STEP_SIZES; k++) {
        l->forms[k].half_id = BUF_NONE;
        for (int i = 0; i < ACT_SLOTS; i++) l->forms[k].slots[i].id = BUF_NONE;
    }
}

/* Whether prompts of this many rows count as many rows, although as many decode rows do not. */
static bool has_apart_prompts(const struct lowering *l)
{
    bool is_other = l->device->has_alike_prompts || l->rows > MATVEC_ROWS_MAX;
    return l->is_many && l->rows_class == ROWS_TOKEN && !l->plan->is_all_out && is_other;
}

/* Lowers for each step size that the plan's rows of the class can have. Rows of one class may be a
 * few where those of the other are many. Then one list may overwrite what the other has put into a
 * slot, so no forms are kept from class to class. */
static void lower_in_all_sizes(struct lowering *l, enum row_class c,
                               void (*lower)(struct lowering *l))
{
    int32_t most = l->plan->rows_max[c], before = 0;
    if (c != l->rows_class) forget_forms(l);
    l->rows_class = c;
    for (int k = 0; k < STEP_SIZES; k++) {
        int32_t limit = step_size_rows(l->device, (enum step_size)k);
        l->size = (enum step_size)k;
        l->is_many = l->size == STEP_MANY;
        l->rows = most < limit ? most : limit;
        if (l->rows == before && !has_apart_prompts(l)) continue;
        before = l->rows;
        scratch_begin_window(&l->scratch);
        l->n_kept = 0;
        lower(l);
    }
}

static void lower_windows(struct lowering *l)
{
    const struct plan *plan = l->plan;
    int32_t rows_max = step_rows_max(plan->rows_max);
    l->step = step_arrays_at(scratch_step(&l->scratch, step_bytes(rows_max)), rows_max);
    l->has_large = mirrors_are_large(plan);
    forget_forms(l);
    for (int32_t i = 0; i < plan->n_ops; i += plan->ops[i].window) {
        const struct op *op = &plan->ops[i];
        buf_id shaped = op->out[0] != BUF_NONE ? op->out[0] : op->in[0];
        l->window = marked_window(l, i);
        lower_in_all_sizes(l, plan_buf_at(plan, shaped)->rows, lower_by_kind);
    }
    if (plan->n_ops > 0) lower_in_all_sizes(l, ROWS_OUT, lower_best);
    l->masked = lower_masked(l);
}

/* Lowers without memory, which only counts. */
static struct lowering count(const struct device *d, const struct plan *plan, bool is_mirrored)
{
    struct lowering l = {.device = d, .plan = plan, .is_mirrored = is_mirrored};
    lower_windows(&l);
    return l;
}

/* Weights get mirrors or not, some or all: each part is as large as it may become. */
size_t lower_scratch_bytes(const struct device *d, const struct plan *plan)
{
    struct lowering none = count(d, plan, false), all = count(d, plan, true);
    struct scratch_parts most = scratch_most(&none.scratch.used, &all.scratch.used);
    return scratch_total(&most);
}

static bool is_as_counted(const struct lowering *l, const struct lowering *counted)
{
    const struct scratch_parts *a = &l->scratch.used, *b = &counted->scratch.used;
    return l->records.n == counted->records.n &&
           l->records.args_bytes == counted->records.args_bytes && a->step == b->step &&
           a->slot == b->slot && a->window == b->window && a->workspace == b->workspace;
}

int lower_plan(struct lowered *out, const struct device *d, const struct plan *plan, void *memory,
               void *scratch, struct carat_error *err)
{
    struct lowering counted = count(d, plan, false);
    struct lowering l = {.device = d,
                         .plan = plan,
                         .memory = memory,
                         .scratch = {.memory = scratch, .have = counted.scratch.used}};
    TRY(records_init(&l.records, &counted.records, err));
    lower_windows(&l);
    carat_assert(is_as_counted(&l, &counted));
    *out = (struct lowered){.records = l.records,
                            .step = l.step,
                            .packs = l.packs,
                            .masked = l.masked,
                            .workspace_bytes = l.scratch.used.workspace};
    if (out->workspace_bytes) out->workspace = scratch_workspace(&l.scratch, out->workspace_bytes);
    return CARAT_OK;
}
