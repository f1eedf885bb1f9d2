/* For the checks of products of tiles: activations rounded to 8 or 16 bits on the host and
 * decoded again, and a timer of launches in a graph. */
#ifndef TESTS_CUDA_CHECK_TILES_H
#define TESTS_CUDA_CHECK_TILES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda/check.h"

/* Place of column c of a block of 32 in the order of tiles. */
static inline int tile_order(int c)
{
    return 8 * (c % 16 / 4) + c / 16 * 4 + c % 4;
}

/* The code of the largest |value| of a block. */
static inline float act_most(enum act_kind kind)
{
    return kind == ACT_FINE ? 127.0f * 254.0f : 127.0f;
}

/* rows x cols floats -> activations on the device, columns padded to 64. x gets the values that
 * they mean. */
static inline struct act act_of_kind(float *x, int rows, int cols, enum act_kind kind)
{
    int stride = (cols + 63) / 64 * 64;
    bool is_fine = kind == ACT_FINE;
    int8_t *q = calloc((size_t)(rows * stride), 1), *low = calloc((size_t)(rows * stride), 1);
    float *scale = calloc((size_t)(rows * stride / 32), 2 * sizeof *scale);
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < cols / 32; b++) {
            float *v = x + r * cols + b * 32, most = 0, sum = 0;
            for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(v[i]));
            float inverse = most > 0 ? 127.0f / most : 0, d = most / act_most(kind);
            for (int i = 0; i < 32; i++) {
                int at = r * stride + b * 32 + tile_order(i);
                float y = v[i] * inverse, code = rintf(y);
                q[at] = (int8_t)code;
                if (is_fine) low[at] = (int8_t)rint((double)(y - code) * 254);
                if (is_fine) code = 254.0f * code + (float)low[at];
                sum += code;
                v[i] = d * code;
            }
            scale[(r * stride / 32 + b) * 2] = d;
            scale[(r * stride / 32 + b) * 2 + 1] = d * sum;
        }
    struct act act = {.kind = kind, .stride = stride};
    act.values = check_alloc(q, (size_t)(rows * stride));
    if (is_fine) act.low = check_alloc(low, (size_t)(rows * stride));
    act.scale = check_alloc(scale, (size_t)(rows * stride / 32) * 2 * sizeof *scale);
    free(q);
    free(low);
    free(scale);
    return act;
}

static inline struct act act_of(float *x, int rows, int cols)
{
    return act_of_kind(x, rows, cols, ACT_INT8);
}

static inline struct act act_empty_of_kind(int rows, int cols, enum act_kind kind)
{
    int stride = (cols + 63) / 64 * 64;
    struct act act = {.kind = kind, .stride = stride};
    act.values = check_alloc(NULL, (size_t)(rows * stride));
    if (kind == ACT_FINE) act.low = check_alloc(NULL, (size_t)(rows * stride));
    act.scale = check_alloc(NULL, (size_t)(rows * stride / 32) * 2 * sizeof(float));
    return act;
}

static inline struct act act_empty(int rows, int cols)
{
    return act_empty_of_kind(rows, cols, ACT_INT8);
}

static inline bool act_free(struct act *act)
{
    bool is_whole = check_free(act->values);
    if (act->low) is_whole = check_free(act->low) && is_whole;
    return check_free(act->scale) && is_whole;
}

/* Whether act holds the rounding of the fp32 rows y, and zeros after their columns. */
static inline bool act_fits(const struct act *act, const float *y, int rows, int cols)
{
    int stride = act->stride, n_blocks = stride / 32;
    bool is_fine = act->kind == ACT_FINE;
    int8_t *q = malloc((size_t)(rows * stride)), *low = calloc((size_t)(rows * stride), 1);
    float *scale = malloc((size_t)(rows * n_blocks) * 2 * sizeof *scale);
    check_download(q, act->values, (size_t)(rows * stride));
    if (is_fine) check_download(low, act->low, (size_t)(rows * stride));
    check_download(scale, act->scale, (size_t)(rows * n_blocks) * 2 * sizeof *scale);
    bool is_right = true;
    for (int i = 0; i < rows * n_blocks; i++) {
        int r = i / n_blocks, b = i % n_blocks, sum = 0;
        float most = 0, d = scale[2 * i];
        for (int j = 0; j < 32; j++) {
            float v = b * 32 + j < cols ? y[r * cols + b * 32 + j] : 0;
            most = fmaxf(most, fabsf(v));
            int at = r * stride + b * 32 + tile_order(j);
            int code = is_fine ? 254 * q[at] + low[at] : q[at];
            sum += code;
            /* half a step, and the rounding of the division: 2^-23 of up to 2^15 steps */
            is_right = is_right && fabsf(v - d * (float)code) <= d * (is_fine ? 0.51f : 0.50001f);
        }
        is_right =
            is_right && d == most / act_most(act->kind) && scale[2 * i + 1] == d * (float)sum;
    }
    free(q);
    free(low);
    free(scale);
    return is_right;
}

/* Seconds of one of the `n` launches that `record` puts on the queue, as a graph with a cold L2. */
struct graph_timer {
    struct check *check;
    cudaGraphExec_t graph;
};

static inline void graph_run(void *user)
{
    struct graph_timer *t = user;
    cudaGraphLaunch(t->graph, (cudaStream_t)t->check->queue.stream);
}

static inline double graph_time(struct check *c, void (*record)(void *user, int i), void *user,
                                int n)
{
    cudaGraph_t graph;
    struct graph_timer timer = {.check = c};
    cudaStream_t stream = (cudaStream_t)c->queue.stream;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < n; i++) record(user, i);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&timer.graph, graph, 0);
    double seconds = check_time(c, graph_run, &timer, true);
    cudaGraphExecDestroy(timer.graph);
    cudaGraphDestroy(graph);
    return seconds / n;
}

/* Fills device memory with random bytes that hold no NaN or infinity. Returns `bytes`. */
static inline size_t fill_random(void *device, size_t bytes)
{
    static uint32_t *noise;
    enum { CHUNK = 16 << 20 };
    if (!noise) {
        struct rng rng = {5};
        noise = malloc(CHUNK);
        for (int i = 0; i < CHUNK / 4; i++) noise[i] = (uint32_t)rng_next(&rng) & 0xbfbfbfbfu;
    }
    for (size_t at = 0; at < bytes; at += CHUNK)
        check_upload((char *)device + at, noise, bytes - at < CHUNK ? bytes - at : CHUNK);
    return bytes;
}

/* A weight of random bytes in tiles or rows, for timing. *bytes: what it takes. */
static inline struct cuda_weight weight_of_noise(enum format format, int n_expert, int rows,
                                                 int cols, size_t *bytes)
{
    struct cuda_weight w = {.format = format, .n_expert = n_expert, .rows = rows, .cols = cols};
    struct tile_bytes tiles = tile_bytes_of(format, rows, cols, n_expert);
    if (tiles.quants == 0) {
        w.layout = LAYOUT_ROWS;
        w.row_bytes = (int64_t)(format_row_bytes(format, cols) + 15) / 16 * 16;
        *bytes = (size_t)n_expert * (size_t)rows * (size_t)w.row_bytes;
        w.quants = check_alloc(NULL, *bytes);
        fill_random(w.quants, *bytes);
        return w;
    }
    w.n_groups = (rows + 7) / 8;
    w.n_ktiles = (cols + 63) / 64;
    *bytes = fill_random(w.quants = check_alloc(NULL, tiles.quants), tiles.quants);
    if (tiles.high) *bytes += fill_random(w.high = check_alloc(NULL, tiles.high), tiles.high);
    *bytes += fill_random(w.scale = check_alloc(NULL, tiles.scale), tiles.scale);
    if (tiles.minus) *bytes += fill_random(w.minus = check_alloc(NULL, tiles.minus), tiles.minus);
    return w;
}

#endif
