#include "backend/cuda/lower_attention.h"

#include "backend/cuda/lower_product.h"
#include "backend/cuda/start.h"
#include "base/assert.h"

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
                                  .is_exact = l->device->options.is_exact,
                                  .part = ATTEND_ALL};
    int32_t n = l->rows < MATVEC_ROWS_MAX ? l->rows : MATVEC_ROWS_MAX;
    args.scratch = scratch_take(
        &l->scratch,
        attention_decode_scratch_bytes(n, args.n_heads, args.cache.head_dim, args.cache.n_heads));
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
