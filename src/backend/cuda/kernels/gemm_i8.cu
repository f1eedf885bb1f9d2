/* Products of many rows with 8-bit activations: y[t] = w[k] x[t], for one matrix or the experts of
 * a sorted batch. gemm_i8.cuh has the arithmetic and the layout.
 *
 * Launch: a block of 128 threads (three a multiprocessor) makes a tile of up to 64 rows x 128
 * columns. Column tiles of matrices of one form follow each other in one launch. Without
 * experts the tiles of rows run fastest: neighbouring blocks read the same weights, which come from
 * memory once, while all of x stays in L2. With experts columns run fastest, and blocks beyond the
 * last tile, of which only the device knows the number, leave.
 *
 * A tile of up to 32 rows takes a smaller body: 130 rows cost 64 + 64 + 32. */
#include "backend/cuda/kernels/gemm_i8.cuh"
#include "backend/cuda/kernels/moe.cuh"

namespace {

/* Three stages of a full tile are 41 KB. GeForce chips have 100 KB for the blocks of a
 * multiprocessor: where it gets three of them, they have two stages, which costs nothing with so
 * many warps (H200, 2048 rows: the same time). */
enum { STAGES = 3, STAGES_SMALL = 2, BLOCKS_PER_SM = 3 };
enum { EXPERT_PARTS = EXPERT_TILE / GEMM_ROWS_MAX };

bool has_small_shared(const struct queue *q)
{
    return q->capability == 86 || q->capability == 89 || q->capability >= 120;
}

template <class Shape>
__device__ __forceinline__ void make_tile(const gemm_product &p, const gemm_share &share,
                                          char *memory, int32_t *out_row)
{
    gemm_i8_tile<Shape> tile(p, share, memory);
    gemm_i8_sum_up<Shape>(tile, out_row, p.pair != NULL);
    gemm_i8_store<Shape>(tile, out_row);
}

template <enum form F>
__global__ void __launch_bounds__(GEMM_THREADS, BLOCKS_PER_SM)
    gemm_i8(const __grid_constant__ gemm_product p)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ int32_t out_row[GEMM_ROWS_MAX];
    gemm_share share;
    if (p.pair) {
        grid_wait();
        grid_release();
        int tile = blockIdx.y / EXPERT_PARTS;
        if (tile >= *p.n_tile) return;
        int before = blockIdx.y % EXPERT_PARTS * GEMM_ROWS_MAX;
        struct expert_tile at = p.tiles[tile];
        share.expert = at.expert;
        share.row_begin = at.first + before;
        share.n_rows = min((int)GEMM_ROWS_MAX, at.n - before);
        if (share.n_rows <= 0) return;
        take_columns(p, blockIdx.x, &share);
    } else {
        share.expert = 0;
        share.row_begin = blockIdx.x * p.tile;
        share.n_rows = min(p.tile, p.n_rows - share.row_begin);
        take_columns(p, blockIdx.y, &share);
    }
    if (share.n_rows <= 32)
        make_tile<gemm_i8_shape<F, 2, 1>>(p, share, memory, out_row);
    else
        make_tile<gemm_i8_shape<F, 2, 2>>(p, share, memory, out_row);
}

template <enum form F> constexpr size_t shared_bytes(int tile, int n_stages)
{
    int stage = gemm_i8_shape<F, 2, 2>::STAGE_BYTES;
    if (tile <= 32) stage = gemm_i8_shape<F, 2, 1>::STAGE_BYTES;
    return (size_t)n_stages * (size_t)stage;
}

/* Time of a launch in units of a full tile on a multiprocessor at its best rate, which takes three
 * blocks; one alone reaches about half of it, two 0.85. A tile costs a tenth more than its rows. */
float cost_of(int tile, int n_rows, int n_column_tiles, int n_sm)
{
    float each = (float)tile / GEMM_ROWS_MAX + 0.1f;
    int n_blocks = (n_rows + tile - 1) / tile * n_column_tiles, wave = BLOCKS_PER_SM * n_sm;
    int rest = n_blocks % wave;
    float cost = (float)(n_blocks / wave) * BLOCKS_PER_SM * each;
    if (rest == 0) return cost;
    return cost + (rest <= n_sm ? 2.0f : rest <= 2 * n_sm ? 2.35f : 3.0f) * each;
}

int best_tile(int n_rows, int n_column_tiles, int n_sm)
{
    int best = GEMM_ROWS_MAX;
    if (cost_of(32, n_rows, n_column_tiles, n_sm) < cost_of(best, n_rows, n_column_tiles, n_sm))
        best = 32;
    return best;
}

template <enum form F> void launch_form(const struct queue *q, gemm_product *p, int32_t n_tiles_max)
{
    int n_column_tiles = p->part[2].tile_end;
    dim3 grid;
    if (p->pair) {
        p->tile = GEMM_ROWS_MAX;
        grid = dim3((unsigned)n_column_tiles, (unsigned)n_tiles_max * EXPERT_PARTS);
    } else {
        p->tile = best_tile(p->n_rows, n_column_tiles, q->n_sm);
        grid = dim3((unsigned)((p->n_rows + p->tile - 1) / p->tile), (unsigned)n_column_tiles);
    }
    bool is_crowded = (int64_t)grid.x * grid.y > (BLOCKS_PER_SM - 1) * q->n_sm;
    p->n_stages = has_small_shared(q) && is_crowded ? STAGES_SMALL : STAGES;
    launch(q, gemm_i8<F>, grid, GEMM_THREADS, shared_bytes<F>(p->tile, p->n_stages), *p);
}

/* Makes w part `n` of p. */
void add_part(gemm_product *p, int n, const struct cuda_weight *w, float *y, int half_column)
{
    gemm_part *part = &p->part[n];
    part->quants = w->quants;
    part->high = w->high;
    part->scale = reinterpret_cast<const uint8_t *>(w->scale);
    part->minus = reinterpret_cast<const uint8_t *>(w->minus);
    part->y = y;
    part->rows = w->rows;
    part->n_groups = w->n_groups;
    part->tile_end =
        (n ? p->part[n - 1].tile_end : 0) + (w->n_groups + GEMM_GROUPS - 1) / GEMM_GROUPS;
    part->half_column = half_column;
    p->n_ktiles = w->n_ktiles;
    bool is_even = p->half ? p->half_cols % 2 == 0 && half_column % 2 == 0 : true;
    p->is_even = p->is_even && is_even && w->rows % 2 == 0;
}

/* One launch for all weights of a form. `p` holds all but the parts. */
void launch_parts(const struct queue *q, gemm_product p, const struct cuda_weight *w,
                  float *const *y, int n_w, int32_t n_tiles_max)
{
    bool is_done[3] = {};
    for (int i = 0; i < n_w; i++) {
        if (is_done[i]) continue;
        enum form f = form_of(w[i].format);
        int n = 0, column = 0;
        p.is_even = true;
        for (int k = 0; k < n_w; column += w[k++].rows) {
            if (form_of(w[k].format) != f) continue;
            is_done[k] = true;
            add_part(&p, n++, &w[k], p.half ? NULL : y[k], column);
        }
        for (; n < 3; n++) p.part[n] = p.part[n - 1]; /* no column belongs to these */
        switch (f) {
#define X(F)                                                                                       \
    case F: launch_form<F>(q, &p, n_tiles_max); break;
            FORM_LIST(X)
#undef X
        default: break;
        }
    }
}

} // namespace

void launch_gemm_i8(const struct queue *q, const struct gemm_args *args)
{
    gemm_product p = {};
    p.n_rows = args->n_rows;
    p.x = static_cast<const int8_t *>(args->x.values);
    p.x_scale = args->x.scale;
    p.stride = args->x.stride;
    p.half = args->half;
    p.half_cols = args->half_cols;
    launch_parts(q, p, args->w, args->y, args->n_w, 0);
}

void launch_grouped_i8(const struct queue *q, const struct grouped_args *args)
{
    gemm_product p = {};
    p.x = static_cast<const int8_t *>(args->x.values);
    p.x_scale = args->x.scale;
    p.stride = args->x.stride;
    p.half = args->half;
    p.half_cols = args->half_cols;
    p.pair = args->plan.pair;
    p.tiles = args->plan.tile;
    p.n_tile = args->plan.n_tile;
    p.row_div = args->is_row_a_pair ? 1 : args->n_used;
    launch_parts(q, p, args->w, args->y, args->n_w,
                 expert_tiles_max(args->n_rows, args->n_used, args->w[0].n_expert));
}
