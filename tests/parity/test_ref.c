/* The reference backend, op by op, against the same formulas in double precision, written here
 * from their meaning and not from the kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/ref/ref.h"
#include "base/mem.h"
#include "parity/parity.h"

enum { SEED = 20260401 };

static struct parity_shape shapes[PARITY_SHAPES_MAX];
static size_t n_shapes;
static struct device *device;

/* ---- The formulas ----------------------------------------------------------------------- */

static const float *weight_row(const struct parity_case *c, int32_t expert, int64_t row)
{
    return c->weight_values +
           ((size_t)expert * (size_t)c->weight.rows + (size_t)row) * (size_t)c->weight.cols;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void formula_norm(const struct parity_case *c, int32_t r, double *y)
{
    const float *x = parity_input(c, 0, r);
    int32_t group = c->shape.group;
    for (int32_t j = 0; j < c->shape.cols; j++) {
        const float *mine = x + j / group * group;
        double mean = dot(mine, mine, group) / group;
        y[j] = (double)x[j] / sqrt(mean + (double)c->value);
        if (c->shape.has_weight) y[j] *= (double)c->weight_values[j % group];
    }
}

/* The angle is the product rounded to fp32, as the models were trained. */
static void formula_rope(const struct parity_case *c, int32_t r, double *y)
{
    const float *x = parity_input(c, 0, r);
    int32_t d = c->shape.group, position = c->step.position[parity_token(c, r)] + c->shape.ahead;
    for (int32_t j = 0; j < c->shape.cols; j++) {
        int32_t i = j % d, pair = i % (d / 2);
        float angle = (float)position * c->weight_values[pair];
        double a = (double)x[j - i + pair], b = (double)x[j - i + pair + d / 2];
        y[j] = i < d / 2 ? a * cos((double)angle) - b * sin((double)angle)
                         : b * cos((double)angle) + a * sin((double)angle);
    }
}

/* Key or value head at a position, rounded as the cache keeps it. */
static void cached_row(const struct parity_case *c, const struct weight *table, int32_t sequence,
                       int32_t position, int32_t head, float *out)
{
    const struct format_traits *traits = format_traits(c->cache.format);
    char stored[4 * 512];
    const float *row = (const float *)table->data +
                       (size_t)(sequence * c->n_position + position) * (size_t)table->cols;
    traits->encode(row + head * c->cache.head_dim, NULL, stored, c->cache.head_dim);
    traits->decode(stored, out, c->cache.head_dim);
}

static void attend(const struct parity_case *c, int32_t t, int32_t head, const float *q, double *y)
{
    int32_t d = c->shape.head_dim, window = c->shape.window, q_position = c->step.position[t];
    int32_t kv_head = head / (c->shape.n_heads / c->shape.n_kv_heads);
    float row[512];
    double scores[512], top = -INFINITY, sum = 0;
    assert_in_range(c->n_position, 1, 512);
    for (int32_t s = 0; s <= q_position; s++) {
        if (window && q_position - s >= window) continue;
        cached_row(c, &c->keys, c->step.sequence[t], s, kv_head, row);
        scores[s] = dot(q, row, d);
        top = fmax(top, scores[s]);
    }
    for (int32_t j = 0; j < d; j++) y[j] = 0;
    for (int32_t s = 0; s <= q_position; s++) {
        if (window && q_position - s >= window) continue;
        double share = exp(scores[s] - top);
        sum += share;
        cached_row(c, &c->values, c->step.sequence[t], s, kv_head, row);
        for (int32_t j = 0; j < d; j++) y[j] += share * (double)row[j];
    }
    for (int32_t j = 0; j < d; j++) y[j] /= sum;
}

/* Shares of the chosen experts: a softmax over their logits alone, which is the same. */
static double routed_share(const struct parity_case *c, int32_t t, int32_t slot)
{
    const float *z = (const float *)c->input[1].data + (size_t)t * (size_t)c->shape.n_expert;
    const int32_t *ids = c->routed + t * c->shape.n_used;
    double sum = 0;
    for (int32_t s = 0; s < c->shape.n_used; s++) sum += exp((double)z[ids[s]]);
    return exp((double)z[ids[slot]]) / sum;
}

static void formula_experts(const struct parity_case *c, int32_t r, double *y)
{
    int32_t t = parity_token(c, r), cols = c->shape.cols, inner = c->shape.inner;
    const float *x = parity_input(c, 0, r);
    for (int32_t j = 0; c->shape.code == OP_EXPERT_OUT && j < cols; j++) y[j] = 0;
    for (int32_t s = 0; s < c->shape.n_used; s++)
        for (int32_t j = 0; j < cols; j++) {
            const float *w = weight_row(c, c->routed[t * c->shape.n_used + s], j);
            if (c->shape.code == OP_EXPERT_IN)
                y[s * cols + j] = dot(w, x, inner);
            else
                y[j] += routed_share(c, t, s) * dot(w, x + s * inner, inner);
        }
}

static double formula_value(const struct parity_case *c, int32_t r, int32_t j)
{
    const float *x = c->input[0].data ? parity_input(c, 0, r) : NULL;
    int32_t x_cols = x ? (int32_t)c->input[0].cols : 0;
    double a = j < x_cols ? (double)x[j] : 0;
    switch (c->shape.code) {
    case OP_EMBED: /* one fp32 product */
        return (double)(c->value *
                        weight_row(c, 0, c->step.id[parity_token(c, r)])[c->shape.first + j]);
    case OP_MATMUL: return dot(weight_row(c, 0, j), x, c->shape.inner);
    case OP_ADD: return (double)(x[j] + parity_input(c, 1, r)[j]);
    case OP_SCALE: return (double)(c->value * x[j]);
    case OP_GATHER_ROWS: return a;
    case OP_CONCAT: return j < x_cols ? a : (double)parity_input(c, 1, r)[j - x_cols];
    case OP_SOFTCAP: return (double)c->value * tanh(a / (double)c->value);
    case OP_GELU_MUL:
        return 0.5 * a * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (a + 0.044715 * a * a * a))) *
               (double)parity_input(c, 1, r)[c->shape.first + j];
    default: fail_msg("no formula for %s", op_name(c->shape.code)); return 0;
    }
}

static void formula_row(const struct parity_case *c, int32_t r, double *y)
{
    const struct parity_shape *s = &c->shape;
    switch (s->code) {
    case OP_RMSNORM: formula_norm(c, r, y); return;
    case OP_ROPE: formula_rope(c, r, y); return;
    case OP_EXPERT_IN:
    case OP_EXPERT_OUT: formula_experts(c, r, y); return;
    case OP_ATTENTION:
        for (int32_t h = 0; h < s->n_heads; h++)
            attend(c, parity_token(c, r), h, parity_input(c, 0, r) + h * s->head_dim,
                   y + h * s->head_dim);
        return;
    default:
        for (int32_t j = 0; j < s->cols; j++) y[j] = formula_value(c, r, j);
    }
}

/* ---- Checks ----------------------------------------------------------------------------- */

/* Error of the reference itself, in fp32: far below every budget that other backends get. */
static double allowed_error(const struct parity_shape *s)
{
    switch (s->code) {
    case OP_EMBED:
    case OP_ADD:
    case OP_SCALE:
    case OP_KV_WRITE:
    case OP_CONCAT:
    case OP_GATHER_ROWS: return 0;
    /* A score of about 10 is rounded by up to 6e-7 before its exponent, which moves its share as
     * far: 4e-13 of a square, or some more where few keys have most of the weight. */
    case OP_ATTENTION: return 1e-12;
    default: return 1e-13;
    }
}

static void check_rows(const struct parity_case *c, const struct parity_result *out,
                       const char *label)
{
    int32_t rows = c->shape.rows_class == ROWS_TOKEN ? c->step.n_token : c->step.n_out;
    size_t cols = out->n_y[0] / (size_t)rows;
    double *exact = malloc(cols * sizeof *exact);
    float *expected = malloc(out->n_y[0] * sizeof *expected);
    assert_true(exact && expected);
    for (int32_t r = 0; r < rows; r++) {
        formula_row(c, r, exact);
        for (size_t j = 0; j < cols; j++) expected[(size_t)r * cols + j] = (float)exact[j];
    }
    double error = parity_nmse(out->y[0], expected, out->n_y[0]);
    double allowed = allowed_error(&c->shape);
    if (error > allowed) fail_msg("%s: error %g, at most %g expected", label, error, allowed);
    free(exact);
    free(expected);
}

/* The best logits in falling order, the lower id first among equals; shares of their softmax. */
static void check_routes(const struct parity_case *c, const struct parity_result *out,
                         const char *label)
{
    int32_t n = c->shape.inner, n_used = c->shape.n_used;
    int32_t rows = (int32_t)out->n_y[0] / n_used;
    for (int32_t r = 0; r < rows; r++) {
        const float *z = parity_input(c, 0, r);
        const int32_t *ids = (const int32_t *)(const void *)out->y[0] + r * n_used;
        bool taken[1024] = {false};
        double sum = 0;
        for (int32_t s = 0; s < n_used; s++) {
            int32_t best = -1;
            for (int32_t e = 0; e < n; e++)
                if (!taken[e] && (best < 0 || z[e] > z[best])) best = e;
            if (ids[s] != best)
                fail_msg("%s: row %d slot %d: expert %d expected, %d found", label, r, s, best,
                         ids[s]);
            taken[best] = true;
            sum += exp((double)z[best]);
        }
        for (int32_t s = 0; s < n_used; s++) {
            double share = exp((double)z[ids[s]]) / sum;
            if (c->shape.has_weight) share *= (double)c->weight_values[ids[s]];
            double found = (double)out->y[1][r * n_used + s];
            if (!(fabs(found - share) <= 1e-6 * fabs(share)))
                fail_msg("%s: row %d slot %d: share %g expected, %g found", label, r, s, share,
                         found);
        }
    }
}

/* The token of the step that is written to a cell of a page; -1: none is. */
static int32_t token_in(const struct parity_case *c, int32_t page, int32_t cell)
{
    size_t at = c->k_at + (size_t)page * c->cache.page_bytes +
                (size_t)cell * (size_t)kv_cell_bytes(&c->cache);
    int32_t t = c->step.n_token - 1;
    while (t >= 0 && parity_offset(c, c->step.sequence[t], c->step.position[t]) != at) t--;
    return t;
}

static void check_cell(const struct parity_case *c, const struct parity_result *out, int32_t page,
                       int32_t cell, const char *label)
{
    const struct format_traits *traits = format_traits(c->cache.format);
    int32_t d = c->cache.head_dim, t = token_in(c, page, cell);
    const char *at = out->pool + (size_t)page * c->cache.page_bytes +
                     (size_t)cell * (size_t)kv_cell_bytes(&c->cache);
    for (int32_t i = 0; i < 2 * c->cache.n_heads; i++) {
        int32_t head = i / 2;
        float stored[512], found[512], expected[512];
        traits->decode(at + (i % 2 ? c->v_at : c->k_at) + head * c->cache.head_bytes, stored, d);
        for (int32_t j = 0; j < d; j++)
            found[i % 2 ? kv_value_column(&c->cache, j) : kv_key_column(&c->cache, j)] = stored[j];
        for (int32_t j = 0; j < d; j++) expected[j] = NAN;
        if (t >= 0)
            cached_row(c, i % 2 ? &c->values : &c->keys, c->step.sequence[t], c->step.position[t],
                       head, expected);
        for (int32_t j = 0; j < d; j++)
            if (!(found[j] == expected[j] || (isnan(found[j]) && isnan(expected[j]))))
                fail_msg("%s: page %d cell %d head %d value %d: %g expected, %g found", label, page,
                         cell, head, j, (double)expected[j], (double)found[j]);
    }
}

/* Rows of the step are in their cells; all other cells still hold NaN. */
static void check_cells(const struct parity_case *c, const struct parity_result *out,
                        const char *label)
{
    int32_t n_written = 0;
    for (int32_t page = 1; page < c->n_pages; page++)
        for (int32_t cell = 0; cell < KV_PAGE; cell++) {
            check_cell(c, out, page, cell, label);
            n_written += token_in(c, page, cell) >= 0;
        }
    assert_int_equal(n_written, c->step.n_token);
}

static size_t check_op(enum op_code code)
{
    size_t n = 0;
    for (size_t i = 0; i < n_shapes; i++) {
        if (shapes[i].code != code) continue;
        struct parity_case c;
        struct parity_result out;
        struct carat_error err = {0};
        char label[160];
        parity_label(&shapes[i], label);
        assert_true(parity_case_init(&c, &shapes[i], SEED + i));
        if (parity_run(&ref_backend, device, &c, &out, &err))
            fail_msg("%s: %s", label, err.message);
        if (out.problem[0]) fail_msg("%s: %s", label, out.problem);
        if (code == OP_KV_WRITE)
            check_cells(&c, &out, label);
        else if (code == OP_ROUTE)
            check_routes(&c, &out, label);
        else
            check_rows(&c, &out, label);
        parity_result_deinit(&out);
        parity_case_deinit(&c);
        n++;
    }
    return n;
}

#define X(NAME, params, meaning, budget)                                                           \
    static void NAME##_equals_its_formula(void **state)                                            \
    {                                                                                              \
        (void)state;                                                                               \
        bool is_computed = OP_##NAME != OP_INPUT && OP_##NAME != OP_OUTPUT;                        \
        if (is_computed && check_op(OP_##NAME) == 0) fail_msg("%s has no case", #NAME);            \
    }
OP_LIST(X)
#undef X

/* The budgets of other backends are above the error of the reference itself. */
static void budgets_leave_room_for_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_shapes; i++) {
        double budget = parity_budget(&shapes[i]);
        assert_true(budget >= allowed_error(&shapes[i]));
        assert_true(budget < 1e-2);
    }
}

/* The harness sees what it claims to see: a kernel that writes one value too many, and one that
 * reads a cell that no row may see. */
static void broken_write(struct program *program, const struct step *step)
{
    struct step longer = *step;
    if (step->n_token == 4) longer.n_token += 3; /* one more than the plan's rows */
    ref_backend.run(program, &longer);
}

static void the_harness_notices_writes_after_a_buffer(void **state)
{
    (void)state;
    struct backend broken = ref_backend;
    struct parity_shape shape = {.code = OP_SCALE, .rows = 4, .cols = 64};
    struct parity_case c;
    struct parity_result out;
    struct carat_error err = {0};
    assert_true(parity_case_init(&c, &shape, SEED));
    int32_t longer[] = {0, 1, 2, 3, 0, 0, 0}, *id = c.step.id;
    c.step.id = longer;
    broken.run = broken_write;
    assert_int_equal(parity_run(&broken, device, &c, &out, &err), CARAT_OK);
    assert_string_not_equal(out.problem, "");
    c.step.id = id;
    parity_result_deinit(&out);
    parity_case_deinit(&c);
}

static void the_harness_notices_reads_of_unseen_cells(void **state)
{
    (void)state;
    struct parity_shape shape = {.code = OP_ATTENTION,
                                 .rows = 3,
                                 .cols = 64,
                                 .n_heads = 2,
                                 .n_kv_heads = 1,
                                 .head_dim = 32,
                                 .window = 5,
                                 .capacity = 12,
                                 .depth = 20};
    struct parity_case c;
    struct parity_result out;
    struct carat_error err = {0};
    assert_true(parity_case_init(&c, &shape, SEED));
    c.shape.window = 6; /* what the op gets; the cells are filled for 5 */
    assert_int_equal(parity_run(&ref_backend, device, &c, &out, &err), CARAT_OK);
    assert_true(isinf(parity_nmse(out.y[0], out.y[0], out.n_y[0])));
    parity_result_deinit(&out);
    parity_case_deinit(&c);
}

static int open_device(void **state)
{
    (void)state;
    struct carat_error err = {0};
    print_message("seed %d\n", SEED);
    n_shapes = parity_shapes(shapes);
    return ref_backend.open(&device, 0, &(struct device_options){0}, &err);
}

static int close_device(void **state)
{
    (void)state;
    ref_backend.close(device);
    return mem_blocks_live() == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define X(NAME, params, meaning, budget) cmocka_unit_test(NAME##_equals_its_formula),
        OP_LIST(X)
#undef X
            cmocka_unit_test(budgets_leave_room_for_fp32),
        cmocka_unit_test(the_harness_notices_writes_after_a_buffer),
        cmocka_unit_test(the_harness_notices_reads_of_unseen_cells),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
