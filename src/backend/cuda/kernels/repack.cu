/* From rows of a file to what products read (types.h). A warp makes one tile: a lane gathers its
 * 16 codes from its row's blocks, packs them and writes them in one piece; bound by the bytes read
 * and written, which an upload over PCIe does not come near. LAYOUT_ROWS and LAYOUT_FILE are
 * copied, LAYOUT_FLOATS decoded, a thread taking 8 columns. */
#include "backend/cuda/kernels/file.cuh"
#include "backend/cuda/kernels/launch.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* Two bits of each of a lane's codes. */
__device__ __forceinline__ uint32_t gather_pairs(const uint32_t (&codes)[2][2])
{
    uint32_t pairs = 0;
    for (int f = 0; f < 4; f++) pairs |= (codes[f / 2][f % 2] & 0x03030303u) << 2 * f;
    return pairs;
}

/* Codes of three bits: all of the first eight, and the top two bits of the next four. */
__device__ __forceinline__ uint32_t gather_triples(const uint32_t (&codes)[2][2])
{
    return (codes[0][0] & 0x07070707u) | (codes[0][1] & 0x07070707u) << 3 |
           (codes[1][0] & 0x06060606u) << 5;
}

/* What is left: of the last four all bits, and the lowest of those before. */
__device__ __forceinline__ uint32_t gather_rest(const uint32_t (&codes)[2][2])
{
    return pack_nibbles((codes[1][1] & 0x07070707u) | (codes[1][0] & 0x01010101u) << 3);
}

/* Codes of five bits. As B operands signed ones are wanted at the tops of bytes, others below. */
template <enum form F>
__device__ __forceinline__ void pack_fives(const uint32_t (&codes)[2][2], uint32_t q[2],
                                           uint32_t *high)
{
    for (int k = 0; k < 2; k++) {
        uint32_t first = codes[0][k] & 0x1f1f1f1fu, second = codes[1][k] & 0x1f1f1f1fu;
        q[k] = F == FORM_S5 ? first << 3 | (second >> 2 & 0x07070707u)
                            : first | (second & 0x07070707u) << 5;
    }
    int rest = F == FORM_S5 ? 0 : 3; /* the two bits that are left */
    *high = pack_nibbles((codes[1][0] >> rest & 0x03030303u) | (codes[1][1] >> rest & 0x03030303u)
                                                                   << 2);
}

/* Codes of six bits: three whole, and the last one in what they leave. */
__device__ __forceinline__ void pack_sixes(const uint32_t (&codes)[2][2], uint32_t q[2],
                                           uint32_t *high)
{
    uint32_t last = codes[1][1];
    q[0] = (codes[0][0] & 0x3f3f3f3fu) << 2 | (last >> 4 & 0x03030303u);
    q[1] = (codes[0][1] & 0x3f3f3f3fu) << 2 | (last >> 2 & 0x03030303u);
    *high = (codes[1][0] & 0x3f3f3f3fu) << 2 | (last & 0x03030303u);
}

/* A lane's codes, in both planes; `at` counts lanes. */
template <enum form F>
__device__ __forceinline__ void store_codes(const struct cuda_weight &w, int64_t at,
                                            const uint32_t (&codes)[2][2])
{
    uint32_t q[2] = {}, high = 0;
    if constexpr (F == FORM_S8) {
        reinterpret_cast<uint4 *>(w.quants)[at] =
            make_uint4(codes[0][0], codes[0][1], codes[1][0], codes[1][1]);
        return;
    } else if constexpr (F == FORM_S3) {
        q[0] = gather_triples(codes), high = gather_rest(codes);
    } else if constexpr (F == FORM_U2) {
        q[0] = gather_pairs(codes);
    } else if constexpr (F == FORM_S5 || F == FORM_U5) {
        pack_fives<F>(codes, q, &high);
    } else if constexpr (F == FORM_S6) {
        pack_sixes(codes, q, &high);
    } else {
        for (int b = 0; b < 2; b++)
            q[b] = form_has_levels(F)
                       ? pack_nibbles(codes[b][0]) | pack_nibbles(codes[b][1]) << 16
                       : (codes[b][0] & 0x0f0f0f0fu) | (codes[b][1] & 0x0f0f0f0fu) << 4;
    }
    if (form_words(F) == 1)
        reinterpret_cast<uint32_t *>(w.quants)[at] = q[0];
    else
        reinterpret_cast<uint2 *>(w.quants)[at] = make_uint2(q[0], q[1]);
    if (form_high_bits(F) == 1) reinterpret_cast<uint16_t *>(w.high)[at] = (uint16_t)high;
    if (form_high_bits(F) == 2) reinterpret_cast<uint32_t *>(w.high)[at] = high;
}

template <int FORMAT>
__global__ void __launch_bounds__(THREADS)
    repack_tiles(struct cuda_weight w, int expert, int first_row, int n_rows,
                 const uint8_t *__restrict__ file, int64_t row_bytes)
{
    constexpr enum form F = form_of((enum format)FORMAT);
    grid_wait();
    int lane = threadIdx.x % 32, group = blockIdx.x, kt = blockIdx.y * WARPS + threadIdx.x / 32;
    if (kt >= w.n_ktiles) return;
    int row = group * 8 + lane / 4, t = lane % 4;
    const uint8_t *from = file + row * row_bytes;
    int64_t tile = ((int64_t)expert * w.n_groups + first_row / 8 + group) * w.n_ktiles + kt;

    uint32_t codes[2][2] = {};
    for (int block = 0; block < 2; block++) {
        int col = kt * 64 + block * 32;
        if (row >= n_rows || col >= w.cols) continue;
        codes[block][0] = file_codes4<FORMAT>(from, col + 4 * t);
        codes[block][1] = file_codes4<FORMAT>(from, col + 16 + 4 * t);
    }
    store_codes<F>(w, tile * 32 + lane, codes);
    if constexpr (form_has_factors(F)) {
        uint16_t *own = w.scale + (tile * 8 + lane / 4) * 4;
        bool is_there = row < n_rows && kt * 64 + t * 16 < w.cols;
        const uint8_t *block = from + kt / 4 * file_block<FORMAT>::BYTES;
        reinterpret_cast<uint8_t *>(own + 2)[t] = is_there ? block[kt % 4 * 4 + t] : (uint8_t)0;
        if (t > 1) return;
        uint32_t half = is_there ? load_half_word(block + 80 + 2 * t) : 0;
        own[t] = (uint16_t)(t == 1 ? half ^ 0x8000u : half);
        return;
    }
    if (t >= form_scales(F)) return;
    int col = kt * 64 + t * (64 / form_scales(F)); /* a lane takes the scale number t of its row */
    float2 s = row < n_rows && col < w.cols ? file_scale<FORMAT>(from, col) : make_float2(0, 0);
    int64_t at = (tile * TILE_ROWS + lane / 4) * form_scales(F) + t;
    w.scale[at] = __half_as_ushort(__float2half_rn(s.x));
    if constexpr (form_minus_bytes(F) != 0) w.minus[at] = __half_as_ushort(__float2half_rn(s.y));
}

/* Rows of any format, whose bytes may be odd in number; the padding gets zeros. */
__global__ void __launch_bounds__(THREADS)
    repack_rows(struct cuda_weight w, int64_t first, const uint8_t *__restrict__ file,
                int64_t row_bytes, int64_t used_bytes)
{
    grid_wait();
    const uint8_t *from = file + blockIdx.x * row_bytes;
    uint8_t *to = w.quants + (first + blockIdx.x) * w.row_bytes;
    for (int64_t i = threadIdx.x; i < w.row_bytes; i += THREADS)
        to[i] = i < used_bytes ? from[i] : 0;
}

__global__ void __launch_bounds__(THREADS)
    repack_floats(struct cuda_weight w, int64_t first, const uint8_t *__restrict__ file,
                  int64_t row_bytes)
{
    grid_wait();
    const uint8_t *from = file + blockIdx.x * row_bytes;
    float *to = reinterpret_cast<float *>(w.quants) + (first + blockIdx.x) * w.cols;
    for (int col = threadIdx.x * 8; col < w.cols; col += THREADS * 8) {
        float v[8];
        file_decode8(w.format, from, col, w.cols, v);
        for (int i = 0; i < 8; i++)
            if (col + i < w.cols) to[col + i] = v[i];
    }
}

struct tile_bytes tile_bytes_of(enum format format, int64_t rows, int64_t cols, int32_t n_expert)
{
    size_t tiles = (size_t)n_expert * (size_t)((rows + 7) / 8) * (size_t)((cols + 63) / 64);
    enum form f = form_of(format);
    if (f == FORM_COUNT) return {};
    return {tiles * (size_t)form_quant_bytes(f), tiles * (size_t)form_high_bytes(f),
            tiles * (size_t)form_scale_bytes(f), tiles * (size_t)form_minus_bytes(f)};
}

/* Bytes that values of `format` take in a row. */
static int64_t used_bytes(enum format format, int32_t cols)
{
    static const struct {
        int32_t elements, bytes;
    } of[FORMAT_COUNT] = {
#define X(NAME, name, type, elements, bytes, ...) {elements, bytes},
        FORMAT_LIST(X)
#undef X
    };
    return (int64_t)(cols / of[format].elements) * of[format].bytes;
}

void launch_repack(const struct queue *q, const struct cuda_weight *w, int32_t expert,
                   int32_t first_row, int32_t n_rows, const void *file, int64_t row_bytes)
{
    const uint8_t *from = static_cast<const uint8_t *>(file);
    int64_t first = (int64_t)expert * w->rows + first_row;
    dim3 rows((unsigned)n_rows);
    if (w->layout == LAYOUT_FLOATS) {
        launch(q, repack_floats, rows, THREADS, 0, *w, first, from, row_bytes);
        return;
    }
    if (w->layout != LAYOUT_TILES) {
        launch(q, repack_rows, rows, THREADS, 0, *w, first, from, row_bytes,
               used_bytes(w->format, w->cols));
        return;
    }
    dim3 grid((unsigned)((n_rows + 7) / 8), (unsigned)((w->n_ktiles + WARPS - 1) / WARPS));
    switch (w->format) {
#define X(NAME, ...)                                                                               \
    case FORMAT_##NAME:                                                                            \
        launch(q, repack_tiles<FORMAT_##NAME>, grid, THREADS, 0, *w, expert, first_row, n_rows,    \
               from, row_bytes);                                                                   \
        break;
        BLOCK_FORMAT_LIST(X)
#undef X
    default: break;
    }
}
