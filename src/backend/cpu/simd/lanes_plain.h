/* Sixteen lanes as an array: any processor, for machines without AVX2 and as the kernels' readable
 * form. See kernels_body.h for what the names mean. */
#include <math.h>
#include <string.h>

#include "quant/format.h"

typedef struct {
    float v[16];
} fvec;
typedef struct {
    int32_t v[16];
} ivec;
typedef struct {
    uint8_t v[64];
} bvec;
enum { WEIGHT_BIAS = 128, FEW_ROWS = 2 };
enum { PANEL_TILES = 1, PANEL_ROWS = 2, PANEL_FROM = 8, PANEL_BLOCKS = 24, PANEL_CHUNK = 256 };
#define PANEL_PRODUCTS "backend/cpu/simd/panel_fours_body.h"

#define LANE_OP(name, expression)                                                                  \
    static inline fvec name(fvec x, fvec y)                                                        \
    {                                                                                              \
        fvec r;                                                                                    \
        for (int i = 0; i < 16; i++) r.v[i] = (expression);                                        \
        return r;                                                                                  \
    }
LANE_OP(f_add, x.v[i] + y.v[i])
LANE_OP(f_sub, x.v[i] - y.v[i])
LANE_OP(f_mul, x.v[i] * y.v[i])
LANE_OP(f_div, x.v[i] / y.v[i])
LANE_OP(f_max, x.v[i] > y.v[i] ? x.v[i] : y.v[i])
LANE_OP(f_min, x.v[i] < y.v[i] ? x.v[i] : y.v[i])

#define LANES_FROM(type, name, argument, expression)                                               \
    static inline type name(argument)                                                              \
    {                                                                                              \
        type r;                                                                                    \
        for (int i = 0; i < 16; i++) r.v[i] = (expression);                                        \
        return r;                                                                                  \
    }
LANES_FROM(fvec, f_set, float x, x)
LANES_FROM(fvec, f_load, const float *p, p[i])
LANES_FROM(fvec, f_abs, fvec x, fabsf(x.v[i]))
LANES_FROM(fvec, f_round, fvec x, nearbyintf(x.v[i]))
LANES_FROM(fvec, f_exp2_int, fvec n, isnan(n.v[i]) ? n.v[i] : ldexpf(1.0f, (int)n.v[i]))
LANES_FROM(fvec, f_of_int, ivec x, (float)x.v[i])
LANES_FROM(fvec, f_load_f16, const uint16_t *p, f16_to_f32(p[i]))
LANES_FROM(fvec, f_load_bf16, const uint16_t *p, bf16_to_f32(p[i]))
LANES_FROM(fvec, f_load_i8, const int8_t *p, (float)p[i])
LANES_FROM(ivec, i_set, int32_t x, x)
static inline ivec i_add(ivec x, ivec y)
{
    ivec r;
    for (int i = 0; i < 16; i++) r.v[i] = x.v[i] + y.v[i];
    return r;
}

static inline fvec f_fma(fvec x, fvec y, fvec z)
{
    fvec r;
    for (int i = 0; i < 16; i++) r.v[i] = x.v[i] * y.v[i] + z.v[i]; /* fmaf is slow here */
    return r;
}
static inline fvec f_set_f16(const uint8_t *p)
{
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    return f_set(f16_to_f32(half));
}
static inline float f_sum(fvec x)
{
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; i++) x.v[i] += x.v[i + step];
    return x.v[0];
}
static inline void f_sum4(const fvec x[4], float out[4])
{
    for (int i = 0; i < 4; i++) out[i] = f_sum(x[i]);
}
static inline float f_most(fvec x)
{
    float most = x.v[0];
    for (int i = 1; i < 16; i++) most = x.v[i] > most ? x.v[i] : most;
    return most;
}
static inline void f_store(float *p, fvec x)
{
    memcpy(p, x.v, sizeof x.v);
}
static inline void f_store_f16(uint16_t *p, fvec x)
{
    for (int i = 0; i < 16; i++) p[i] = f32_to_f16(x.v[i]);
}
static inline void f_store_i8(int8_t *p, fvec x)
{
    for (int i = 0; i < 16; i++) p[i] = (int8_t)x.v[i];
}
static inline ivec i_sub(ivec x, ivec y)
{
    ivec r;
    for (int i = 0; i < 16; i++) r.v[i] = x.v[i] - y.v[i];
    return r;
}
static inline ivec i_shl(ivec x, int n)
{
    for (int i = 0; i < 16; i++) x.v[i] *= 1 << n;
    return x;
}
static inline bvec b_load(const uint8_t *p)
{
    bvec r;
    memcpy(r.v, p, sizeof r.v);
    return r;
}
static inline void b_store(uint8_t *p, bvec x)
{
    memcpy(p, x.v, sizeof x.v);
}
static inline bvec b_and(bvec x, uint8_t mask)
{
    for (int i = 0; i < 64; i++) x.v[i] &= mask;
    return x;
}
static inline bvec b_or(bvec x, bvec y)
{
    for (int i = 0; i < 64; i++) x.v[i] |= y.v[i];
    return x;
}
/* Bits that cross a byte in wider shifts are masked by the caller; here they never do. */
static inline bvec b_shr(bvec x, int n)
{
    for (int i = 0; i < 64; i++) x.v[i] = (uint8_t)(x.v[i] >> n);
    return x;
}
typedef struct {
    uint8_t v[16];
} tvec;
static inline tvec t_load(const int8_t *levels, int offset)
{
    tvec table;
    for (int i = 0; i < 16; i++) table.v[i] = (uint8_t)(levels[i] + offset);
    return table;
}
static inline bvec b_look_up(tvec table, bvec index)
{
    for (int i = 0; i < 64; i++) index.v[i] = table.v[index.v[i] & 15];
    return index;
}

static inline bvec b_wide(bvec w)
{
    return w;
}
static inline ivec dot_wide(ivec sum, bvec w, ivec a)
{
    int8_t bytes[64];
    memcpy(bytes, a.v, sizeof bytes);
    for (int i = 0; i < 64; i++) sum.v[i / 4] += w.v[i] * bytes[i];
    return sum;
}
static inline ivec dot_small(ivec sum, bvec w, ivec a)
{
    return dot_wide(sum, w, a);
}
