#define KERNELS_NAME "amx"
#define KERNELS_TABLE cpu_kernels_amx
#define KERNELS_AMX "backend/cpu/simd/amx_ops.h"
#define KERNELS_WITHOUT_AMX cpu_kernels_avx512
#include "backend/cpu/simd/lanes_avx512.h"
#include "backend/cpu/simd/kernels_body.h"
