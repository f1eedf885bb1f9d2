#include "backend/cuda/recording.h"

#include "backend/cuda/program.h"

/* Rows that a step may have less than the recorded one. Replaying saves 0.24 ms (8 rows) to 0.34 ms
 * (512 and more), E4B on an H200. That is worth half of a few rows, which cost little next to their
 * weights, 64 rows of a short prompt and 32 of a long one. */
static int32_t slack_of(int32_t rows)
{
    if (rows <= MATVEC_ROWS_MAX) return rows / 2;
    return rows <= 512 ? 64 : 32;
}

/* Few and many rows have products of their own, and so have decoding rows among many in attention:
 * a step is never launched as one of the other kind. */
static bool serves(const struct plan_usual *usual, const struct step *step)
{
    int32_t rows = usual->rows[ROWS_TOKEN], outs = usual->rows[ROWS_OUT];
    if (step->n_token > rows || step->n_token + slack_of(rows) < rows) return false;
    if (rows <= MATVEC_ROWS_MAX && outs <= MATVEC_ROWS_MAX) return step->n_out <= outs;
    return (step->n_token > MATVEC_ROWS_MAX) == (rows > MATVEC_ROWS_MAX) && step->n_decode == 0 &&
           step->n_out == outs;
}

int recording_for(const struct plan *plan, const struct step *step)
{
    int best = -1;
    for (int i = 0; i < plan->n_usual; i++) {
        const int32_t *rows = plan->usual[i].rows;
        if (!serves(&plan->usual[i], step)) continue;
        const int32_t *least = best < 0 ? NULL : plan->usual[best].rows;
        if (!least || rows[ROWS_TOKEN] < least[ROWS_TOKEN] ||
            (rows[ROWS_TOKEN] == least[ROWS_TOKEN] && rows[ROWS_OUT] < least[ROWS_OUT]))
            best = i;
    }
    return best;
}

static int record(struct program *p, const struct plan_usual *usual, cudaGraphExec_t *out,
                  struct carat_error *err)
{
    cudaGraph_t graph;
    cudaStream_t stream = p->device->queue.stream;
    p->device->step_host[1] = 0; /* decoding rows */
    cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (status) return cuda_fail(err, status, "recording a step");
    program_launch(p, usual->rows);
    status = cudaStreamEndCapture(stream, &graph);
    if (status) return cuda_fail(err, status, "recording a step");
    status = cudaGraphInstantiate(out, graph, 0);
    cudaGraphDestroy(graph);
    if (!status) status = cudaGraphUpload(*out, stream);
    return status ? cuda_fail(err, status, "recording a step") : CARAT_OK;
}

int recordings_make(struct program *p, struct carat_error *err)
{
    const struct device_options *o = &p->device->options;
    if (o->is_exact || o->has_no_graphs || p->device->profile) return CARAT_OK;
    for (int i = 0; i < p->plan->n_usual; i++)
        TRY(record(p, &p->plan->usual[i], &p->recorded[i], err));
    return CARAT_OK;
}

void recordings_drop(struct program *p)
{
    for (int i = 0; i < PLAN_USUAL_MAX; i++)
        if (p->recorded[i]) cudaGraphExecDestroy(p->recorded[i]);
}
