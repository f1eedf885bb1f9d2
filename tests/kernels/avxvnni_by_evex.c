/* The lanes of AVX-VNNI with its instruction in the encoding of AVX-512, for machines that have no
 * other. No AVX-512 is allowed to the compiler besides, so that it has 16 registers as there. */
#define KERNELS_NAME "avxvnni-by-evex"
#define KERNELS_TABLE cpu_kernels_avxvnni_by_evex
#define LANES_EVEX
#include "backend/cpu/simd/lanes_avxvnni.h"
#include "backend/cpu/simd/kernels_body.h"
