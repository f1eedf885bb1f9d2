#include "grammar/mask.h"

#include <string.h>

#include "base/mem.h"

/* Siblings still to be looked at, and the states before them. */
struct level {
    uint32_t at, end;
    uint32_t state, other;
};

struct masker {
    struct machine *m;
    const struct token_index *x;
    struct level *levels; /* one for each byte of the longest token, and one more */
    uint64_t n_nodes;     /* looked at */
};

int masker_open(struct masker **out, struct machine *m, const struct token_index *x,
                struct carat_error *err)
{
    *out = NULL;
    struct masker *k = mem_alloc(1, sizeof *k);
    if (!k) return err_no_memory(err, "grammar", sizeof *k);
    *k = (struct masker){.m = m, .x = x};
    k->levels = mem_alloc((size_t)x->longest + 2, sizeof *k->levels);
    if (!k->levels) {
        masker_close(k);
        return err_no_memory(err, "grammar", (size_t)x->longest * sizeof *k->levels);
    }
    *out = k;
    return CARAT_OK;
}

void masker_close(struct masker *k)
{
    if (!k) return;
    mem_free(k->levels);
    mem_free(k);
}

static void set_bit(uint64_t *bits, int32_t id)
{
    bits[id / 64] |= (uint64_t)1 << id % 64;
}

static void clear_bit(uint64_t *bits, int32_t id)
{
    bits[id / 64] &= ~((uint64_t)1 << id % 64);
}

/* ---- Walks ------------------------------------------------------------------------------ */

static void enter(struct level *level, const struct tree_node *node, uint32_t state, uint32_t other)
{
    *level = (struct level){.at = node->first_child,
                            .end = node->first_child + node->n_children,
                            .state = state,
                            .other = other};
}

/* Sets the bits of the tokens whose texts in the tree lead on from `state`. False: full. */
static bool walk(struct masker *k, const struct token_tree *t, uint32_t state, uint64_t *bits)
{
    if (t->n_ids == 0) return true;
    uint32_t depth = 0;
    enter(&k->levels[0], &t->nodes[0], state, MACHINE_DEAD);
    for (;;) {
        struct level *level = &k->levels[depth];
        if (level->at == level->end) {
            if (depth-- == 0) return true;
            continue;
        }
        const struct tree_node *node = &t->nodes[level->at++];
        const struct machine_state *s = machine_state(k->m, level->state);
        k->n_nodes++;
        if (!(s->bytes[node->byte / 64] >> node->byte % 64 & 1)) continue;
        uint32_t next = machine_byte(k->m, level->state, node->byte);
        if (next == MACHINE_FULL) return false;
        if (next == MACHINE_DEAD) continue;
        for (uint32_t i = 0; i < node->n_ids; i++) set_bit(bits, t->ids[node->first_id + i]);
        if (node->n_children) enter(&k->levels[++depth], node, next, MACHINE_DEAD);
    }
}

/* Turns the mask of `other` into that of `state`, over all tokens. False: full. */
static bool walk_difference(struct masker *k, uint32_t state, uint32_t other, uint64_t *bits)
{
    const struct token_tree *t = &k->x->all;
    uint32_t depth = 0;
    enter(&k->levels[0], &t->nodes[0], state, other);
    for (;;) {
        struct level *level = &k->levels[depth];
        if (level->at == level->end) {
            if (depth-- == 0) return true;
            continue;
        }
        const struct tree_node *node = &t->nodes[level->at++];
        uint32_t next = machine_byte(k->m, level->state, node->byte);
        uint32_t next_other = machine_byte(k->m, level->other, node->byte);
        k->n_nodes++;
        if (next == MACHINE_FULL || next_other == MACHINE_FULL) return false;
        if (next == next_other) continue;
        for (uint32_t i = 0; i < node->n_ids; i++) {
            int32_t id = t->ids[node->first_id + i];
            if (next == MACHINE_DEAD)
                clear_bit(bits, id);
            else
                set_bit(bits, id);
        }
        if (node->n_children) enter(&k->levels[++depth], node, next, next_other);
    }
}

/* ---- Plain characters ------------------------------------------------------------------- */

enum outcome { OUTCOME_FULL, OUTCOME_NO, OUTCOME_DONE };

/* How plain characters lead on from a plain state: states[n] after n of them. */
struct plain_way {
    uint32_t states[PLAIN_MAX + 1];
    uint32_t n;   /* the last one of `states`; dead, or not plain, or PLAIN_MAX characters */
    bool is_loop; /* all are the same */
};

static enum outcome follow_plain(struct masker *k, uint32_t state, struct plain_way *way)
{
    way->states[0] = state;
    way->n = 0;
    way->is_loop = false;
    while (way->n < PLAIN_MAX && machine_state(k->m, way->states[way->n])->is_plain) {
        uint32_t next = machine_byte(k->m, way->states[way->n], 'a');
        if (next == MACHINE_FULL) return OUTCOME_FULL;
        if (way->n == 0 && next == state) {
            way->is_loop = true;
            return OUTCOME_DONE;
        }
        way->states[++way->n] = next;
    }
    const struct machine_state *last = machine_state(k->m, way->states[way->n]);
    return last->is_plain || !last->takes_plain ? OUTCOME_DONE : OUTCOME_NO;
}

/* Plain tokens of at most n characters. */
static void set_plain(const struct token_index *x, uint32_t n, uint64_t *bits)
{
    uint32_t end = x->plain_begin[n + 1], all = x->plain_begin[PLAIN_MAX + 1];
    if (end > all - end) {
        memcpy(bits, x->plain, index_words(x) * sizeof *bits);
        for (uint32_t i = end; i < all; i++) clear_bit(bits, x->plain_ids[i]);
    } else {
        for (uint32_t i = 0; i < end; i++) set_bit(bits, x->plain_ids[i]);
    }
}

static enum outcome fill_plain(struct masker *k, uint32_t state, uint64_t *bits)
{
    const struct token_index *x = k->x;
    struct plain_way way;
    if (!machine_state(k->m, state)->is_plain) return OUTCOME_NO;
    enum outcome outcome = follow_plain(k, state, &way);
    if (outcome != OUTCOME_DONE) return outcome;
    if (way.is_loop) {
        set_plain(x, PLAIN_MAX, bits);
        return walk(k, &x->rest, state, bits) ? OUTCOME_DONE : OUTCOME_FULL;
    }
    bool is_dead = way.states[way.n] == MACHINE_DEAD;
    set_plain(x, is_dead ? way.n - 1 : way.n, bits);
    for (uint32_t n = 0; n <= way.n; n++)
        if (way.states[n] != MACHINE_DEAD && !walk(k, &x->rests[n], way.states[n], bits))
            return OUTCOME_FULL;
    return OUTCOME_DONE;
}

/* ---- Everything ------------------------------------------------------------------------- */

/* A plain state that is reached by a character that few keys and words begin with. */
static enum outcome find_similar(struct masker *k, uint32_t state, uint32_t *similar)
{
    static const uint8_t probes[] = {'~', 'Q', 'z', '7'};
    if (!machine_state(k->m, state)->takes_plain) return OUTCOME_NO;
    for (unsigned i = 0; i < sizeof probes; i++) {
        uint32_t next = machine_byte(k->m, state, probes[i]);
        if (next == MACHINE_FULL) return OUTCOME_FULL;
        if (!machine_state(k->m, next)->is_plain) continue;
        uint32_t loop = machine_byte(k->m, next, 'a');
        if (loop == MACHINE_FULL) return OUTCOME_FULL;
        *similar = next;
        if (loop == next) return OUTCOME_DONE;
    }
    return OUTCOME_NO;
}

static bool fill_bytes(struct masker *k, uint32_t state, uint64_t *bits)
{
    uint32_t similar;
    enum outcome outcome = fill_plain(k, state, bits);
    if (outcome == OUTCOME_DONE) return true;
    if (outcome == OUTCOME_NO) outcome = find_similar(k, state, &similar);
    if (outcome == OUTCOME_DONE) {
        outcome = fill_plain(k, similar, bits);
        if (outcome == OUTCOME_DONE) return walk_difference(k, state, similar, bits);
    }
    return outcome == OUTCOME_NO && walk(k, &k->x->all, state, bits);
}

struct bit_target {
    uint64_t *bits;
    int32_t n_vocab;
};

static void add_id(void *user, int32_t id)
{
    const struct bit_target *t = user;
    if (id < t->n_vocab) set_bit(t->bits, id);
}

static void fill_tokens(struct masker *k, uint32_t state, uint64_t *bits)
{
    struct bit_target target = {.bits = bits, .n_vocab = k->x->n_vocab};
    int32_t excluded = -1;
    bool was_set = false;
    if (machine_tokens(k->m, state, add_id, &target, &excluded)) {
        bool has_excluded = excluded >= 0 && excluded < k->x->n_vocab;
        if (has_excluded) was_set = bits[excluded / 64] >> excluded % 64 & 1;
        for (int32_t id = 0; id < k->x->n_vocab; id++)
            if (id != excluded && !k->x->is_stop[id]) set_bit(bits, id);
        if (has_excluded && !was_set) clear_bit(bits, excluded);
    }
}

uint64_t masker_fill(struct masker *k, uint32_t state, uint64_t *bits)
{
    memset(bits, 0, index_words(k->x) * sizeof *bits);
    k->n_nodes = 1;
    if (state == MACHINE_DEAD) return k->n_nodes;
    if (!fill_bytes(k, state, bits)) return 0;
    if (machine_state(k->m, state)->has_tokens) fill_tokens(k, state, bits);
    for (uint32_t i = 0; machine_state(k->m, state)->is_complete && i < k->x->n_stops; i++)
        set_bit(bits, k->x->stops[i]);
    return k->n_nodes;
}
