/* Checks of GPU kernels: one function a family in its own file, listed in check_cuda_kernels.c.
 * A check draws its cases from a fixed seed and computes what is expected on the host in double
 * precision. It puts guards around what the kernel writes and NaN into what the kernel must not
 * read. */
#ifndef TESTS_CUDA_CHECK_H
#define TESTS_CUDA_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/cuda/kernels.h"
#include "base/rng.h"

struct check {
    struct queue queue;
    bool is_perf; /* also time the shapes of the models, and print a line each */
    int n_cases, n_failed;
    double read_bytes_s; /* measured limit of the device; 0 when not measured */
    bool is_small;       /* under a sanitizer, which is slow: each kernel, but no large shapes */
    bool is_own;         /* no kernels of cuBLAS */
    bool is_hot;         /* tiles are timed on a chip that is at its power limit */
};

/* Counts a case; prints the label and the message when it failed. */
__attribute__((format(printf, 3, 4))) bool check_that(struct check *c, bool is_right,
                                                      const char *format, ...);

/* Device memory that holds a copy of `host` (NULL: NaN bytes 0xff), with 256 guard bytes on both
 * sides. Freed by check_free, which gives false when a guard was overwritten. */
void *check_alloc(const void *host, size_t bytes);
bool check_free(void *device);
void check_download(void *host, const void *device, size_t bytes);
void check_upload(void *device, const void *host, size_t bytes);
/* Whether two places of the device have the same bytes. */
bool check_is_same(const void *a, const void *b, size_t bytes);

/* sum (y - expected)^2 / sum expected^2; infinite when a value is not finite. */
double check_nmse(const float *y, const double *expected, size_t n);

/* n normal random values. */
void check_normal(struct rng *rng, float *out, size_t n, float scale);

/* The same on the device; *host (if not NULL) gets a copy, to be freed by the caller. */
float *check_normal_device(struct rng *rng, size_t n, float scale, float **host);

/* A weight of random values in `format`, on the device in `layout`; *values (if not NULL) gets the
 * decoded fp32 values, to be freed by the caller. */
struct cuda_weight check_weight(struct check *c, struct rng *rng, enum format format,
                                enum cuda_layout layout, int32_t n_expert, int32_t rows,
                                int32_t cols, float scale, float **values);
void check_weight_free(struct cuda_weight *w);

/* A step on the device: n_token rows, n_decode of them single, and n_out outputs. Arrays may be
 * NULL. */
struct step_view check_step(int32_t n_token, int32_t n_decode, int32_t n_out, const int32_t *id,
                            const int32_t *position, const int32_t *sequence,
                            const int32_t *out_row);
void check_step_free(struct step_view *view);

/* Median seconds of `run(user)` over some launches on the queue, after a warm-up, with the L2 cache
 * flushed before each when `is_cold`. */
double check_time(struct check *c, void (*run)(void *user), void *user, bool is_cold);

/* Mean seconds of `run(user)` over 0.1 s, after as long a time of runs, which bring the chip to its
 * power limit if they can. */
double check_time_hot(struct check *c, void (*run)(void *user), void *user);

/* Seconds that one run takes among a hundred in a graph. As in a step, each launch depends on
 * the one before it and the host has no part in it. Inputs stay in the L2 cache. */
double check_time_graph(struct check *c, void (*run)(void *user), void *user);

#define CHECK_LIST(X)                                                                              \
    X(repack)                                                                                      \
    X(round)                                                                                       \
    X(matvec)                                                                                      \
    X(experts)                                                                                     \
    X(beside)                                                                                      \
    X(normed)                                                                                      \
    X(router_normed)                                                                               \
    X(rows)                                                                                        \
    X(norm)                                                                                        \
    X(heads)                                                                                       \
    X(route)                                                                                       \
    X(topk)                                                                                        \
    X(attention_decode)                                                                            \
    X(cascade)                                                                                     \
    X(attention_own)                                                                               \
    X(attention_prefill)                                                                           \
    X(gemm_i8)                                                                                     \
    X(gemm_f16)                                                                                    \
    X(gemm_wgmma)                                                                                  \
    X(gemm_tiles)                                                                                  \
    X(half)                                                                                        \
    X(half_inputs)                                                                                 \
    X(half_experts)                                                                                \
    X(moe)                                                                                         \
    X(bound)                                                                                       \
    X(limits)

#define X(name) void check_##name(struct check *c);
CHECK_LIST(X)
#undef X

#endif
