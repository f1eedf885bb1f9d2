/* Programs: windows of a plan, launched one by one, or recorded once for usual steps and replayed
 * (recording.h). Everything that changes from step to step is in the step's arrays, which are
 * copied to the device first; in a recorded step that copy is its first node. */
#include "backend/cuda/program.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cublas.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/profile.h"
#include "backend/cuda/recording.h"
#include "backend/cuda/stages.h"
#include "backend/cuda/row_table.h"
#include "backend/cuda/upload.h"
#include "backend/cuda/weights.h"
#include "base/assert.h"
#include "base/mem.h"
#include "base/os.h"

static int32_t most_rows(const struct plan *plan)
{
    int32_t token = plan->rows_max[ROWS_TOKEN], out = plan->rows_max[ROWS_OUT];
    return token > out ? token : out;
}

/* ---- Scratch ---------------------------------------------------------------------------- */

static void raise_to(size_t *most, size_t value)
{
    if (value > *most) *most = value;
}

/* The most that one window needs of each part. */
struct needs {
    size_t slot, inner, wide, mirror, experts, attention, cublas;
};

static void add_product_needs(const struct device *d, const struct plan *plan,
                              const struct window *w, struct needs *needs)
{
    size_t bytes = 0, wide = 0;
    for (int32_t i = w->first; i < w->first + w->n; i++) {
        const struct op *op = &plan->ops[i];
        const struct weight *m = op_product(op);
        if (!m) continue;
        size_t rows = (size_t)plan->rows_max[plan_buf_at(plan, op->out[0])->rows];
        size_t pairs = op->code == OP_MATMUL ? rows : rows * (size_t)op->p.expert.n_used;
        size_t in_floats =
            is_multiplied_exactly(m) || rows < MATVEC_ROWS_MAX ? rows : MATVEC_ROWS_MAX;
        raise_to(&needs->inner, in_floats * ((size_t)m->cols + TILE_COLS) * sizeof(float) *
                                    (op->code == OP_EXPERT_OUT ? (size_t)op->p.expert.n_used : 1));
        raise_to(op->in[0] == plan->ops[w->first].in[0] ? &needs->slot : &needs->inner,
                 act_bytes(op->code == OP_EXPERT_OUT ? pairs : rows, m->cols));
        wide += aligned(pairs * (size_t)m->rows * sizeof(float));
        if (rows > MATVEC_ROWS_MAX && wants_mirror(d, plan, m) && m->n_expert == 1) {
            bytes += aligned(mirror_bytes_of(m));
            if (d->cublas) needs->cublas = CUBLAS_WORKSPACE_BYTES;
        }
        if (m->n_expert > 1)
            raise_to(&needs->experts,
                     expert_plan_bytes((int32_t)rows, op->p.expert.n_used, m->n_expert));
    }
    raise_to(&needs->wide, wide);
    raise_to(&needs->mirror, bytes);
}

static struct needs needs_of(const struct device *d, const struct plan *plan)
{
    struct needs needs = {0};
    for (int32_t i = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].window == 0) continue;
        struct window w = {WINDOW_SINGLE, i, plan->ops[i].window};
        add_product_needs(d, plan, &w, &needs);
        const struct op *op = &plan->ops[i];
        if (op->code != OP_ATTENTION) continue;
        const struct kv_cache *c = &plan->caches[op->p.attention.cache];
        raise_to(&needs.attention,
                 attention_decode_scratch_bytes(plan->rows_max[plan_buf_at(plan, op->out[0])->rows],
                                                op->p.attention.n_heads, c->head_dim, c->n_heads));
    }
    return needs;
}

struct scratch_layout scratch_layout_of(const struct device *d, const struct plan *plan)
{
    struct needs needs = needs_of(d, plan);
    struct scratch_layout y = {.slot_bytes = aligned(needs.slot)};
    y.slot = aligned(STEP_COPY_BYTES(most_rows(plan)));
    y.inner = y.slot + ACT_SLOTS * y.slot_bytes;
    y.wide = y.inner + aligned(needs.inner);
    y.mirror = y.wide + aligned(needs.wide);
    y.experts = y.mirror + aligned(needs.mirror);
    y.attention = y.experts + aligned(needs.experts);
    y.topk = y.attention + aligned(needs.attention);
    y.cublas = y.topk + aligned(topk_scratch_bytes(MATVEC_ROWS_MAX));
    y.cublas_bytes = needs.cublas;
    y.total = y.cublas + aligned(needs.cublas);
    raise_to(&y.total, upload_staging_bytes(plan));
    return y;
}

/* ---- Bind ------------------------------------------------------------------------------- */

/* In which form each buffer is read by windows other than the one that writes it. */
static void note_needs(struct program *p)
{
    const struct plan *plan = p->plan;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        const struct weight *w = op_product(op);
        bool reads_act = w && !p->device->options.is_exact && !is_multiplied_exactly(w);
        for (int k = 0; k < 3; k++) {
            if (op->in[k] == BUF_NONE || plan_buf_is_internal(plan, op->in[k])) continue;
            bool is_act = reads_act && k == 0;
            p->needs[op->in[k]] |= is_act ? NEEDS_ACT : NEEDS_FLOATS;
            if (is_act && loaded_of(w)->view.layout == LAYOUT_ROWS)
                p->needs[op->in[k]] |= NEEDS_FLOATS; /* of few rows */
        }
    }
    if (plan->logits != BUF_NONE) p->needs[plan->logits] |= NEEDS_FLOATS;
}

static int take_windows(struct program *p, struct carat_error *err)
{
    const struct plan *plan = p->plan;
    p->windows = mem_alloc((size_t)plan->n_ops + 1, sizeof *p->windows);
    p->needs = mem_alloc((size_t)plan->n_bufs + 1, 1);
    if (!p->windows || !p->needs)
        return err_no_memory(err, "program", (size_t)plan->n_ops * sizeof *p->windows);
    for (int32_t i = 0; i < plan->n_ops; i += plan->ops[i].window) {
        struct window w = window_at(plan, i);
        if (!cuda_fuses(p->device) || w.n != plan->ops[i].window) {
            carat_assert(plan->ops[i].window == 1); /* else it was marked by another */
            w = (struct window){WINDOW_SINGLE, i, 1};
        }
        p->windows[p->n_windows++] = w;
    }
    note_needs(p);
    return CARAT_OK;
}

static void view_step(struct program *p)
{
    int32_t *base = (int32_t *)(void *)(p->scratch + p->at.step);
    p->rows_max = most_rows(p->plan);
    p->step = (struct step_view){.counts = base,
                                 .id = base + 4,
                                 .position = base + 4 + p->rows_max,
                                 .sequence = base + 4 + 2 * p->rows_max,
                                 .out_row = base + 4 + 3 * p->rows_max};
    p->row_slots = base + 4 + 4 * p->rows_max;
}

/* Before a program's products: the workspace is in its scratch. Nothing changes from step to step
 * of a program, nor between its warm-up and its recording. */
static void give_workspace(struct program *p)
{
    struct device *d = p->device;
    char *workspace = p->scratch + p->at.cublas;
    if (!p->at.cublas_bytes || d->cublas_workspace == workspace) return;
    if (cublas_set_stream(d->cublas, &d->queue, workspace, p->at.cublas_bytes))
        d->failure = cudaErrorUnknown; /* products would go to another stream */
    d->cublas_workspace = workspace;
}

/* The copy of the step, then every window, then the best logits of each row. */
void program_launch(struct program *p, const int32_t rows_of[ROW_CLASS_COUNT])
{
    struct device *d = p->device;
    give_workspace(p);
    cudaError_t status =
        cudaMemcpyAsync(p->scratch + p->at.step, d->step_host, STEP_COPY_BYTES(p->rows_max),
                        cudaMemcpyHostToDevice, d->queue.stream);
    if (status) d->failure = status;
    if (d->profile) profile_begin(d->profile, d->queue.stream);
    memcpy(p->n, rows_of, sizeof p->n);
    p->n_decode = d->step_host[1];
    p->next_slot = 0;
    p->half_id = BUF_NONE;
    for (int i = 0; i < ACT_SLOTS; i++) p->slots[i].id = BUF_NONE;
    for (int32_t i = 0; i < p->n_windows; i++) {
        stage_run(p, &p->windows[i]);
        if (!d->failure && (d->failure = cudaPeekAtLastError()) != cudaSuccess)
            d->failed_op = &p->plan->ops[p->windows[i].first];
    }
    buf_id logits = p->plan->logits;
    int32_t n_out = p->n[ROWS_OUT];
    if (logits == BUF_NONE || n_out == 0 || n_out > MATVEC_ROWS_MAX) return;
    struct rows rows = {n_out, 1};
    launch_topk(&d->queue, p->step, rows, program_floats(p, logits),
                plan_buf_at(p->plan, logits)->cols, d->best_host, p->scratch + p->at.topk);
    if (d->profile) profile_mark(d->profile, d->queue.stream, (struct time_work){.kind = "top k"});
}

/* Steps in which no row lives: the driver loads every kernel now, not under the first request.
 * Which ones depends on the number of rows. */
static int warm_up(struct program *p, struct carat_error *err)
{
    const int32_t *rows = p->plan->rows_max;
    memset(p->device->step_host, 0, STEP_COPY_BYTES(p->rows_max));
    program_launch(p, rows);
    for (int32_t n = rows[ROWS_TOKEN] / 2; n > MATVEC_ROWS_MAX; n /= 2)
        program_launch(p, (int32_t[ROW_CLASS_COUNT]){n, 1});
    for (int i = 0; i < p->plan->n_usual && !p->device->options.is_exact; i++)
        program_launch(p, p->plan->usual[i].rows);
    cudaError_t status = cudaStreamSynchronize(p->device->queue.stream);
    if (!status) status = cudaGetLastError();
    if (!status) return CARAT_OK;
    char what[128];
    const struct op *op = p->device->failed_op;
    snprintf(what, sizeof what, "a first step without rows: %s of layer %d",
             op ? op_name((enum op_code)op->code) : "a copy", op ? op->layer : -1);
    return cuda_fail(err, status, what);
}

/* Counters that kernels bring back to 0 themselves. */
static int take_counters(struct device *d, struct carat_error *err)
{
    _Static_assert(ROUTER_COUNTERS * sizeof *d->arrived <= ARRIVED_BYTES, "room for all counters");
    if (d->arrived) return CARAT_OK;
    d->arrived = slab_take(d, ARRIVED_BYTES, false);
    if (!d->arrived) return cuda_fail(err, cudaErrorMemoryAllocation, "cuda");
    cudaError_t status = cudaMemsetAsync(d->arrived, 0, ARRIVED_BYTES, d->queue.stream);
    return status ? cuda_fail(err, status, "cuda") : CARAT_OK;
}

/* Kernels read heads by 8 values, and hold up to 512. */
static int check_heads(const struct plan *plan, struct carat_error *err)
{
    for (int32_t i = 0; i < plan->n_caches; i++) {
        int32_t head_dim = plan->caches[i].head_dim;
        if (head_dim % 8 == 0 && head_dim <= HEAD_DIM_MAX) continue;
        err_set(err, CARAT_EDEVICE,
                "cuda: layer %d: heads of a multiple of 8 values, at most %d, expected, %d found",
                i, HEAD_DIM_MAX, head_dim);
        err_hint(err, "take --backend cpu");
        return CARAT_EDEVICE;
    }
    return CARAT_OK;
}

static int start_program(struct program *p, const struct placement *placement,
                         struct carat_error *err)
{
    struct device *d = p->device;
    TRY(check_heads(p->plan, err));
    if (most_rows(p->plan) > STEP_ROWS_MAX)
        return err_set(err, CARAT_EUSAGE, "cuda: at most %d rows a step expected, %d found",
                       STEP_ROWS_MAX, most_rows(p->plan));
    TRY(weights_upload(d, p->plan, placement, p->scratch, err));
    TRY(mirrors_make(d, p->plan, placement, err));
    TRY(take_windows(p, err));
    TRY(take_counters(d, err));
    view_step(p);
    p->rows = row_table_of(p->plan);
    cudaError_t status = cudaStreamSynchronize(d->queue.stream);
    if (status) return cuda_fail(err, status, "loading weights");
    TRY(warm_up(p, err));
    return recordings_make(p, err);
}

void cuda_unbind(struct program *p)
{
    if (!p) return;
    recordings_drop(p);
    mem_free(p->windows);
    mem_free(p->needs);
    mem_free(p);
}

int cuda_bind(struct device *d, const struct plan *plan, const struct placement *placement,
              void *memory, void *scratch, struct program **out, struct carat_error *err)
{
    *out = NULL;
    cudaSetDevice(d->index);
    struct program *p = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "program", sizeof *p);
    *p = (struct program){.device = d,
                          .plan = plan,
                          .memory = memory,
                          .scratch = scratch,
                          .at = scratch_layout_of(d, plan)};
    int status = start_program(p, placement, err);
    if (status)
        cuda_unbind(p);
    else
        *out = p;
    return status;
}

/* ---- Run -------------------------------------------------------------------------------- */

static void fill_step(struct program *p, const struct step *step)
{
    int32_t *host = p->device->step_host;
    size_t n = (size_t)step->n_token * sizeof *host;
    host[0] = step->n_token;
    host[1] = step->n_decode;
    host[2] = step->n_out;
    memcpy(host + 4, step->id, n);
    memcpy(host + 4 + p->rows_max, step->position, n);
    memcpy(host + 4 + 2 * p->rows_max, step->sequence, n);
    memcpy(host + 4 + 3 * p->rows_max, step->out_row, (size_t)step->n_out * sizeof *host);
}

/* Rows of the table in the mapped file are copied in front of the launches: where from and how many
 * changes from step to step, which a recorded copy could not follow. */
static void bring_rows(struct program *p, const struct step *step)
{
    struct device *d = p->device;
    int32_t *slots = d->step_host + 4 + 4 * p->rows_max;
    cudaError_t status = row_table_step(p->rows, d->queue.stream, step, slots);
    if (status) d->failure = status;
}

static void bring_next_rows(struct program *p, const struct step *step)
{
    cudaError_t status = row_table_ahead(p->rows, step);
    if (status) p->device->failure = status;
}

static void launch_or_replay(struct program *p, const struct step *step)
{
    int usual = p->device->options.is_exact ? -1 : recording_for(p->plan, step);
    int32_t own[ROW_CLASS_COUNT] = {step->n_token, step->n_out};
    const int32_t *rows = usual < 0 ? own : p->plan->usual[usual].rows;
    if (usual < 0 || !p->recorded[usual]) {
        program_launch(p, rows);
        return;
    }
    memcpy(p->n, rows, sizeof p->n);
    cudaError_t status = cudaGraphLaunch(p->recorded[usual], p->device->queue.stream);
    if (status) p->device->failure = status;
}

void cuda_run(struct program *p, const struct step *step)
{
    struct device *d = p->device;
    cudaSetDevice(d->index);
    fill_step(p, step);
    d->is_running = true;
    d->run_begin = os_seconds();
    d->is_decode = step->n_token <= MATVEC_ROWS_MAX;
    if (p->rows) bring_rows(p, step);
    launch_or_replay(p, step);
    if (p->rows && step->n_next > 0) bring_next_rows(p, step);
}

int cuda_best(struct program *p, int32_t row, const struct logit_pair **out)
{
    if (p->n[ROWS_OUT] > MATVEC_ROWS_MAX) return 0;
    *out = p->device->best_host + (size_t)row * TOP_K;
    int32_t n_vocab = plan_buf_at(p->plan, p->plan->logits)->cols;
    return n_vocab < TOP_K ? n_vocab : TOP_K;
}
