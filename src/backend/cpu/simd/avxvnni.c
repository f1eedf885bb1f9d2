#define KERNELS_NAME "avxvnni"
#define KERNELS_TABLE cpu_kernels_avxvnni
#include "backend/cpu/simd/lanes_avxvnni.h"
#include "backend/cpu/simd/kernels_body.h"
