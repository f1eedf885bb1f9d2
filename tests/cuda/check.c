#include "cuda/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "backend/cuda/step_arrays.h"

/* A mistake in the test itself, or a lost device: nothing later would mean anything. */
static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static void *must_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        printf("out of memory: %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

bool check_that(struct check *c, bool is_right, const char *format, ...)
{
    c->n_cases++;
    if (is_right) return true;
    c->n_failed++;
    if (c->n_failed > 20) return false;
    va_list args;
    va_start(args, format);
    printf("FAILED ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    return false;
}

/* ---- Memory between guards -------------------------------------------------------------- */

enum { GUARD = 256, BLOCKS_MAX = 4096 };

static struct block {
    char *data;
    size_t bytes;
} blocks[BLOCKS_MAX];

static void fill_guards(char *base, size_t bytes, int value)
{
    must(cudaMemset(base, value, GUARD), "guard");
    must(cudaMemset(base + GUARD + bytes, value, GUARD), "guard");
}

void *check_alloc(const void *host, size_t bytes)
{
    char *base;
    size_t padded = (bytes + 255) & ~(size_t)255;
    must(cudaMalloc((void **)&base, padded + 2 * GUARD), "cudaMalloc");
    must(cudaMemset(base, 0xff, padded + 2 * GUARD), "cudaMemset");
    fill_guards(base, bytes, 0xa5);
    if (host) must(cudaMemcpy(base + GUARD, host, bytes, cudaMemcpyHostToDevice), "upload");
    for (int i = 0; i < BLOCKS_MAX; i++) {
        if (blocks[i].data) continue;
        blocks[i] = (struct block){base + GUARD, bytes};
        return base + GUARD;
    }
    must(cudaErrorMemoryAllocation, "too many blocks");
    return NULL;
}

bool check_free(void *device)
{
    if (!device) return true;
    struct block *b = NULL;
    for (int i = 0; i < BLOCKS_MAX && !b; i++)
        if (blocks[i].data == device) b = &blocks[i];
    if (!b) must(cudaErrorInvalidValue, "check_free");
    unsigned char guard[2 * GUARD];
    must(cudaDeviceSynchronize(), "kernel");
    must(cudaMemcpy(guard, b->data - GUARD, GUARD, cudaMemcpyDeviceToHost), "guard");
    must(cudaMemcpy(guard + GUARD, b->data + b->bytes, GUARD, cudaMemcpyDeviceToHost), "guard");
    bool is_whole = true;
    for (int i = 0; i < 2 * GUARD; i++) is_whole = is_whole && guard[i] == 0xa5;
    must(cudaFree(b->data - GUARD), "cudaFree");
    b->data = NULL;
    return is_whole;
}

void check_download(void *host, const void *device, size_t bytes)
{
    must(cudaDeviceSynchronize(), "kernel");
    must(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "download");
}

void check_upload(void *device, const void *host, size_t bytes)
{
    must(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "upload");
}

bool check_is_same(const void *a, const void *b, size_t bytes)
{
    char *x = malloc(bytes), *y = malloc(bytes);
    check_download(x, a, bytes);
    check_download(y, b, bytes);
    bool is_same = memcmp(x, y, bytes) == 0;
    free(x);
    free(y);
    return is_same;
}

double check_nmse(const float *y, const double *expected, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)y[i] - expected[i];
        if (!isfinite(d)) return INFINITY;
        error += d * d;
        size += expected[i] * expected[i];
    }
    if (size > 0) return error / size;
    return error > 0 ? INFINITY : 0;
}

void check_normal(struct rng *rng, float *out, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) out[i] = scale * rng_normal(rng);
}

float *check_normal_device(struct rng *rng, size_t n, float scale, float **host)
{
    float *x = must_alloc(n * sizeof *x);
    check_normal(rng, x, n, scale);
    float *device = check_alloc(x, n * sizeof *x);
    if (host)
        *host = x;
    else
        free(x);
    return device;
}

/* ---- Weights ---------------------------------------------------------------------------- */

static void take_planes(struct cuda_weight *w)
{
    struct tile_bytes bytes = tile_bytes_of(w->format, w->rows, w->cols, w->n_expert);
    w->n_groups = (w->rows + TILE_ROWS - 1) / TILE_ROWS;
    w->n_ktiles = (w->cols + TILE_COLS - 1) / TILE_COLS;
    w->quants = check_alloc(NULL, bytes.quants);
    if (bytes.high) w->high = check_alloc(NULL, bytes.high);
    if (bytes.scale) w->scale = check_alloc(NULL, bytes.scale);
    if (bytes.minus) w->minus = check_alloc(NULL, bytes.minus);
}

struct cuda_weight check_weight(struct check *c, struct rng *rng, enum format format,
                                enum cuda_layout layout, int32_t n_expert, int32_t rows,
                                int32_t cols, float scale, float **values)
{
    struct cuda_weight w = {
        .format = format, .layout = layout, .n_expert = n_expert, .rows = rows, .cols = cols};
    size_t n_rows = (size_t)n_expert * (size_t)rows, n = n_rows * (size_t)cols;
    size_t row_bytes = format_row_bytes(format, cols);
    float *decoded = must_alloc(n * sizeof *decoded);
    char *file = must_alloc(n_rows * row_bytes);
    check_normal(rng, decoded, n, scale);
    format_traits(format)->encode(decoded, NULL, file, (int64_t)n);
    format_traits(format)->decode(file, decoded, (int64_t)n);
    if (layout == LAYOUT_FILE) {
        w.row_bytes = (int64_t)row_bytes;
        w.quants = check_alloc(file, n_rows * row_bytes);
    } else {
        if (layout == LAYOUT_TILES)
            take_planes(&w);
        else if (layout == LAYOUT_ROWS) {
            w.row_bytes = (int64_t)((row_bytes + 15) / 16 * 16);
            w.quants = check_alloc(NULL, n_rows * (size_t)w.row_bytes);
        } else
            w.quants = check_alloc(NULL, n * sizeof(float));
        char *raw = check_alloc(file, n_rows * row_bytes);
        for (int32_t e = 0; e < n_expert; e++)
            launch_repack(&c->queue, &w, e, 0, rows, raw + (size_t)e * (size_t)rows * row_bytes,
                          (int64_t)row_bytes);
        must(cudaStreamSynchronize(c->queue.stream), "repack");
        check_free(raw);
    }
    free(file);
    if (values)
        *values = decoded;
    else
        free(decoded);
    return w;
}

void check_weight_free(struct cuda_weight *w)
{
    check_free(w->quants);
    check_free(w->high);
    check_free(w->scale);
    check_free(w->minus);
    check_free(w->mirror);
    *w = (struct cuda_weight){0};
}

/* ---- Steps ------------------------------------------------------------------------------ */

static const int32_t *upload_ints(const int32_t *values, int32_t n)
{
    return values ? check_alloc(values, (size_t)n * sizeof *values) : NULL;
}

struct step_view check_step(int32_t n_token, int32_t n_decode, int32_t n_out, const int32_t *id,
                            const int32_t *position, const int32_t *sequence,
                            const int32_t *out_row)
{
    int32_t rows_max = n_token > n_out ? n_token : n_out;
    size_t bytes = ((size_t)rows_max + 1) * sizeof(int32_t);
    int32_t *zeros = must_alloc(bytes), *memory = must_alloc(step_bytes(rows_max));
    memset(zeros, 0, bytes);
    memset(memory, 0, step_bytes(rows_max));
    const struct step step = {.n_token = n_token,
                              .n_decode = n_decode,
                              .n_out = n_out,
                              .id = id ? (int32_t *)(uintptr_t)id : zeros,
                              .position = position ? (int32_t *)(uintptr_t)position : zeros,
                              .sequence = sequence ? (int32_t *)(uintptr_t)sequence : zeros,
                              .out_row = out_row ? (int32_t *)(uintptr_t)out_row : zeros};
    struct step_arrays a = step_arrays_at(memory, rows_max);
    struct step_rows rows = step_arrays_fill(&a, &step);
    struct step_view view = {.counts = upload_ints(a.counts, STEP_COUNTS),
                             .id = upload_ints(id, n_token),
                             .position = upload_ints(position, n_token),
                             .sequence = upload_ints(sequence, n_token),
                             .out_row = upload_ints(out_row, n_out)};
    for (int c = 0; c < ROW_CLASS_COUNT; c++)
        view.run[c] = upload_ints(a.run[c], rows.n_runs[c] + 1);
    free(zeros);
    free(memory);
    return view;
}

void check_step_free(struct step_view *view)
{
    check_free((void *)(uintptr_t)view->counts);
    check_free((void *)(uintptr_t)view->id);
    check_free((void *)(uintptr_t)view->position);
    check_free((void *)(uintptr_t)view->sequence);
    check_free((void *)(uintptr_t)view->out_row);
    for (int c = 0; c < ROW_CLASS_COUNT; c++) check_free((void *)(uintptr_t)view->run[c]);
    *view = (struct step_view){0};
}

/* ---- Time ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of n runs between two events. */
static float ms_of(struct check *c, cudaEvent_t begin, cudaEvent_t end, void (*run)(void *user),
                   void *user, int n)
{
    float ms;
    must(cudaEventRecord(begin, c->queue.stream), "event");
    for (int i = 0; i < n; i++) run(user);
    must(cudaEventRecord(end, c->queue.stream), "event");
    must(cudaEventSynchronize(end), "run");
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    return ms;
}

double check_time(struct check *c, void (*run)(void *user), void *user, bool is_cold)
{
    enum { RUNS = 15, FLUSH = 256 << 20 };
    static void *flush;
    if (!flush) must(cudaMalloc(&flush, FLUSH), "flush");
    cudaEvent_t begin, end;
    float ms[RUNS];
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    for (int i = -2; i < RUNS; i++) {
        if (is_cold) must(cudaMemsetAsync(flush, i, FLUSH, c->queue.stream), "flush");
        float one = ms_of(c, begin, end, run, user, 1);
        if (i >= 0) ms[i] = one;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    qsort(ms, RUNS, sizeof *ms, by_value);
    return (double)ms[RUNS / 2] / 1e3;
}

double check_time_hot(struct check *c, void (*run)(void *user), void *user)
{
    const float warm_ms = 120, timed_ms = 120, round_ms = 20;
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    int n = 1;
    float ms = 0;
    for (float total = 0; total < warm_ms; total += ms) {
        if (total > 0 && ms < round_ms) n *= 2;
        ms = ms_of(c, begin, end, run, user, n);
    }
    n = (int)(timed_ms / ms * (float)n) + 1;
    ms = ms_of(c, begin, end, run, user, n);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms / 1e3 / n;
}

double check_time_graph(struct check *c, void (*run)(void *user), void *user)
{
    enum { LAUNCHES = 100, RUNS = 9 };
    cudaStream_t stream = c->queue.stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float ms[RUNS];
    must(cudaStreamSynchronize(stream), "before the graph");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < LAUNCHES; i++) run(user);
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    for (int i = -2; i < RUNS; i++) {
        must(cudaEventRecord(begin, stream), "event");
        must(cudaGraphLaunch(exec, stream), "graph");
        must(cudaEventRecord(end, stream), "event");
        must(cudaEventSynchronize(end), "graph");
        if (i >= 0) must(cudaEventElapsedTime(&ms[i], begin, end), "event");
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    qsort(ms, RUNS, sizeof *ms, by_value);
    return (double)ms[RUNS / 2] / 1e3 / LAUNCHES;
}
