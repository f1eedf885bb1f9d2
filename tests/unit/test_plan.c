/* Plans: what the recorder asserts, what the placer promises, and what the forward pass of each
 * kind of model looks like as a program. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/model_file.h"
#include "model/forward.h"
#include "plan/emit.h"

#define FIXTURES CARAT_SOURCE_DIR "/tests/golden/fixtures/"

static const char *const names[] = {"e2b-q8_0", "e4b-q4_0", "12b-q4_k", "26b-q4_0", "31b-mixed"};
enum { N_MODELS = sizeof names / sizeof *names, N_SITES = 2 };

static carat_model *models[N_MODELS];
static struct kv_cache caches[LAYERS_MAX];

static int open_models(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        char path[4096];
        struct carat_error err = {0};
        snprintf(path, sizeof path, FIXTURES "%s.gguf", names[i]);
        if (carat_model_open(&models[i], path, &err)) fail_msg("%s", err.message);
    }
    return 0;
}

static int close_models(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODELS; i++) carat_model_close(models[i]);
    assert_int_equal(mem_blocks_live(), 0);
    return 0;
}

/* The pass of a model, all of it on one device. */
static void record(struct plan *p, int model)
{
    const struct weights *w = &models[model]->weights;
    const struct gemma_config *c = &models[model]->config;
    struct split undivided = split_with_rest(c, c->n_layer, 0);
    gemma_forward(p, &models[model]->config, &w, &undivided);
}

static void shape_caches(int model, int32_t rows)
{
    const struct gemma_config *c = &models[model]->config;
    for (int32_t l = 0; l < c->n_kv_layer; l++)
        caches[l] = kv_cache_shape(FORMAT_F32, gemma_kv_slots(c, gemma_kv_kind(c, l), 256, rows),
                                   c->layer[l].n_kv_heads, c->layer[l].head_dim);
}

static void compile(struct plan *p, int model, int32_t rows, int32_t outs)
{
    struct carat_error err = {0};
    shape_caches(model, rows);
    plan_init(p, rows, outs, caches, models[model]->config.n_kv_layer);
    record(p, model);
    assert_int_equal(plan_close(p, &err), CARAT_OK);
}

/* ---- Placement -------------------------------------------------------------------------- */

static void check_pair(const struct plan *p, int32_t i, int32_t k, const char *name)
{
    const struct plan_buf *a = &p->bufs[i], *b = &p->bufs[k];
    bool live_together = a->first_op <= b->last_op && b->first_op <= a->last_op;
    bool overlap = a->offset < b->offset + plan_buf_bytes(p, (buf_id)k) &&
                   b->offset < a->offset + plan_buf_bytes(p, (buf_id)i);
    if (live_together && overlap)
        fail_msg("%s: buffers %d (ops %d to %d) and %d (ops %d to %d) overlap", name, i,
                 a->first_op, a->last_op, k, b->first_op, b->last_op);
}

static void buffers_that_live_together_never_overlap(void **state)
{
    (void)state;
    static const int32_t rows[][2] = {{1, 1}, {2, 2}, {7, 3}, {64, 1}, {513, 32}, {33, 33}};
    for (int m = 0; m < N_MODELS; m++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            struct plan p;
            size_t sum = 0;
            compile(&p, m, rows[r][0], rows[r][1]);
            for (int32_t i = 0; i < p.n_bufs; i++) {
                assert_int_equal(p.bufs[i].offset % 256, 0);
                assert_true(p.bufs[i].offset + plan_buf_bytes(&p, (buf_id)i) <= p.bytes);
                sum += plan_buf_bytes(&p, (buf_id)i);
                for (int32_t k = 0; k < i; k++) check_pair(&p, i, k, names[m]);
            }
            assert_true(p.bytes < sum); /* memory is used again */
            plan_deinit(&p);
        }
}

/* Recounted from the ops, not taken from the recorder. */
static void lifetimes_are_from_the_writer_to_the_last_reader(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct plan p;
        compile(&p, m, 8, 8);
        int32_t *writers = calloc((size_t)p.n_bufs, sizeof *writers);
        int32_t *last = calloc((size_t)p.n_bufs, sizeof *last);
        assert_true(writers && last);
        for (int32_t i = 0; i < p.n_ops; i++) {
            for (int k = 0; k < 3; k++)
                if (p.ops[i].in[k] != BUF_NONE) {
                    assert_int_equal(writers[p.ops[i].in[k]], 1); /* written before it is read */
                    last[p.ops[i].in[k]] = i;
                }
            for (int k = 0; k < 2; k++)
                if (p.ops[i].out[k] != BUF_NONE) {
                    writers[p.ops[i].out[k]]++;
                    last[p.ops[i].out[k]] = i;
                    assert_int_equal(p.bufs[p.ops[i].out[k]].first_op, i);
                }
        }
        last[p.logits] = p.n_ops; /* read by the engine */
        for (int32_t b = 0; b < p.n_bufs; b++) {
            assert_int_equal(writers[b], 1);
            assert_int_equal(p.bufs[b].last_op, last[b]);
            if (b != p.logits && p.bufs[b].first_op == last[b])
                fail_msg("%s: nobody reads buffer %d", names[m], b);
        }
        free(writers);
        free(last);
        plan_deinit(&p);
    }
}

/* ---- Segments --------------------------------------------------------------------------- */

/* Each buffer that a segment reads was written by the segment itself, or an earlier segment of
 * the same plan left it there and was told to keep it. */
static void check_cut(const struct plan *whole, const struct plan *cut, int32_t first, bool *kept)
{
    assert_int_equal(cut->bytes, whole->bytes);
    for (int32_t i = 0; i < cut->n_ops; i++) {
        const struct op *op = &cut->ops[i];
        assert_int_equal(op->window, 1);
        for (int k = 0; k < 3; k++) {
            if (op->in[k] == BUF_NONE) continue;
            const struct plan_buf *b = &cut->bufs[op->in[k]];
            assert_int_equal(b->offset, whole->bufs[op->in[k]].offset);
            assert_false(plan_buf_is_internal(cut, op->in[k]));
            if (b->first_op < 0) assert_true(kept[op->in[k]]);
            if (op->code == OP_OUTPUT) kept[op->in[k]] = true;
        }
        for (int k = 0; k < 2; k++)
            if (op->out[k] != BUF_NONE)
                assert_int_equal(cut->bufs[op->out[k]].first_op + first,
                                 whole->bufs[op->out[k]].first_op);
    }
}

static void segments_find_what_earlier_ones_left(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        const struct gemma_config *c = &models[m]->config;
        const struct weights *w[] = {&models[m]->weights, &models[m]->weights};
        shape_caches(m, 16);
        for (int32_t n = 0; n <= c->n_layer; n++) {
            struct split split = split_with_rest(c, n, 1);
            struct plan whole, plans[N_SITES], cut;
            struct plan_run *runs;
            int32_t n_runs;
            struct carat_error err = {0};
            for (int i = 0; i < N_SITES; i++) plan_init(&plans[i], 16, 2, caches, c->n_kv_layer);
            plan_init(&whole, 16, 2, caches, c->n_kv_layer);
            gemma_forward(&whole, c, w, &split);
            assert_int_equal(plan_divide(&whole, plans, N_SITES, &runs, &n_runs, &err), CARAT_OK);
            plan_deinit(&whole);
            for (int i = 0; i < N_SITES; i++) {
                const struct plan *p = &plans[i];
                assert_int_equal(p->n_ops > 0, split_uses(c, &split, i));
                assert_int_equal(plan_close(&plans[i], &err), CARAT_OK);
                for (int32_t k = 0; k < p->n_bufs; k++)
                    for (int32_t j = 0; j < k; j++) check_pair(p, k, j, names[m]);
                bool *kept = calloc((size_t)p->n_bufs + 1, sizeof *kept);
                int32_t done = 0;
                for (int32_t k = 0; k < n_runs; k++) {
                    if (runs[k].site != i) continue;
                    assert_int_equal(runs[k].first, done);
                    assert_true(runs[k].end > done);
                    assert_int_equal(plan_cut(p, done, runs[k].end, &cut, &err), CARAT_OK);
                    check_cut(p, &cut, done, kept);
                    plan_deinit(&cut);
                    done = runs[k].end;
                }
                assert_int_equal(done, p->n_ops);
                free(kept);
            }
            mem_free(runs);
            for (int i = 0; i < N_SITES; i++) plan_deinit(&plans[i]);
        }
    }
}

/* ---- Records and assertions ------------------------------------------------------------- */

static void a_record_is_64_bytes(void **state)
{
    (void)state;
    assert_int_equal(sizeof(struct op), 64);
    assert_true(OP_COUNT <= 32);
    for (int i = 0; i < OP_COUNT; i++) {
        assert_true(op_name((enum op_code)i)[0] && op_meaning((enum op_code)i)[0]);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(op_name((enum op_code)i), op_name((enum op_code)k));
    }
}

/* Runs `misuse` in a child, which must end by an assertion. */
static void check_asserts(void (*misuse)(struct plan *p, buf_id x))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct plan p;
        static struct weight table = {.name = "t",
                                      .format = FORMAT_F32,
                                      .n_expert = 1,
                                      .rows = 4,
                                      .cols = 8,
                                      .row_bytes = 32};
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        plan_init(&p, 4, 2, NULL, 0);
        misuse(&p, emit_embed(&p, ROWS_TOKEN, &table, 1, 0, 8));
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void write_twice(struct plan *p, buf_id x)
{
    struct op op = {.code = OP_SCALE, .in = {x, BUF_NONE, BUF_NONE}, .out = {x, BUF_NONE}};
    plan_emit(p, &op);
}

static void read_unwritten(struct plan *p, buf_id x)
{
    (void)x;
    emit_scale(p, plan_buf_add(p, ROWS_TOKEN, 8), 1);
}

static void read_unknown(struct plan *p, buf_id x)
{
    emit_scale(p, (buf_id)(x + 1), 1);
}

static void add_other_width(struct plan *p, buf_id x)
{
    static struct weight wide = {
        .name = "w", .format = FORMAT_F32, .n_expert = 1, .rows = 4, .cols = 16, .row_bytes = 64};
    emit_add(p, x, emit_embed(p, ROWS_TOKEN, &wide, 1, 0, 16));
}

static void add_other_rows(struct plan *p, buf_id x)
{
    emit_add(p, x, emit_gather_rows(p, x));
}

static void gather_twice(struct plan *p, buf_id x)
{
    emit_gather_rows(p, emit_gather_rows(p, x));
}

static void multiply_wrong_width(struct plan *p, buf_id x)
{
    static struct weight w = {
        .name = "w", .format = FORMAT_F32, .n_expert = 1, .rows = 4, .cols = 9, .row_bytes = 36};
    emit_matmul(p, x, &w);
}

static void embed_beyond_the_row(struct plan *p, buf_id x)
{
    (void)x;
    static struct weight w = {
        .name = "w", .format = FORMAT_F32, .n_expert = 1, .rows = 4, .cols = 9, .row_bytes = 36};
    emit_embed(p, ROWS_TOKEN, &w, 1, 5, 5);
}

static void norm_uneven_groups(struct plan *p, buf_id x)
{
    emit_groupnorm(p, x, NULL, 3, 1e-6f);
}

static void rotate_part_of_a_head(struct plan *p, buf_id x)
{
    static struct weight w = {
        .name = "f", .format = FORMAT_F32, .n_expert = 1, .rows = 1, .cols = 3, .row_bytes = 12};
    emit_rope(p, x, &w, 6, 0);
}

static void cache_that_is_not_there(struct plan *p, buf_id x)
{
    emit_kv_write(p, x, x, 0);
}

static void use_more_experts_than_there_are(struct plan *p, buf_id x)
{
    buf_id ids, shares;
    emit_route(p, x, NULL, 9, &ids, &shares);
}

static void mistakes_in_recording_are_assertions(void **state)
{
    (void)state;
    static void (*const misuses[])(struct plan *, buf_id) = {
        write_twice,           read_unwritten,          read_unknown,
        add_other_width,       add_other_rows,          gather_twice,
        multiply_wrong_width,  embed_beyond_the_row,    norm_uneven_groups,
        rotate_part_of_a_head, cache_that_is_not_there, use_more_experts_than_there_are,
    };
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        print_message("misuse %zu\n", i);
        check_asserts(misuses[i]);
    }
}

static void running_out_of_memory_is_told_once_at_the_end(void **state)
{
    (void)state;
    const struct gemma_config *c = &models[3]->config;
    long before = mem_blocks_live();
    struct plan p;
    compile(&p, 3, 4, 4); /* for the shapes of the caches */
    plan_deinit(&p);
    for (long n = 0;; n++) {
        struct carat_error err = {0};
        plan_init(&p, 4, 4, caches, c->n_kv_layer);
        mem_fail_after(n);
        record(&p, 3);
        int status = plan_close(&p, &err);
        int delivered = mem_fail_after(-1);
        plan_deinit(&p);
        assert_int_equal(mem_blocks_live(), before);
        assert_int_equal(status, delivered ? CARAT_EMEMORY : CARAT_OK);
        if (!delivered) break;
    }
}

/* ---- The programs ----------------------------------------------------------------------- */

static void the_text_has_a_line_for_every_op(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct plan p;
        struct buf text = {0};
        compile(&p, m, 16, 2);
        plan_print(&p, &text);
        assert_false(text.failed);
        const char *line = strchr(text.data, '\n') + 1;
        for (int32_t i = 0; i < p.n_ops; i++) {
            char expected[64], *end = strchr(line, '\n');
            assert_non_null(end);
            *end = '\0';
            snprintf(expected, sizeof expected, "%5d ", i);
            assert_memory_equal(line, expected, strlen(expected));
            assert_non_null(strstr(line, op_name((enum op_code)p.ops[i].code)));
            line = end + 1;
        }
        assert_string_equal(line, "");
        buf_deinit(&text);
        plan_deinit(&p);
    }
}

/* The rows that an op computes. */
static enum row_class class_of(const struct plan *p, const struct op *op)
{
    buf_id shaped = op->out[0] != BUF_NONE ? op->out[0] : op->in[0];
    return p->bufs[shaped].rows;
}

static void token_rows_end_with_the_last_layer_that_owns_keys(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct plan p;
        compile(&p, m, 16, 2);
        int32_t last = models[m]->config.n_kv_layer - 1, writes = 0;
        for (int32_t i = 0; i < p.n_ops; i++) {
            const struct op *op = &p.ops[i];
            bool is_token = class_of(&p, op) == ROWS_TOKEN;
            if (op->code == OP_KV_WRITE) {
                assert_int_equal(op->layer, writes); /* each layer reads its own, in order */
                assert_int_equal(op->p.kv.cache, writes++);
                assert_true(is_token);
            } else if (op->layer != LAYER_NONE && op->layer < last) {
                assert_true(is_token);
            } else if (op->layer != LAYER_NONE && writes > last) {
                assert_false(is_token);
            }
            /* The last of them computes only what K and V need: a norm, projections, norms,
             * rotation. */
            if (op->layer == last && is_token)
                assert_true(op->code == OP_RMSNORM || op->code == OP_MATMUL ||
                            op->code == OP_ROPE || op->code == OP_KV_WRITE);
        }
        assert_int_equal(writes, last + 1);
        assert_int_equal(p.bufs[p.logits].rows, ROWS_OUT);
        assert_int_equal(p.bufs[p.logits].cols, models[m]->config.n_vocab);
        plan_deinit(&p);
    }
}

/* Ops of a layer that owns keys and is not the last such layer: norm, q k v, 3 head norms, 2
 * rotations, write, attend, project, norm, add (13, one fewer without attn_v); norm, gate, up,
 * activation, down, norm, add (7); with experts two norms and an add around norm, router, route,
 * norm, gate, up, activation, down (11); per-layer input 5; layer scale 1. */
static int32_t expected_ops(const struct gemma_config *c, int32_t l)
{
    const struct layer_spec *s = &c->layer[l];
    int32_t n = 1 + 1 + 1 + 1 + 1 + 3; /* norm, q, its norm and rotation, attend, output */
    if (s->has_kv) n += (s->k_eq_v ? 1 : 2) + 2 + 1 + 1;
    if (l == c->n_kv_layer - 1) n += 2; /* gathers */
    n += 7;
    if (c->n_expert) n += 11;
    if (c->n_ple) n += 5;
    return n + 1;
}

/* One after the other, but for what is gathered, they are the ops of any other plan. */
static void plans_of_steps_that_want_all_rows_gather_nothing(void **state)
{
    (void)state;
    struct carat_error err = {0};
    for (int m = 0; m < N_MODELS; m++) {
        struct plan any, all;
        compile(&any, m, 8, 8);
        plan_init(&all, 8, 8, caches, models[m]->config.n_kv_layer);
        plan_want_all(&all);
        record(&all, m);
        assert_int_equal(plan_close(&all, &err), CARAT_OK);
        int32_t n_gathered = 0, products[2] = {0};
        for (int32_t i = 0; i < any.n_ops; i++) {
            n_gathered += any.ops[i].code == OP_GATHER_ROWS;
            products[0] += any.ops[i].code == OP_MATMUL;
        }
        for (int32_t i = 0; i < all.n_ops; i++) {
            assert_int_not_equal(all.ops[i].code, OP_GATHER_ROWS);
            products[1] += all.ops[i].code == OP_MATMUL;
        }
        for (int32_t b = 0; b < all.n_bufs; b++)
            assert_int_equal(plan_buf_at(&all, (buf_id)b)->rows, ROWS_TOKEN);
        assert_true(n_gathered > 0);
        assert_int_equal(all.n_ops, any.n_ops - n_gathered);
        assert_int_equal(products[0], products[1]);
        plan_deinit(&any);
        plan_deinit(&all);
    }
}

static void every_layer_has_the_ops_it_needs_and_no_more(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        const struct gemma_config *c = &models[m]->config;
        struct plan p;
        int32_t counts[LAYERS_MAX] = {0}, outside = 0;
        compile(&p, m, 16, 2);
        for (int32_t i = 0; i < p.n_ops; i++) {
            if (p.ops[i].layer == LAYER_NONE)
                outside++;
            else
                counts[p.ops[i].layer]++;
        }
        for (int32_t l = 0; l < c->n_layer; l++)
            if (counts[l] != expected_ops(c, l))
                fail_msg("%s: layer %d: %d ops expected, %d found", names[m], l, expected_ops(c, l),
                         counts[l]);
        assert_int_equal(outside, 4 + (c->n_ple ? 13 : 0));
        plan_deinit(&p);
    }
}

/* Pitfalls of the family, checked in the program. */
static void values_come_from_raw_keys_where_there_is_no_projection(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct plan p;
        compile(&p, m, 4, 4);
        for (int32_t i = 0; i < p.n_ops; i++) {
            if (p.ops[i].code != OP_KV_WRITE) continue;
            const struct op *k_rope = &p.ops[p.bufs[p.ops[i].in[0]].first_op];
            const struct op *v_norm = &p.ops[p.bufs[p.ops[i].in[1]].first_op];
            assert_int_equal(k_rope->code, OP_ROPE);
            assert_int_equal(v_norm->code, OP_RMSNORM);
            assert_null(v_norm->p.norm.w);
            const struct op *k_norm = &p.ops[p.bufs[k_rope->in[0]].first_op];
            assert_non_null(k_norm->p.norm.w);
            const struct op *v_raw = &p.ops[p.bufs[v_norm->in[0]].first_op];
            assert_int_equal(v_raw->code, OP_MATMUL);
            bool is_shared = models[m]->config.layer[p.ops[i].layer].k_eq_v;
            assert_int_equal(v_norm->in[0] == k_norm->in[0], is_shared);
        }
        plan_deinit(&p);
    }
}

static void attention_reads_the_donor_with_the_window_of_its_kind(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        const struct gemma_config *c = &models[m]->config;
        struct plan p;
        compile(&p, m, 4, 4);
        for (int32_t i = 0; i < p.n_ops; i++) {
            const struct op *op = &p.ops[i];
            if (op->code != OP_ATTENTION) continue;
            const struct layer_spec *s = &c->layer[op->layer];
            int32_t donor = op->p.attention.cache;
            assert_int_equal(c->layer[donor].is_global, s->is_global);
            assert_int_equal(op->p.attention.window, s->is_global ? 0 : c->window);
            if (op->layer < c->n_kv_layer)
                assert_int_equal(donor, op->layer);
            else
                assert_true(donor >= c->n_kv_layer - 2);
        }
        plan_deinit(&p);
    }
}

static void a_ring_holds_the_window_and_the_rows_of_a_step(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        const struct gemma_config *c = &models[m]->config;
        for (int32_t rows = 1; rows < 300; rows += 7) {
            assert_int_equal(gemma_kv_slots(c, KV_GLOBAL, 200, rows), kv_pages(200));
            /* The positions that the rows of a step see may begin anywhere in a page. */
            int32_t slots = gemma_kv_slots(c, KV_LOCAL, 200, rows), seen = c->window + rows - 1;
            for (int32_t first = 0; first + seen <= 200; first++)
                assert_true((first + seen - 1) / KV_PAGE - first / KV_PAGE < slots);
            assert_true(slots <= kv_pages(200));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_that_live_together_never_overlap),
        cmocka_unit_test(lifetimes_are_from_the_writer_to_the_last_reader),
        cmocka_unit_test(segments_find_what_earlier_ones_left),
        cmocka_unit_test(a_record_is_64_bytes),
        cmocka_unit_test(mistakes_in_recording_are_assertions),
        cmocka_unit_test(running_out_of_memory_is_told_once_at_the_end),
        cmocka_unit_test(the_text_has_a_line_for_every_op),
        cmocka_unit_test(token_rows_end_with_the_last_layer_that_owns_keys),
        cmocka_unit_test(plans_of_steps_that_want_all_rows_gather_nothing),
        cmocka_unit_test(every_layer_has_the_ops_it_needs_and_no_more),
        cmocka_unit_test(values_come_from_raw_keys_where_there_is_no_projection),
        cmocka_unit_test(attention_reads_the_donor_with_the_window_of_its_kind),
        cmocka_unit_test(a_ring_holds_the_window_and_the_rows_of_a_step),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
