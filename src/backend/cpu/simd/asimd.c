#define KERNELS_NAME "asimd"
#define KERNELS_TABLE cpu_kernels_asimd
#include "backend/cpu/simd/lanes_neon.h"
#include "backend/cpu/simd/kernels_body.h"
