#include "cache/candidates.h"

/* ---- The heap of garbage ---------------------------------------------------------------- */

static bool is_older(const struct prefix_cache *c, int32_t a, int32_t b)
{
    const struct node *x = &c->nodes[a], *y = &c->nodes[b];
    return x->last_use != y->last_use ? x->last_use < y->last_use : a < b;
}

static void put(struct prefix_cache *c, int32_t at, int32_t node)
{
    c->garbage.nodes[at] = node;
    c->nodes[node].garbage_at = at + 1;
}

/* Puts a node into the heap, beginning at the hole `at`: moves the hole up or down to where the
 * node belongs. */
static void sift(struct prefix_cache *c, int32_t at, int32_t node)
{
    const int32_t *heap = c->garbage.nodes;
    for (; at > 0 && is_older(c, node, heap[(at - 1) / 2]); at = (at - 1) / 2)
        put(c, at, heap[(at - 1) / 2]);
    for (int32_t below; (below = 2 * at + 1) < c->garbage.n; at = below) {
        if (below + 1 < c->garbage.n && is_older(c, heap[below + 1], heap[below])) below++;
        if (!is_older(c, heap[below], node)) break;
        put(c, at, heap[below]);
    }
    put(c, at, node);
}

static void add_garbage(struct prefix_cache *c, int32_t node)
{
    c->garbage.n++;
    sift(c, c->garbage.n - 1, node);
}

static void remove_garbage(struct prefix_cache *c, int32_t node)
{
    int32_t at = c->nodes[node].garbage_at - 1;
    int32_t last = c->garbage.nodes[--c->garbage.n];
    c->nodes[node].garbage_at = 0;
    if (last != node) sift(c, at, last);
}

/* ---- Lists without an order ------------------------------------------------------------- */

static void add(struct node_list *list, int32_t node, int32_t *at)
{
    list->nodes[list->n++] = node;
    *at = list->n;
}

/* The last one takes the place of the removed one; returns it. */
static int32_t replace_by_last(struct node_list *list, int32_t *at)
{
    int32_t last = list->nodes[--list->n];
    list->nodes[*at - 1] = last;
    return last;
}

static void remove_tip(struct prefix_cache *c, struct node *n)
{
    int32_t at = n->tip_at;
    c->nodes[replace_by_last(&c->tips, &at)].tip_at = at;
    n->tip_at = 0;
}

void candidates_settle(struct prefix_cache *c, int32_t node)
{
    struct node *n = &c->nodes[node];
    bool is_leaf = n->n_blocks > 0 && n->n_children == 0 && n->n_pins == 0;
    bool is_tip = is_leaf && n->anchor_at, is_garbage = is_leaf && !n->anchor_at;
    if (is_garbage && !n->garbage_at) add_garbage(c, node);
    if (!is_garbage && n->garbage_at) remove_garbage(c, node);
    if (is_tip && !n->tip_at) add(&c->tips, node, &n->tip_at);
    if (!is_tip && n->tip_at) remove_tip(c, n);
}

void candidates_add_anchor(struct prefix_cache *c, int32_t node)
{
    add(&c->anchors, node, &c->nodes[node].anchor_at);
    candidates_settle(c, node);
}

void candidates_remove_anchor(struct prefix_cache *c, int32_t node)
{
    int32_t at = c->nodes[node].anchor_at;
    c->nodes[replace_by_last(&c->anchors, &at)].anchor_at = at;
    c->nodes[node].anchor_at = 0;
    candidates_settle(c, node);
}
