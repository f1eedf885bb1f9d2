#define KERNELS_NAME "amx"
#define KERNELS_TABLE cpu_kernels_amx
#define KERNELS_AMX "backend/cpu/simd/amx_ops.h"
#include "backend/cpu/simd/lanes_avx512.h"
#include "backend/cpu/simd/kernels_body.h"
