#define KERNELS_NAME "plain"
#define KERNELS_TABLE cpu_kernels_plain
#define KERNELS_SMALL
#include "backend/cpu/simd/lanes_plain.h"
#include "backend/cpu/simd/kernels_body.h"
