#include "backend/cuda/bounds.h"

#include <math.h>
#include <string.h>

#include "backend/cuda/loaded.h"
#include "backend/cuda/windows.h"
#include "base/mem.h"

/* The range of bounds' exponents that scales follow, and the exponent of the largest activation. */
enum { EXPONENT_LEAST = -90, EXPONENT_MOST = 120, HIDDEN_EXPONENT = 15 };

/* The norm of whole rows whose output the product reads; NULL: something else wrote it. */
static const struct op *norm_before(const struct plan *plan, const struct op *product)
{
    int32_t writer = plan_buf_at(plan, product->in[0])->first_op; /* outside if the plan was cut */
    if (writer < 0 || writer >= plan->n_ops) return NULL;
    const struct op *op = &plan->ops[writer];
    bool is_it = op->code == OP_RMSNORM && op->out[0] == product->in[0] &&
                 op->p.norm.group == plan_buf_at(plan, op->in[0])->cols;
    return is_it ? op : NULL;
}

bool bounds_know(const struct plan *plan, const struct op *ops)
{
    return norm_before(plan, &ops[0]) != NULL;
}

float bounds_scale(const struct op *ops)
{
    const struct weight *gate = op_weight(&ops[0]);
    return gate->device_data ? loaded_weight(gate)->hidden_scale : 0;
}

/* Whether a window with such a scale begins at op i. */
static bool has_bound(const struct plan *plan, int32_t i)
{
    enum window_kind kind = window_at(plan, i).kind;
    return (kind == WINDOW_FFN || kind == WINDOW_MIXED) && bounds_know(plan, &plan->ops[i]);
}

static size_t neurons_of(const struct weight *gate)
{
    return (size_t)gate->n_expert * (size_t)gate->rows;
}

/* A bound for each op, and what bounds the neurons of a window. */
static size_t most_bytes(const struct plan *plan)
{
    return aligned((size_t)plan->n_ops * sizeof(uint32_t));
}

size_t bounds_scratch_bytes(const struct plan *plan)
{
    size_t most = 0;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        size_t n = has_bound(plan, i) ? neurons_of(op_weight(&plan->ops[i])) : 0;
        if (n > most) most = n;
    }
    return most ? most_bytes(plan) + aligned(most * sizeof(float)) : 0;
}

/* Bounds of gate times up, without the factor cols, and of the sums of down. */
static void launch_bounds(const struct device *d, const struct plan *plan, int32_t i,
                          float *neurons, uint32_t *most)
{
    const struct op *ops = &plan->ops[i];
    const struct weight *w = norm_before(plan, ops)->p.norm.w;
    struct row_size_args norms = {.w = loaded_weight(op_weight(&ops[0]))->view,
                                  .by = w ? (const void *)loaded_weight(w)->view.quants : NULL,
                                  .is_norm = true,
                                  .out = neurons};
    launch_row_sizes(&d->queue, &norms);
    norms.w = loaded_weight(op_weight(&ops[1]))->view;
    norms.times = neurons;
    norms.most = most;
    launch_row_sizes(&d->queue, &norms);
    struct row_size_args sums = {.w = loaded_weight(op_weight(&ops[3]))->view,
                                 .by = neurons,
                                 .is_by_expert = true,
                                 .most = most};
    launch_row_sizes(&d->queue, &sums);
}

/* Weights that are not finite have no bound, and no result that is worth one. */
static float scale_for(uint32_t bits, int64_t cols)
{
    float bound;
    int exponent;
    memcpy(&bound, &bits, sizeof bound);
    bound *= (float)cols;
    if (!isfinite(bound) || bound == 0) return 1;
    frexpf(bound, &exponent);
    if (exponent < EXPONENT_LEAST) exponent = EXPONENT_LEAST;
    if (exponent > EXPONENT_MOST) exponent = EXPONENT_MOST;
    return ldexpf(1, exponent - HIDDEN_EXPONENT);
}

/* Computes the missing bounds and copies all to `most`, on the host; waits for the device. */
static int make_all(struct device *d, const struct plan *plan, char *scratch, uint32_t *most,
                    struct carat_error *err)
{
    uint32_t *on_device = (uint32_t *)(void *)scratch;
    float *neurons = (float *)(void *)(scratch + most_bytes(plan));
    size_t bytes = (size_t)plan->n_ops * sizeof *most;
    cudaError_t status = cudaMemsetAsync(on_device, 0, bytes, d->queue.stream);
    for (int32_t i = 0; i < plan->n_ops; i++)
        if (has_bound(plan, i) && bounds_scale(&plan->ops[i]) == 0)
            launch_bounds(d, plan, i, neurons, &on_device[i]);
    if (!status)
        status = cudaMemcpyAsync(most, on_device, bytes, cudaMemcpyDeviceToHost, d->queue.stream);
    if (!status) status = cudaStreamSynchronize(d->queue.stream);
    return status ? cuda_fail(err, status, "bounds of weights") : CARAT_OK;
}

int bounds_make(struct device *d, const struct plan *plan, void *scratch, struct carat_error *err)
{
    bool has_readers = cuda_fuses(d) && d->queue.capability == 90;
    if (!has_readers || bounds_scratch_bytes(plan) == 0) return CARAT_OK;
    uint32_t *most = mem_alloc((size_t)plan->n_ops, sizeof *most);
    if (!most) return err_no_memory(err, "bounds of weights", (size_t)plan->n_ops * sizeof *most);
    int status = make_all(d, plan, scratch, most, err);
    for (int32_t i = 0; i < plan->n_ops && !status; i++) {
        if (!has_bound(plan, i) || bounds_scale(&plan->ops[i]) != 0) continue;
        const struct weight *gate = op_weight(&plan->ops[i]);
        loaded_weight(gate)->hidden_scale = scale_for(most[i], gate->cols);
    }
    mem_free(most);
    return status;
}
