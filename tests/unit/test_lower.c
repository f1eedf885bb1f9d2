/* Plans lowered to records, on a runtime that only counts. What is counted without memory is
 * what is used with it. Kernels get what they read. Launching and recording start the same
 * kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_CUDA

#include "backend/cuda/act.h"
#include "backend/cuda/crowd.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/loaded.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/program.h"
#include "backend/cuda/recording.h"
#include "backend/cuda/start.h"
#include "engine/engine.h"
#include "support/engines.h"
#include "support/fake_cuda.h"

static const struct carat_engine_options settings[] = {
    {.matmul = CARAT_MATMUL_FP16},
    {.matmul = CARAT_MATMUL_FP16, .mirror_budget = 100000},
    {.matmul = CARAT_MATMUL_FP16, .mirror_budget = -1, .n_seq = 70},
    {.matmul = CARAT_MATMUL_FP16, .no_cublas = true},
    {.matmul = CARAT_MATMUL_INT8, .chunk = 300, .n_seq = 5},
    {.matmul = CARAT_MATMUL_INT8, .mirror_budget = -1},
    {.matmul = CARAT_MATMUL_FP16, .n_seq = 300, .n_ctx = 64, .chunk = 64},
    {.matmul = CARAT_MATMUL_INT8, .chunk = 16, .ple_place = CARAT_PLE_HOST},
    {.matmul = CARAT_MATMUL_FP16, .gpu_layers = 3},
    {.matmul = CARAT_MATMUL_FP16, .no_fusion = true},
    {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16},
    {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16, .n_seq = 70, .chunk = 200},
    {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16, .n_seq = 300, .n_ctx = 64},
    {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16, .mirror_budget = -1},
    {.matmul = CARAT_MATMUL_INT8, .decode_matmul = CARAT_MATMUL_FP16, .n_seq = 5},
    {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16, .deterministic = true},
    {.decode_matmul = CARAT_MATMUL_FP16, .deterministic = true, .n_seq = 33},
    {.matmul = CARAT_MATMUL_FP16, .deterministic = true, .n_seq = 64},
    {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16, .no_fusion = true},
    {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16, .gpu_layers = 3},
    {.precision = CARAT_PRECISION_FP32},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

typedef void check_fn(const carat_engine *e, const struct carat_engine_options *o);

static void on_engine(const carat_model *model, const struct carat_engine_options *options,
                      check_fn *check)
{
    struct carat_engine_options o = *options;
    o.backend = "cuda";
    reset(GIGABYTE);
    carat_engine *e = open_engine(model, &o);
    assert_int_equal(fake.device, told(carat_engine_memory(e)));
    check(e, &o);
    carat_engine_close(e);
    assert_int_equal(fake.device, 0);
}

static void on_all_engines(check_fn *check)
{
    for (int size = 0; size < GEMMA_SIZES; size++)
        for (size_t i = 0; i < N_SETTINGS; i++) on_engine(models[size], &settings[i], check);
}

typedef void check_program_fn(const struct program *p);

static void on_programs(const carat_engine *e, check_program_fn *check)
{
    const struct plans *plans = &e->runner->layout.plans;
    int n = 0;
    for (int32_t i = 0; i < plans->n_buckets; i++)
        for (int32_t k = 0; k < plans->buckets[i].n_segments; k++)
            if (plans->buckets[i].segments[k].site == FIRST_TARGET) {
                check(plans->buckets[i].segments[k].program);
                n++;
            }
    assert_true(n > 0);
}

/* ---- Sizes ------------------------------------------------------------------------------ */

/* The memory was taken before any weight was there. */
static void check_counted(const carat_engine *e, const struct carat_engine_options *o)
{
    const struct layout *y = &e->runner->layout;
    const struct device *d = y->targets[FIRST_TARGET].device;
    size_t most = 0;
    for (int32_t i = 0; i < y->plans.n_buckets; i++) {
        size_t bytes = cuda_scratch_bytes(d, &y->plans.buckets[i].plans[FIRST_TARGET]);
        if (bytes > most) most = bytes;
    }
    assert_true(most <= y->plans.scratch_bytes[FIRST_TARGET]);
    bool has_mirrors = o->precision != CARAT_PRECISION_FP32 && o->mirror_budget >= 0;
    if (!has_mirrors) assert_int_equal(most, y->plans.scratch_bytes[FIRST_TARGET]);
}

static void scratch_counted_without_weights_is_what_is_used_with_them(void **state)
{
    (void)state;
    on_all_engines(check_counted);
}

/* With memory of just the size that was counted. Lowering asserts that it asks for the same
 * again, and all that it gives out is inside. */
static void check_lowered_again(const struct program *p)
{
    struct carat_error err = {0};
    struct lowered again;
    size_t bytes = lower_scratch_bytes(p->device, p->plan);
    char *memory = mem_alloc(p->plan->bytes + 1, 1), *work = mem_alloc(bytes + 1, 1);
    assert_int_equal(lower_plan(&again, p->device, p->plan, memory, work, &err), CARAT_OK);
    assert_int_equal(again.records.n, p->lowered.records.n);
    assert_int_equal(again.records.args_bytes, p->lowered.records.args_bytes);
    assert_ptr_equal(again.step.counts, work);
    assert_int_equal(again.workspace_bytes, p->lowered.workspace_bytes);
    if (again.workspace)
        assert_ptr_equal((char *)again.workspace + again.workspace_bytes, work + bytes);
    for (int32_t i = 0; i < again.records.n; i++) {
        const struct record *a = &again.records.all[i], *b = &p->lowered.records.all[i];
        assert_true(a->start == b->start && a->op == b->op);
        assert_true(a->rows_class == b->rows_class && a->size == b->size);
    }
    records_deinit(&again.records);
    mem_free(memory);
    mem_free(work);
}

static void check_all_lowered_again(const carat_engine *e, const struct carat_engine_options *o)
{
    (void)o;
    on_programs(e, check_lowered_again);
}

static void both_runs_of_lowering_ask_for_the_same(void **state)
{
    (void)state;
    on_all_engines(check_all_lowered_again);
}

/* ---- What kernels are given ------------------------------------------------------------- */

static bool is_in_blocks(const struct act *x)
{
    return x->values && x->scale && (x->kind == ACT_INT8 || (x->kind == ACT_FINE && x->low));
}

static bool is_half(const struct act *x)
{
    return x->values && x->scale && act_is_half(x->kind);
}

/* Whether a kernel of a few rows gets them in the form that goes with the layout of its weights. */
static bool fits_few(int32_t n_w, const struct cuda_weight *w, const struct act *x,
                     const float *floats)
{
    for (int32_t k = 0; k < n_w; k++)
        if (w[k].layout != w[0].layout) return false;
    return w[0].layout == LAYOUT_TILES ? is_in_blocks(x) : floats != NULL;
}

/* The same for kernels of many rows. */
static bool fits_many(int32_t n_w, const struct cuda_weight *w, const struct act *x, bool in_half)
{
    for (int32_t k = 0; k < n_w; k++)
        if (in_half ? !w[k].mirror : w[k].layout != LAYOUT_TILES) return false;
    return in_half ? is_half(x) && x->kind == ACT_HALF : x->kind == ACT_INT8 && is_in_blocks(x);
}

/* The same for launch_half. */
static bool fits_half(const struct gemm_args *a)
{
    for (int32_t k = 0; k < a->n_w; k++)
        if (a->w[k].layout != LAYOUT_TILES) return false;
    return is_half(&a->x) && a->x.kind == ACT_CORES && a->n_rows <= CROWD_ROWS_MAX &&
           (a->half || a->y[a->n_w - 1] ||
            (is_half(&a->hidden) && (a->by || (a->n_w == 2 && a->hidden_scale > 0))));
}

static bool fits_experts(const struct expert_args *a)
{
    bool is_alike = a->n_w == 1 || a->w[0].format == a->w[1].format;
    return is_alike && fits_few(a->n_w, a->w, &a->x, a->x_floats);
}

/* Gate, up and gelu of many rows: the scale has been found (bounds.h). */
static bool fits_gelu(const struct gemm_gelu_args *a)
{
    const struct gemm_args *gemm = &a->product.gemm;
    return a->product.is_mapped && fits_many(gemm->n_w, gemm->w, &gemm->x, true) &&
           is_half(&gemm->hidden) && gemm->hidden.kind == ACT_HALF && gemm->hidden_scale > 0;
}

static bool fits_matvec(const struct matvec_args *a)
{
    return fits_few(a->n_w, a->w, &a->x, a->x_floats);
}

static bool fits_beside(const struct beside_args *a)
{
    return fits_matvec(&a->dense) && fits_experts(&a->experts);
}

static bool fits(const struct record *r)
{
    const struct gemm_args *gemm = r->args;
    const struct cublas_args *cublas = r->args;
    const struct gemm_wgmma_args *wgmma = r->args;
    const struct grouped_args *grouped = r->args;
    if (r->start == start_half) return fits_half(gemm);
    if (r->start == start_matvec) return fits_matvec(r->args);
    if (r->start == start_gemm_gelu) return fits_gelu(r->args);
    if (r->start == start_gate_up_beside || r->start == start_down_beside)
        return fits_beside(r->args);
    if (r->start == start_experts_in || r->start == start_experts_out) return fits_experts(r->args);
    if (r->start == start_gemm_i8) return fits_many(gemm->n_w, gemm->w, &gemm->x, false);
    if (r->start == start_gemm_f16) return fits_many(gemm->n_w, gemm->w, &gemm->x, true);
    if (r->start == start_cublas)
        return fits_many(cublas->gemm.n_w, cublas->gemm.w, &cublas->gemm.x, true);
    if (r->start == start_gemm_wgmma)
        return wgmma->is_mapped && fits_many(wgmma->gemm.n_w, wgmma->gemm.w, &wgmma->gemm.x, true);
    if (r->start == start_grouped_i8)
        return fits_many(grouped->n_w, grouped->w, &grouped->x, false);
    if (r->start == start_grouped_f16)
        return fits_many(grouped->n_w, grouped->w, &grouped->x, true);
    if (r->start == start_grouped_half)
        return grouped->w[0].layout == LAYOUT_TILES && grouped->plan.is_even && grouped->half &&
               is_half(&grouped->x) && grouped->x.kind == ACT_STEPS;
    return true;
}

/* Whether a norm of the same layer, before record i, wrote these fp32 rows. */
static bool are_normed(const struct records *r, int32_t i, const float *x)
{
    const struct record *reader = &r->all[i];
    for (int32_t k = 0; k < i; k++) {
        const struct record *a = &r->all[k];
        const struct norm_args *norm = a->args;
        if (a->size != reader->size || a->op->layer != reader->op->layer) continue;
        if (a->start == start_group_norm && ((const struct row_args *)a->args)->y == x) return true;
        for (int32_t n = 0; a->start == start_norm && n < norm->n_outs; n++)
            if (norm->out[n].y == x) return true;
    }
    return false;
}

/* Gate and up of experts read fp32 rows where no kernel takes them together. */
static bool has_exact_rows(const struct records *r, int32_t i)
{
    const struct exact_args *a = r->all[i].args;
    bool is_in = r->all[i].start == start_matmul_exact && a->ids && !a->shares;
    return !is_in || are_normed(r, i, a->x);
}

/* How many records of a size start this. */
static int count_starts(const struct program *p, start_fn *start, enum step_size size)
{
    int n = 0;
    for (int32_t i = 0; i < p->lowered.records.n; i++)
        n += p->lowered.records.all[i].start == start && p->lowered.records.all[i].size == size;
    return n;
}

static void check_products(const struct program *p)
{
    static const char *const sizes[] = {[STEP_FEWEST] = "fewest",
                                        [STEP_FEW] = "a few",
                                        [STEP_CROWD] = "a crowd of",
                                        [STEP_LARGE_CROWD] = "a large crowd of",
                                        [STEP_MANY] = "many"};
    const struct records *r = &p->lowered.records;
    for (int32_t i = 0; i < r->n; i++)
        if (!fits(&r->all[i]) || !has_exact_rows(r, i))
            fail_msg("%s of layer %d, %s rows: a kernel gets rows or weights in a form that it "
                     "does not read",
                     op_name((enum op_code)r->all[i].op->code), r->all[i].op->layer,
                     sizes[r->all[i].size]);
}

static void check_all_products(const carat_engine *e, const struct carat_engine_options *o)
{
    (void)o;
    on_programs(e, check_products);
}

static void products_get_rows_in_the_form_that_their_kernels_read(void **state)
{
    (void)state;
    on_all_engines(check_all_products);
}

/* The largest program has all sizes of steps. */
static void check_arithmetic(const carat_engine *e, const struct carat_engine_options *o)
{
    const struct plans *plans = &e->runner->layout.plans;
    const struct program *p = plans->buckets[plans->n_buckets - 1].segments[0].program;
    bool is_auto = o->decode_matmul == CARAT_MATMUL_AUTO && !o->deterministic;
    bool is_half = o->decode_matmul == CARAT_MATMUL_FP16 || (o->deterministic && o->n_seq > 8);
    assert_int_equal(count_starts(p, start_half, STEP_FEWEST), 0);
    assert_int_equal(count_starts(p, start_matvec, STEP_FEWEST) > 0, is_auto);
    assert_int_equal(count_starts(p, start_half, STEP_FEW) > 0, is_auto || is_half);
    assert_int_equal(count_starts(p, start_matvec, STEP_FEW) > 0, !is_auto && !is_half);
    for (enum step_size size = STEP_CROWD; size <= STEP_LARGE_CROWD; size++) {
        bool is_crowd_on_mirrors = (is_auto || is_half) && !o->deterministic;
        assert_int_equal(count_starts(p, start_gemm_wgmma, size) > 0, is_crowd_on_mirrors);
        if (o->deterministic) assert_int_equal(count_starts(p, start_half, size) > 0, is_half);
    }
    assert_int_equal(count_starts(p, start_half, STEP_MANY), 0);
    int n_many = count_starts(p, start_cublas, STEP_MANY);
    n_many += count_starts(p, start_gemm_wgmma, STEP_MANY);
    assert_true(n_many > 0);
    assert_int_equal(carat_engine_setup(e)->decode_matmul, is_auto   ? CARAT_MATMUL_AUTO
                                                           : is_half ? CARAT_MATMUL_FP16
                                                                     : CARAT_MATMUL_INT8);
    assert_int_equal(e->is_apart, o->deterministic);
}

/* Experts of more than the fewest rows are grouped; in 8 bits they go beside the dense branch. */
static void check_experts(const carat_engine *e, const struct carat_engine_options *o)
{
    const struct plans *plans = &e->runner->layout.plans;
    const struct program *p = plans->buckets[plans->n_buckets - 1].segments[0].program;
    bool is_half = count_starts(p, start_half, STEP_FEW) > 0;
    bool is_fewest = count_starts(p, start_matvec, STEP_FEWEST) > 0;
    (void)o;
    assert_int_equal(count_starts(p, start_grouped_half, STEP_FEW) > 0, is_fewest);
    assert_int_equal(count_starts(p, start_gate_up_beside, STEP_FEW) > 0, !is_half);
    assert_int_equal(count_starts(p, start_gate_up_beside, STEP_FEWEST) > 0, is_fewest);
    assert_int_equal(count_starts(p, start_grouped_half, STEP_FEWEST), 0);
}

static void products_of_a_few_rows_are_in_8_bits_or_fp16_as_asked_or_as_sequences_want(void **state)
{
    (void)state;
    static const struct carat_engine_options all[] = {
        {.matmul = CARAT_MATMUL_FP16},
        {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_INT8},
        {.matmul = CARAT_MATMUL_FP16, .decode_matmul = CARAT_MATMUL_FP16},
        {.matmul = CARAT_MATMUL_FP16, .n_seq = 64},
        {.matmul = CARAT_MATMUL_FP16, .n_seq = 8, .deterministic = true},
        {.matmul = CARAT_MATMUL_FP16, .n_seq = 9, .deterministic = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        on_engine(models[GEMMA_12B], &all[i], check_arithmetic);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        on_engine(models[GEMMA_26B], &all[i], check_experts);
}

static void a_crowd_is_of_rows_that_decode_or_whose_logits_are_wanted(void **state)
{
    (void)state;
    struct device half = {.half_least = 9}, int8 = {.half_least = 0};
    static const struct {
        int32_t n;
        enum step_size decode, prompt, without_half;
    } all[] = {{8, STEP_FEWEST, STEP_FEWEST, STEP_FEW},
               {9, STEP_FEW, STEP_FEW, STEP_FEW},
               {64, STEP_FEW, STEP_FEW, STEP_FEW},
               {65, STEP_CROWD, STEP_MANY, STEP_MANY},
               {128, STEP_CROWD, STEP_MANY, STEP_MANY},
               {129, STEP_LARGE_CROWD, STEP_MANY, STEP_MANY},
               {256, STEP_LARGE_CROWD, STEP_MANY, STEP_MANY},
               {257, STEP_MANY, STEP_MANY, STEP_MANY}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(step_size_for(&half, ROWS_TOKEN, all[i].n, false), all[i].decode);
        assert_int_equal(step_size_for(&half, ROWS_TOKEN, all[i].n, true), all[i].prompt);
        assert_int_equal(step_size_for(&half, ROWS_OUT, all[i].n, true), all[i].decode);
        assert_int_equal(step_size_for(&int8, ROWS_TOKEN, all[i].n, false), all[i].without_half);
    }
    half.has_alike_prompts = true;
    assert_int_equal(step_size_for(&half, ROWS_TOKEN, 9, true), STEP_MANY);
}

static carat_model *open_shape(const struct gemma_shape *shape, const struct gemma_layout *layout)
{
    char path[512];
    carat_model *model;
    struct carat_error err = {0};
    struct gguf_writer w = {0};
    tiny_model_put_shape(&w, shape, layout, TINY_SEED);
    scratch_file(&scratch, "shape.gguf", path);
    if (gguf_save(&w, path, &err) || carat_model_open(&model, path, &err))
        fail_msg("%s", err.message);
    gguf_writer_deinit(&w);
    remove(path);
    return model;
}

/* Without room for mirrors no kernel of many rows takes float weights. */
static void experts_may_be_floats_or_of_two_formats_without_mirrors(void **state)
{
    (void)state;
    static const enum format formats[][2] = {
        {FORMAT_F16, FORMAT_F16}, {FORMAT_Q8_0, FORMAT_BF16}, {FORMAT_F32, FORMAT_Q8_0}};
    struct gemma_shape shape = gemma_tiny_shape(GEMMA_26B);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct gemma_layout layout = gemma_layout_plain(formats[i][0]);
        layout.expert_down = formats[i][1];
        carat_model *model = open_shape(&shape, &layout);
        for (size_t k = 0; k < N_SETTINGS; k++) on_engine(model, &settings[k], check_all_products);
        carat_model_close(model);
    }
}

/* Floats beside tiles: a few rows are multiplied as the fewest are, whether or not there is room
 * for mirrors. */
static void check_mixed_experts(const carat_engine *e, const struct carat_engine_options *o)
{
    const struct plans *plans = &e->runner->layout.plans;
    const struct program *p = plans->buckets[plans->n_buckets - 1].segments[0].program;
    assert_int_equal(count_starts(p, start_matmul_exact, STEP_FEW), 0);
    assert_int_equal(count_starts(p, start_grouped_half, STEP_FEW), 0);
    assert_int_equal(count_starts(p, start_grouped_f16, STEP_FEW), 0);
    int n_in = count_starts(p, start_experts_in, STEP_FEW);
    n_in += count_starts(p, start_gate_up_beside, STEP_FEW);
    assert_int_equal(n_in, e->model->config.n_layer);
    check_counted(e, o);
    check_all_lowered_again(e, o);
    check_all_products(e, o);
}

static void experts_of_tiles_and_floats_are_multiplied_alike_with_and_without_mirrors(void **state)
{
    (void)state;
    static const enum format formats[][2] = {{FORMAT_Q8_0, FORMAT_BF16}, {FORMAT_F32, FORMAT_Q8_0}};
    static const struct carat_engine_options all[] = {
        {.matmul = CARAT_MATMUL_FP16, .n_seq = 33},
        {.matmul = CARAT_MATMUL_FP16, .n_seq = 33, .mirror_budget = -1},
    };
    struct gemma_shape shape = gemma_tiny_shape(GEMMA_26B);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct gemma_layout layout = gemma_layout_plain(formats[i][0]);
        layout.expert_down = formats[i][1];
        carat_model *model = open_shape(&shape, &layout);
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            on_engine(model, &all[k], check_mixed_experts);
        carat_model_close(model);
    }
}

/* Blocks of a norm have a row each, and some write theirs before others read their scale. */
static void check_norms(const struct program *p)
{
    for (int32_t i = 0; i < p->lowered.records.n; i++) {
        const struct record *r = &p->lowered.records.all[i];
        const struct norm_args *n = r->args;
        if (r->start != start_norm || !n->a_scale || !n->x_out) continue;
        const float *end = n->x_out + (size_t)n->rows.max * (size_t)n->cols;
        assert_true(n->a_scale + n->rows.max <= n->x_out || n->a_scale >= end);
    }
}

static void check_all_norms(const carat_engine *e, const struct carat_engine_options *o)
{
    (void)o;
    on_programs(e, check_norms);
}

static void norms_do_not_write_over_the_scales_of_their_rows(void **state)
{
    (void)state;
    on_all_engines(check_all_norms);
}

/* A plan with one product, of which logits are made or not. */
static bool is_large(int64_t rows, int64_t cols, int32_t n_expert, bool is_head)
{
    enum row_class c = ROWS_TOKEN;
    struct plan plan;
    struct weight w = {.rows = rows, .cols = cols, .n_expert = n_expert};
    plan_init(&plan, 256, 256, NULL, 0);
    buf_id x = plan_buf_add(&plan, c, (int32_t)cols), y = plan_buf_add(&plan, c, (int32_t)rows);
    struct op input = {
        .code = OP_INPUT, .in = {BUF_NONE, BUF_NONE, BUF_NONE}, .out = {x, BUF_NONE}};
    struct op product = {
        .code = OP_MATMUL, .in = {x, BUF_NONE, BUF_NONE}, .out = {y, BUF_NONE}, .p.matmul.w = &w};
    plan_emit(&plan, &input);
    plan_emit(&plan, &product);
    struct op cap = {.code = is_head ? OP_SOFTCAP : OP_OUTPUT,
                     .in = {y, BUF_NONE, BUF_NONE},
                     .out = {is_head ? plan_buf_add(&plan, c, (int32_t)rows) : BUF_NONE, BUF_NONE}};
    plan_emit(&plan, &cap);
    bool answer = mirrors_are_large(&plan);
    plan_deinit(&plan);
    return answer;
}

static void matrices_of_12b_and_31b_are_too_large_for_mirrors_of_65_to_128_rows(void **state)
{
    (void)state;
    assert_false(is_large(10240, 2560, 1, false));   /* gate of E4B, */
    assert_true(is_large(15360, 3840, 1, false));    /* 12B, */
    assert_true(is_large(5376, 21504, 1, false));    /* down of 31B */
    assert_false(is_large(262144, 2560, 1, true));   /* a head has none, */
    assert_false(is_large(14080, 2816, 128, false)); /* experts neither */
}

/* Whether the head has a mirror; the other products have some. */
static bool has_mirrored_head(const struct program *p)
{
    const struct plan *plan = p->plan;
    int n_mirrors = 0, n_heads = 0;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = op_product(&plan->ops[i]);
        if (!w || !w->device_data || !loaded_weight(w)->view.mirror) continue;
        bool is_head = i + 1 < plan->n_ops && plan->ops[i + 1].code == OP_SOFTCAP;
        n_heads += is_head;
        n_mirrors += !is_head;
    }
    assert_true(n_mirrors > 0);
    return n_heads > 0;
}

static void check_head_is_mirrored(const struct program *p)
{
    assert_true(has_mirrored_head(p));
}

static void check_head_is_not_mirrored(const struct program *p)
{
    assert_false(has_mirrored_head(p));
}

static void check_mirrored_heads(const carat_engine *e, const struct carat_engine_options *o)
{
    bool is_int8 = o->decode_matmul == CARAT_MATMUL_INT8;
    on_programs(e, is_int8 ? check_head_is_not_mirrored : check_head_is_mirrored);
}

/* It would be the largest: only where rows that decode read it. */
static void a_head_of_floats_has_a_mirror_where_few_rows_read_it(void **state)
{
    (void)state;
    struct gemma_shape shape = gemma_tiny_shape(GEMMA_E4B);
    struct gemma_layout layout = gemma_layout_plain(FORMAT_BF16);
    static const struct carat_engine_options all[] = {
        {.matmul = CARAT_MATMUL_FP16, .n_seq = 33},
        {.matmul = CARAT_MATMUL_FP16, .n_seq = 33, .decode_matmul = CARAT_MATMUL_INT8},
    };
    carat_model *model = open_shape(&shape, &layout);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        on_engine(model, &all[i], check_mirrored_heads);
    carat_model_close(model);
}

/* ---- Launching and recording ------------------------------------------------------------ */

enum { STEP_MAX = 4096 };

static int32_t zeros[STEP_MAX], rising[STEP_MAX], thirds[STEP_MAX];

static void fill_rows(void)
{
    for (int32_t i = 0; i < STEP_MAX; i++) rising[i] = i, thirds[i] = i / 3;
}

static void run_usual(struct program *p, int usual, struct launched *out)
{
    const int32_t *rows = p->plan->usual[usual].rows;
    fill_rows();
    struct step step = {.n_token = rows[ROWS_TOKEN],
                        .n_decode = p->plan->usual[usual].n_decode,
                        .n_out = rows[ROWS_OUT],
                        .id = zeros,
                        .position = rising,
                        .sequence = zeros,
                        .out_row = rising};
    struct carat_error err;
    memset(&fake.launched, 0, sizeof fake.launched);
    long blocks = mem_blocks_live();
    cuda_backend.run(p, &step);
    assert_int_equal(cuda_backend.fence(p->device, &err), CARAT_OK);
    assert_int_equal(mem_blocks_live(), blocks);
    *out = fake.launched;
}

static struct launched captures[CAPTURES_MAX];
static int n_captures;

static void keep_captures(const carat_engine *e, const struct carat_engine_options *o)
{
    (void)e;
    (void)o;
    n_captures = fake.n_captures;
    memcpy(captures, fake.captures, sizeof captures);
}

/* Programs in the order in which they are bound: the largest first. */
static void compare_launches(const carat_engine *e, const struct carat_engine_options *o)
{
    const struct plans *plans = &e->runner->layout.plans;
    int at = 0;
    assert_int_equal(fake.n_captures, 0);
    (void)o;
    for (int32_t i = plans->n_buckets - 1; i >= 0; i--) {
        struct program *p = plans->buckets[i].segments[0].program;
        assert_int_equal(plans->buckets[i].n_segments, 1);
        for (int k = 0; k < p->plan->n_usual; k++, at++) {
            struct launched launched;
            run_usual(p, k, &launched);
            assert_true(at < n_captures && launched.n > 0);
            assert_int_equal(launched.n, captures[at].n);
            assert_true(launched.hash == captures[at].hash);
        }
    }
    assert_int_equal(at, n_captures);
}

static void a_step_that_is_launched_starts_what_was_recorded_for_it(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++)
        for (size_t i = 0; i < N_SETTINGS; i++) {
            struct carat_engine_options o = settings[i];
            if (o.precision == CARAT_PRECISION_FP32 || o.gpu_layers) continue;
            on_engine(models[size], &o, keep_captures);
            assert_true(n_captures > 0);
            o.no_graphs = true;
            on_engine(models[size], &o, compare_launches);
        }
}

/* Many rows that all decode: as they are recorded, and best logits of each. */
static void compare_decode(const carat_engine *e, const struct carat_engine_options *o)
{
    static const int32_t sizes[][3] = {{65, 96, 96}, {96, 97, 128}, {200, 224, 224}, {257, 257, 0}};
    const struct logit_pair *best;
    struct carat_error err;
    (void)o;
    fill_rows();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int32_t n = sizes[i][0]; n <= sizes[i][1]; n++) {
            struct step step = {.n_token = n,
                                .n_decode = n,
                                .n_out = n,
                                .id = zeros,
                                .position = rising,
                                .sequence = zeros,
                                .out_row = rising};
            const struct bucket *b = plans_get(&e->runner->layout.plans, n, n, n);
            struct program *p = b->segments[0].program;
            int usual = recording_for(p->plan, &step, false);
            int32_t rows = usual < 0 ? 0 : p->plan->usual[usual].rows[ROWS_TOKEN];
            assert_int_equal(rows, n == 96 ? 96 : sizes[i][2]);
            cuda_backend.run(p, &step);
            assert_int_equal(cuda_backend.fence(p->device, &err), CARAT_OK);
            for (int32_t r = 0; r < n; r += 13) {
                assert_int_equal(cuda_backend.best(p, r, &best), TOP_K);
                assert_ptr_equal(best, p->device->best_host + (size_t)r * TOP_K);
            }
            assert_int_equal(cuda_backend.best(p, BEST_ROWS_MAX, &best), 0);
        }
}

static void many_rows_that_decode_have_recordings_and_best_logits(void **state)
{
    (void)state;
    struct carat_engine_options o = {
        .matmul = CARAT_MATMUL_FP16, .n_seq = 300, .n_ctx = 64, .chunk = 64};
    on_engine(models[GEMMA_E4B], &o, compare_decode);
}

/* And others of a few rows have recordings, too. */
static void compare_plans(const carat_engine *e, const struct carat_engine_options *o)
{
    const struct plans *plans = &e->runner->layout.plans;
    fill_rows();
    for (int32_t n = 1; n <= MATVEC_ROWS_MAX; n++)
        for (int32_t n_out = 0; n_out <= n && n_out <= o->n_seq; n_out++) {
            int32_t n_decode = n_out == n ? n : 0;
            const struct bucket *b = plans_get(plans, n, n_decode, n_out);
            const struct plan *p = b->segments[0].plan;
            struct step step = {.n_token = n, .n_decode = n_decode, .n_out = n_out};
            bool wants_all = n_out == n && n <= o->n_seq;
            assert_true(b->is_all_out == wants_all && p->is_all_out == wants_all);
            assert_true(n <= b->rows_max[ROWS_TOKEN] && n_out <= b->rows_max[ROWS_OUT]);
            if (o->n_seq > 1 && (wants_all || n > 1))
                assert_true(recording_for(p, &step, false) >= 0);
        }
}

static void steps_that_want_all_rows_have_plans_of_their_own(void **state)
{
    (void)state;
    static const int32_t n_seq[] = {1, 2, 5, 64, 65, 300};
    for (size_t i = 0; i < sizeof n_seq / sizeof *n_seq; i++) {
        struct carat_engine_options o = {
            .matmul = CARAT_MATMUL_FP16, .n_seq = n_seq[i], .n_ctx = 256, .chunk = 128};
        on_engine(models[GEMMA_E4B], &o, compare_plans);
    }
}

/* Hash of what a step of n_runs runs starts: of three rows each, the last one of the rest. */
static uint64_t launch_runs(struct program *p, const int32_t *rows, int32_t n_runs)
{
    struct step step = {.n_token = rows[ROWS_TOKEN],
                        .n_out = rows[ROWS_OUT],
                        .id = zeros,
                        .position = rising,
                        .sequence = thirds,
                        .out_row = zeros};
    struct carat_error err;
    fill_rows();
    for (int32_t t = 3 * (n_runs - 1); t < STEP_MAX; t++) thirds[t] = n_runs;
    memset(&fake.launched, 0, sizeof fake.launched);
    cuda_backend.run(p, &step);
    assert_int_equal(cuda_backend.fence(p->device, &err), CARAT_OK);
    return fake.launched.hash;
}

static int n_compared;

static void compare_runs(const struct program *program)
{
    struct program *p = (struct program *)(uintptr_t)program;
    for (int k = 0; k < p->plan->n_usual; k++) {
        const int32_t *rows = p->plan->usual[k].rows;
        if (rows[ROWS_TOKEN] <= 4 * RUNS_RECORDED || rows[ROWS_OUT] > 1) continue;
        uint64_t one = launch_runs(p, rows, 1);
        assert_true(launch_runs(p, rows, 2) == one);
        assert_true(launch_runs(p, rows, RUNS_RECORDED) == one);
        /* Not one more: the same tiles may be enough for it. */
        assert_true(launch_runs(p, rows, RUNS_RECORDED + 2) != one);
        n_compared++;
    }
}

static void compare_all_runs(const carat_engine *e, const struct carat_engine_options *o)
{
    (void)o;
    on_programs(e, compare_runs);
}

/* Heads must be such that prompts are attended to in tiles. */
static void a_recording_serves_any_runs_up_to_its_limit(void **state)
{
    (void)state;
    struct carat_engine_options o = {.matmul = CARAT_MATMUL_FP16, .no_graphs = true};
    struct gemma_layout layout = gemma_layout_plain(FORMAT_F32);
    struct gemma_shape shape = gemma_tiny_shape(GEMMA_E2B);
    shape.head_local = 64;
    shape.head_global = 128;
    carat_model *model = open_shape(&shape, &layout);
    on_engine(model, &o, compare_all_runs);
    assert_true(n_compared > 0);
    carat_model_close(model);
}

/* Single new tokens and chunks of prompts: such steps are launched anew. Opening has launched each
 * kernel once. */
static void check_asks_nothing(const carat_engine *e, const struct carat_engine_options *o)
{
    (void)o;
    const struct plans *plans = &e->runner->layout.plans;
    struct program *p = plans->buckets[plans->n_buckets - 1].segments[0].program;
    struct step step = {.n_token = p->plan->rows_max[ROWS_TOKEN] - 7,
                        .n_decode = 3,
                        .n_out = 4,
                        .id = zeros,
                        .position = rising,
                        .sequence = thirds,
                        .out_row = rising};
    struct carat_error err;
    fill_rows();
    fake.n_asked = 0;
    memset(&fake.launched, 0, sizeof fake.launched);
    cuda_backend.run(p, &step);
    assert_int_equal(cuda_backend.fence(p->device, &err), CARAT_OK);
    assert_true(fake.launched.n > 0);
    assert_int_equal(fake.n_asked, 0);
}

static void a_step_asks_the_driver_nothing(void **state)
{
    (void)state;
    for (int size = 0; size < GEMMA_SIZES; size++) {
        struct carat_engine_options o = {.n_seq = 5};
        on_engine(models[size], &o, check_asks_nothing);
    }
}

/* ---- Profile ---------------------------------------------------------------------------- */

/* In each window and size the last record ends what is timed. */
static void check_marks(const struct program *p)
{
    const struct records *r = &p->lowered.records;
    for (int32_t i = 0; i < r->n; i++) {
        const struct record *now = &r->all[i], *next = i + 1 < r->n ? now + 1 : NULL;
        if (!next || next->op != now->op || next->size != now->size)
            assert_non_null(now->mark.kind);
        if (now->mark.n_w > 0) assert_true(now->mark.n_used > 0 && now->mark.w[0]);
    }
}

static void check_all_marks(const carat_engine *e, const struct carat_engine_options *o)
{
    (void)o;
    on_programs(e, check_marks);
}

static void all_that_is_launched_is_timed(void **state)
{
    (void)state;
    on_all_engines(check_all_marks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_counted_without_weights_is_what_is_used_with_them),
        cmocka_unit_test(both_runs_of_lowering_ask_for_the_same),
        cmocka_unit_test(products_get_rows_in_the_form_that_their_kernels_read),
        cmocka_unit_test(
            products_of_a_few_rows_are_in_8_bits_or_fp16_as_asked_or_as_sequences_want),
        cmocka_unit_test(a_crowd_is_of_rows_that_decode_or_whose_logits_are_wanted),
        cmocka_unit_test(experts_may_be_floats_or_of_two_formats_without_mirrors),
        cmocka_unit_test(experts_of_tiles_and_floats_are_multiplied_alike_with_and_without_mirrors),
        cmocka_unit_test(norms_do_not_write_over_the_scales_of_their_rows),
        cmocka_unit_test(a_head_of_floats_has_a_mirror_where_few_rows_read_it),
        cmocka_unit_test(matrices_of_12b_and_31b_are_too_large_for_mirrors_of_65_to_128_rows),
        cmocka_unit_test(a_step_that_is_launched_starts_what_was_recorded_for_it),
        cmocka_unit_test(many_rows_that_decode_have_recordings_and_best_logits),
        cmocka_unit_test(steps_that_want_all_rows_have_plans_of_their_own),
        cmocka_unit_test(a_recording_serves_any_runs_up_to_its_limit),
        cmocka_unit_test(a_step_asks_the_driver_nothing),
        cmocka_unit_test(all_that_is_launched_is_timed),
    };
    return cmocka_run_group_tests_name("lower", tests, open_models, close_models);
}

#else

static void lowering_of_the_cuda_backend(void **state)
{
    (void)state;
    print_message("skipped: built without CUDA\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lowering_of_the_cuda_backend)};
    return cmocka_run_group_tests_name("lower", tests, NULL, NULL);
}

#endif
