#include "plan/share.h"

#include <string.h>

struct share_least share_least_of(enum share_kind kind)
{
    if (kind == SHARE_ON) return (struct share_least){2, KV_PAGE};
    if (kind == SHARE_OFF) return (struct share_least){0, 0};
    return (struct share_least){16, 8192}; /* measured (H200): docs/benchmarks.md */
}

struct search {
    struct share *s;
    const int32_t *table;
    int32_t slots;
    const struct step *step;
    int32_t rows_least, pages_least;
};

static const int32_t *pages_of(const struct search *c, int32_t row)
{
    return c->table + (size_t)c->step->sequence[row] * (size_t)c->slots;
}

/* Full pages of a row. */
static int32_t full_pages(const struct search *c, int32_t row)
{
    int32_t n = (c->step->position[row] + 1) / KV_PAGE;
    return n < c->slots ? n : c->slots;
}

/* With how many equal pages both lists begin, at most n; the first `depth` are known to be
 * equal. */
static int32_t equal_pages(const int32_t *a, const int32_t *b, int32_t depth, int32_t n)
{
    enum { AT_ONCE = 16 };
    while (depth + AT_ONCE <= n && memcmp(a + depth, b + depth, AT_ONCE * sizeof *a) == 0)
        depth += AT_ONCE;
    while (depth < n && a[depth] == b[depth]) depth++;
    return depth;
}

/* How many leading pages rows order[first .. end) share; the first `depth` are known to be shared.
 * Page 0 stands for none. */
static int32_t common_pages(const struct search *c, int32_t first, int32_t end, int32_t depth)
{
    const int32_t *order = c->s->order, *pages = pages_of(c, order[first]);
    int32_t n = depth, most = full_pages(c, order[first]);
    while (n < most && pages[n] != 0) n++;
    for (int32_t i = first + 1; i < end && n > depth; i++) {
        most = full_pages(c, order[i]);
        n = equal_pages(pages, pages_of(c, order[i]), depth, most < n ? most : n);
    }
    return n;
}

/* Fills in `page`: the page at `depth` of each row of order[first .. end), or 0. */
static void find_pages(const struct search *c, int32_t first, int32_t end, int32_t depth)
{
    for (int32_t i = first; i < end; i++) {
        int32_t row = c->s->order[i];
        c->s->page[i] = full_pages(c, row) > depth ? pages_of(c, row)[depth] : 0;
    }
}

/* Moves the rows of order[first .. end) that have the same page as the first one next to it;
 * returns where they end. */
static int32_t gather_rows(struct share *s, int32_t first, int32_t end)
{
    int32_t next = first + 1, page = s->page[first];
    for (int32_t i = next; i < end && page != 0; i++) {
        if (s->page[i] != page) continue;
        int32_t row = s->order[i];
        s->order[i] = s->order[next];
        s->page[i] = s->page[next];
        s->page[next] = page;
        s->order[next++] = row;
    }
    return next;
}

static void make_group(const struct search *c, int32_t first, int32_t end, int32_t pages)
{
    const int32_t *order = c->s->order;
    int32_t leader = order[first];
    for (int32_t i = first; i < end; i++)
        if (order[i] < leader) leader = order[i];
    for (int32_t i = first; i < end; i++) {
        c->s->leader[order[i]] = leader;
        c->s->shared[order[i]] = pages * KV_PAGE;
    }
}

/* Groups among order[first .. end), which share `depth` pages: all of these rows as one, or smaller
 * groups that share more. Returns the pages saved. Each recursive call has fewer rows than its
 * caller. */
static int64_t find_groups(const struct search *c, int32_t first, int32_t end, int32_t depth)
{
    int32_t pages = common_pages(c, first, end, depth);
    int64_t saved = (int64_t)(end - first - 1) * pages, saved_apart = 0;
    if (pages < c->pages_least) saved = 0;
    find_pages(c, first, end, pages);
    for (int32_t at = first; at < end;) {
        int32_t next = gather_rows(c->s, at, end);
        if (next - at >= c->rows_least && next - at < end - first)
            saved_apart += find_groups(c, at, next, pages);
        at = next;
    }
    if (saved <= 0 || saved < saved_apart) return saved_apart;
    make_group(c, first, end, pages);
    return saved;
}

bool share_find(struct share *s, const int32_t *table, int32_t slots, const struct step *step,
                struct share_least least)
{
    int32_t n = step->n_decode;
    struct search c = {.s = s,
                       .table = table,
                       .slots = slots,
                       .step = step,
                       .rows_least = least.rows,
                       .pages_least = kv_pages(least.positions)};
    if (least.rows == 0 || n < least.rows || n > SHARE_ROWS_MAX) return false;
    for (int32_t row = 0; row < n; row++) {
        s->order[row] = s->leader[row] = row;
        s->shared[row] = 0;
    }
    return find_groups(&c, 0, n, 0) > 0;
}
