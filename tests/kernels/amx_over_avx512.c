#define KERNELS_NAME "amx emulated, lanes of avx512"
#define KERNELS_TABLE cpu_kernels_amx_over_avx512
#define KERNELS_AMX "kernels/amx_emulated.h"
#define KERNELS_WITHOUT_AMX cpu_kernels_avx512
#include "backend/cpu/simd/lanes_avx512.h"
#include "backend/cpu/simd/kernels_body.h"
