/* cuBLAS, where it is installed: products of many rows in fp16 on chips whose tensor cores
 * mma.sync does not fill (Hopper, Blackwell). Found at run time; neither its headers nor its
 * library are needed to build, and without it launch_gemm_f16 does the same.
 *
 * A handle belongs to one queue and may be used by one thread at a time. After cublas_set_stream it
 * allocates nothing: products may be captured. */
#ifndef CUDA_CUBLAS_H
#define CUDA_CUBLAS_H

#include "backend/cuda/kernels.h"

struct cublas;

/* Workspace that cuBLAS advises for Hopper; chips before it take 4 MiB of it. */
enum { CUBLAS_WORKSPACE_BYTES = 32 << 20 };

/* Gives 0, or -1 if it is not there. `path`: the library's file or its folder, tried first; NULL:
 * the loader's own search, then the usual folders. It will run on the current device. */
int cublas_open(struct cublas **out, const char *path);
void cublas_close(struct cublas *c);

/* For example 130100 for 13.1.0. */
int cublas_version(const struct cublas *c);

/* `workspace`: device memory, aligned to 256 bytes, that outlives c's products. */
int cublas_set_stream(struct cublas *c, const struct queue *q, void *workspace, size_t bytes);

/* Whether cublas_multiply takes products with n_w weights: fp16 results (`is_half`) of several need
 * their mirrors side by side (`is_contiguous`), since they are one product. */
bool cublas_takes(int32_t n_w, bool is_half, bool is_contiguous);

/* The same as launch_gemm_f16, on the queue of cublas_set_stream. fp32 results are multiplied by
 * the rows' scales in a second launch, unless they are wanted without; fp16 ones are left unscaled,
 * as there. What cuBLAS turns down goes to launch_gemm_f16. If the queue only loads
 * kernels, cuBLAS still multiplies, the first time that it meets a shape. */
void cublas_multiply(struct cublas *c, const struct queue *q, const struct gemm_args *args);

#endif
