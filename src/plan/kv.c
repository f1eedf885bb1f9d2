#include "plan/kv.h"

#include "base/assert.h"

struct kv_cache kv_cache_shape(enum format format, int32_t slots, int32_t n_heads, int32_t head_dim)
{
    carat_assert(slots > 0);
    struct kv_cache c = {.format = format,
                         .slots = slots,
                         .n_heads = n_heads,
                         .head_dim = head_dim,
                         .head_bytes = (int32_t)format_row_bytes(format, head_dim)};
    c.page_bytes = 2 * (size_t)KV_PAGE * (size_t)kv_cell_bytes(&c);
    return c;
}
