#include "plan/kv.h"

#include "base/assert.h"

struct kv_cache kv_cache_shape(enum format format, int32_t capacity, int32_t n_heads,
                               int32_t head_dim)
{
    carat_assert(capacity > 0 && capacity % KV_PAGE == 0);
    return (struct kv_cache){.format = format,
                             .capacity = capacity,
                             .n_heads = n_heads,
                             .head_dim = head_dim,
                             .head_bytes = (int32_t)format_row_bytes(format, head_dim)};
}
