#define KERNELS_NAME "neon"
#define KERNELS_TABLE cpu_kernels_neon
#define KERNELS_MANY_ROWS 0
#include "backend/cpu/simd/lanes_neon.h"
#include "backend/cpu/simd/kernels_body.h"
