/* fp16 mirrors: mirror[expert][r][c] = fp16(w[expert][r][c]), rounded to nearest even; what is
 * too large becomes +-65504, NaN stays NaN. Columns from w.cols to mirror_cols are 0.
 *
 * Tiles: a warp takes tiles one after another along a row of tiles; a lane decodes the 16 values
 * that it owns (types.h) and stores them as four pieces of four columns, so that four lanes fill
 * 32 bytes of a row. Rows (F16, BF16, F32): a thread takes 8 columns of a row.
 * Bound: memory, the bytes of the planes read and 2 bytes a value written. */
#include "backend/cuda/kernels/form.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/round.cuh"

namespace {

enum { MIRROR_THREADS = 256, MIRROR_WARPS = MIRROR_THREADS / 32 };

struct mirror_rows {
    struct cuda_weight w;
    int32_t expert, first, end; /* rows [first, end) of that matrix */
};

__device__ uint16_t *row_of(const mirror_rows &m, int row)
{
    return m.w.mirror + ((int64_t)m.expert * m.w.rows + row) * m.w.mirror_cols;
}

/* Those of columns 16 i .. */
template <enum form F> __device__ float2 scale_and_minus(const tile_share<F> &share, int i)
{
    if constexpr (form_has_factors(F)) {
        float2 units = half2_at(share.scale[UNITS]);
        uint32_t factors = share.scale[FACTORS] >> 8 * i;
        return make_float2(units.x * (float)(factors & 15), units.y * (float)(factors >> 4 & 15));
    } else {
        const int at = form_scales(F) == 4 ? i : i / 2;
        return make_float2(half_of(share.scale, at),
                           form_has_minus(F) ? half_of(&share.minus, at) : 0.0f);
    }
}

/* Grid: (groups of 8 rows, parts of a row of tiles). */
template <enum form F> __global__ void __launch_bounds__(MIRROR_THREADS) mirror_tiles(mirror_rows m)
{
    grid_wait();
    grid_release();
    int lane = threadIdx.x % 32, group = m.first / TILE_ROWS + (int)blockIdx.x;
    int k = (int)blockIdx.y * MIRROR_WARPS + (int)threadIdx.x / 32, row = group * 8 + lane / 4;
    if (k >= m.w.n_ktiles) return;
    struct tile_share<F> share;
    int64_t tile = ((int64_t)m.expert * m.w.n_groups + group) * m.w.n_ktiles + k;
    read_share<F>(share, share_place_at<F>(m.w, tile, lane), 0);
    uint32_t b[2][2];
    form_fragments<F>(share.q, share.high, b);
    uint16_t *out = row_of(m, row) + k * TILE_COLS + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 both = scale_and_minus(share, i);
        float v[4];
        scale4(b[i / 2][i % 2], both.x * form_unit(F), both.y, v);
        if (row >= m.first && row < m.end)
            *reinterpret_cast<uint2 *>(out + i * 16) =
                make_uint2(pack_halves_saturated(v[0], v[1]), pack_halves_saturated(v[2], v[3]));
    }
}

/* Columns col .. col + 7 of a row of F16, BF16 or F32, whose rows are padded to 16 bytes. */
__device__ void load8(const mirror_rows &m, const uint8_t *row, int col, float v[8])
{
    uint4 low = {}, high = {};
    if (m.w.format == FORMAT_F32) {
        if (col < m.w.cols) low = load_once4(row + col * 4);
        if (col + 4 < m.w.cols) high = load_once4(row + col * 4 + 16);
    } else if (col < m.w.cols) {
        low = load_once4(row + col * 2);
    }
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t pair = words[i / 2];
        if (m.w.format == FORMAT_F32)
            v[i] = __uint_as_float(words[i]);
        else if (m.w.format == FORMAT_BF16)
            v[i] = __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
        else
            v[i] = i % 2 ? half2_at(pair).y : half2_at(pair).x;
        if (col + i >= m.w.cols) v[i] = 0;
    }
}

/* Grid: (parts of a row, rows, strided). */
__global__ void __launch_bounds__(MIRROR_THREADS) mirror_floats(mirror_rows m)
{
    grid_wait();
    grid_release();
    int col = (int)(blockIdx.x * MIRROR_THREADS + threadIdx.x) * 8;
    if (col >= m.w.mirror_cols) return;
    for (int row = m.first + (int)blockIdx.y; row < m.end; row += (int)gridDim.y) {
        float v[8];
        load8(m, m.w.quants + ((int64_t)m.expert * m.w.rows + row) * m.w.row_bytes, col, v);
        *reinterpret_cast<uint4 *>(row_of(m, row) + col) =
            make_uint4(pack_halves_saturated(v[0], v[1]), pack_halves_saturated(v[2], v[3]),
                       pack_halves_saturated(v[4], v[5]), pack_halves_saturated(v[6], v[7]));
    }
}

} // namespace

void launch_mirror(const struct queue *q, const struct cuda_weight *w, int32_t expert,
                   int32_t first_row, int32_t n)
{
    mirror_rows m = {*w, expert, first_row, first_row + n};
    if (n <= 0) return;
    if (w->layout != LAYOUT_TILES) {
        unsigned parts = (unsigned)(w->mirror_cols / 8 + MIRROR_THREADS - 1) / MIRROR_THREADS;
        dim3 grid(parts, n < 65535 ? (unsigned)n : 65535);
        launch(q, mirror_floats, grid, MIRROR_THREADS, 0, m);
        return;
    }
    unsigned groups = (unsigned)((m.end - 1) / TILE_ROWS - first_row / TILE_ROWS + 1);
    dim3 grid(groups, (unsigned)(w->n_ktiles + MIRROR_WARPS - 1) / MIRROR_WARPS);
    switch (form_of(w->format)) {
#define X(F)                                                                                       \
    case F: launch(q, mirror_tiles<F>, grid, MIRROR_THREADS, 0, m); break;
        FORM_LIST(X)
#undef X
    default: break;
    }
}
