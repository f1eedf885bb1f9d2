/* A lane's share of a tile (form.cuh) as fp16 values, exactly as mirrors have them but for what is
 * beyond 65504 (infinite) and forms with a minimum (rounded once instead of twice). */
#ifndef CUDA_SM90_DEQUANTISE_CUH
#define CUDA_SM90_DEQUANTISE_CUH

#include "backend/cuda/kernels/form.cuh"

/* x as two halves. */
__device__ __forceinline__ __half2 halves_at(uint32_t x)
{
    return *reinterpret_cast<__half2 *>(&x);
}

/* (x & mask) ^ bits in one instruction; with two constants the compiler emits two. */
__device__ __forceinline__ uint32_t and_xor(uint32_t x, uint32_t mask, uint32_t bits)
{
    uint32_t y;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
    return y;
}

/* A lane's codes (levels) of a tile, exactly: of the four that it owns of columns 16 i ..,
 * code[i][0] has numbers 0 and 2, code[i][1] numbers 1 and 3. The bits 0x6400 | n are the half
 * 1024 + n. */
template <enum form F>
__device__ __forceinline__ void half_codes(const tile_share<F> &share, __half2 (&code)[4][2])
{
    if constexpr (F == FORM_S4 || F == FORM_U4) {
        constexpr uint32_t SIGN = F == FORM_U4 ? 0 : 8; /* turned over: code + 8 */
        constexpr uint32_t LOW = 0x64006400u | SIGN * 0x10001u,
                           HIGH = 0x64006400u | SIGN * 0x100010u;
        constexpr float OFFSET = 1024.0f + SIGN;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint32_t w = share.q[i / 2] >> 8 * j;
                if (i % 2 == 0)
                    code[i][j] =
                        __hadd2(halves_at(and_xor(w, 0x000f000fu, LOW)), __float2half2_rn(-OFFSET));
                else /* 1024 + 16 (code + 8) */
                    code[i][j] =
                        __hfma2(halves_at(and_xor(w, 0x00f000f0u, HIGH)), __float2half2_rn(0.0625f),
                                __float2half2_rn(-64.0f - SIGN));
            }
    } else {
        uint32_t b[2][2];
        form_fragments<F>(share.q, share.high, b);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) /* with its sign turned over a byte is 128 more */
                code[i][j] = __hfma2(
                    halves_at(and_xor(b[i / 2][i % 2] >> 8 * j, 0x00ff00ffu, 0x64806480u)),
                    __float2half2_rn(form_unit(F)), __float2half2_rn(-1152.0f * form_unit(F)));
    }
}

/* Scales for the columns from 16 i on, twice each, and minima where a form has them. */
template <enum form F> struct own_scales {
    __half2 scale[4], minus[4];
};

/* The i-th half of a row's, twice. */
__device__ __forceinline__ __half2 twice_of(const uint32_t *row, int i)
{
    __half2 both = halves_at(row[i / 2]);
    return i % 2 ? __high2half2(both) : __low2half2(both);
}

template <enum form F>
__device__ __forceinline__ own_scales<F> take_scales(const tile_share<F> &share)
{
    own_scales<F> s;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = form_scales(F) == 4 ? i : i / 2;
        s.scale[i] = twice_of(share.scale, at);
        if constexpr (form_has_minus(F)) s.minus[i] = twice_of(&share.minus, at);
    }
    return s;
}

/* With factors: those of both halves of a block at once, each product rounded once. */
template <>
__device__ __forceinline__ own_scales<FORM_U2> take_scales(const tile_share<FORM_U2> &share)
{
    own_scales<FORM_U2> s;
    __half2 units = halves_at(share.scale[UNITS]);
    __half2 d = __low2half2(units), minus = __high2half2(units);
#pragma unroll
    for (int block = 0; block < 2; block++) {
        uint32_t factors = __byte_perm(share.scale[FACTORS], 0, block ? 0x4342 : 0x4140);
        __half2 low =
            __hadd2(halves_at((factors & 0x000f000fu) | 0x64006400u), __float2half2_rn(-1024.0f));
        __half2 high = __hfma2(halves_at((factors & 0x00f000f0u) | 0x64006400u),
                               __float2half2_rn(0.0625f), __float2half2_rn(-64.0f));
        low = __hmul2_rn(low, d), high = __hmul2_rn(high, minus);
        s.scale[2 * block] = __low2half2(low), s.scale[2 * block + 1] = __high2half2(low);
        s.minus[2 * block] = __low2half2(high), s.minus[2 * block + 1] = __high2half2(high);
    }
    return s;
}

/* The values that go with these codes, rounded once (what fp16 does not hold is infinite); those
 * of columns 16 i .. at out[2 i], out[2 i + 1]. */
template <enum form F>
__device__ __forceinline__ void dequantise(const tile_share<F> &share, uint32_t out[8])
{
    __half2 code[4][2];
    half_codes<F>(share, code);
    own_scales<F> s = take_scales(share);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            __half2 value = form_has_minus(F) ? __hfma2(code[i][j], s.scale[i], s.minus[i])
                                              : __hmul2_rn(code[i][j], s.scale[i]);
            out[2 * i + j] = *reinterpret_cast<uint32_t *>(&value);
        }
}

/* The shares of 16 rows, eight each, as A operands of the four steps of a tile of columns, 4 words
 * a step: for wgmma, of which a warp has 16 of 64 rows, and for mma.sync. */
template <enum form F>
__device__ __forceinline__ void make_operands(const tile_share<F> (&share)[2], uint32_t (&a)[16])
{
    uint32_t halves[2][8];
#pragma unroll
    for (int i = 0; i < 2; i++) dequantise<F>(share[i], halves[i]);
#pragma unroll
    for (int i = 0; i < 16; i++) a[i] = halves[i % 2][i / 4 * 2 + i % 4 / 2];
}

#endif
