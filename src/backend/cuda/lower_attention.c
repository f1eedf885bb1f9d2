#include "backend/cuda/lower_attention.h"

#include "backend/cuda/lower_product.h"
#include "backend/cuda/start.h"
#include "base/assert.h"

/* Rows that share pages are packed in one way for all layers of a plan: the first layer without a
 * window decides. */
static bool takes_packs(struct lowering *l, const struct attention_args *args)
{
    const struct device_options *o = &l->device->options;
    const struct kv_cache *cache = &args->cache;
    if (args->window || o->is_exact || cache->format != FORMAT_F16) return false;
    struct pack_rule rule =
        pack_rule_of(args->n_heads, cache->head_dim, cache->n_heads, o->cascade);
    if (l->plan->rows_max[ROWS_TOKEN] < rule.least.rows) return false;
    if (l->packs.rows == 0) l->packs = rule;
    return rule.rows > 0 && rule.rows == l->packs.rows && rule.splits == l->packs.splits;
}

/* q, k and v of the window before lie where scratch begins, and partial results must lie after
 * them: attention of one row makes its heads itself, and its blocks read q, k and v while others
 * write partial results. */
static void skip_projections(struct lowering *l, const struct attention_args *args, int32_t rows)
{
    const struct kv_cache *cache = &args->cache;
    int32_t cols = cache->head_dim * (args->n_heads + 2 * cache->n_heads);
    size_t taken = l->scratch.at, bytes = (size_t)rows * (size_t)cols * sizeof(float);
    if (args->window && !l->is_many && taken < bytes) scratch_take(&l->scratch, bytes - taken);
}

void lower_attention(struct lowering *l, const struct op *op, float *y, struct act act)
{
    struct attention_args args = {.step = lower_step(l),
                                  .rows = lower_rows(l),
                                  .q = lower_floats(l, op->in[0]),
                                  .cache = l->plan->caches[op->p.attention.cache],
                                  .n_heads = op->p.attention.n_heads,
                                  .window = op->p.attention.window,
                                  .y = y,
                                  .act = act,
                                  .is_exact = l->device->options.is_exact};
    if (takes_packs(l, &args)) {
        args.step.pack = l->step.pack;
        args.step.member = l->step.member;
        args.step.is_packed = l->step.is_packed;
    }
    int32_t n = l->rows < MATVEC_ROWS_MAX ? l->rows : MATVEC_ROWS_MAX;
    skip_projections(l, &args, n);
    args.scratch =
        scratch_take(&l->scratch, attention_decode_scratch_bytes(n, args.n_heads, &args.cache));
    bool is_tiled = l->is_many && attention_prefill_takes(&args);
    lower_emit(l, is_tiled ? start_attention_tiles : start_attention_split, &args, sizeof args);
    lower_mark(l, args.window ? "attention local" : "attention global");
}

void lower_attend(struct lowering *l)
{
    const struct op *attention = lower_ops(l);
    const struct weight *w = attention[1].p.matmul.w;
    struct input x = lower_hidden(l, l->rows, w);
    carat_assert(x.act.kind != ACT_FINE); /* attention does not make them: windows.c */
    lower_attention(l, attention, x.floats, x.act);
    lower_multiply_last(l, w, x);
}
