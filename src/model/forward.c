/* A row's class says what it is computed for. Only keys and values outlive a step, and the last
 * layer that owns any is layer n_kv_layer - 1: after its K/V are written, a row matters only if its
 * logits are wanted. So everything up to there runs on ROWS_TOKEN, one GATHER_ROWS follows, and the
 * rest (all of the KV-shared tail of E2B and E4B) runs on ROWS_OUT. In decode both are the same
 * rows, and nothing is gathered (plan_want_all); a prefill chunk that is not the last has no output
 * rows at all.
 *
 * Ops that a backend can do in one launch are emitted next to each other: projections of one input;
 * a residual sum with the norm before it and the norms that read it. */
#include "model/forward.h"

#include <math.h>

#include "plan/emit.h"

struct pass {
    struct plan *p;
    const struct gemma_config *c;
    const struct weights *w; /* of the current site */
    const struct weights *const *weights;
    const struct split *split;
    buf_id ple_trunk, ple_tail; /* per-layer embeddings of both parts */
    int32_t ahead;              /* of the step's positions, where queries are rotated */
};

int32_t gemma_kv_slots(const struct gemma_config *c, enum kv_kind kind, int32_t n_ctx, int32_t rows)
{
    int32_t all = kv_pages(n_ctx), ring = kv_pages(c->window + rows) + 1;
    return kind == KV_LOCAL && ring < all ? ring : all;
}

/* Makes this the site of the ops that follow. */
static void go_to(struct pass *f, uint8_t site)
{
    f->p->site = site;
    f->w = f->weights[site];
}

/* Per-layer embeddings of layers [first, first + proj->rows / n_ple), from scaled embeddings x:
 * (norm(proj x / sqrt(n_embd)) + sqrt(n_ple) table[id]) / sqrt(2), each layer's slice normed on its
 * own. */
static buf_id per_layer_embeddings(struct pass *f, buf_id x, const struct weight *proj,
                                   int32_t first)
{
    struct plan *p = f->p;
    const struct gemma_config *c = f->c;
    buf_id a = emit_scale(p, emit_matmul(p, x, proj), (float)(1.0 / sqrt((double)c->n_embd)));
    a = emit_groupnorm(p, a, f->w->ple_proj_norm, c->n_ple, c->rms_eps);
    buf_id e = emit_embed(p, plan_buf_at(p, x)->rows, f->w->ple_embd, sqrtf((float)c->n_ple),
                          first * c->n_ple, (int32_t)proj->rows);
    return emit_scale(p, emit_add(p, a, e), (float)(1.0 / sqrt(2.0)));
}

static buf_id embed(struct pass *f)
{
    const struct gemma_config *c = f->c;
    buf_id x =
        emit_embed(f->p, ROWS_TOKEN, f->w->token_embd, sqrtf((float)c->n_embd), 0, c->n_embd);
    if (f->w->ple_proj_trunk) f->ple_trunk = per_layer_embeddings(f, x, f->w->ple_proj_trunk, 0);
    if (f->w->ple_proj_tail)
        f->ple_tail = per_layer_embeddings(f, emit_gather_rows(f->p, x), f->w->ple_proj_tail,
                                           c->n_kv_layer - 1);
    return x;
}

static buf_id rotate(struct pass *f, const struct layer_spec *s, buf_id x)
{
    return emit_rope(f->p, x, s->is_global ? f->w->rope_global : f->w->rope_local, s->head_dim,
                     f->ahead);
}

/* Projects h, norms the heads, rotates them and writes the cache. Either part may be left out;
 * returns q. V is the raw projection, normed without weights. On k_eq_v layers it is K's
 * projection, before K is normed and rotated. */
static buf_id project(struct pass *f, int32_t l, const struct layer_weights *w, buf_id h,
                      bool want_q, bool want_kv)
{
    struct plan *p = f->p;
    const struct layer_spec *s = &f->c->layer[l];
    float eps = f->c->rms_eps;
    buf_id q = BUF_NONE, k = BUF_NONE, v = BUF_NONE;
    if (want_q) q = emit_fine_matmul(p, h, w->attn_q);
    if (want_kv) {
        k = emit_fine_matmul(p, h, w->attn_k);
        v = s->k_eq_v ? k : emit_matmul(p, h, w->attn_v);
    }
    if (want_q) q = rotate(f, s, emit_groupnorm(p, q, w->attn_q_norm, s->head_dim, eps));
    if (want_kv) {
        k = rotate(f, s, emit_groupnorm(p, k, w->attn_k_norm, s->head_dim, eps));
        v = emit_groupnorm(p, v, NULL, s->head_dim, eps);
        emit_kv_write(p, k, v, l);
    }
    return q;
}

static buf_id attention(struct pass *f, int32_t l, const struct layer_weights *w, buf_id x)
{
    struct plan *p = f->p;
    const struct layer_spec *s = &f->c->layer[l];
    float eps = f->c->rms_eps;
    buf_id h = emit_rmsnorm(p, x, w->attn_norm, eps), q;
    bool is_cut = l == f->c->n_kv_layer - 1 && !p->is_all_out;
    if (is_cut) { /* from here on, only rows whose logits are wanted */
        project(f, l, w, h, false, true);
        x = emit_gather_rows(p, x);
        h = emit_gather_rows(p, h);
        q = project(f, l, w, h, true, false);
    } else {
        q = project(f, l, w, h, true, s->has_kv);
    }
    buf_id a =
        emit_matmul(p, emit_attention(p, q, s->kv_layer, s->n_heads, s->window), w->attn_output);
    return emit_add(p, x, emit_rmsnorm(p, a, w->attn_post_norm, eps));
}

static buf_id dense_ffn(struct pass *f, const struct layer_weights *w, buf_id h)
{
    struct plan *p = f->p;
    buf_id gate = emit_matmul(p, h, w->ffn_gate), up = emit_matmul(p, h, w->ffn_up);
    return emit_matmul(p, emit_gelu_mul(p, gate, up, 0), w->ffn_down);
}

/* r: what the router sees; u: what the experts see. The experts may be on another site: they are
 * most of the bytes but little of the work, since a token uses a few of many. */
static buf_id experts_ffn(struct pass *f, int32_t l, buf_id r, buf_id u)
{
    struct plan *p = f->p;
    int32_t n_used = f->c->n_expert_used;
    const struct layer_weights *w = &f->w->layer[l];
    buf_id ids, shares;
    emit_route(p, emit_fine_matmul(p, r, w->router), w->expert_scale, n_used, &ids, &shares);
    go_to(f, f->split->experts[l]);
    w = &f->w->layer[l];
    buf_id gate = emit_expert_in(p, u, ids, w->expert_gate, n_used);
    buf_id up = emit_expert_in(p, u, ids, w->expert_up, n_used);
    buf_id h = emit_gelu_mul(p, gate, up, 0);
    buf_id y = emit_expert_out(p, h, ids, shares, w->expert_down, n_used);
    go_to(f, f->split->layer[l]);
    return y;
}

/* With experts: a dense branch and a routed one, each normed before and after. The router sees the
 * raw residual, normed without weights and scaled by s / sqrt(n_embd), not what the experts see. */
static buf_id feed_forward(struct pass *f, int32_t l, const struct layer_weights *w, buf_id x)
{
    struct plan *p = f->p;
    float eps = f->c->rms_eps;
    buf_id h = emit_rmsnorm(p, x, w->ffn_norm, eps), y;
    if (f->c->n_expert) {
        buf_id r = emit_rmsnorm(p, x, w->router_input_scale, eps);
        buf_id u = emit_rmsnorm(p, x, w->expert_norm, eps);
        y = dense_ffn(f, w, h);
        buf_id e = experts_ffn(f, l, r, u);
        y = emit_rmsnorm(p, y, w->dense_post_norm, eps);
        y = emit_add(p, y, emit_rmsnorm(p, e, w->expert_post_norm, eps));
    } else {
        y = dense_ffn(f, w, h);
    }
    return emit_add(p, x, emit_rmsnorm(p, y, w->ffn_post_norm, eps));
}

static buf_id per_layer_input(struct pass *f, int32_t l, const struct layer_weights *w, buf_id x)
{
    struct plan *p = f->p;
    int32_t n_trunk = f->c->n_kv_layer - 1;
    bool in_trunk = l < n_trunk;
    buf_id g =
        emit_gelu_mul(p, emit_fine_matmul(p, x, w->ple_gate), in_trunk ? f->ple_trunk : f->ple_tail,
                      f->c->n_ple * (in_trunk ? l : l - n_trunk));
    return emit_add(
        p, x, emit_rmsnorm(p, emit_fine_matmul(p, g, w->ple_up), w->ple_post_norm, f->c->rms_eps));
}

static buf_id run_layers(struct pass *f, buf_id x)
{
    for (int32_t l = 0; l < f->c->n_layer; l++) {
        go_to(f, f->split->layer[l]);
        const struct layer_weights *w = &f->w->layer[l];
        f->p->layer = (uint16_t)l;
        x = attention(f, l, w, x);
        x = feed_forward(f, l, w, x);
        if (f->c->n_ple) x = per_layer_input(f, l, w, x);
        if (w->out_scale != 1.0f) x = emit_scale(f->p, x, w->out_scale);
    }
    f->p->layer = LAYER_NONE;
    return emit_rmsnorm(f->p, x, f->w->output_norm, f->c->rms_eps);
}

static void keep_hidden(struct plan *p, buf_id x)
{
    p->hidden = x;
    emit_output(p, x);
}

void gemma_forward(struct plan *p, const struct gemma_config *c, const struct weights *const *w,
                   const struct split *split)
{
    struct pass f = {
        .p = p, .c = c, .weights = w, .split = split, .ple_trunk = BUF_NONE, .ple_tail = BUF_NONE};
    go_to(&f, split->layer[0]);
    buf_id y = run_layers(&f, embed(&f));
    buf_id z = emit_fine_matmul(p, y, f.w->output ? f.w->output : f.w->token_embd);
    p->logits = emit_softcap(p, z, c->softcap);
    if (p->wants_hidden) keep_hidden(p, y);
}

void gemma_draft(struct plan *p, const struct drafter_parts *d)
{
    const struct gemma_config *c = d->config;
    struct split split;
    for (int32_t l = 0; l < c->n_layer; l++) split.layer[l] = d->split->layer[c->layer[l].kv_layer];
    struct pass f = {.p = p, .c = c, .weights = d->weights, .split = &split, .ahead = 1};
    uint8_t first = d->split->layer[0];
    go_to(&f, first);
    buf_id h = emit_given(p, ROWS_TOKEN, c->n_backbone);
    buf_id e = d->model_weights ? emit_embed(p, ROWS_TOKEN, d->model_weights[first]->token_embd,
                                             sqrtf((float)c->n_backbone), 0, c->n_backbone)
                                : emit_given(p, ROWS_TOKEN, c->n_backbone);
    buf_id y = run_layers(&f, emit_matmul(p, emit_concat(p, e, h), f.w->pre_projection));
    p->logits = emit_fine_matmul(p, y, f.w->token_embd);
    keep_hidden(p, emit_matmul(p, y, f.w->post_projection));
}
