#include "engine/budget.h"

#include "base/allowance.h"
#include "base/bytes.h"
#include "engine/tables.h"

/* Other programs need some of a device's memory too. What is taken only for speed leaves them a
 * tenth, unless the user set a limit. */
enum { PART_FOR_OTHERS = 10 };

/* Host memory for the arrays of a step, for the tables of pages, for masks of ids, and for rows
 * between two devices that are not the host. */
static uint64_t step_bytes(const struct layout *y)
{
    return (uint64_t)(y->chunk + y->decode_rows) * 4 * sizeof(int32_t) + tables_bytes(&y->caches) +
           layout_mask_bytes(y) + layout_hidden_bytes(y) + y->plans.staging_bytes;
}

uint64_t budget_host_rest(const struct layout *y)
{
    uint64_t pages = (uint64_t)y->caches.n_pages[KV_LOCAL] + (uint64_t)y->caches.n_pages[KV_GLOBAL];
    return y->host_bytes + pages * y->host_page_bytes +
           (uint64_t)y->config->n_vocab * sizeof(float);
}

uint64_t budget_needed(const struct layout *y, int32_t site)
{
    const struct target *t = &y->targets[site];
    uint64_t taken = target_bytes(t);
    if (!t->backend->is_host) return taken;
    return taken + taken / 256 + step_bytes(y) + budget_host_rest(y); /* 1/256: page tables */
}

bool budget_fits(const struct layout *y, int32_t site)
{
    return budget_needed(y, site) <= y->targets[site].available;
}

bool budget_all_fits(const struct layout *y)
{
    for (int32_t i = 0; i < y->n_targets; i++)
        if (!budget_fits(y, i)) return false;
    return true;
}

/* Host memory that devices may still pin. If the host computes too, its own need comes first. */
static uint64_t left_on_host(const struct layout *y)
{
    for (int32_t i = y->n_targets; y->n_targets > 1 && i-- > 0;)
        if (y->targets[i].backend->is_host)
            return bytes_left(y->targets[i].available, budget_needed(y, i));
    return allowed_memory();
}

static int32_t count_devices(const struct layout *y)
{
    int32_t n = 0;
    for (int32_t i = 0; i < y->n_targets; i++) n += !y->targets[i].backend->is_host;
    return n;
}

/* All devices together may pin half of what the host has left: no other program can use pinned
 * memory. */
static void place_site(struct layout *y, int32_t site, uint64_t others)
{
    struct target *t = &y->targets[site];
    uint64_t left = bytes_left(t->available, others);
    uint64_t for_others = t->is_limited ? 0 : t->total / PART_FOR_OTHERS;
    struct room room = {.bytes = left, .extra_bytes = bytes_left(left, for_others)};
    if (!t->backend->is_host) room.pinned_bytes = left_on_host(y) / 2 / (size_t)count_devices(y);
    plans_place(&y->plans, t, site, &room, &t->placement);
}

/* The host comes first: the other devices pin what it leaves. */
void budget_place(struct layout *y, const uint64_t *others)
{
    for (int32_t i = 0; i < y->n_targets; i++)
        if (y->targets[i].backend->is_host) place_site(y, i, others[i]);
    for (int32_t i = 0; i < y->n_targets; i++)
        if (!y->targets[i].backend->is_host) place_site(y, i, others[i]);
}

static int check_pinned(const struct layout *y, struct carat_error *err)
{
    uint64_t available = left_on_host(y), pinned = 0;
    for (int32_t i = 0; i < y->n_targets; i++) pinned += y->targets[i].placement.pinned_bytes;
    if (pinned <= available) return CARAT_OK;
    err_set(err, CARAT_EMEMORY,
            "%.1f MB of pinned host memory needed for tables and steps, %.1f MB available",
            (double)pinned / 1e6, (double)available / 1e6);
    err_hint(err, "take --ple host, or a smaller chunk (-b)");
    return CARAT_EMEMORY;
}

int budget_check(const struct layout *y, struct carat_error *err)
{
    int32_t site = 0;
    while (site < y->n_targets && budget_fits(y, site)) site++;
    if (site == y->n_targets) return check_pinned(y, err);
    const struct target *t = &y->targets[site];
    err_set(err, CARAT_EMEMORY,
            "context of %d positions for %d sequence%s: %.1f MB needed, %.1f MB of them for "
            "weights as the %s backend stores them; %.1f MB available",
            y->n_ctx, y->n_seq, y->n_seq == 1 ? "" : "s", (double)budget_needed(y, site) / 1e6,
            (double)t->placement.device_bytes / 1e6, t->backend->name, (double)t->available / 1e6);
    err_hint(err, "take a smaller %s, fewer sequences, or %s%s",
             y->shares_pages && y->cache_bytes ? "--cache-memory or context (-c)" : "context (-c)",
             y->n_targets > 1 ? "other --gpu-layers" : "--kv-type q8_0",
             t->is_limited ? "; --gpu-memory allows no more" : "");
    return CARAT_EMEMORY;
}

void budget_fill_table(struct layout *y)
{
    const struct target *first = &y->targets[FIRST_TARGET];
    const struct placement *placed = &first->placement;
    uint64_t mapped =
        first->weights->bytes_mapped + (y->drafter ? first->draft_weights->bytes_mapped : 0);
    y->memory = (struct carat_memory){
        .weights_mapped = mapped,
        .weights = placed->device_bytes + first->drafter,
        .mirrors = placed->mirror_bytes,
        .ple_cache = placed->cached_bytes,
        .kv_local = first->kv_local,
        .kv_global = first->kv_global,
        .buffers = first->buffers,
        .step = step_bytes(y),
        .pinned = placed->pinned_bytes,
        .total = bytes_add(target_bytes(first), mapped + step_bytes(y) + placed->pinned_bytes),
        .driver = first->driver,
        .available = first->available,
        .kv_type = y->setup.kv_type,
        .kv_is_narrowed = y->setup.kv_reason == CARAT_REASON_MEMORY,
        .n_ctx = y->n_ctx,
        .gpu_layers = y->setup.gpu_layers,
        .pages_local = y->caches.n_pages[KV_LOCAL],
        .pages_global = y->caches.n_pages[KV_GLOBAL],
        .page_bytes_local = caches_page_bytes(&y->caches, KV_LOCAL),
        .page_bytes_global = caches_page_bytes(&y->caches, KV_GLOBAL),
        .cache_positions = (int64_t)(y->caches.n_pages[KV_GLOBAL] - 1) * KV_PAGE,
        .n_anchors = y->pools.n_anchors,
    };
    for (int32_t i = 1; i < y->n_targets; i++) {
        y->memory.second_total += target_bytes(&y->targets[i]);
        y->memory.second_available += y->targets[i].available;
    }
}
