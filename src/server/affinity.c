/* The table is an array of sets of WAYS entries. A key belongs to one set, and replaces there the
 * entry that was used longest ago. */
#include "server/affinity.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/status.h"

enum { WAYS = 8, SETS = AFFINITY_ENTRIES / WAYS };

struct entry {
    uint64_t key; /* of a block and an engine; 0: free */
    uint64_t used;
};

struct affinity {
    struct hash_key hash;
    uint64_t now; /* counts choices */
    size_t n_engines;
    struct entry entries[SETS][WAYS];
};

int affinity_open(struct affinity **out, size_t n_engines, struct carat_error *err)
{
    *out = NULL;
    if (n_engines > AFFINITY_ENGINES_MAX)
        return err_set(err, CARAT_EUSAGE, "engines: at most %d expected, %zu found",
                       AFFINITY_ENGINES_MAX, n_engines);
    struct affinity *a = mem_alloc(1, sizeof *a);
    if (!a) return err_no_memory(err, "table of prompts", sizeof *a);
    a->hash = hash_key_random();
    a->n_engines = n_engines;
    *out = a;
    return CARAT_OK;
}

void affinity_close(struct affinity *a)
{
    mem_free(a);
}

/* ---- The table -------------------------------------------------------------------------- */

/* Multiplication by an odd number keeps keys of engines apart. */
static uint64_t key_of(uint64_t block, size_t engine)
{
    uint64_t key = (block ^ (uint64_t)engine) * 0x9E3779B97F4A7C15u;
    return key ? key : 1;
}

static struct entry *find(struct affinity *a, uint64_t key)
{
    struct entry *set = a->entries[(key >> 32) % SETS];
    for (int i = 0; i < WAYS; i++)
        if (set[i].key == key) return &set[i];
    return NULL;
}

static void remember(struct affinity *a, uint64_t key)
{
    struct entry *entry = find(a, key), *set = a->entries[(key >> 32) % SETS];
    if (!entry) {
        entry = set;
        for (int i = 1; i < WAYS; i++)
            if (set[i].used < entry->used) entry = &set[i];
    }
    *entry = (struct entry){.key = key, .used = a->now};
}

/* The hash of the blocks up to this one. */
static uint64_t chain(const struct affinity *a, uint64_t before, const int32_t *block)
{
    struct {
        uint64_t before, block;
    } pair = {before, hash_bytes(a->hash, block, AFFINITY_BLOCK * sizeof *block)};
    return hash_bytes(a->hash, &pair, sizeof pair);
}

/* ---- The choice ------------------------------------------------------------------------- */

/* Fills in the tokens that each engine knows of the prompt. */
static void match(struct affinity *a, const struct affinity_prompt *p, int32_t *matched)
{
    size_t left = a->n_engines;
    uint64_t block = p->salt;
    for (size_t i = 0; i < p->n / AFFINITY_BLOCK && left > 0; i++) {
        block = chain(a, block, p->ids + i * AFFINITY_BLOCK);
        left = 0;
        for (size_t e = 0; e < a->n_engines; e++) {
            if ((size_t)matched[e] < i * AFFINITY_BLOCK || !find(a, key_of(block, e))) continue;
            matched[e] += AFFINITY_BLOCK;
            left++;
        }
    }
}

/* Sessions are in the same table as blocks. */
static uint64_t session_key(const struct affinity *a, const struct affinity_prompt *p)
{
    const uint64_t pair[2] = {p->salt, p->session};
    return hash_bytes(a->hash, pair, sizeof pair);
}

/* The engine that the session was at last; -1: none, or it is forgotten. */
static int32_t home(struct affinity *a, const struct affinity_prompt *p)
{
    const struct entry *last = NULL;
    int32_t engine = -1;
    if (p->session == 0) return -1;
    for (size_t e = 0; e < a->n_engines; e++) {
        const struct entry *entry = find(a, key_of(session_key(a, p), e));
        if (!entry || (last && entry->used < last->used)) continue;
        last = entry;
        engine = (int32_t)e;
    }
    return engine;
}

static void note(struct affinity *a, size_t engine, const struct affinity_prompt *p)
{
    uint64_t block = p->salt;
    for (size_t i = 0; i < p->n / AFFINITY_BLOCK; i++) {
        block = chain(a, block, p->ids + i * AFFINITY_BLOCK);
        remember(a, key_of(block, engine));
    }
    if (p->session) remember(a, key_of(session_key(a, p), engine));
}

static int32_t least_loaded(const struct affinity *a, const struct affinity_load *loads)
{
    int32_t least = -1;
    for (int32_t e = 0; e < (int32_t)a->n_engines; e++)
        if (!loads[e].is_out && (least < 0 || loads[e].work < loads[least].work)) least = e;
    return least;
}

/* The engine with the longest match; of equal ones `home`, else the least loaded. */
static int32_t longest_match(const struct affinity *a, const struct affinity_load *loads,
                             const int32_t *matched, int32_t home)
{
    int32_t best = least_loaded(a, loads);
    for (int32_t e = 0; e < (int32_t)a->n_engines; e++) {
        if (loads[e].is_out || matched[e] < matched[best]) continue;
        bool is_better = e == home || (best != home && loads[e].work < loads[best].work);
        if (matched[e] > matched[best] || is_better) best = e;
    }
    return best;
}

struct affinity_choice affinity_choose(struct affinity *a, const struct affinity_load *loads,
                                       const struct affinity_prompt *prompt)
{
    int32_t matched[AFFINITY_ENGINES_MAX] = {0};
    int32_t least = least_loaded(a, loads);
    if (least < 0 || prompt->is_private) return (struct affinity_choice){.engine = least};
    a->now++;
    match(a, prompt, matched);
    int32_t best = longest_match(a, loads, matched, home(a, prompt));
    int64_t more = matched[best] - matched[least];
    more += (int64_t)(loads[best].n_seq / AFFINITY_SLACK) * AFFINITY_JOB;
    if (loads[best].work - loads[least].work > more) best = least;
    note(a, (size_t)best, prompt);
    return (struct affinity_choice){.engine = best, .n_matched = matched[best]};
}
