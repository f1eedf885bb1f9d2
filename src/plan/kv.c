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
    c.page_bytes = (size_t)KV_PAGE * (size_t)kv_position_bytes(&c);
    return c;
}

void kv_share(struct kv_cache *c, int32_t turned)
{
    if (turned == 0) return;
    carat_assert(turned > 0 && turned % 64 == 0 && c->head_dim % 64 == 0);
    while (format_row_bytes(c->format, turned) % 16 != 0) turned += 64;
    if (turned >= c->head_dim) return;
    c->turned = turned;
    c->head_bytes = (int32_t)format_row_bytes(c->format, c->head_dim + turned);
    c->page_bytes = (size_t)KV_PAGE * (size_t)kv_position_bytes(c);
}

int32_t kv_turned(int32_t head_dim, int32_t n_pairs)
{
    int32_t turned = n_pairs < 1 ? 64 : (n_pairs + 31) / 32 * 64;
    return turned < head_dim && head_dim % 64 == 0 ? turned : 0;
}

void kv_place(struct kv_cache *c, void *at, size_t v_offset)
{
    c->k = c->turned ? (char *)at + format_row_bytes(c->format, c->turned) : at;
    c->v = c->turned ? at : (char *)at + v_offset;
}
