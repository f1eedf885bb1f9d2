#define KERNELS_NAME "neon"
#define KERNELS_TABLE cpu_kernels_neon
#include "backend/cpu/simd/lanes_neon.h"
#include "backend/cpu/simd/kernels_body.h"
