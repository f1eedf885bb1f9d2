/* Patterns are tried in turn; one is only taken when what lies between its ops is read by nothing
 * else. */
#include "backend/cuda/windows.h"

#include "backend/cuda/kernels.h"

static const struct op *op_at(const struct plan *p, int32_t i)
{
    return i < p->n_ops ? &p->ops[i] : NULL;
}

static bool is_op(const struct plan *p, int32_t i, enum op_code code)
{
    return i < p->n_ops && p->ops[i].code == code;
}

/* Op i has this code and reads what op `from` wrote. */
static bool follows(const struct plan *p, int32_t i, enum op_code code, int32_t from)
{
    return is_op(p, i, code) && p->ops[i].in[0] == p->ops[from].out[0];
}

/* Whether no later op reads what ops [first, first + n) write, except the output of op `result`. */
static bool is_closed(const struct plan *p, int32_t first, int32_t n, int32_t result)
{
    for (int32_t i = first; i < first + n; i++)
        for (int k = 0; k < 2; k++) {
            buf_id id = p->ops[i].out[k];
            if (id == BUF_NONE || i == result) continue;
            if (plan_buf_at(p, id)->last_op >= first + n) return false;
        }
    return true;
}

static int32_t norm_group(const struct plan *p, int32_t i)
{
    return p->ops[i].p.norm.group;
}

static bool is_row_norm(const struct plan *p, int32_t i)
{
    return is_op(p, i, OP_RMSNORM) && norm_group(p, i) == plan_buf_at(p, p->ops[i].in[0])->cols;
}

/* Length of [norm, rope] of what op `from` wrote, at op i; 0: not there. */
static int32_t norm_rope(const struct plan *p, int32_t i, int32_t from)
{
    return follows(p, i, OP_RMSNORM, from) && follows(p, i + 1, OP_ROPE, i) &&
                   norm_group(p, i) == p->ops[i + 1].p.rope.head_dim
               ? 2
               : 0;
}

/* [norm v, write] after [norm k, rope k] at op i, v being written by op `from`. */
static bool norm_write(const struct plan *p, int32_t i, int32_t from)
{
    return follows(p, i, OP_RMSNORM, from) && !p->ops[i].p.norm.w && is_op(p, i + 1, OP_KV_WRITE) &&
           p->ops[i + 1].in[0] == p->ops[i - 1].out[0] && p->ops[i + 1].in[1] == p->ops[i].out[0];
}

static int32_t count_products(const struct plan *p, int32_t i)
{
    int32_t n = 1;
    while (n < 3 && is_op(p, i + n, OP_MATMUL) && p->ops[i + n].in[0] == p->ops[i].in[0]) n++;
    return n;
}

static int32_t project_length(const struct plan *p, int32_t i)
{
    if (!is_op(p, i, OP_MATMUL)) return 0;
    int32_t n_w = count_products(p, i), at = i + n_w, k = i;
    int32_t q = norm_rope(p, at, i);
    bool has_q = q && !(n_w < 3 && norm_write(p, at + 2, i + n_w - 1));
    if (has_q && n_w == 1) return is_closed(p, i, 3, i + 2) ? 3 : 0;
    if (has_q) {
        at += 2;
        k = i + 1;
    }
    if (!norm_rope(p, at, k) || !norm_write(p, at + 2, i + n_w - 1)) return 0;
    int32_t n = at + 4 - i;
    return is_closed(p, i, n, has_q ? i + n_w + 1 : -1) ? n : 0;
}

static int32_t ffn_length(const struct plan *p, int32_t i)
{
    bool is_it =
        is_op(p, i, OP_MATMUL) && is_op(p, i + 1, OP_MATMUL) &&
        p->ops[i].in[0] == p->ops[i + 1].in[0] && follows(p, i + 2, OP_GELU_MUL, i) &&
        p->ops[i + 2].in[1] == p->ops[i + 1].out[0] && p->ops[i + 2].p.gelu_mul.second_col == 0 &&
        follows(p, i + 3, OP_MATMUL, i + 2) &&
        plan_buf_at(p, p->ops[i].out[0])->cols == plan_buf_at(p, p->ops[i + 1].out[0])->cols;
    return is_it && is_closed(p, i, 4, i + 3) ? 4 : 0;
}

static int32_t gated_length(const struct plan *p, int32_t i)
{
    bool is_it = is_op(p, i, OP_MATMUL) && follows(p, i + 1, OP_GELU_MUL, i) &&
                 follows(p, i + 2, OP_MATMUL, i + 1);
    return is_it && is_closed(p, i, GATED_OPS, i + 2) ? GATED_OPS : 0;
}

static int32_t ple_length(const struct plan *p, int32_t i)
{
    bool is_it = is_op(p, i, OP_MATMUL) && follows(p, i + 1, OP_SCALE, i) &&
                 follows(p, i + 2, OP_RMSNORM, i + 1) && is_op(p, i + 3, OP_EMBED) &&
                 follows(p, i + 4, OP_ADD, i + 2) && p->ops[i + 4].in[1] == p->ops[i + 3].out[0] &&
                 follows(p, i + 5, OP_SCALE, i + 4);
    return is_it && is_closed(p, i, 6, i + 5) ? 6 : 0;
}

static int32_t route_length(const struct plan *p, int32_t i)
{
    return is_op(p, i, OP_MATMUL) && follows(p, i + 1, OP_ROUTE, i) && is_closed(p, i, 2, i + 1)
               ? 2
               : 0;
}

static int32_t experts_length(const struct plan *p, int32_t i)
{
    bool is_it = is_op(p, i, OP_EXPERT_IN) && is_op(p, i + 1, OP_EXPERT_IN) &&
                 p->ops[i].in[0] == p->ops[i + 1].in[0] && p->ops[i].in[1] == p->ops[i + 1].in[1] &&
                 follows(p, i + 2, OP_GELU_MUL, i) && p->ops[i + 2].in[1] == p->ops[i + 1].out[0] &&
                 p->ops[i + 2].p.gelu_mul.second_col == 0 &&
                 follows(p, i + 3, OP_EXPERT_OUT, i + 2);
    return is_it && is_closed(p, i, 4, i + 3) ? 4 : 0;
}

/* The choice is read by the experts alone. */
static int32_t mixed_length(const struct plan *p, int32_t i)
{
    int32_t route = i + MIXED_ROUTE, experts = i + MIXED_EXPERTS, end = i + MIXED_OPS;
    if (!ffn_length(p, i) || !route_length(p, route) || !experts_length(p, experts)) return 0;
    const struct op *choice = &p->ops[route + 1];
    return p->ops[experts].in[1] == choice->out[0] && is_closed(p, route, end - route, end - 1)
               ? MIXED_OPS
               : 0;
}

/* Row norms of buffer x, from op i on: as many as a launch can give. */
static int32_t count_norms(const struct plan *p, int32_t i, buf_id x)
{
    int32_t n = 0;
    while (n < NORM_OUTS - 1 && is_row_norm(p, i + n) && p->ops[i + n].in[0] == x) n++;
    return n;
}

/* Norm [, norm, sum, norm], residual sum [, scale], up to three norms of that. */
static int32_t residual_length(const struct plan *p, int32_t i)
{
    if (!is_row_norm(p, i)) return 0;
    int32_t at = i + 1;
    if (is_row_norm(p, at) && is_op(p, at + 1, OP_ADD) &&
        p->ops[at + 1].in[0] == p->ops[i].out[0] && p->ops[at + 1].in[1] == p->ops[at].out[0] &&
        is_row_norm(p, at + 2) && p->ops[at + 2].in[0] == p->ops[at + 1].out[0])
        at += 3;
    if (!is_op(p, at, OP_ADD) || p->ops[at].in[1] != p->ops[at - 1].out[0]) return 0;
    int32_t result = at++;
    if (follows(p, at, OP_SCALE, result)) result = at++;
    if (!is_closed(p, i, at - i, result)) return 0;
    return at - i + count_norms(p, at, p->ops[result].out[0]);
}

/* Norm, residual sum [, scale], GATED of that, and norms with a residual sum again. What the first
 * norm and sum read is read by them last, so that its memory is free afterwards. */
static int32_t inputs_length(const struct plan *p, int32_t i)
{
    int32_t gate = i, after, n;
    while (gate < p->n_ops && p->ops[gate].code != OP_MATMUL) gate++;
    after = gate + GATED_OPS;
    if (residual_length(p, i) != gate - i || !is_op(p, i + 1, OP_ADD) || !gated_length(p, gate) ||
        !follows(p, gate, OP_MATMUL, gate - 1) || !follows(p, after, OP_RMSNORM, after - 1) ||
        !is_op(p, after + 1, OP_ADD) || p->ops[after + 1].in[0] != p->ops[gate].in[0])
        return 0;
    n = residual_length(p, after);
    bool is_last = plan_buf_at(p, p->ops[i].in[0])->last_op == i &&
                   plan_buf_at(p, p->ops[i + 1].in[0])->last_op == i + 1;
    return n && is_last && is_closed(p, i, after + 2 - i, after + 1) ? after + n - i : 0;
}

static int32_t norms_length(const struct plan *p, int32_t i)
{
    int32_t n = residual_length(p, i);
    return n || !is_row_norm(p, i) ? n : count_norms(p, i, p->ops[i].in[0]);
}

static int32_t attend_length(const struct plan *p, int32_t i)
{
    return is_op(p, i, OP_ATTENTION) && follows(p, i + 1, OP_MATMUL, i) &&
                   !p->ops[i + 1].p.matmul.is_fine && is_closed(p, i, 2, i + 1)
               ? 2
               : 0;
}

static int32_t logits_length(const struct plan *p, int32_t i)
{
    return is_op(p, i, OP_MATMUL) && follows(p, i + 1, OP_SOFTCAP, i) && is_closed(p, i, 2, i + 1)
               ? 2
               : 0;
}

struct window window_at(const struct plan *plan, int32_t i)
{
    static const struct {
        enum window_kind kind;
        int32_t (*length)(const struct plan *p, int32_t i);
    } patterns[] = {
        {WINDOW_PROJECT, project_length}, {WINDOW_PLE, ple_length},
        {WINDOW_MIXED, mixed_length},     {WINDOW_FFN, ffn_length},
        {WINDOW_INPUTS, inputs_length},   {WINDOW_GATED, gated_length},
        {WINDOW_LOGITS, logits_length},   {WINDOW_ROUTE, route_length},
        {WINDOW_EXPERTS, experts_length}, {WINDOW_ATTEND, attend_length},
        {WINDOW_NORMS, norms_length},
    };
    if (op_at(plan, i))
        for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
            int32_t n = patterns[k].length(plan, i);
            if (n) return (struct window){patterns[k].kind, i, n};
        }
    return (struct window){WINDOW_SINGLE, i, 1};
}
