#define KERNELS_NAME "avx512"
#define KERNELS_TABLE cpu_kernels_avx512
#include "backend/cpu/simd/lanes_avx512.h"
#include "backend/cpu/simd/kernels_body.h"
