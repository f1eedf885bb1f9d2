/* A crowd: more rows than MATVEC_ROWS_MAX that decode (step_size.h). Over tiles they go in passes
 * of 64 or 128 rows (kernels/sm90/half.cu). C and CUDA common subset. */
#ifndef CUDA_CROWD_H
#define CUDA_CROWD_H

enum { CROWD_PASS = 128, CROWD_ROWS_MAX = 256 };

#endif
