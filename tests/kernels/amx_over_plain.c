#define KERNELS_NAME "amx emulated, plain lanes"
#define KERNELS_TABLE cpu_kernels_amx_over_plain
#define KERNELS_SMALL
#define KERNELS_AMX "kernels/amx_emulated.h"
#define KERNELS_WITHOUT_AMX cpu_kernels_plain
#include "backend/cpu/simd/lanes_plain.h"
#include "backend/cpu/simd/kernels_body.h"
