/* Attention of one row together with the launch that makes its heads (attention_decode_own.cuh). */
#ifndef CUDA_ATTENTION_OWN_H
#define CUDA_ATTENTION_OWN_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* launch_heads and launch_attention_decode of one row, with the same bits. The queries are not
 * written, as only attention reads them. False: nothing was launched, as these do not belong
 * together, what heads are made of lies in the scratch, or the chip or the layer is not one where
 * it pays. */
bool launch_attention_own(const struct queue *q, const struct heads_args *heads,
                          const struct attention_args *args);

#ifdef __cplusplus
}
#endif

#endif
