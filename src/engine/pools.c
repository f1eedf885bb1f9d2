#include "engine/pools.h"

#include "base/bytes.h"

/* Prompts read in one step may each begin and end within a page; more of them than this find
 * pages that others have left over. PAGES_MAX: more than any memory holds. */
enum { PROMPTS = 32, PAGES_MAX = 1 << 30 };

static int32_t limit(int64_t pages)
{
    return pages < PAGES_MAX ? (int32_t)pages : PAGES_MAX;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Local pages for n sequences, of which some read prompts: at least for one that does. */
static int64_t local_pages(const struct pools_shape *s, int32_t n)
{
    int64_t slots = s->slots[KV_LOCAL];
    int64_t running = (int64_t)n * s->window_pages + kv_pages(s->chunk) + least_of(n, PROMPTS);
    if (running < slots) running = slots;
    return least_of(running, n * slots);
}

static struct pools make(int64_t local, int64_t global)
{
    return (struct pools){
        .n_pages = {[KV_LOCAL] = limit(local + 1), [KV_GLOBAL] = limit(global + 1)}};
}

struct pools pools_fixed(const struct pools_shape *s)
{
    return make((int64_t)s->n_seq * s->slots[KV_LOCAL], (int64_t)s->n_seq * s->slots[KV_GLOBAL]);
}

struct pools pools_full(const struct pools_shape *s)
{
    return make(local_pages(s, s->n_seq), (int64_t)s->n_seq * s->slots[KV_GLOBAL]);
}

struct pools pools_least(const struct pools_shape *s)
{
    return make(local_pages(s, s->n_seq), s->slots[KV_GLOBAL]);
}

uint64_t pools_bytes(const struct pools_shape *s, const struct pools *p)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < KV_KINDS; kind++)
        sum = bytes_add(sum, bytes_multiply((uint64_t)p->n_pages[kind], s->page_bytes[kind]));
    return sum;
}

/* For n sequences of `split` positions each, or of a full context if that is shorter. The global
 * pool holds at least one full sequence. */
static struct pools pools_of(const struct pools_shape *s, int32_t n)
{
    int64_t each = least_of(s->slots[KV_GLOBAL], kv_pages(s->split)), all = n * each;
    return make(local_pages(s, n), all > s->slots[KV_GLOBAL] ? all : s->slots[KV_GLOBAL]);
}

/* How many pages fit into this many bytes. */
static int64_t pages_in(uint64_t bytes, uint64_t page_bytes)
{
    if (page_bytes == 0 || bytes / page_bytes > PAGES_MAX) return PAGES_MAX;
    return (int64_t)(bytes / page_bytes);
}

static void add_pages(struct pools *p, enum kv_kind kind, int64_t pages)
{
    p->n_pages[kind] = limit(p->n_pages[kind] + pages);
}

void pools_add_anchors(const struct pools_shape *s, struct pools *p, int32_t n)
{
    p->n_anchors += n;
    add_pages(p, KV_LOCAL, (int64_t)n * s->anchor_pages);
}

int32_t pools_anchors_wanted(const struct pools_shape *s, const struct pools *p)
{
    return (int32_t)((int64_t)(p->n_pages[KV_GLOBAL] - 1) * KV_PAGE / s->split);
}

/* Spends what is left over on global pages, each with its part of an anchor. If there are too few
 * anchors for the global pages that the pool has already, the missing anchors come first. */
static void add_both(const struct pools_shape *s, struct pools *p, uint64_t rest)
{
    uint64_t anchor = bytes_multiply((uint64_t)s->anchor_pages, s->page_bytes[KV_LOCAL]);
    int64_t anchors = pages_in(rest, anchor), wanted = pools_anchors_wanted(s, p);
    if (s->page_bytes[KV_LOCAL] == 0 || anchors > wanted) anchors = wanted;
    pools_add_anchors(s, p, (int32_t)anchors);
    rest -= (uint64_t)anchors * anchor;
    if (anchors < wanted || s->page_bytes[KV_GLOBAL] == 0) return;
    uint64_t pages = (uint64_t)kv_pages(s->split);
    uint64_t both = bytes_add(anchor, bytes_multiply(pages, s->page_bytes[KV_GLOBAL]));
    int64_t more = pages_in(rest, both);
    more = least_of(more, PAGES_MAX / (s->anchor_pages + (int64_t)pages));
    pools_add_anchors(s, p, (int32_t)more);
    add_pages(p, KV_GLOBAL, more * (int64_t)pages);
}

struct pools pools_within(const struct pools_shape *s, uint64_t bytes, bool has_anchors)
{
    int32_t n = 1;
    struct pools p = pools_of(s, 1);
    for (; n < s->n_seq; n++) {
        struct pools more = pools_of(s, n + 1);
        if (pools_bytes(s, &more) > bytes) break;
        p = more;
    }
    uint64_t taken = pools_bytes(s, &p);
    if (taken >= bytes) return p;
    if (n == s->n_seq && has_anchors) {
        add_both(s, &p, bytes - taken);
        return p;
    }
    int64_t most = (int64_t)s->n_seq * s->slots[KV_GLOBAL] + 1 - p.n_pages[KV_GLOBAL];
    add_pages(&p, KV_GLOBAL, least_of(most, pages_in(bytes - taken, s->page_bytes[KV_GLOBAL])));
    return p;
}
