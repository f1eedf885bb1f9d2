/* Windows of ops as launches: one function a kind. Pointers and shapes are read off the plan each
 * time; that costs nanoseconds, and captured programs come here only once. */
#include "backend/cuda/stages.h"

#include "base/assert.h"

static char *wide_at(const struct program *p)
{
    return p->scratch + p->at.wide;
}

static void *inner_at(const struct program *p)
{
    return p->scratch + p->at.inner;
}

static int32_t cols_of(const struct program *p, buf_id id)
{
    return plan_buf_at(p->plan, id)->cols;
}

/* n fp32 matrices of the outputs of `ops`, one behind the other in the wide part. */
static void cut_wide(const struct program *p, const struct op *ops, int32_t n, float **y)
{
    char *at = wide_at(p);
    for (int32_t k = 0; k < n; k++) {
        const struct plan_buf *b = plan_buf_at(p->plan, ops[k].out[0]);
        y[k] = (float *)(void *)at;
        at += aligned((size_t)p->n[b->rows] * (size_t)b->cols * sizeof(float));
    }
}

/* The last product of window `win`, into its plan buffer: in fp16 when the window behind it is a
 * norm and the only reader, which then multiplies by the rows' scales itself; else in fp32. */
static void multiply_into(struct program *p, const struct window *win, const struct weight *w,
                          struct input x)
{
    int32_t end = win->first + win->n;
    buf_id id = p->plan->ops[end - 1].out[0];
    enum row_class c = class_of(p, id);
    float *y = program_floats(p, id);
    bool is_for_norm = end < p->plan->n_ops && p->plan->ops[end].code == OP_RMSNORM &&
                       p->plan->ops[end].in[0] == id && p->plan->ops[end].window > 1 &&
                       plan_buf_at(p->plan, id)->last_op == end && cols_of(p, id) % 4 == 0;
    if (is_for_norm && multiply_half(p, c, 1, &w, x.act, (uint16_t *)(void *)y)) {
        p->half_id = id;
        p->half_scale = x.act.scale;
    } else {
        multiply(p, c, 1, &w, x, &y);
    }
}

/* ---- Projections ------------------------------------------------------------------------ */

/* Products first, then heads: `ops` are the products, the norms and rotations behind them tell what
 * is there. */
static void stage_project(struct program *p, const struct window *win)
{
    const struct op *ops = &p->plan->ops[win->first], *last = &ops[win->n - 1];
    bool has_k = last->code == OP_KV_WRITE;
    int32_t n_w = 0;
    while (ops[n_w].code == OP_MATMUL) n_w++;
    const struct op *norms = ops + n_w;
    bool has_q = !has_k || win->n - n_w == 6;
    enum row_class c = class_of(p, ops[0].out[0]);
    const struct weight *w[3];
    float *y[3] = {NULL, NULL, NULL};
    int32_t col[3] = {0, 0, 0}, cols = 0;
    for (int32_t k = 0; k < n_w; k++) {
        w[k] = ops[k].p.matmul.w;
        col[k] = cols;
        cols += cols_of(p, ops[k].out[0]);
    }
    struct input x = input_of(p, ops[0].in[0], n_w, w);
    uint16_t *half = (uint16_t *)(void *)wide_at(p);
    bool is_half = multiply_half(p, c, n_w, w, x.act, half);
    if (!is_half) {
        cut_wide(p, ops, n_w, y);
        multiply(p, c, n_w, w, x, y);
    }
    int32_t q = 0, k = has_q ? 1 : 0, v = n_w - 1;
    const struct op *k_norm = norms + (has_q ? 2 : 0);
    struct heads_args args = {
        .step = p->step,
        .rows = rows_of_class(p, c),
        .half = is_half ? half : NULL,
        .half_scale = x.act.scale,
        .half_cols = cols,
        .has_q = has_q,
        .has_k = has_k,
        .is_k_eq_v = has_k && k == v,
        .inv_freq = floats_of(norms[1].p.rope.inv_freq),
        .eps = norms[0].p.norm.eps,
        .cache = {.head_dim = norms[1].p.rope.head_dim},
    };
    if (has_q) {
        args.q = y[q];
        args.q_col = col[q];
        args.w_q = floats_of(norms[0].p.norm.w);
        args.n_heads = cols_of(p, ops[q].out[0]) / norms[1].p.rope.head_dim;
        args.q_out = program_floats(p, norms[1].out[0]);
    }
    if (has_k) {
        args.k = y[k];
        args.v = y[v];
        args.k_col = col[k];
        args.v_col = col[v];
        args.w_k = floats_of(k_norm->p.norm.w);
        args.cache = p->plan->caches[last->p.kv.cache];
    }
    launch_heads(&p->device->queue, &args);
    mark(p, "head norms, rope, cache");
}

/* ---- Attention -------------------------------------------------------------------------- */

/* The split kernel for rows [first, first + n) of the launch: its scratch is for few rows. */
static void attend_few(struct program *p, struct attention_args args, int32_t first, int32_t n)
{
    int32_t cols = args.n_heads * args.cache.head_dim;
    for (int32_t r = first; r < first + n; r += MATVEC_ROWS_MAX) {
        int32_t some = first + n - r < MATVEC_ROWS_MAX ? first + n - r : MATVEC_ROWS_MAX;
        struct attention_args a = args;
        a.rows.max = some;
        a.part = ATTEND_ALL;
        a.q += (size_t)r * (size_t)cols;
        if (a.y) a.y += (size_t)r * (size_t)cols;
        if (a.act.kind == ACT_INT8) {
            a.act.values = (int8_t *)a.act.values + (size_t)r * (size_t)a.act.stride;
            a.act.scale += (size_t)r * (size_t)(a.act.stride / ACT_BLOCK * 2);
        } else if (a.act.kind == ACT_HALF) {
            a.act.values = (uint16_t *)a.act.values + (size_t)r * (size_t)a.act.stride;
            a.act.scale += r;
        }
        if (a.rows.is_out) {
            a.step.out_row += r;
        } else {
            a.step.position += r;
            a.step.sequence += r;
        }
        launch_attention_decode(&p->device->queue, &a);
    }
}

void stage_attention(struct program *p, const struct op *op, float *y, struct act act)
{
    enum row_class c = class_of(p, op->out[0]);
    struct attention_args args = {.step = p->step,
                                  .rows = rows_of_class(p, c),
                                  .q = program_floats(p, op->in[0]),
                                  .cache = p->plan->caches[op->p.attention.cache],
                                  .n_heads = op->p.attention.n_heads,
                                  .window = op->p.attention.window,
                                  .y = y,
                                  .act = act,
                                  .scratch = p->scratch + p->at.attention,
                                  .is_exact = p->device->options.is_exact,
                                  .part = ATTEND_ALL};
    int32_t n = p->n[c], n_decode = c == ROWS_TOKEN ? p->n_decode : 0;
    if (n <= MATVEC_ROWS_MAX) {
        launch_attention_decode(&p->device->queue, &args);
    } else if (args.is_exact || p->n_decode >= n || !attention_prefill_takes(&args)) {
        attend_few(p, args, 0, n);
    } else {
        attend_few(p, args, 0, n_decode);
        args.part = c == ROWS_TOKEN ? ATTEND_CHUNK : ATTEND_ALL;
        launch_attention_prefill(&p->device->queue, &args);
    }
    mark(p, args.window ? "attention local" : "attention global");
}

static void stage_attend(struct program *p, const struct window *win)
{
    const struct op *attention = &p->plan->ops[win->first], *out = attention + 1;
    enum row_class c = class_of(p, out->out[0]);
    const struct weight *w = out->p.matmul.w;
    enum act_kind kind = kind_for(p, w, p->n[c]);
    struct input x = {.act = act_at(inner_at(p), kind, p->n[c], w->cols)};
    float *floats = inner_at(p);
    carat_assert(kind != ACT_FINE); /* attention does not make them: windows.c */
    if (kind == ACT_NONE) x.floats = floats;
    stage_attention(p, attention, kind == ACT_NONE ? floats : NULL, x.act);
    multiply_into(p, win, w, x);
}

/* ---- Norms ------------------------------------------------------------------------------ */

/* The first product behind op i that reads the buffer. */
static const struct weight *reader_of(const struct program *p, buf_id id, int32_t i)
{
    int32_t last = plan_buf_at(p->plan, id)->last_op;
    for (; i <= last && i < p->plan->n_ops; i++) {
        const struct op *op = &p->plan->ops[i];
        const struct weight *w = op->in[0] == id ? op_product(op) : NULL;
        if (w && !is_multiplied_exactly(w)) return w;
    }
    return NULL;
}

/* One more output of a norm launch: buffer `id`, in every form in which it is read. */
static void add_out(struct program *p, struct norm_args *args, buf_id id, const struct op *norm,
                    int32_t behind)
{
    struct norm_out *out = &args->out[args->n_outs];
    const struct weight *reader = p->needs[id] & NEEDS_ACT ? reader_of(p, id, behind) : NULL;
    enum act_kind kind = reader ? kind_for(p, reader, p->n[class_of(p, id)]) : ACT_NONE;
    *out = (struct norm_out){.act = {.kind = ACT_NONE}};
    if (norm) {
        out->is_normed = true;
        out->w = floats_of(norm->p.norm.w);
        if (p->needs[id] & NEEDS_FLOATS || kind == ACT_NONE) out->y = program_floats(p, id);
    }
    if (kind != ACT_NONE) out->act = act_take(p, id, kind);
    if (out->y || kind != ACT_NONE) args->n_outs++;
}

static void stage_norms(struct program *p, const struct window *win)
{
    const struct op *ops = &p->plan->ops[win->first];
    int32_t end = win->first + win->n, at = 0;
    buf_id x = ops[0].in[0];
    struct norm_args args = {.step = p->step,
                             .rows = rows_of_class(p, class_of(p, x)),
                             .cols = cols_of(p, x),
                             .eps = ops[0].p.norm.eps,
                             .a = program_floats(p, x),
                             .scale = 1.0f};
    if (p->half_id == x) {
        args.a_half = (const uint16_t *)(const void *)args.a;
        args.a_scale = p->half_scale;
        p->half_id = BUF_NONE;
    }
    while (at < win->n && ops[at].code != OP_ADD) at++;
    if (at < win->n) {
        args.is_normed = true;
        args.w_a = floats_of(ops[0].p.norm.w);
        if (at == 2) { /* two branches, normed, summed and normed again */
            args.b = program_floats(p, ops[1].in[0]);
            args.w_b = floats_of(ops[1].p.norm.w);
            args.w_s = floats_of(ops[3].p.norm.w);
            at = 4;
        }
        const struct op *sum = &ops[at++];
        args.residual = program_floats(p, sum->in[0]);
        x = sum->out[0];
        if (at < win->n && ops[at].code == OP_SCALE) {
            args.scale = ops[at].p.scale.value;
            x = ops[at++].out[0];
        }
        args.x_out = program_floats(p, x);
        if (p->needs[x] & NEEDS_ACT) add_out(p, &args, x, NULL, end);
    } else {
        at = 0;
    }
    for (; at < win->n; at++) add_out(p, &args, ops[at].out[0], &ops[at], end);
    launch_norm(&p->device->queue, &args);
    mark(p, "norms");
}

/* ---- Feed forward ----------------------------------------------------------------------- */

static void ffn_few(struct program *p, enum row_class c, const struct weight *const *w,
                    struct input x, struct input hidden)
{
    struct matvec_args args = {.step = p->step,
                               .rows = rows_of_class(p, c),
                               .n_w = 2,
                               .w = {view_of(w[0]), view_of(w[1])},
                               .x = x.act,
                               .x_floats = x.floats,
                               .epilogue = MATVEC_GELU_MUL,
                               .out = (float *)(uintptr_t)hidden.floats,
                               .act = hidden.act};
    launch_matvec(&p->device->queue, &args);
    mark_product(p, "matmul gate, up", 2, w, p->n[c], x.act.kind);
}

/* The hidden rows of a gated product, as the product behind reads them: in the inner part, or as
 * floats behind what the window's products write. */
static struct input hidden_of(struct program *p, const struct op *gelu, const struct weight *next)
{
    enum row_class c = class_of(p, gelu->out[0]);
    enum act_kind kind = kind_for(p, next, p->n[c]);
    struct input hidden = {.act = act_at(inner_at(p), kind, p->n[c], next->cols)};
    if (kind == ACT_NONE) hidden.floats = (float *)inner_at(p);
    return hidden;
}

static void stage_ffn(struct program *p, const struct window *win)
{
    const struct op *ops = &p->plan->ops[win->first];
    enum row_class c = class_of(p, ops[0].out[0]);
    const struct weight *w[2] = {ops[0].p.matmul.w, ops[1].p.matmul.w};
    const struct weight *down = ops[3].p.matmul.w;
    struct input x = input_of(p, ops[0].in[0], 2, w), hidden = hidden_of(p, &ops[2], down);
    int32_t cols = cols_of(p, ops[2].out[0]);
    struct gelu_mul_args gelu = {.step = p->step,
                                 .rows = rows_of_class(p, c),
                                 .half_div = 1,
                                 .cols = cols,
                                 .b_cols = cols,
                                 .y = (float *)(uintptr_t)hidden.floats,
                                 .act = hidden.act};
    float *y[2];
    uint16_t *half = (uint16_t *)(void *)wide_at(p);
    if (p->n[c] <= MATVEC_ROWS_MAX && view_of(w[0]).format == view_of(w[1]).format) {
        ffn_few(p, c, w, x, hidden);
    } else {
        if (multiply_half(p, c, 2, w, x.act, half)) {
            gelu.half = half;
            gelu.half_scale = x.act.scale;
        } else {
            cut_wide(p, ops, 2, y);
            multiply(p, c, 2, w, x, y);
            gelu.a = y[0];
            gelu.b = y[1];
        }
        launch_gelu_mul(&p->device->queue, &gelu);
        mark(p, "gelu");
    }
    multiply_into(p, win, down, hidden);
}

static void stage_gated(struct program *p, const struct window *win)
{
    const struct op *ops = &p->plan->ops[win->first], *gelu = &ops[1];
    enum row_class c = class_of(p, ops[0].out[0]);
    const struct weight *w = ops[0].p.matmul.w, *next = ops[2].p.matmul.w;
    struct input x = input_of(p, ops[0].in[0], 1, &w), hidden = hidden_of(p, gelu, next);
    int32_t by_cols = cols_of(p, gelu->in[1]), second = gelu->p.gelu_mul.second_col;
    float *by = program_floats(p, gelu->in[1]);
    if (p->n[c] <= MATVEC_ROWS_MAX) {
        struct matvec_args args = {.step = p->step,
                                   .rows = rows_of_class(p, c),
                                   .n_w = 1,
                                   .w = {view_of(w)},
                                   .x = x.act,
                                   .x_floats = x.floats,
                                   .epilogue = MATVEC_GELU_BY,
                                   .by = by,
                                   .by_cols = by_cols,
                                   .second_col = second,
                                   .out = (float *)(uintptr_t)hidden.floats,
                                   .act = hidden.act};
        launch_matvec(&p->device->queue, &args);
        mark_product(p, "matmul gated", 1, &w, p->n[c], x.act.kind);
    } else {
        float *y = (float *)(void *)wide_at(p);
        multiply(p, c, 1, &w, x, &y);
        struct gelu_mul_args args = {.step = p->step,
                                     .rows = rows_of_class(p, c),
                                     .half_div = 1,
                                     .a = y,
                                     .b = by,
                                     .cols = cols_of(p, gelu->out[0]),
                                     .b_cols = by_cols,
                                     .second_col = second,
                                     .y = (float *)(uintptr_t)hidden.floats,
                                     .act = hidden.act};
        launch_gelu_mul(&p->device->queue, &args);
        mark(p, "gelu");
    }
    multiply_into(p, win, next, hidden);
}

/* ---- The rest --------------------------------------------------------------------------- */

static void stage_ple(struct program *p, const struct window *win)
{
    const struct op *ops = &p->plan->ops[win->first];
    enum row_class c = class_of(p, ops[0].out[0]);
    const struct weight *w = ops[0].p.matmul.w;
    float *a = (float *)(void *)wide_at(p);
    multiply(p, c, 1, &w, input_of(p, ops[0].in[0], 1, &w), &a);
    struct ple_args args = {.step = p->step,
                            .rows = rows_of_class(p, c),
                            .a = a,
                            .w = floats_of(ops[2].p.norm.w),
                            .in_scale = ops[1].p.scale.value,
                            .eps = ops[2].p.norm.eps,
                            .e_scale = ops[3].p.embed.scale,
                            .out_scale = ops[5].p.scale.value,
                            .first_col = ops[3].p.embed.first_col,
                            .cols = cols_of(p, ops[5].out[0]),
                            .group = ops[2].p.norm.group,
                            .y = program_floats(p, ops[5].out[0])};
    args.table = table_of(p, ops[3].p.embed.table, &args.step);
    launch_ple(&p->device->queue, &args);
    mark(p, "per-layer embeddings");
}

static void stage_logits(struct program *p, const struct window *win)
{
    const struct op *ops = &p->plan->ops[win->first];
    enum row_class c = class_of(p, ops[0].out[0]);
    const struct weight *w = ops[0].p.matmul.w;
    float *y = program_floats(p, ops[1].out[0]);
    multiply(p, c, 1, &w, input_of(p, ops[0].in[0], 1, &w), &y);
    launch_softcap(&p->device->queue, p->step, rows_of_class(p, c), y, ops[1].p.softcap.cap, y,
                   cols_of(p, ops[1].out[0]));
    mark(p, "softcap");
}

void stage_run(struct program *p, const struct window *w)
{
    const struct op *op = &p->plan->ops[w->first];
    buf_id shaped = op->out[0] != BUF_NONE ? op->out[0] : op->in[0];
    if (p->n[class_of(p, shaped)] == 0) return;
    switch (w->kind) {
    case WINDOW_PROJECT: stage_project(p, w); break;
    case WINDOW_ATTEND: stage_attend(p, w); break;
    case WINDOW_NORMS: stage_norms(p, w); break;
    case WINDOW_FFN: stage_ffn(p, w); break;
    case WINDOW_GATED: stage_gated(p, w); break;
    case WINDOW_PLE: stage_ple(p, w); break;
    case WINDOW_ROUTE: stage_route(p, w); break;
    case WINDOW_EXPERTS: stage_experts(p, w); break;
    case WINDOW_LOGITS: stage_logits(p, w); break;
    case WINDOW_SINGLE: stage_single(p, op); break;
    }
}
