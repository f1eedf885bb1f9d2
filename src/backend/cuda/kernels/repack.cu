/* From rows of a file to what products read (types.h). A warp makes one tile: a lane gathers its
 * 16 codes from its row's blocks, packs them and writes them in one piece; bound by the bytes read
 * and written, which an upload over PCIe does not come near. LAYOUT_ROWS and LAYOUT_FILE are
 * copied, LAYOUT_FLOATS decoded, a thread taking 8 columns. */
#include "backend/cuda/kernels/file.cuh"
#include "backend/cuda/kernels/launch.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* Bit 4 of each byte of x, gathered in the low four bits. */
__device__ __forceinline__ uint32_t gather_bit4(uint32_t x)
{
    return ((x >> 4 & 0x01010101u) * 0x01020408u) >> 24 & 15u;
}

/* Two bits of each of a lane's codes. */
__device__ __forceinline__ uint32_t gather_pairs(const uint32_t (&codes)[2][2], int bit)
{
    uint32_t pairs = 0;
    for (int f = 0; f < 4; f++) pairs |= (codes[f / 2][f % 2] >> bit & 0x03030303u) << 2 * f;
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
    uint32_t n = (codes[1][1] & 0x07070707u) | (codes[1][0] & 0x01010101u) << 3;
    n = (n | n >> 4) & 0x00ff00ffu;
    return (n | n >> 8) & 0xffffu;
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
    if constexpr (F == FORM_S8) {
        reinterpret_cast<uint4 *>(w.quants)[tile * 32 + lane] =
            make_uint4(codes[0][0], codes[0][1], codes[1][0], codes[1][1]);
    } else if constexpr (form_words(F) == 1) {
        reinterpret_cast<uint32_t *>(w.quants)[tile * 32 + lane] =
            F == FORM_S3 ? gather_triples(codes) : gather_pairs(codes, 0);
    } else {
        uint32_t q[2];
        for (int b = 0; b < 2; b++)
            q[b] = form_has_levels(F)
                       ? pack_nibbles(codes[b][0]) | pack_nibbles(codes[b][1]) << 16
                       : (codes[b][0] & 0x0f0f0f0fu) | (codes[b][1] & 0x0f0f0f0fu) << 4;
        reinterpret_cast<uint2 *>(w.quants)[tile * 32 + lane] = make_uint2(q[0], q[1]);
    }
    if constexpr (form_high_bits(F) == 1) {
        uint32_t high = 0;
        for (int f = 0; f < 4; f++) high |= gather_bit4(codes[f / 2][f % 2]) << 4 * f;
        if (F == FORM_S3) high = gather_rest(codes);
        reinterpret_cast<uint16_t *>(w.high)[tile * 32 + lane] = (uint16_t)high;
    }
    if constexpr (form_high_bits(F) == 2)
        reinterpret_cast<uint32_t *>(w.high)[tile * 32 + lane] = gather_pairs(codes, 4);
    int pair = lane / 8, j = lane / 4 % 2;
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
    int64_t at = ((tile * 4 + pair) * form_scales(F) + t) * 2 + j;
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
