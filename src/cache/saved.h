/* What a prefix cache holds, as a list that can be kept elsewhere and put back later, into the same
 * cache or another one with the same page and window.
 *
 * The anchor that was used last comes first. Each brings the blocks and local pages that those
 * before it have not brought, a block after its parent. So the first anchors of a list, with what
 * they bring, are a list too: what does not fit is left out at its end. Blocks that no anchor
 * stands on are not listed, because no sequence can resume there. */
#ifndef CACHE_SAVED_H
#define CACHE_SAVED_H

#include "cache/prefix.h"

/* The most blocks and local pages of a list that is read, and anchors. */
enum { SAVED_MAX = 1 << 20 };

/* Both without padding: files hold them as they are. */
struct saved_block {
    uint64_t salt;
    int32_t parent; /* index of the block before it, counted from 1; 0: it is the first one */
    int32_t zero;
};
struct saved_anchor {
    int32_t block;              /* index of the block that it stands on */
    int32_t n_blocks, n_locals; /* how many of the list's it and those before it bring */
    int32_t zero;
};

struct saved {
    int32_t page, n_refs; /* positions of a block; local pages that an anchor has, at most */
    int32_t n_blocks, n_locals, n_anchors;
    struct saved_block *blocks;   /* [n_blocks] */
    int32_t *ids;                 /* [n_blocks][page] */
    struct saved_anchor *anchors; /* [n_anchors] */
    int32_t *refs;                /* [n_anchors][n_refs] indices of local pages; unused ones 0 */
    /* Pages of the pools, which belong to whoever made the list. */
    int32_t *pages, *local_pages; /* [n_blocks], [n_locals] */
};

/* Allocates a list with these counts, for a cache with this page and window. CARAT_EMEMORY. Closing
 * a zeroed list is fine. */
int saved_open(struct saved *s, const struct prefix_cache *c, int32_t n_blocks, int32_t n_locals,
               int32_t n_anchors, struct carat_error *err);
void saved_close(struct saved *s);

/* n_refs of lists of this cache. */
int32_t saved_refs(const struct prefix_cache *c);

/* Bytes of each entry of a list, and the most that all entries may take together. */
struct saved_costs {
    uint64_t block, local, anchor, most;
};

/* Opens a list of what the cache holds. Anchors are added, the last used first, if they still fit
 * into `most`. CARAT_EMEMORY. */
int saved_list(struct saved *s, const struct prefix_cache *c, const struct saved_costs *costs,
               struct carat_error *err);

/* What is wrong with a list that came from elsewhere (static text); NULL: it can be put back. Ids
 * are to be in [0, n_vocab). */
const char *saved_problem(const struct saved *s, const struct prefix_cache *c, int32_t n_vocab);

/* The first anchors that the pages which are free now have room for. */
struct saved_part {
    int32_t n_anchors, n_blocks, n_locals;
};
struct saved_part saved_fitting(const struct saved *s, struct prefix_cache *c);

/* Takes pages for a part, one user each, into `pages` and `local_pages`, for the caller to fill.
 * Then saved_restore puts the part into the cache, or saved_leave_pages gives the pages back as if
 * nothing had happened. Nothing else may change the cache in between. After saved_restore the list
 * can only be closed. */
void saved_take_pages(struct saved *s, struct prefix_cache *c, struct saved_part part);
void saved_restore(struct saved *s, struct prefix_cache *c, struct saved_part part);
void saved_leave_pages(struct saved *s, struct prefix_cache *c, struct saved_part part);

#endif
