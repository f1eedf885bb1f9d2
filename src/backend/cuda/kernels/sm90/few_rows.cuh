/* A tile of weights times up to 16 rows by mma.sync. The bits are those of wgmma, but warps do not
 * wait for each other, and a tile can be read while the one before is multiplied. */
#ifndef CUDA_SM90_FEW_ROWS_CUH
#define CUDA_SM90_FEW_ROWS_CUH

#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/sm90/dequantise.cuh"

enum { MMA_ROWS = 16, TILE_STEPS = 4 /* of 16 columns */ };

/* Rows as B operands of a tile's steps: of rows 0 to 7 b[0], b[1]; of 8 to 15 b[2], b[3]. */
struct few_operands {
    uint32_t b[TILE_STEPS][4];
};

/* The warp's 16 outputs: sums[0] .. [3] of rows 0 to 7, the others of 8 to 15, as wgmma has them.
 * ROWS: 8, which leaves the others as they are, or 16. */
template <enum form F, int ROWS>
__device__ __forceinline__ void add_few(float (&sums)[MMA_ROWS / 2],
                                        const tile_share<F> (&share)[2], const few_operands &rows)
{
    uint32_t a[16];
    make_operands<F>(share, a);
#pragma unroll
    for (int i = 0; i < TILE_STEPS; i++) {
        mma_f16(sums, a + 4 * i, rows.b[i][0], rows.b[i][1]);
        if (ROWS > 8) mma_f16(sums + 4, a + 4 * i, rows.b[i][2], rows.b[i][3]);
    }
}

#endif
