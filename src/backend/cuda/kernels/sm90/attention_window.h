/* Split attention of many rows with a window, heads of 256 values, on Hopper. */
#ifndef CUDA_SM90_ATTENTION_WINDOW_H
#define CUDA_SM90_ATTENTION_WINDOW_H

#include "backend/cuda/kernels.h"

/* What launch_attention_decode gives, with its bits, in one launch. Returns false, and nothing is
 * launched, for other devices, caches and shapes, or where multiprocessors would be idle for
 * long. */
bool launch_attention_window(const struct queue *q, const struct attention_args *args);

#endif
