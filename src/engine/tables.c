#include "engine/tables.h"

#include <string.h>

#include "base/assert.h"

/* In entries. Changes that lie closer together are sent in one copy: copying the bytes between them
 * takes a device less time than a second copy. */
enum { GAP_MAX = 4096 };

static size_t entries(const struct table *t)
{
    return (size_t)t->n_seq * (size_t)t->slots;
}

bool tables_init(struct tables *t, const struct caches *caches, struct arena *arena)
{
    for (int kind = 0; kind < KV_KINDS; kind++) {
        struct table *table = &t->of[kind];
        *table = (struct table){.n_seq = caches->n_seq, .slots = caches->slots[kind]};
        table->wanted = arena_take(arena, entries(table), sizeof *table->wanted);
        table->sent = arena_take(arena, entries(table), sizeof *table->sent);
        table->changes = arena_take(arena, (size_t)table->n_seq, sizeof *table->changes);
        if (!table->wanted || !table->sent || !table->changes) return false;
    }
    return true;
}

uint64_t tables_bytes(const struct caches *caches)
{
    uint64_t slots = (uint64_t)caches->slots[KV_LOCAL] + (uint64_t)caches->slots[KV_GLOBAL];
    return (uint64_t)caches->n_seq *
           (2 * slots * sizeof(int32_t) + KV_KINDS * sizeof(struct table_change));
}

static int32_t *entry(const struct table *t, int32_t sequence, int32_t slot)
{
    carat_assert(sequence >= 0 && sequence < t->n_seq && slot >= 0 && slot < t->slots);
    return &t->wanted[(size_t)sequence * (size_t)t->slots + (size_t)slot];
}

void tables_set(struct tables *t, enum kv_kind kind, int32_t sequence, int32_t slot, int32_t page)
{
    struct table *table = &t->of[kind];
    int32_t *at = entry(table, sequence, slot);
    struct table_change *change = &table->changes[sequence];
    if (*at == page) return;
    *at = page;
    table->has_changed = true;
    if (change->first == change->end) {
        *change = (struct table_change){slot, slot + 1};
    } else if (slot < change->first) {
        change->first = slot;
    } else if (slot >= change->end) {
        change->end = slot + 1;
    }
}

int32_t tables_get(const struct tables *t, enum kv_kind kind, int32_t sequence, int32_t slot)
{
    return *entry(&t->of[kind], sequence, slot);
}

void tables_set_fixed(struct tables *t)
{
    for (int kind = 0; kind < KV_KINDS; kind++) {
        const struct table *table = &t->of[kind];
        for (int32_t s = 0; s < table->n_seq; s++)
            for (int32_t slot = 0; slot < table->slots; slot++)
                tables_set(t, (enum kv_kind)kind, s, slot, 1 + s * table->slots + slot);
    }
}

/* ---- Sending ---------------------------------------------------------------------------- */

struct sending {
    const struct caches *caches;
    const struct target *targets;
    int32_t n_targets;
    bool *is_busy;
};

static void send_entries(const struct sending *s, const struct table *t, int kind, size_t first,
                         size_t end)
{
    size_t bytes = (end - first) * sizeof *t->sent;
    if (bytes == 0) return;
    memcpy(t->sent + first, t->wanted + first, bytes);
    for (int32_t i = 0; i < s->n_targets; i++) {
        const struct target *target = &s->targets[i];
        if (!s->caches->tables[i][kind]) continue;
        target->backend->upload(target->device, s->caches->tables[i][kind] + first, t->sent + first,
                                bytes);
        if (!target->backend->is_host) s->is_busy[i] = true;
    }
}

static void send_table(const struct sending *s, struct table *t, int kind)
{
    size_t first = 0, end = 0;
    for (int32_t q = 0; q < t->n_seq; q++) {
        struct table_change *change = &t->changes[q];
        size_t base = (size_t)q * (size_t)t->slots;
        if (change->first == change->end) continue;
        if (base + (size_t)change->first > end + GAP_MAX) {
            send_entries(s, t, kind, first, end);
            first = end = base + (size_t)change->first;
        } else if (first == end) {
            first = base + (size_t)change->first;
        }
        end = base + (size_t)change->end;
        *change = (struct table_change){0};
    }
    send_entries(s, t, kind, first, end);
    t->has_changed = false;
}

void tables_send(struct tables *t, const struct caches *caches, const struct target *targets,
                 int32_t n_targets, bool *is_busy)
{
    struct sending s = {caches, targets, n_targets, is_busy};
    for (int kind = 0; kind < KV_KINDS; kind++)
        if (t->of[kind].has_changed) send_table(&s, &t->of[kind], kind);
}
