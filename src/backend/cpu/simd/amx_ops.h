/* Operations on the tile registers of Intel's AMX, by literal numbers 0 to 7. A register holds up
 * to 16 rows of up to 64 bytes, as `amx_shapes` says.
 *
 * GCC does not tell the compiler that loads and the configuration read memory, so what was written
 * before has to be kept in order here. */
#include <immintrin.h>

#define KEEP_ORDER() __asm__ volatile("" ::: "memory")

static inline void amx_shapes(const struct amx_config *config)
{
    KEEP_ORDER();
    _tile_loadconfig(config);
}

/* Also lets the system switch threads without saving 8 KB. */
static inline void amx_release(void)
{
    _tile_release();
}

/* Rows in memory are `stride` bytes apart. */
#define amx_load(reg, memory, stride)                                                              \
    do {                                                                                           \
        KEEP_ORDER();                                                                              \
        _tile_loadd(reg, memory, stride);                                                          \
    } while (0)
#define amx_store(reg, memory, stride) _tile_stored(reg, memory, stride)
#define amx_zero(reg) _tile_zero(reg)

/* Of signed bytes: sum[m][n] += the products of row m of `a` and of column n of `b`, whose row k
 * holds bytes 4 k .. 4 k + 3 of each column. */
#define amx_dot(sum, a, b) _tile_dpbssd(sum, a, b)
