/* How products of many rows are computed, 16-bit operands with fp32 sums or 8-bit ones: measured
 * when a device is opened, with our own kernels on one product of a prefill step. The chip's
 * generation does not tell: data-centre chips multiply fp16 at half the rate of 8 bits, others at a
 * quarter of it when sums are fp32, and in 8 bits scales cost us more than products.
 *
 * On Hopper the fp16 product goes to launch_gemm_wgmma, else to cuBLAS where it is installed. Both
 * are faster than what is measured here (H200: 727 against 457 TFLOP/s): the rate of fp16 is a
 * lower bound. */
#ifndef CUDA_CHOOSE_H
#define CUDA_CHOOSE_H

#include "backend/cuda/device.h"

/* What products of many rows read: as asked, else the faster way, which is measured. Takes 86 MB
 * for a moment; notes the rates in d. */
enum act_kind cuda_choose_many(struct device *d);

/* From how many rows on tiles are multiplied in fp16 (launch_half) instead of in 8 bits, and which
 * steps are computed alike: sets half_least and has_alike_prompts. Comes after cuda_choose_many. */
void cuda_choose_few(struct device *d);

#endif
