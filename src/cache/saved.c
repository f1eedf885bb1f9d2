#include "cache/saved.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/anchors.h"
#include "cache/index.h"

int saved_open(struct saved *s, const struct prefix_cache *c, int32_t n_blocks, int32_t n_locals,
               int32_t n_anchors, struct carat_error *err)
{
    const size_t blocks = (size_t)n_blocks, anchors = (size_t)n_anchors, id = sizeof(int32_t);
    *s = (struct saved){.page = c->page,
                        .n_refs = c->n_locals,
                        .n_blocks = n_blocks,
                        .n_locals = n_locals,
                        .n_anchors = n_anchors};
    s->blocks = mem_alloc(blocks, sizeof *s->blocks);
    s->ids = mem_alloc(blocks, (size_t)c->page * id);
    s->anchors = mem_alloc(anchors, sizeof *s->anchors);
    s->refs = mem_alloc(anchors, (size_t)c->n_locals * id);
    s->pages = mem_alloc(blocks, id);
    s->local_pages = mem_alloc((size_t)n_locals, id);
    if (s->blocks && s->ids && s->anchors && s->refs && s->pages && s->local_pages) return CARAT_OK;
    saved_close(s);
    return err_no_memory(err, "saved prefixes", blocks * (size_t)c->page * id);
}

void saved_close(struct saved *s)
{
    mem_free(s->blocks);
    mem_free(s->ids);
    mem_free(s->anchors);
    mem_free(s->refs);
    mem_free(s->pages);
    mem_free(s->local_pages);
    *s = (struct saved){0};
}

int32_t saved_refs(const struct prefix_cache *c)
{
    return c->n_locals;
}

static int32_t *refs_at(const struct saved *s, int32_t anchor)
{
    return s->refs + (size_t)anchor * (size_t)s->n_refs;
}

static int32_t *ids_at(const struct saved *s, int32_t block)
{
    return s->ids + (size_t)block * (size_t)s->page;
}

/* ---- Listing ---------------------------------------------------------------------------- */

struct listing {
    const struct prefix_cache *c;
    const struct saved_costs *costs;
    struct saved *s;
    /* By page: its place in the list, counted from 1; 0: it is not there. */
    int32_t *block_at, *local_at;
    uint64_t spent;
};

struct use {
    int64_t when;
    int32_t node;
};

static int compare_uses(const void *a, const void *b)
{
    const struct use *x = a, *y = b;
    if (x->when != y->when) return x->when < y->when ? 1 : -1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* NULL: out of memory. */
static struct use *sort_anchors(const struct prefix_cache *c)
{
    const size_t n = (size_t)c->anchors.n;
    struct use *uses = mem_alloc(n, sizeof *uses);
    for (size_t i = 0; uses && i < n; i++) {
        int32_t node = c->anchors.nodes[i];
        uses[i] = (struct use){c->nodes[node].anchor_use, node};
    }
    if (uses) qsort(uses, n, sizeof *uses, compare_uses);
    return uses;
}

static int32_t new_blocks(const struct listing *l, int32_t node)
{
    int32_t n = 0;
    for (; node && !l->block_at[node]; node = l->c->nodes[node].parent) n++;
    return n;
}

static int32_t new_locals(const struct listing *l, int32_t node)
{
    const int32_t *local = node_locals(l->c, node), n_pages = anchor_pages(l->c, node);
    int32_t n = 0;
    for (int32_t i = 0; i < n_pages; i++) n += !l->local_at[local[i]];
    return n;
}

/* The last `n` blocks of the path down to a node. */
static void add_blocks(struct listing *l, int32_t node, int32_t n)
{
    struct saved *s = l->s;
    for (int32_t at = s->n_blocks + n; at-- > s->n_blocks; node = l->c->nodes[node].parent) {
        const struct node *one = &l->c->nodes[node];
        bool is_top = at == s->n_blocks;
        l->block_at[node] = at + 1;
        s->blocks[at] = (struct saved_block){one->salt, is_top ? l->block_at[one->parent] : at, 0};
        s->pages[at] = node;
        memcpy(ids_at(s, at), node_ids(l->c, node), (size_t)s->page * sizeof(int32_t));
    }
    s->n_blocks += n;
}

static void add_locals(struct listing *l, int32_t node)
{
    struct saved *s = l->s;
    const int32_t *local = node_locals(l->c, node), n_pages = anchor_pages(l->c, node);
    int32_t *refs = refs_at(s, s->n_anchors);
    for (int32_t i = 0; i < n_pages; i++) {
        if (!l->local_at[local[i]]) {
            s->local_pages[s->n_locals++] = local[i];
            l->local_at[local[i]] = s->n_locals;
        }
        refs[i] = l->local_at[local[i]] - 1;
    }
}

static void add_anchor(struct listing *l, int32_t node)
{
    const struct saved_costs *costs = l->costs;
    struct saved *s = l->s;
    int32_t blocks = new_blocks(l, node), locals = new_locals(l, node);
    uint64_t cost = (uint64_t)blocks * costs->block + (uint64_t)locals * costs->local;
    if (cost + costs->anchor > costs->most - l->spent) return;
    if (s->n_blocks + blocks > SAVED_MAX || s->n_locals + locals > SAVED_MAX) return;
    l->spent += cost + costs->anchor;
    add_blocks(l, node, blocks);
    add_locals(l, node);
    s->anchors[s->n_anchors++] =
        (struct saved_anchor){l->block_at[node] - 1, s->n_blocks, s->n_locals, 0};
}

int saved_list(struct saved *s, const struct prefix_cache *c, const struct saved_costs *costs,
               struct carat_error *err)
{
    const size_t globals = (size_t)c->pools[KV_GLOBAL].n_pages;
    const size_t locals = (size_t)c->pools[KV_LOCAL].n_pages;
    struct listing l = {.c = c, .costs = costs, .s = s};
    TRY(saved_open(s, c, c->counts.n_nodes, c->pools[KV_LOCAL].n_pages, c->anchors.n, err));
    struct use *uses = sort_anchors(c);
    l.block_at = mem_alloc(globals, sizeof *l.block_at);
    l.local_at = mem_alloc(locals, sizeof *l.local_at);
    const bool has_room = uses && l.block_at && l.local_at;
    s->n_blocks = s->n_locals = s->n_anchors = 0;
    for (int32_t i = 0; has_room && i < c->anchors.n && i < SAVED_MAX; i++)
        add_anchor(&l, uses[i].node);
    mem_free(uses);
    mem_free(l.block_at);
    mem_free(l.local_at);
    if (has_room) return CARAT_OK;
    saved_close(s);
    return err_no_memory(err, "saved prefixes", (globals + locals) * sizeof(int32_t));
}

/* ---- Checking --------------------------------------------------------------------------- */

/* Fills in how many blocks the path down to each block has. */
static const char *check_blocks(const struct saved *s, int32_t n_vocab, int32_t *depths)
{
    for (int32_t i = 0; i < s->n_blocks; i++) {
        const struct saved_block *b = &s->blocks[i];
        if (b->parent < 0 || b->parent > i || b->zero) return "a block comes before its parent";
        if (b->parent && s->blocks[b->parent - 1].salt != b->salt)
            return "a block's salt is not its parent's";
        depths[i] = b->parent ? depths[b->parent - 1] + 1 : 1;
        const int32_t *ids = ids_at(s, i);
        for (int32_t k = 0; k < s->page; k++)
            if (ids[k] < 0 || ids[k] >= n_vocab) return "a token is not in the vocabulary";
    }
    return NULL;
}

static const char *check_anchors(const struct saved *s, const struct prefix_cache *c,
                                 const int32_t *depths)
{
    int32_t n_blocks = 0, n_locals = 0;
    for (int32_t i = 0; i < s->n_anchors; i++) {
        const struct saved_anchor *a = &s->anchors[i];
        if (a->n_blocks < n_blocks || a->n_blocks > s->n_blocks || a->n_locals < n_locals ||
            a->n_locals > s->n_locals || a->zero)
            return "an anchor brings blocks that are not there";
        n_blocks = a->n_blocks;
        n_locals = a->n_locals;
        if (a->block < 0 || a->block >= n_blocks) return "an anchor's block is not there";
        int32_t depth = depths[a->block], n = depth - prefix_first_local(c, depth);
        for (int32_t k = 0; k < s->n_refs; k++) {
            int32_t ref = refs_at(s, i)[k];
            if (ref < 0 || ref >= (k < n ? n_locals : 1)) return "an anchor's page is not there";
        }
    }
    return NULL;
}

const char *saved_problem(const struct saved *s, const struct prefix_cache *c, int32_t n_vocab)
{
    /* `pages` is not filled in yet, so its memory is used for the depths. */
    const char *problem = check_blocks(s, n_vocab, s->pages);
    return problem ? problem : check_anchors(s, c, s->pages);
}

/* ---- Restoring -------------------------------------------------------------------------- */

struct saved_part saved_fitting(const struct saved *s, struct prefix_cache *c)
{
    struct saved_part part = {0};
    for (int32_t i = 0; i < s->n_anchors; i++) {
        const struct saved_anchor *a = &s->anchors[i];
        if (a->n_blocks > c->pools[KV_GLOBAL].n_free || a->n_locals > c->pools[KV_LOCAL].n_free)
            break;
        part = (struct saved_part){i + 1, a->n_blocks, a->n_locals};
    }
    return part;
}

void saved_take_pages(struct saved *s, struct prefix_cache *c, struct saved_part part)
{
    for (int32_t i = 0; i < part.n_blocks; i++) s->pages[i] = page_take(&c->pools[KV_GLOBAL]);
    for (int32_t i = 0; i < part.n_locals; i++) s->local_pages[i] = page_take(&c->pools[KV_LOCAL]);
}

void saved_leave_pages(struct saved *s, struct prefix_cache *c, struct saved_part part)
{
    for (int32_t i = 0; i < part.n_blocks; i++) page_leave(&c->pools[KV_GLOBAL], s->pages[i]);
    for (int32_t i = 0; i < part.n_locals; i++) page_leave(&c->pools[KV_LOCAL], s->local_pages[i]);
}

/* The block's page becomes its node's, unless the block is there already. */
static int32_t restore_block(struct prefix_cache *c, int32_t parent, uint64_t salt,
                             const int32_t *ids, int32_t page)
{
    int32_t node = index_find(c, parent, salt, ids);
    c->clock++;
    if (!node) index_add(c, page, parent, salt, ids);
    page_leave(&c->pools[KV_GLOBAL], page);
    return node ? node : page;
}

/* The anchor that was used last must be the last one used here too, so it is restored last. */
void saved_restore(struct saved *s, struct prefix_cache *c, struct saved_part part)
{
    for (int32_t i = 0; i < part.n_blocks; i++) {
        const struct saved_block *b = &s->blocks[i];
        int32_t parent = b->parent ? s->pages[b->parent - 1] : 0;
        s->pages[i] = restore_block(c, parent, b->salt, ids_at(s, i), s->pages[i]);
    }
    for (int32_t i = part.n_anchors; i-- > 0;) {
        const struct saved_anchor *a = &s->anchors[i];
        struct prefix_cursor at = {.salt = s->blocks[a->block].salt, .node = s->pages[a->block]};
        int32_t *refs = refs_at(s, i), n_pages = anchor_pages(c, at.node);
        for (int32_t k = 0; k < n_pages; k++) refs[k] = s->local_pages[refs[k]];
        prefix_anchor(c, &at, refs);
    }
    for (int32_t i = 0; i < part.n_locals; i++) page_leave(&c->pools[KV_LOCAL], s->local_pages[i]);
}
