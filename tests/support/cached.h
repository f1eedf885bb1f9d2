/* Sequences that live on a prefix cache without a model. What a page holds is a number that stands
 * for all tokens up to its end, so a wrong page is seen. Failures end the running cmocka case. */
#ifndef SUPPORT_CACHED_H
#define SUPPORT_CACHED_H

#include "base/arena.h"
#include "cache/prefix.h"

enum { CACHED_TOKENS_MAX = 4096 };

struct cached_world {
    struct prefix_options options;
    struct arena arena;
    struct prefix_cache *cache;
    uint64_t *content[KV_KINDS]; /* of pages */
    uint64_t computed, reused;   /* positions */
};

struct cached_sequence {
    struct prefix_cursor cursor;
    uint64_t salt;
    bool is_open;
    int32_t n_ids, n_done; /* given, and with keys and values */
    int32_t ids[CACHED_TOKENS_MAX];
    int32_t pages[KV_KINDS][CACHED_TOKENS_MAX]; /* of blocks; 0: none */
};

void cached_world_open(struct cached_world *w, const struct prefix_options *options);
void cached_world_close(struct cached_world *w);

/* Looks up the sequence's ids and takes what is there; checks the contents of all pages. */
struct prefix_hit cached_begin(struct cached_world *w, struct cached_sequence *s);

/* Computes the next rows, publishes full blocks, makes an anchor at each `anchor_every` blocks (0:
 * none), and leaves local pages that no later row sees. False if there are not enough pages: then
 * nothing was computed. */
bool cached_run(struct cached_world *w, struct cached_sequence *s, int32_t n_rows,
                int32_t anchor_every);

/* Makes an anchor after the last full block. */
void cached_anchor(struct cached_world *w, const struct cached_sequence *s);

void cached_end(struct cached_world *w, struct cached_sequence *s);

/* prefix_check, and that pages have as many users as sequences say. */
void cached_check(struct cached_world *w, struct cached_sequence *sequences, int n);

#endif
