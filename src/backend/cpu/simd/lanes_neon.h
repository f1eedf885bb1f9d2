/* Sixteen lanes in four registers: 64-bit Arm, with dot products and products of matrices (i8mm)
 * where the compiler may use them. See kernels_body.h for what the names mean. */
#include <arm_neon.h>
#include <string.h>

#include "quant/format.h"

typedef struct {
    float32x4_t v[4];
} fvec;
typedef struct {
    int32x4_t v[4];
} ivec;
typedef struct {
    uint8x16_t v[4];
} bvec;
enum { WEIGHT_BIAS = 0, FEW_ROWS = 2 };
#ifdef __ARM_FEATURE_MATMUL_INT8
enum { PANEL_TILES = 1, PANEL_ROWS = 4, PANEL_FROM = 8, PANEL_BLOCKS = 24, PANEL_CHUNK = 256 };
#define PANEL_PRODUCTS "backend/cpu/simd/panel_squares_body.h"
#else
enum { PANEL_TILES = 1, PANEL_ROWS = 3, PANEL_FROM = 8, PANEL_BLOCKS = 24, PANEL_CHUNK = 256 };
#define PANEL_PRODUCTS "backend/cpu/simd/panel_fours_body.h"
#endif

#define LANES(type, name, arguments, expression)                                                   \
    static inline type name arguments                                                              \
    {                                                                                              \
        type r;                                                                                    \
        for (int i = 0; i < 4; i++) r.v[i] = (expression);                                         \
        return r;                                                                                  \
    }
LANES(fvec, f_add, (fvec x, fvec y), vaddq_f32(x.v[i], y.v[i]))
LANES(fvec, f_sub, (fvec x, fvec y), vsubq_f32(x.v[i], y.v[i]))
LANES(fvec, f_mul, (fvec x, fvec y), vmulq_f32(x.v[i], y.v[i]))
LANES(fvec, f_div, (fvec x, fvec y), vdivq_f32(x.v[i], y.v[i]))
LANES(fvec, f_max, (fvec x, fvec y), vmaxq_f32(x.v[i], y.v[i]))
LANES(fvec, f_min, (fvec x, fvec y), vminq_f32(x.v[i], y.v[i]))
LANES(fvec, f_fma, (fvec x, fvec y, fvec z), vfmaq_f32(z.v[i], x.v[i], y.v[i]))
LANES(fvec, f_abs, (fvec x), vabsq_f32(x.v[i]))
LANES(fvec, f_round, (fvec x), vrndnq_f32(x.v[i]))
LANES(fvec, f_set, (float x), vdupq_n_f32(x))
LANES(fvec, f_load, (const float *p), vld1q_f32(p + i * 4))
LANES(fvec, f_of_int, (ivec x), vcvtq_f32_s32(x.v[i]))
LANES(fvec, f_exp2_int, (fvec n),
      vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n.v[i]), vdupq_n_s32(127)), 23)))
LANES(fvec, f_load_f16, (const uint16_t *p),
      vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + i * 4))))
LANES(fvec, f_load_bf16, (const uint16_t *p),
      vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + i * 4), 16)))
LANES(ivec, i_set, (int32_t x), vdupq_n_s32(x))
LANES(ivec, i_add, (ivec x, ivec y), vaddq_s32(x.v[i], y.v[i]))
LANES(ivec, i_sub, (ivec x, ivec y), vsubq_s32(x.v[i], y.v[i]))
LANES(ivec, i_shl, (ivec x, int n), vshlq_s32(x.v[i], vdupq_n_s32(n)))
LANES(bvec, b_load, (const uint8_t *p), vld1q_u8(p + i * 16))
LANES(bvec, b_and, (bvec x, uint8_t mask), vandq_u8(x.v[i], vdupq_n_u8(mask)))
LANES(bvec, b_or, (bvec x, bvec y), vorrq_u8(x.v[i], y.v[i]))
/* Shifts of bytes: unlike in other sets, no bits cross from byte to byte. */
LANES(bvec, b_shr, (bvec x, int n), vshlq_u8(x.v[i], vdupq_n_s8((int8_t)-n)))

static inline fvec f_set_f16(const uint8_t *p)
{
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    return f_set(f16_to_f32(half));
}
static inline float f_sum(fvec x)
{
    return vaddvq_f32(vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3])));
}
static inline void f_sum4(const fvec x[4], float out[4])
{
    float32x4_t four[4];
    for (int i = 0; i < 4; i++)
        four[i] = vaddq_f32(vaddq_f32(x[i].v[0], x[i].v[2]), vaddq_f32(x[i].v[1], x[i].v[3]));
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(four[0], four[1]), vpaddq_f32(four[2], four[3])));
}
static inline float f_most(fvec x)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.v[0], x.v[2]), vmaxq_f32(x.v[1], x.v[3])));
}
static inline void f_store(float *p, fvec x)
{
    for (int i = 0; i < 4; i++) vst1q_f32(p + i * 4, x.v[i]);
}
static inline void b_store(uint8_t *p, bvec x)
{
    for (int i = 0; i < 4; i++) vst1q_u8(p + i * 16, x.v[i]);
}
static inline void f_store_f16(uint16_t *p, fvec x)
{
    for (int i = 0; i < 4; i++) vst1_u16(p + i * 4, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
static inline fvec f_load_i8(const int8_t *p)
{
    int16x8_t low = vmovl_s8(vld1_s8(p)), high = vmovl_s8(vld1_s8(p + 8));
    return (fvec){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                   vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                   vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                   vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
static inline void f_store_i8(int8_t *p, fvec x) /* whole numbers within -128 .. 127 */
{
    for (int half = 0; half < 2; half++) {
        int16x4_t low = vmovn_s32(vcvtq_s32_f32(x.v[half * 2]));
        int16x4_t high = vmovn_s32(vcvtq_s32_f32(x.v[half * 2 + 1]));
        vst1_s8(p + half * 8, vmovn_s16(vcombine_s16(low, high)));
    }
}

typedef uint8x16_t tvec;
static inline tvec t_load(const int8_t *levels, int offset)
{
    return vaddq_u8(vreinterpretq_u8_s8(vld1q_s8(levels)), vdupq_n_u8((uint8_t)offset));
}
LANES(bvec, b_look_up, (tvec table, bvec index), vqtbl1q_u8(table, index.v[i]))

/* The dot product takes two signed operands, so full-range weights lose their offset here. */
LANES(bvec, b_wide, (bvec w), veorq_u8(w.v[i], vdupq_n_u8(0x80)))
static inline int32x4_t four_products(int32x4_t sum, uint8x16_t w, int32x4_t a)
{
    int8x16_t x = vreinterpretq_s8_u8(w), y = vreinterpretq_s8_s32(a);
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, x, y);
#else
    int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y)), high = vmull_high_s8(x, y);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
LANES(ivec, dot_wide, (ivec sum, bvec w, ivec a), four_products(sum.v[i], w.v[i], a.v[i]))
LANES(ivec, dot_small, (ivec sum, bvec w, ivec a), four_products(sum.v[i], w.v[i], a.v[i]))
