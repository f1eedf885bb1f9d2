/* Operations on tile registers in plain C, in place of simd/amx_ops.h: what Intel's manual says of
 * palette 1, of LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS and TILERELEASE, but for
 * numbers so small that the processor counts them as 0. What a processor refuses with a fault ends
 * the program. Memory is read and written row by row, so that sanitizers see it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"

enum { AMX_REGISTERS = 8, AMX_MAX_ROWS = 16, AMX_MAX_BYTES = 64 };

static _Thread_local struct amx_emulated {
    struct amx_config config; /* palette 0: none */
    uint8_t data[AMX_REGISTERS][AMX_MAX_ROWS][AMX_MAX_BYTES];
} amx;

#define AMX_FAULT(condition)                                                                       \
    do {                                                                                           \
        if (condition) {                                                                           \
            fprintf(stderr, "%s:%d: fault: %s\n", __FILE__, __LINE__, #condition);                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static inline void amx_shapes(const struct amx_config *config)
{
    struct amx_config c = *config;
    static const uint8_t zeros[14];
    AMX_FAULT(sizeof c != 64);
    AMX_FAULT(c.palette > 1);
    AMX_FAULT(memcmp(c.reserved, zeros, sizeof c.reserved) != 0);
    for (int i = 0; i < 16; i++) {
        AMX_FAULT(i >= AMX_REGISTERS && (c.rows[i] || c.row_bytes[i]));
        AMX_FAULT(c.palette && (c.rows[i] > AMX_MAX_ROWS || c.row_bytes[i] > AMX_MAX_BYTES));
        AMX_FAULT(c.palette && (c.rows[i] == 0) != (c.row_bytes[i] == 0));
    }
    amx.config = c;
    memset(amx.data, 0, sizeof amx.data);
}

static inline void amx_release(void)
{
    memset(&amx, 0, sizeof amx);
}

/* Rows of a register. A fault if it was not configured, as all but the two above need it. */
static inline int amx_rows_of(int reg)
{
    AMX_FAULT(amx.config.palette == 0);
    AMX_FAULT(reg < 0 || reg >= AMX_REGISTERS || amx.config.rows[reg] == 0);
    return amx.config.rows[reg];
}

static inline void amx_zero(int reg)
{
    amx_rows_of(reg);
    memset(amx.data[reg], 0, sizeof amx.data[reg]);
}

/* Rows and bytes after those of the shape become zero. */
static inline void amx_load(int reg, const void *memory, ptrdiff_t stride)
{
    int n_rows = amx_rows_of(reg);
    amx_zero(reg);
    for (int r = 0; r < n_rows; r++)
        memcpy(amx.data[reg][r], (const uint8_t *)memory + r * stride, amx.config.row_bytes[reg]);
}

static inline void amx_load_once(int reg, const void *memory, ptrdiff_t stride)
{
    amx_load(reg, memory, stride);
}

static inline void amx_store(int reg, void *memory, ptrdiff_t stride)
{
    int n_rows = amx_rows_of(reg);
    for (int r = 0; r < n_rows; r++)
        memcpy((uint8_t *)memory + r * stride, amx.data[reg][r], amx.config.row_bytes[reg]);
}

/* A number in bf16 is the upper half of a float. */
static inline float amx_number(const uint8_t *p)
{
    float x = 0;
    memcpy((uint8_t *)&x + 2, p, 2);
    return x;
}

/* The products of the first numbers of all pairs are summed up, and those of the second ones. In
 * double such a product is exact, and so is its sum with a float unless they lie far apart: it is
 * rounded once, as if it were fused. */
static inline void amx_dot(int sum, int a, int b)
{
    enum { SUMS = AMX_MAX_BYTES / 4 };
    int n_rows = amx_rows_of(sum), n_bytes = amx.config.row_bytes[sum];
    AMX_FAULT(sum == a || sum == b || a == b);
    AMX_FAULT(n_bytes != AMX_MAX_BYTES || amx.config.row_bytes[a] % 4);
    AMX_FAULT(n_rows != amx_rows_of(a));
    AMX_FAULT(amx.config.row_bytes[a] / 4 != amx_rows_of(b));
    AMX_FAULT(n_bytes != amx.config.row_bytes[b]);
    const int n_pairs = amx_rows_of(b);
    float y[2][AMX_MAX_ROWS][SUMS];
    for (int k = 0; k < n_pairs; k++)
        for (int n = 0; n < 2 * SUMS; n++) y[n % 2][k][n / 2] = amx_number(&amx.data[b][k][n * 2]);
    for (int m = 0; m < n_rows; m++) {
        float total[SUMS], part[2][SUMS] = {{0}};
        for (int i = 0; i < 2 * n_pairs; i++) {
            double x = (double)amx_number(&amx.data[a][m][i * 2]);
            for (int n = 0; n < SUMS; n++)
                part[i % 2][n] = (float)(x * (double)y[i % 2][i / 2][n] + (double)part[i % 2][n]);
        }
        memcpy(total, amx.data[sum][m], sizeof total);
        for (int n = 0; n < SUMS; n++) total[n] += part[0][n] + part[1][n];
        memcpy(amx.data[sum][m], total, sizeof total);
    }
}

/* ---- Vectors, through memory: they may be those of any lanes ----------------------------- */

static inline void bf_store(uint16_t *p, fvec x)
{
    float values[16];
    f_store(values, x);
    for (int i = 0; i < 16; i++) p[i] = f32_to_bf16(values[i]);
}

static inline fvec f_bf16(fvec x)
{
    uint16_t bits[16];
    bf_store(bits, x);
    return f_load_bf16(bits);
}

static inline bvec bf_pack(fvec a, fvec b)
{
    uint16_t bits[32];
    bf_store(bits, a);
    bf_store(bits + 16, b);
    return b_load((const uint8_t *)bits);
}

static inline void bf_store_pairs(uint16_t *p, fvec even, fvec odd)
{
    uint16_t bits[2][16];
    bf_store(bits[0], even);
    bf_store(bits[1], odd);
    for (int i = 0; i < 32; i++) p[i] = bits[i % 2][i / 2];
}

static inline void b_transpose(bvec row[16])
{
    uint32_t in[16][16], out[16][16];
    for (int r = 0; r < 16; r++) b_store((uint8_t *)in[r], row[r]);
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 16; c++) out[c][r] = in[r][c];
    for (int r = 0; r < 16; r++) row[r] = b_load((const uint8_t *)out[r]);
}
