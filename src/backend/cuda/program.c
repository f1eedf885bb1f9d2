#include "backend/cuda/program.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/bounds.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/recording.h"
#include "backend/cuda/row_table.h"
#include "backend/cuda/upload.h"
#include "backend/cuda/weights.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/mask.h"
#include "base/mem.h"
#include "base/os.h"

/* Nothing runs while weights are loaded, so loading may use all of the scratch. */
size_t cuda_scratch_bytes(const struct device *d, const struct plan *plan)
{
    size_t loading = bytes_larger(upload_staging_bytes(plan), bounds_scratch_bytes(plan));
    return bytes_larger(lower_scratch_bytes(d, plan), loading);
}

/* ---- Launching -------------------------------------------------------------------------- */

/* Comes before a program's products, whose workspace is in its scratch. Does nothing from step to
 * step of a program, nor between its loading and its recording. */
static void give_workspace(struct program *p)
{
    struct device *d = p->device;
    const struct lowered *l = &p->lowered;
    if (!l->workspace_bytes || d->cublas_workspace == l->workspace) return;
    if (cublas_set_stream(d->cublas, &d->queue, l->workspace, l->workspace_bytes))
        d->failure = cudaErrorUnknown; /* products would go to another stream */
    d->cublas_workspace = l->workspace;
}

/* The copy of the step, which is in d->step_host, and its launches for this many rows. */
static void launch_step(struct program *p, const struct step_rows *rows)
{
    struct device *d = p->device;
    give_workspace(p);
    cudaError_t status =
        cudaMemcpyAsync(p->lowered.step.counts, d->step_host, step_bytes(p->rows_max),
                        cudaMemcpyHostToDevice, d->queue.stream);
    if (status) d->failure = status;
    records_launch(d, &p->lowered.records, rows);
}

/* Launches that are right for any step of at most this many rows without decode rows (and with
 * them, if it has a few rows and these have no arithmetic of their own). */
static void launch_any(struct program *p, int32_t n_token, int32_t n_out)
{
    struct step_rows rows = {.n = {n_token, n_out}};
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        rows.n_runs[c] = rows.n[c] < RUNS_RECORDED ? rows.n[c] : RUNS_RECORDED;
    launch_step(p, &rows);
}

static void launch_usual(struct program *p, const struct plan_usual *usual)
{
    struct step_rows rows = {.n = {usual->rows[ROWS_TOKEN], usual->rows[ROWS_OUT]},
                             .n_decode = {usual->rows[ROWS_TOKEN], usual->rows[ROWS_OUT]}};
    if (usual->n_decode > 0)
        launch_step(p, &rows);
    else
        launch_any(p, rows.n[ROWS_TOKEN], rows.n[ROWS_OUT]);
}

/* A few sizes of many rows, whose kernels are loaded before the first step. */
static int32_t coarse_grain(int32_t rows)
{
    return rows <= 512 ? 64 : 128;
}

static int32_t rounded(const struct program *p, enum row_class class, int32_t rows, int32_t grain)
{
    int32_t most = p->plan->rows_max[class], whole = (rows + grain - 1) / grain * grain;
    if (rows <= MATVEC_ROWS_MAX) return rows;
    return whole < most ? whole : most;
}

/* The size for which this many rows are launched. The first product of a new size costs cuBLAS 1 to
 * 3 ms to choose and load a kernel (H200: a step of 7 ms took 22), so many rows come in a few
 * sizes, whose kernels are all loaded before the first request. Our own tiles have 128 rows, so
 * padding costs next to nothing. On Hopper, steps of up to FINE rows are padded to multiples of
 * 16. */
static int32_t whole_rows(const struct program *p, enum row_class class, int32_t rows)
{
    enum { FINE = 1024 };
    const struct device *d = p->device;
    bool is_fine = device_has_wgmma(d) && d->many == ACT_HALF && rows <= FINE;
    return rounded(p, class, rows, is_fine ? 16 : coarse_grain(rows));
}

/* A step that is none of the usual ones. */
static void launch_other(struct program *p, const struct step_rows *rows)
{
    struct step_rows whole = *rows;
    struct step_arrays arrays = step_arrays_at(p->device->step_host, p->rows_max);
    for (int c = 0; c < ROW_CLASS_COUNT; c++) {
        whole.n[c] = whole_rows(p, (enum row_class)c, rows->n[c]);
        if (rows->n_decode[c] == rows->n[c]) whole.n_decode[c] = whole.n[c];
    }
    step_arrays_pad(&arrays, rows, whole.n);
    launch_step(p, &whole);
}

/* The copy of n masks and the search within them. */
static void search_masked(struct program *p, const struct masked_rows *rows, const uint64_t *masks)
{
    struct device *d = p->device;
    const struct masked_search *m = &p->lowered.masked;
    size_t words = mask_words(m->n_vocab);
    cudaError_t status = cudaMemcpyAsync(m->masks, masks, (size_t)rows->n * words * sizeof *masks,
                                         cudaMemcpyHostToDevice, d->queue.stream);
    if (status) d->failure = status;
    launch_topk_masked(&d->queue, rows, m->masks, m->logits, m->n_vocab, d->best_host, m->scratch);
    if (!d->failure) d->failure = cudaPeekAtLastError();
}

/* Loads the kernels of the masked search, with a row that nobody looks at. */
static void load_masked(const struct program *p)
{
    const struct masked_search *m = &p->lowered.masked;
    struct masked_rows first = {.n = 1};
    launch_topk_masked(&p->device->queue, &first, m->masks, m->logits, m->n_vocab,
                       p->device->best_host, m->scratch);
}

/* Which kernels a step starts depends on the number of its rows. */
static void launch_all_sizes(struct program *p)
{
    const int32_t *rows = p->plan->rows_max;
    launch_any(p, rows[ROWS_TOKEN], rows[ROWS_OUT]);
    for (int32_t n = MATVEC_ROWS_MAX + 1; n < rows[ROWS_TOKEN]; n++) {
        n = rounded(p, ROWS_TOKEN, n, coarse_grain(n));
        launch_any(p, n, 1);
    }
    for (int i = 0; i < p->plan->n_usual && !p->device->options.is_exact; i++)
        launch_usual(p, &p->plan->usual[i]);
    if (p->lowered.masked.logits) load_masked(p);
}

/* Every kernel is loaded now, not during the first request. No steps are computed for that:
 * computing those of all sizes took 3 s with 31B on an H200. Only cuBLAS has to multiply, once for
 * each shape, rows that nobody looks at. */
static int load_kernels(struct program *p, struct carat_error *err)
{
    struct device *d = p->device;
    memset(d->step_host, 0, step_bytes(p->rows_max));
    d->queue.loads_only = true;
    launch_all_sizes(p);
    d->queue.loads_only = false;
    cudaError_t status = cudaStreamSynchronize(d->queue.stream);
    if (!status) status = d->failure ? d->failure : cudaGetLastError();
    if (!status) return CARAT_OK;
    char what[128];
    const struct op *op = d->failed_op;
    if (op)
        snprintf(what, sizeof what, "loading kernels: %s of layer %d",
                 op_name((enum op_code)op->code), op->layer);
    else
        snprintf(what, sizeof what, "loading kernels");
    return cuda_fail(err, status, what);
}

/* ---- Recording -------------------------------------------------------------------------- */

static int record(struct program *p, const struct plan_usual *usual, cudaGraphExec_t *out,
                  struct carat_error *err)
{
    cudaGraph_t graph;
    cudaStream_t stream = p->device->queue.stream;
    cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (status) return cuda_fail(err, status, "recording a step");
    launch_usual(p, usual);
    status = cudaStreamEndCapture(stream, &graph);
    if (status) return cuda_fail(err, status, "recording a step");
    status = cudaGraphInstantiate(out, graph, 0);
    cudaGraphDestroy(graph);
    if (!status) status = cudaGraphUpload(*out, stream);
    return status ? cuda_fail(err, status, "recording a step") : CARAT_OK;
}

/* Every usual step of the plan; its kernels are loaded. */
static int make_recordings(struct program *p, struct carat_error *err)
{
    const struct device_options *o = &p->device->options;
    if (o->is_exact || o->has_no_graphs || p->device->profile) return CARAT_OK;
    for (int i = 0; i < p->plan->n_usual; i++)
        TRY(record(p, &p->plan->usual[i], &p->recorded[i], err));
    return CARAT_OK;
}

/* ---- Bind ------------------------------------------------------------------------------- */

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
                "cuda: heads of a multiple of 8 values, at most %d, expected, %d found",
                HEAD_DIM_MAX, head_dim);
        err_hint(err, "take --backend cpu");
        return CARAT_EDEVICE;
    }
    return CARAT_OK;
}

static int check_rows(const struct program *p, struct carat_error *err)
{
    if (p->rows_max <= STEP_ROWS_MAX) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "cuda: at most %d rows a step expected, %d found",
                   STEP_ROWS_MAX, p->rows_max);
}

static int start_program(struct program *p, const struct placement *placement, void *memory,
                         void *scratch, struct carat_error *err)
{
    struct device *d = p->device;
    TRY(check_heads(p->plan, err));
    TRY(check_rows(p, err));
    TRY(weights_upload(d, p->plan, placement, scratch, err));
    TRY(mirrors_make(d, p->plan, placement, err));
    TRY(bounds_make(d, p->plan, scratch, err));
    TRY(take_counters(d, err));
    TRY(lower_plan(&p->lowered, d, p->plan, memory, scratch, err));
    p->rows = row_table_in_plan(p->plan);
    cudaError_t status = cudaStreamSynchronize(d->queue.stream);
    if (status) return cuda_fail(err, status, "loading weights");
    TRY(load_kernels(p, err));
    return make_recordings(p, err);
}

void cuda_unbind(struct program *p)
{
    if (!p) return;
    for (int i = 0; i < PLAN_USUAL_MAX; i++)
        if (p->recorded[i]) cudaGraphExecDestroy(p->recorded[i]);
    records_deinit(&p->lowered.records);
    mem_free(p);
}

int cuda_bind(struct device *d, const struct plan *plan, const struct placement *placement,
              void *memory, void *scratch, struct program **out, struct carat_error *err)
{
    *out = NULL;
    cudaSetDevice(d->index);
    struct program *p = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "program", sizeof *p);
    *p = (struct program){.device = d, .plan = plan, .rows_max = step_rows_max(plan->rows_max)};
    int status = start_program(p, placement, memory, scratch, err);
    if (status)
        cuda_unbind(p);
    else
        *out = p;
    return status;
}

/* ---- Run -------------------------------------------------------------------------------- */

/* Rows of the table in the mapped file are copied before the launches. Their places and number
 * change from step to step, which a recorded copy could not follow. */
static void bring_rows(struct program *p, const struct step *step)
{
    struct device *d = p->device;
    int32_t *slot = step_arrays_at(d->step_host, p->rows_max).slot;
    cudaError_t status = row_table_step(p->rows, d->queue.stream, step, slot);
    if (status) d->failure = status;
}

static void bring_next_rows(struct program *p, const struct step *step)
{
    cudaError_t status = row_table_ahead(p->rows, step);
    if (status) p->device->failure = status;
}

/* Which usual step this one is launched as; -1: as it is. */
static int usual_for(const struct program *p, const struct step *step, const struct step_rows *rows)
{
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        if (rows->n_runs[c] > RUNS_RECORDED) return -1;
    return p->device->options.is_exact ? -1
                                       : recording_for(p->plan, step, p->device->has_alike_prompts);
}

static void launch_or_replay(struct program *p, const struct step *step,
                             const struct step_rows *rows)
{
    struct device *d = p->device;
    int usual = usual_for(p, step, rows);
    if (usual >= 0) {
        struct step_arrays arrays = step_arrays_at(d->step_host, p->rows_max);
        step_arrays_pad(&arrays, rows, p->plan->usual[usual].rows);
    }
    if (usual < 0) {
        launch_other(p, rows);
    } else if (!p->recorded[usual]) {
        launch_usual(p, &p->plan->usual[usual]);
    } else {
        cudaError_t status = cudaGraphLaunch(p->recorded[usual], d->queue.stream);
        if (status) d->failure = status;
    }
}

void cuda_run(struct program *p, const struct step *step)
{
    struct device *d = p->device;
    cudaSetDevice(d->index);
    struct step_arrays arrays = step_arrays_at(d->step_host, p->rows_max);
    struct step_rows rows = step_arrays_fill(&arrays, step);
    arrays.counts[STEP_PACKS] =
        packs_fill(&p->lowered.packs, step, arrays.pack, arrays.member, arrays.is_packed);
    d->is_running = true;
    d->run_begin = os_seconds();
    d->is_decode = step->n_token <= MATVEC_ROWS_MAX;
    if (p->rows) bring_rows(p, step);
    launch_or_replay(p, step, &rows);
    if (p->rows && step->n_next > 0) bring_next_rows(p, step);
}

int cuda_best(struct program *p, int32_t row, const struct logit_pair **out)
{
    if (row >= BEST_ROWS_MAX) return 0;
    *out = p->device->best_host + (size_t)row * TOP_K;
    int32_t n_vocab = plan_buf_at(p->plan, p->plan->logits)->cols;
    return n_vocab < TOP_K ? n_vocab : TOP_K;
}

void cuda_best_allowed(struct program *p, int32_t n, const int32_t *rows, const uint64_t *masks)
{
    _Static_assert((int)MASKS_MAX <= (int)MASKED_ROWS_MAX, "a call is one search");
    struct masked_rows taken = {.n = n};
    cudaSetDevice(p->device->index);
    carat_assert(n <= p->lowered.masked.rows_max);
    for (int32_t i = 0; i < n; i++) {
        carat_assert(rows[i] >= 0 && rows[i] < BEST_ROWS_MAX);
        taken.row[i] = rows[i];
    }
    search_masked(p, &taken, masks);
}
