/* Does everything in a prefix cache add up? Counts are checked by subtracting what they should
 * count: 0 must be left. Then all is added again. */
#include "cache/anchors.h"
#include "cache/index.h"

/* Only the first problem is reported. */
static void expect(bool is_right, const char *otherwise, const char **wrong)
{
    if (!is_right && !*wrong) *wrong = otherwise;
}

/* ---- Pages ------------------------------------------------------------------------------ */

static void check_pool(const struct page_pool *p, const char **wrong)
{
    int32_t n[2][2] = {{0}};
    for (int32_t i = 1; i < p->n_pages; i++) {
        const struct page_holds *h = &p->holds[i];
        expect(h->users >= 0 && h->keepers >= 0, "a page has less than no holders", wrong);
        n[h->users > 0][h->keepers > 0]++;
    }
    expect(p->holds[0].users == 0 && p->holds[0].keepers == 0, "page 0 is held", wrong);
    expect(n[0][0] == p->n_free, "pages that nobody holds are not free", wrong);
    expect(n[0][1] == p->n_cached, "the number of cached pages is wrong", wrong);
    expect(n[1][0] + n[1][1] == p->n_used, "the number of used pages is wrong", wrong);
    for (int32_t i = 0; i < p->n_free; i++) {
        int32_t page = p->free[i];
        bool is_page = page > 0 && page < p->n_pages;
        expect(is_page, "no page is free", wrong);
        if (!is_page) continue;
        expect(p->holds[page].users == 0 && p->holds[page].keepers == 0,
               "a free page is held, or is free twice", wrong);
        p->holds[page].keepers--; /* a second time would be seen */
    }
    for (int32_t i = 0; i < p->n_free; i++)
        if (p->free[i] > 0 && p->free[i] < p->n_pages) p->holds[p->free[i]].keepers++;
}

static void add_keepers(struct prefix_cache *c, int32_t sign)
{
    for (int32_t node = 1; node < c->pools[KV_GLOBAL].n_pages; node++) {
        if (c->nodes[node].n_blocks == 0) continue;
        c->pools[KV_GLOBAL].holds[node].keepers += sign;
        int32_t n = c->nodes[node].anchor_at ? anchor_pages(c, node) : 0;
        for (int32_t i = 0; i < n; i++)
            c->pools[KV_LOCAL].holds[node_locals(c, node)[i]].keepers += sign;
    }
}

static void check_keepers(struct prefix_cache *c, const char **wrong)
{
    add_keepers(c, -1);
    for (int kind = 0; kind < KV_KINDS; kind++)
        for (int32_t i = 0; i < c->pools[kind].n_pages; i++)
            expect(c->pools[kind].holds[i].keepers == 0, "a page's keepers are not its entries",
                   wrong);
    add_keepers(c, 1);
}

/* ---- Nodes ------------------------------------------------------------------------------ */

static void add_ties(struct prefix_cache *c, const struct prefix_cursor *const *cursors,
                     size_t n_cursors, int32_t sign)
{
    for (int32_t node = 1; node < c->pools[KV_GLOBAL].n_pages; node++)
        if (c->nodes[node].n_blocks > 1) c->nodes[c->nodes[node].parent].n_children += sign;
    for (size_t i = 0; i < n_cursors; i++)
        for (int32_t node = cursors[i]->node; node; node = c->nodes[node].parent)
            c->nodes[node].n_pins += sign;
}

static void check_ties(struct prefix_cache *c, const struct prefix_cursor *const *cursors,
                       size_t n_cursors, const char **wrong)
{
    add_ties(c, cursors, n_cursors, -1);
    for (int32_t i = 0; i < c->pools[KV_GLOBAL].n_pages; i++) {
        expect(c->nodes[i].n_children == 0, "a node's children are not counted right", wrong);
        expect(c->nodes[i].n_pins == 0, "a node's pins are not the open cursors", wrong);
    }
    add_ties(c, cursors, n_cursors, 1);
}

static void check_node(const struct prefix_cache *c, int32_t node, const char **wrong)
{
    const struct node *n = &c->nodes[node], *parent = &c->nodes[n->parent];
    expect((n->parent == 0) == (n->n_blocks == 1), "a first block has a parent", wrong);
    expect(n->n_blocks == parent->n_blocks + 1, "a node's parent is gone", wrong);
    expect(n->n_blocks == 1 || n->salt == parent->salt, "salts differ on a path", wrong);
    expect(index_find(c, n->parent, n->salt, node_ids(c, node)) == node, "a node is not found",
           wrong);
    expect(n->n_pins > 0 || c->pools[KV_GLOBAL].holds[node].users == 0,
           "a page is used, but its node is not pinned", wrong);
}

static bool is_listed(const struct node_list *list, int32_t at, int32_t node)
{
    return at == 0 || (at <= list->n && list->nodes[at - 1] == node);
}

static void check_lists(const struct prefix_cache *c, int32_t node, const char **wrong)
{
    const struct node *n = &c->nodes[node];
    bool is_leaf = n->n_blocks > 0 && n->n_children == 0 && n->n_pins == 0;
    expect((is_leaf && !n->anchor_at) == (n->garbage_at > 0), "garbage is not listed", wrong);
    expect((is_leaf && n->anchor_at) == (n->tip_at > 0), "a tip is not listed", wrong);
    expect(is_listed(&c->garbage, n->garbage_at, node) && is_listed(&c->tips, n->tip_at, node) &&
               is_listed(&c->anchors, n->anchor_at, node),
           "a node is not where it is listed", wrong);
    if (n->garbage_at > 1)
        expect(c->nodes[c->garbage.nodes[n->garbage_at / 2 - 1]].last_use <= n->last_use,
               "garbage is out of order", wrong);
}

const char *prefix_check(struct prefix_cache *c, const struct prefix_cursor *const *cursors,
                         size_t n_cursors)
{
    const char *wrong = NULL;
    int32_t n_nodes = 0, n_pinned = 0, n_anchors = 0, n_garbage = 0, n_tips = 0;
    for (int kind = 0; kind < KV_KINDS; kind++) check_pool(&c->pools[kind], &wrong);
    check_keepers(c, &wrong);
    check_ties(c, cursors, n_cursors, &wrong);
    for (int32_t node = 0; node < c->pools[KV_GLOBAL].n_pages; node++) {
        const struct node *n = &c->nodes[node];
        if (n->n_blocks > 0) check_node(c, node, &wrong);
        check_lists(c, node, &wrong);
        n_nodes += n->n_blocks > 0;
        n_pinned += n->n_pins > 0;
        n_anchors += n->anchor_at > 0;
        n_garbage += n->garbage_at > 0;
        n_tips += n->tip_at > 0;
    }
    expect(n_nodes == c->counts.n_nodes && n_pinned == c->counts.n_pinned,
           "nodes are not counted right", &wrong);
    expect(n_anchors == c->counts.n_anchors && n_anchors == c->anchors.n &&
               n_garbage == c->garbage.n && n_tips == c->tips.n,
           "lists are not as long as they should be", &wrong);
    return wrong;
}
