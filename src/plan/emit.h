/* The vocabulary of forward.c: each function records one op and returns the buffer that it writes.
 * Shapes are checked by assertion: the loader has already compared every tensor with the model's
 * facts, so a mismatch here is a bug. */
#ifndef PLAN_EMIT_H
#define PLAN_EMIT_H

#include "plan/plan.h"

buf_id emit_embed(struct plan *p, enum row_class rows, const struct weight *table, float scale,
                  int32_t first_col, int32_t cols);
buf_id emit_rmsnorm(struct plan *p, buf_id x, const struct weight *w, float eps);
/* Norms each group of `group` values of a row (a head, a layer's slice) on its own. */
buf_id emit_groupnorm(struct plan *p, buf_id x, const struct weight *w, int32_t group, float eps);
buf_id emit_matmul(struct plan *p, buf_id x, const struct weight *w);
/* The same, for products whose small errors become large errors of the model. By measurement these
 * are the ones that feed a softmax, and the small ones of per-layer embeddings. */
buf_id emit_fine_matmul(struct plan *p, buf_id x, const struct weight *w);
/* Turns by position + ahead. */
buf_id emit_rope(struct plan *p, buf_id x, const struct weight *inv_freq, int32_t head_dim,
                 int32_t ahead);
void emit_kv_write(struct plan *p, buf_id k, buf_id v, int32_t cache);
buf_id emit_attention(struct plan *p, buf_id q, int32_t cache, int32_t n_heads, int32_t window);
buf_id emit_add(struct plan *p, buf_id a, buf_id b);
buf_id emit_scale(struct plan *p, buf_id x, float value);
buf_id emit_concat(struct plan *p, buf_id a, buf_id b);
buf_id emit_gelu_mul(struct plan *p, buf_id a, buf_id b, int32_t second_col);
buf_id emit_gather_rows(struct plan *p, buf_id x); /* x, if the plan wants all rows */
void emit_route(struct plan *p, buf_id z, const struct weight *scale, int32_t n_used, buf_id *ids,
                buf_id *shares);
buf_id emit_expert_in(struct plan *p, buf_id x, buf_id ids, const struct weight *w, int32_t n_used);
buf_id emit_expert_out(struct plan *p, buf_id x, buf_id ids, buf_id shares, const struct weight *w,
                       int32_t n_used);
buf_id emit_softcap(struct plan *p, buf_id x, float cap);

/* Rows that leave the plan; rows that come in from outside, and from buffer x of another site's
 * plan. */
void emit_output(struct plan *p, buf_id x);
buf_id emit_given(struct plan *p, enum row_class rows, int32_t cols);
buf_id emit_carried(struct plan *p, int32_t site, const struct plan *from, buf_id x);

#endif
