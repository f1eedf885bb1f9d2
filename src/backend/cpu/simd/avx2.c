#define KERNELS_NAME "avx2"
#define KERNELS_TABLE cpu_kernels_avx2
#include "backend/cpu/simd/lanes_avx2.h"
#include "backend/cpu/simd/kernels_body.h"
