#include "backend/cuda/upload.h"

#include <string.h>

#include "base/allowance.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"

/* Four buffers of up to 16 MB: enough for one to be filled, one copied and one repacked at any
 * time. */
enum { BUFFERS = 4, BUFFER_BYTES = 16 << 20, READERS_MAX = 8 };

struct upload {
    struct device *device;
    struct pool *readers;
    char *host[BUFFERS], *staged[BUFFERS]; /* pinned, our own; on the device, borrowed */
    cudaEvent_t is_free[BUFFERS];
    int next;
};

void upload_close(struct upload *u)
{
    if (!u) return;
    cudaStreamSynchronize(u->device->queue.stream);
    for (int i = 0; i < BUFFERS; i++) {
        if (u->is_free[i]) cudaEventDestroy(u->is_free[i]);
        cudaFreeHost(u->host[i]);
    }
    pool_close(u->readers);
    mem_free(u);
}

/* Bytes of one buffer, on the host and on the device: what is sent at once is at most a matrix. To
 * take and give back 64 MB of page-locked memory costs tens of milliseconds, which small models
 * need not pay. */
static size_t staged_bytes(const struct plan *plan)
{
    size_t most = 0;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct weight *w = op_weight(&plan->ops[i]);
        if (w && w->expert_bytes > most) most = w->expert_bytes;
    }
    return aligned(most < BUFFER_BYTES ? most : BUFFER_BYTES);
}

size_t upload_staging_bytes(const struct plan *plan)
{
    return BUFFERS * staged_bytes(plan);
}

static int take_buffers(struct upload *u, size_t bytes, struct carat_error *err)
{
    int cores = allowed_threads();
    struct pool_options readers = {.n_threads = cores < READERS_MAX ? cores : READERS_MAX};
    TRY(pool_open(&u->readers, &readers, err));
    for (int i = 0; i < BUFFERS; i++) {
        cudaError_t status = cudaMallocHost((void **)&u->host[i], bytes);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            return err_no_memory(err, "pinned buffers for loading weights", bytes);
        }
        if (!status) status = cudaEventCreateWithFlags(&u->is_free[i], cudaEventDisableTiming);
        if (status) return cuda_fail(err, status, "loading weights");
    }
    return CARAT_OK;
}

int upload_open(struct upload **out, struct device *d, const struct plan *plan, char *staging,
                struct carat_error *err)
{
    *out = NULL;
    struct upload *u = mem_alloc(1, sizeof *u);
    if (!u) return err_no_memory(err, "upload", sizeof *u);
    u->device = d;
    for (size_t i = 0; i < BUFFERS; i++) u->staged[i] = staging + i * staged_bytes(plan);
    int status = take_buffers(u, staged_bytes(plan), err);
    if (status)
        upload_close(u);
    else
        *out = u;
    return status;
}

struct reading {
    char *to;
    const char *from;
    size_t bytes;
};

static void read_part(void *user, const struct pool_worker *worker)
{
    struct reading *r = user;
    int64_t first, last;
    pool_stretch(worker, (int64_t)r->bytes, &first, &last);
    memcpy(r->to + first, r->from + first, (size_t)(last - first));
}

static cudaError_t send_rows(struct upload *u, const struct cuda_loaded *w, int32_t expert,
                             int32_t first_row, int32_t n_rows)
{
    const struct weight *source = w->source;
    size_t bytes = (size_t)n_rows * source->row_bytes;
    int i = u->next++ % BUFFERS;
    cudaStream_t stream = u->device->queue.stream;
    cudaError_t status = cudaEventSynchronize(u->is_free[i]);
    if (status) return status;
    struct reading reading = {u->host[i],
                              (const char *)source->data + (size_t)expert * source->expert_bytes +
                                  (size_t)first_row * source->row_bytes,
                              bytes};
    pool_run(u->readers, read_part, &reading);
    if (w->view.layout == LAYOUT_FILE) {
        char *to = (char *)w->view.quants +
                   ((size_t)expert * (size_t)w->view.rows + (size_t)first_row) * source->row_bytes;
        status = cudaMemcpyAsync(to, u->host[i], bytes, cudaMemcpyHostToDevice, stream);
    } else {
        status = cudaMemcpyAsync(u->staged[i], u->host[i], bytes, cudaMemcpyHostToDevice, stream);
        launch_repack(&u->device->queue, &w->view, expert, first_row, n_rows, u->staged[i],
                      (int64_t)source->row_bytes);
    }
    return status ? status : cudaEventRecord(u->is_free[i], stream);
}

/* A table in pinned memory is read straight into place. */
static void fill_pinned(struct upload *u, const struct cuda_loaded *w)
{
    struct reading reading = {(char *)w->view.quants, w->source->data,
                              (size_t)w->source->n_expert * w->source->expert_bytes};
    pool_run(u->readers, read_part, &reading);
}

int upload_weight(struct upload *u, const struct cuda_loaded *w, struct carat_error *err)
{
    if (w->is_pinned) {
        fill_pinned(u, w);
        return CARAT_OK;
    }
    int32_t most = (int32_t)(BUFFER_BYTES / w->source->row_bytes) / TILE_ROWS * TILE_ROWS;
    if (most == 0)
        return err_set(err, CARAT_EFORMAT, "%s: rows of %zu bytes are too long for this device",
                       w->source->name, w->source->row_bytes);
    for (int32_t e = 0; e < w->view.n_expert; e++)
        for (int32_t r = 0; r < w->view.rows; r += most) {
            int32_t n = w->view.rows - r < most ? w->view.rows - r : most;
            cudaError_t status = send_rows(u, w, e, r, n);
            if (status) return cuda_fail(err, status, w->source->name);
        }
    return CARAT_OK;
}
