/* How operands of a tile of gemm_i8.cuh come to shared memory: what a block makes, and what each
 * thread copies for it. */
#ifndef CUDA_GEMM_I8_COPIES_CUH
#define CUDA_GEMM_I8_COPIES_CUH

#include "backend/cuda/kernels/form.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

enum {
    GEMM_THREADS = 128,
    GEMM_COLS = 128, /* rows of w a tile: columns of y */
    GEMM_GROUPS = GEMM_COLS / TILE_ROWS,
    GEMM_ROWS_MAX = 64
};

/* One of the matrices whose rows follow each other as columns of a product. */
struct gemm_part {
    const uint8_t *quants, *high, *scale, *minus;
    float *y;
    int rows, n_groups;
    int tile_end;    /* column tiles of all parts up to this one */
    int half_column; /* where its columns begin in `half` */
};

struct gemm_product {
    gemm_part part[3];
    int n_ktiles;
    const int8_t *x;
    const float *x_scale;
    int64_t stride;
    uint16_t *half;
    int half_cols;
    bool is_even; /* two neighbouring columns can be stored at once */
    int tile;     /* rows a block takes at most: 32 or 64 */
    int n_rows;
    /* Experts: rows are pairs; pair NULL: there are none. */
    const int32_t *pair, *n_tile;
    const struct expert_tile *tiles;
    int row_div;   /* pair p reads row p / row_div of x */
    int n_stages;  /* 2 or 3 */
    uint32_t zero; /* 0, which the compiler must not know */
};

/* A block's share: rows of `pair`, or of x itself, and groups of 8 columns of a part. */
struct gemm_share {
    int row_begin, n_rows, expert;
    const gemm_part *part;
    int group_begin, n_groups;
};

/* Column tile `tile` of the product. Parts that are not there repeat the last one. */
__device__ __forceinline__ void take_columns(const gemm_product &p, int tile, gemm_share *s)
{
    const gemm_part *part = &p.part[0];
    int before = 0;
    if (tile >= p.part[0].tile_end) before = p.part[0].tile_end, part = &p.part[1];
    if (tile >= p.part[1].tile_end) before = p.part[1].tile_end, part = &p.part[2];
    s->part = part;
    s->group_begin = (tile - before) * GEMM_GROUPS;
    s->n_groups = min((int)GEMM_GROUPS, part->n_groups - s->group_begin);
}

/* A tile of y and how it is shared out: ROW_WARPS warps share the rows, the others the columns; a
 * warp has ROW_TILES tiles of 16 rows and COLUMN_TILES of 8 columns. A piece is 16 bytes. */
template <enum form FORM_, int ROW_WARPS_, int ROW_TILES_> struct gemm_i8_shape {
    static constexpr enum form FORM = FORM_;
    static constexpr int ROW_WARPS = ROW_WARPS_, ROW_TILES = ROW_TILES_;
    enum {
        ROWS = ROW_WARPS * ROW_TILES * 16,
        COLUMN_WARPS = GEMM_THREADS / 32 / ROW_WARPS,
        COLUMN_TILES = GEMM_GROUPS / COLUMN_WARPS,
        WORDS = form_words(FORM),
        /* 16-byte pieces of a step in each array */
        X_PIECES = ROWS * TILE_COLS / 16,
        QUANT_PIECES = form_quant_bytes(FORM), /* of GEMM_GROUPS = 16 tiles */
        QUANT_EACH = QUANT_PIECES / 16,
        X_SCALE_PIECES = ROWS,
        SCALE_PIECES = form_scale_bytes(FORM),
        MINUS_PIECES = form_minus_bytes(FORM),
        HIGH_PIECES = form_high_bytes(FORM),
        SMALL_PIECES = X_SCALE_PIECES + SCALE_PIECES + MINUS_PIECES + HIGH_PIECES,
        /* ... and what a thread copies of them */
        X_COPIES = (X_PIECES + GEMM_THREADS - 1) / GEMM_THREADS,
        QUANT_COPIES = (QUANT_PIECES + GEMM_THREADS - 1) / GEMM_THREADS,
        SMALL_COPIES = (SMALL_PIECES + GEMM_THREADS - 1) / GEMM_THREADS,
        AT_ONCE = FORM == FORM_S8 ? 1 : 2, /* blocks whose operands are in registers together */
        /* where the arrays begin in a stage */
        QUANTS_AT = X_PIECES * 16,
        X_SCALE_AT = QUANTS_AT + QUANT_PIECES * 16,
        SCALE_AT = X_SCALE_AT + X_SCALE_PIECES * 16,
        MINUS_AT = SCALE_AT + SCALE_PIECES * 16,
        HIGH_AT = MINUS_AT + MINUS_PIECES * 16,
        STAGE_BYTES = HIGH_AT + HIGH_PIECES * 16
    };
    static_assert(GEMM_GROUPS == 16, "pieces of a plane are counted in bytes of a tile");
};

/* A thread's part of a tile: its sums, and what it copies to shared memory step by step. */
template <class Shape> struct gemm_i8_tile {
    const gemm_product &p;
    gemm_share share;
    uint32_t shared; /* address of the stages */
    const char *stages;
    /* What the next copies read; offsets are from p.x and from the block's first tile. */
    uint32_t x_at[Shape::X_COPIES], quants_at[Shape::QUANT_COPIES];
    const char *quants;
    const char *small_from[Shape::SMALL_COPIES];
    int small_step[Shape::SMALL_COPIES]; /* 0: nothing to copy */
    float acc[Shape::ROW_TILES][Shape::COLUMN_TILES][4];

    __device__ gemm_i8_tile(const gemm_product &product, const gemm_share &s, char *memory)
        : p(product), share(s), shared(shared_address(memory)), stages(memory)
    {
    }

    __device__ __forceinline__ int source_row(int i) const
    {
        int at = share.row_begin + min(i, share.n_rows - 1);
        return p.pair ? p.pair[at] / p.row_div : at;
    }

    /* Groups beyond the part's last are neither copied nor stored. */
    __device__ __forceinline__ void find_weights()
    {
        const gemm_part &part = *share.part;
        int64_t tile = (int64_t)share.expert * part.n_groups + share.group_begin;
        tile *= p.n_ktiles;
        quants = reinterpret_cast<const char *>(part.quants) + tile * form_quant_bytes(Shape::FORM);
#pragma unroll
        for (int j = 0; j < Shape::QUANT_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS;
            quants_at[j] = piece / Shape::QUANT_EACH * p.n_ktiles * form_quant_bytes(Shape::FORM) +
                           piece % Shape::QUANT_EACH * 16;
        }
#pragma unroll
        for (int j = 0; j < Shape::SMALL_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS - Shape::X_SCALE_PIECES,
                bytes = Shape::SCALE_PIECES;
            const uint8_t *from = part.scale;
            small_step[j] = 0;
            if (piece < 0 || piece >= Shape::SMALL_PIECES - Shape::X_SCALE_PIECES) continue;
            if (piece >= Shape::SCALE_PIECES) {
                piece -= Shape::SCALE_PIECES;
                bytes = Shape::MINUS_PIECES, from = part.minus;
                if (piece >= Shape::MINUS_PIECES) {
                    piece -= Shape::MINUS_PIECES;
                    bytes = Shape::HIGH_PIECES, from = part.high;
                }
            }
            int group = piece * 16 / bytes;
            if (group >= share.n_groups) continue;
            small_from[j] = reinterpret_cast<const char *>(from) +
                            (tile + group * p.n_ktiles) * bytes + piece * 16 % bytes;
            small_step[j] = bytes;
        }
    }

    __device__ __forceinline__ void find_rows()
    {
#pragma unroll
        for (int j = 0; j < Shape::X_COPIES; j++) {
            int piece = (threadIdx.x + j * GEMM_THREADS) % Shape::X_PIECES;
            x_at[j] = (uint32_t)source_row(piece / 4) * (uint32_t)p.stride + piece % 4 * 16;
        }
        if (threadIdx.x < Shape::X_SCALE_PIECES) {
            small_from[0] = reinterpret_cast<const char *>(p.x_scale) +
                            (int64_t)source_row(threadIdx.x) * (p.stride / ACT_BLOCK * 8);
            small_step[0] = 16;
        }
    }

    __device__ __forceinline__ void copy_weights(uint32_t stage)
    {
#pragma unroll
        for (int j = 0; j < Shape::QUANT_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS;
            if (piece / Shape::QUANT_EACH < share.n_groups)
                copy16(stage + Shape::QUANTS_AT + piece * 16, quants + quants_at[j]);
            quants_at[j] += form_quant_bytes(Shape::FORM);
        }
    }

    __device__ __forceinline__ void copy_small(uint32_t stage, bool with_x, bool with_weights)
    {
#pragma unroll
        for (int j = 0; j < Shape::SMALL_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS;
            if (small_step[j] == 0 || !(piece < Shape::X_SCALE_PIECES ? with_x : with_weights))
                continue;
            copy16(stage + Shape::X_SCALE_AT + piece * 16, small_from[j]);
            small_from[j] += small_step[j];
        }
    }

    __device__ __forceinline__ void copy_rows(uint32_t stage)
    {
#pragma unroll
        for (int j = 0; j < Shape::X_COPIES; j++) {
            int piece = threadIdx.x + j * GEMM_THREADS, row = piece / 4;
            if (Shape::X_PIECES % GEMM_THREADS != 0 && piece >= Shape::X_PIECES) continue;
            copy16(stage + (piece ^ (row & 2)) * 16, p.x + x_at[j]);
            x_at[j] += TILE_COLS;
        }
    }
};

#endif
