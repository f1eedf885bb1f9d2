/* The tables that say which page holds which positions of a sequence (plan/kv.h): as they are to
 * be, on the host, and the copies of them that devices read. Only what changed is sent, before a
 * step. Entries may change while a step runs: it reads what was sent before it. */
#ifndef ENGINE_TABLES_H
#define ENGINE_TABLES_H

#include "base/arena.h"
#include "engine/caches.h"

/* Slots of a sequence that changed since they were sent; empty: first == end. */
struct table_change {
    int32_t first, end;
};

struct table {
    int32_t n_seq, slots;
    int32_t *wanted, *sent; /* [n_seq * slots]; devices copy from `sent` */
    struct table_change *changes;
    bool has_changed;
};

struct tables {
    struct table of[KV_KINDS];
};

/* Takes memory for the host's tables of these caches; all entries are 0, as on the devices. False
 * when memory is out. */
bool tables_init(struct tables *t, const struct caches *caches, struct arena *arena);

/* What tables_init takes. */
uint64_t tables_bytes(const struct caches *caches);

void tables_set(struct tables *t, enum kv_kind kind, int32_t sequence, int32_t slot, int32_t page);
int32_t tables_get(const struct tables *t, enum kv_kind kind, int32_t sequence, int32_t slot);

/* Gives each sequence pages of its own for all its slots. The pools have as many. */
void tables_set_fixed(struct tables *t);

/* Starts the copies of what changed to all targets that have layers of the kind, and marks these
 * targets in `is_busy` if they are not the host. Earlier copies have arrived. */
void tables_send(struct tables *t, const struct caches *caches, const struct target *targets,
                 int32_t n_targets, bool *is_busy);

#endif
