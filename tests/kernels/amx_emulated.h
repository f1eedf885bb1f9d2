/* Operations on tile registers in plain C, in place of simd/amx_ops.h: what Intel's manual says of
 * palette 1, of LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBSSD and TILERELEASE. What a
 * processor refuses with a fault ends the program. Memory is read and written row by row, so that
 * sanitizers see it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether it was configured, which all but the two above need. */
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

static inline void amx_store(int reg, void *memory, ptrdiff_t stride)
{
    int n_rows = amx_rows_of(reg);
    for (int r = 0; r < n_rows; r++)
        memcpy((uint8_t *)memory + r * stride, amx.data[reg][r], amx.config.row_bytes[reg]);
}

/* Sums wrap around, as the processor's do. */
static inline void amx_dot(int sum, int a, int b)
{
    int n_rows = amx_rows_of(sum), n_bytes = amx.config.row_bytes[sum];
    AMX_FAULT(sum == a || sum == b || a == b);
    AMX_FAULT(n_bytes % 4 || amx.config.row_bytes[a] % 4 || amx.config.row_bytes[b] % 4);
    AMX_FAULT(n_rows != amx_rows_of(a));
    AMX_FAULT(amx.config.row_bytes[a] / 4 != amx_rows_of(b));
    AMX_FAULT(n_bytes != amx.config.row_bytes[b]);
    const int n_groups = amx_rows_of(b), n_sums = n_bytes / 4;
    for (int m = 0; m < n_rows; m++) {
        uint32_t total[AMX_MAX_BYTES / 4] = {0};
        memcpy(total, amx.data[sum][m], (size_t)n_bytes);
        for (int k = 0; k < n_groups; k++) {
            const uint8_t *x = &amx.data[a][m][k * 4], *y = amx.data[b][k];
            for (int n = 0; n < n_sums; n++)
                for (int i = 0; i < 4; i++)
                    total[n] += (uint32_t)((int8_t)x[i] * (int8_t)y[n * 4 + i]);
        }
        memcpy(amx.data[sum][m], total, (size_t)n_bytes);
    }
}
