/* What the parts of half_experts.cu share: the product, the stages of its ring, its items. */
#ifndef CUDA_SM90_HALF_EXPERTS_CUH
#define CUDA_SM90_HALF_EXPERTS_CUH

#include "backend/cuda/kernels/form.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace {

enum {
    GROUP = 128, /* threads */
    GROUPS = 2,  /* that multiply */
    THREADS = (GROUPS + 1) * GROUP,
    SLABS = 2, /* of a group */
    UNIT_SLOTS = GROUPS * SLABS * 8,
    ROW_BYTES = TILE_COLS * 2, /* of a stage */
    ROWS_BYTES = HALF_TILE * ROW_BYTES,
    SHARED_MAX = 227 * 1024,
    ROUND = 16,      /* rows whose results leave together */
    OUT_BYTES = 256, /* of one of them, of a group */
    TABLE_BYTES = HALF_TILE * 4,
    REGISTERS_MANY = 232,
    REGISTERS_FEW = 40
};

struct grouped_product {
    int32_t n_w, rows; /* two weights: gate and up, in turns */
    int32_t n_groups, n_ktiles;
    int32_t n_units;
    struct cuda_weight w[2];
    const uint8_t *x;
    int32_t x_step, row_div; /* 16 bytes from row to row; pair p reads row p / row_div */
    struct expert_plan plan;
    uint16_t *half;
    int32_t half_cols, first_col;
    bool is_wide; /* results may be stored by 16 bytes */
};

/* What a stage holds: rows of x, then the weights, a plane after the other. */
template <enum form F> struct stage_of {
    enum {
        QUANTS_AT = ROWS_BYTES,
        SCALE_AT = QUANTS_AT + UNIT_SLOTS * form_quant_bytes(F),
        HIGH_AT = SCALE_AT + UNIT_SLOTS * form_scale_bytes(F),
        MINUS_AT = HIGH_AT + UNIT_SLOTS * form_high_bytes(F),
        END_AT = MINUS_AT + UNIT_SLOTS * form_minus_bytes(F),
        BYTES = (END_AT + 1023) / 1024 * 1024,
        OUT_AT = 0, /* before the stages: results on their way, tables of pairs, barriers */
        TABLE_AT = OUT_AT + GROUPS * 2 * ROUND * OUT_BYTES,
        BARRIERS_AT = TABLE_AT + GROUPS * TABLE_BYTES,
        RING_AT = (BARRIERS_AT + 256 + 1023) / 1024 * 1024,
        FIT = (SHARED_MAX - 1024 - RING_AT) / BYTES,
        STAGES = FIT < 8 ? FIT : 8,
        SHARED = 1024 + RING_AT + STAGES * BYTES
    };
};

__device__ __forceinline__ uint32_t full_at(uint32_t barriers, int stage)
{
    return barriers + stage * 8;
}
__device__ __forceinline__ uint32_t empty_at(uint32_t barriers, int stage)
{
    return barriers + 128 + stage * 8;
}

/* First of the two slots of warp `warp` (of a group) in slab `slab`: a warp's slots are neighbours.
 */
__device__ __forceinline__ int slot_of(int group, int warp, int slab)
{
    return ((group * 4 + warp) * SLABS + slab) * 2;
}

/* ---- Items ----------------------------------------------------------------------------------- */

struct item {
    struct expert_tile tile; /* step 0: no item */
    int unit;
};

/* Item i of the existing tiles. It is read long before it is needed, as the read has a long
 * latency.
 *
 * The units turn with each round of the blocks: else, where there is a multiple of n_units blocks,
 * the last unit, which may have fewer outputs, would always be the same blocks'. */
__device__ __forceinline__ item take_item(const grouped_product &p, int i, int n_tiles)
{
    item it = {};
    int tile = i / p.n_units;
    it.unit = (i + tile * p.n_units / (int)gridDim.x) % p.n_units;
    if (tile >= n_tiles) return it;
    int4 v = reinterpret_cast<const int4 *>(p.plan.tile)[tile];
    it.tile = {v.x, v.y, v.z, v.w};
    return it;
}

} // namespace

#endif
