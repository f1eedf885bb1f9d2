/* The instruction set: every operation a plan can hold, one line each.
 *
 * Row notation: t runs over the rows of the output's row class; x[t], y[t] are rows; id[t],
 * position[t] and sequence[t] come from the step. `budget` is the largest normalised mean squared
 * error, sum (y - ref)^2 / sum ref^2, that a fast backend may have against the reference on exact
 * inputs. 0 means bit-equal. A negative budget follows from the weight's format, as activations are
 * rounded to 8 bits.
 *
 * To add an op: a line here, a parameter struct in op.h if none fits, an emitter in emit.c and a
 * function in each backend (one that ref or cpu lacks is a link error). docs/adding.md has the
 * rest; docs/ops.md is made from this. */
#ifndef PLAN_OP_LIST_H
#define PLAN_OP_LIST_H

/* X(NAME, params, meaning, budget) */
#define OP_LIST(X)                                                                                 \
    X(EMBED, embed, "y[t] = scale * table[id[t]][first_col ..]", 0)                                \
    X(RMSNORM, norm, "y[t, g] = x[t, g] / sqrt(mean(x[t, g]^2) + eps) * w, per group g", 1e-10)    \
    X(MATMUL, matmul, "y[t] = w x[t]", -1)                                                         \
    X(ROPE, rope, "pairs (i, i + d/2) of heads turned by (position[t] + ahead) inv_freq[i]", 1e-9) \
    X(KV_WRITE, kv, "cache[sequence[t], position[t]] = (k[t], v[t]), shared as plan/kv.h says", 0) \
    X(ATTENTION, attention, "y[t, h] = sum_s softmax_s(q[t, h] . k[s, g(h)]) v[s, g(h)]", 1e-7)    \
    X(ADD, none, "y[t] = a[t] + b[t]", 0)                                                          \
    X(SCALE, scale, "y[t] = value * x[t]", 0)                                                      \
    X(GELU_MUL, gelu_mul, "y[t, j] = gelu(a[t, j]) * b[t, second_col + j]", 1e-9)                  \
    X(GATHER_ROWS, none, "y[r] = x[out_row[r]]", 0)                                                \
    X(CONCAT, none, "y[t] = (a[t], b[t])", 0)                                                      \
    X(ROUTE, route, "(id, c)[t] = top n_used of softmax(z[t]); c / sum(c) * scale[id]", 1e-9)      \
    X(EXPERT_IN, expert, "y[t, s] = w[id[t, s]] x[t]", -1)                                         \
    X(EXPERT_OUT, expert, "y[t] = sum_s c[t, s] * (w[id[t, s]] x[t, s])", -1)                      \
    X(SOFTCAP, softcap, "y[t] = cap * tanh(x[t] / cap)", 1e-10)                                    \
    X(INPUT, input, "y[t] = rows handed in by the runner: of another site, or from outside", 0)    \
    X(OUTPUT, none, "x[t] is read after this segment, by the engine or by a later one", 0)

#endif
