#include "cache/index.h"

#include <string.h>

#include "base/assert.h"
#include "cache/candidates.h"

static uint64_t block_hash(const struct prefix_cache *c, int32_t parent, uint64_t salt,
                           const int32_t *ids)
{
    uint64_t words[3] = {(uint64_t)parent, salt, 0};
    words[2] = hash_bytes(c->key, ids, (size_t)c->page * sizeof *ids);
    return hash_bytes(c->key, words, sizeof words);
}

/* Tells the watch of a new node. */
static void name_block(struct prefix_cache *c, struct node *n, const int32_t *ids)
{
    if (!c->watch) return;
    uint64_t parent = n->parent ? c->nodes[n->parent].name : 0;
    uint64_t words[3] = {parent, n->salt, 0};
    words[2] = hash_bytes(c->key, ids, (size_t)c->page * sizeof *ids);
    n->name = hash_bytes(c->key, words, sizeof words);
    if (n->name == 0) n->name = 1;
    c->watch->stored(c->watch->user, parent, n->name, ids, c->page);
}

static bool is_block(const struct prefix_cache *c, int32_t node, int32_t parent, uint64_t salt,
                     const int32_t *ids)
{
    const struct node *n = &c->nodes[node];
    return n->parent == parent && n->salt == salt &&
           memcmp(node_ids(c, node), ids, (size_t)c->page * sizeof *ids) == 0;
}

int32_t index_find(const struct prefix_cache *c, int32_t parent, uint64_t salt, const int32_t *ids)
{
    uint64_t hash = block_hash(c, parent, salt, ids);
    int32_t node = c->heads[hash & c->mask];
    while (node && !(c->nodes[node].hash == hash && is_block(c, node, parent, salt, ids)))
        node = c->nodes[node].next;
    return node;
}

void index_add(struct prefix_cache *c, int32_t page, int32_t parent, uint64_t salt,
               const int32_t *ids)
{
    struct node *n = &c->nodes[page];
    carat_assert(n->n_blocks == 0);
    page_keep(&c->pools[KV_GLOBAL], page);
    *n = (struct node){.salt = salt,
                       .hash = block_hash(c, parent, salt, ids),
                       .last_use = c->clock,
                       .parent = parent,
                       .n_blocks = 1};
    memcpy(c->ids + (size_t)page * (size_t)c->page, ids, (size_t)c->page * sizeof *ids);
    int32_t *head = &c->heads[n->hash & c->mask];
    n->next = *head;
    *head = page;
    if (parent) {
        n->n_blocks += c->nodes[parent].n_blocks;
        c->nodes[parent].n_children++;
        candidates_settle(c, parent);
    }
    c->counts.n_nodes++;
    candidates_settle(c, page);
    name_block(c, n, ids);
}

void index_remove(struct prefix_cache *c, int32_t node)
{
    struct node *n = &c->nodes[node];
    carat_assert(n->n_blocks > 0 && n->n_children == 0 && n->n_pins == 0 && !n->anchor_at);
    int32_t *link = &c->heads[n->hash & c->mask], parent = n->parent;
    while (*link != node) link = &c->nodes[*link].next;
    *link = n->next;
    n->n_blocks = 0;
    candidates_settle(c, node);
    if (parent) {
        c->nodes[parent].n_children--;
        candidates_settle(c, parent);
    }
    c->counts.n_nodes--;
    if (c->watch) c->watch->removed(c->watch->user, n->name);
    page_drop(&c->pools[KV_GLOBAL], node);
}
