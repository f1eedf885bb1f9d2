#include "backend/cuda/row_table.h"

#include "base/mem.h"

int row_table_open(struct row_table **out, const struct weight *table, int32_t rows_max,
                   int32_t n_slots, void *device_memory, void *pinned, struct carat_error *err)
{
    struct row_table *t = *out = mem_alloc(1, sizeof *t);
    if (!t) return err_no_memory(err, table->name, sizeof *t);
    t->rows = device_memory;
    cudaError_t failure = cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking);
    for (int i = 0; i < 2 && !failure; i++)
        failure = cudaEventCreateWithFlags(&t->copied[i], cudaEventDisableTiming);
    int status =
        failure ? err_set(err, CARAT_EDEVICE, "%s: %s", table->name, cudaGetErrorString(failure))
                : gather_init(&t->gather, table, rows_max, n_slots, pinned, err);
    if (!status) return CARAT_OK;
    row_table_close(t);
    *out = NULL;
    return status;
}

void row_table_close(struct row_table *t)
{
    if (!t) return;
    if (t->stream) {
        cudaStreamSynchronize(t->stream); /* the caller may free both memories next */
        cudaStreamDestroy(t->stream);
    }
    for (int i = 0; i < 2; i++)
        if (t->copied[i]) cudaEventDestroy(t->copied[i]);
    gather_deinit(&t->gather);
    mem_free(t);
}

/* Copies what the cache does not have of n ids. All of them get their slots, also on a device that
 * was lost. */
static cudaError_t bring(struct row_table *t, cudaStream_t stream, const int32_t *id, int32_t n,
                         int32_t *slot)
{
    struct gathered some[GATHER_ROWS];
    size_t bytes = t->gather.table->row_bytes;
    int32_t half = gather_begin(&t->gather);
    cudaError_t status = cudaEventSynchronize(t->copied[half]);
    for (int32_t i = 0; i < n; i += GATHER_ROWS) {
        int32_t m = n - i < GATHER_ROWS ? n - i : GATHER_ROWS;
        int32_t n_some = gather_rows(&t->gather, id + i, m, slot ? slot + i : NULL, some);
        for (int32_t k = 0; k < n_some && !status; k++)
            status = cudaMemcpyAsync(t->rows + (size_t)some[k].slot * bytes, some[k].from,
                                     (size_t)some[k].n * bytes, cudaMemcpyHostToDevice, stream);
    }
    if (!status && t->gather.n_read > 0) status = cudaEventRecord(t->copied[half], stream);
    return status;
}

cudaError_t row_table_step(struct row_table *t, cudaStream_t stream, const struct step *step,
                           int32_t *slot)
{
    cudaError_t status = cudaSuccess;
    if (t->is_ahead) status = cudaStreamWaitEvent(stream, t->copied[t->gather.half], 0);
    t->is_ahead = false;
    cudaError_t copied = bring(t, stream, step->id, step->n_token, slot);
    return status ? status : copied;
}

cudaError_t row_table_ahead(struct row_table *t, const struct step *step)
{
    if (step->n_next > t->gather.rows_max) return cudaSuccess;
    t->is_ahead = true;
    return bring(t, t->stream, step->next_id, step->n_next, NULL);
}

void row_table_print(const struct row_table *t, struct buf *out)
{
    const struct gather *g = &t->gather;
    double bytes = (double)g->table->row_bytes, found = 0;
    if (g->n_asked > g->n_brought) found = 1 - (double)g->n_brought / (double)g->n_asked;
    buf_printf(out,
               "%s: %lld rows looked up, %lld copied to the GPU (%.1f MB); %.1f %% were there, in "
               "a cache of %d rows (%.1f MB)\n",
               g->table->name, (long long)g->n_asked, (long long)g->n_brought,
               (double)g->n_brought * bytes / 1e6, 100 * found, g->cache.n_slots,
               (double)g->cache.n_slots * bytes / 1e6);
}
