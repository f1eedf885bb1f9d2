#define KERNELS_NAME "i8mm"
#define KERNELS_TABLE cpu_kernels_i8mm
#include "backend/cpu/simd/lanes_neon.h"
#include "backend/cpu/simd/kernels_body.h"
