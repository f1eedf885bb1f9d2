#include "quant/grids.h"

#define GRID(NAME, N) const uint16_t NAME[N]
#include "quant/grids_data.h"
