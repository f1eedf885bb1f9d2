/* Every expression becomes a piece of network between two positions, `from` and `to`. Invariant: a
 * piece adds no edge into `from` and none out of `to`. So pieces may share both ends, and a rule's
 * start is never reached again. */
#include "grammar/lower.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
    VISITS_MAX = 1 << 21,   /* of expressions, which may stand in several places */
    UNROLLED_BYTES_MAX = 64 /* repetitions of up to about this many positions are unrolled */
};

struct lowering {
    struct program *p;
    const struct expr_builder *b;
    uint32_t *rules;            /* of the builder: number in the program, or NOWHERE */
    const struct expr **bodies; /* of the program's rules, which are lowered one after another */
    uint32_t bodies_capacity;
    uint32_t n_visits;
};

static void lower(struct lowering *l, const struct expr *e, uint32_t from, uint32_t to);

static void add_free(struct lowering *l, uint32_t from, uint32_t to)
{
    program_edge(l->p, from, (struct edge){.kind = EDGE_FREE, .target = to});
}

static void add_bytes(struct lowering *l, uint32_t from, uint32_t low, uint32_t high, uint32_t to)
{
    program_edge(l->p, from,
                 (struct edge){
                     .kind = EDGE_BYTES, .low = (uint8_t)low, .high = (uint8_t)high, .target = to});
}

static void set_flag(struct lowering *l, uint32_t position, enum position_flag flag)
{
    if (l->p->n_positions) l->p->positions[position].flags |= (uint8_t)flag;
}

/* ---- Rules ------------------------------------------------------------------------------ */

/* A rule of the program for this body, which is lowered later. */
static uint32_t new_rule(struct lowering *l, const struct expr *body)
{
    uint32_t rule = program_rule(l->p);
    if (l->p->has_no_memory || l->p->bound) return 0;
    if (rule >= l->bodies_capacity) {
        uint32_t larger = l->bodies_capacity ? l->bodies_capacity * 2 : 256;
        void *bodies = mem_resize(l->bodies, larger, sizeof *l->bodies);
        if (!bodies) {
            l->p->has_no_memory = true;
            return 0;
        }
        l->bodies = bodies;
        l->bodies_capacity = larger;
    }
    l->bodies[rule] = body;
    return rule;
}

static uint32_t rule_number(struct lowering *l, int32_t rule)
{
    if (l->rules[rule] == NOWHERE) l->rules[rule] = new_rule(l, l->b->rules[rule].body);
    return l->rules[rule];
}

/* ---- Bytes and classes ------------------------------------------------------------------ */

static bool is_plain_byte(unsigned c)
{
    return c >= 0x20 && c != '"' && c != '\\' && c != 0x7F;
}

static void lower_bytes(struct lowering *l, const char *bytes, uint32_t n, uint32_t from,
                        uint32_t to)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = i + 1 == n ? to : program_position(l->p);
        unsigned c = (unsigned char)bytes[i];
        add_bytes(l, from, c, c, next);
        if (is_plain_byte(c)) set_flag(l, from, POSITION_SOME);
        from = next;
    }
}

struct utf8_ways {
    struct lowering *l;
    uint32_t from;
    uint32_t
        rest[4]; /* rest[n]: the position before n bytes of any continuation; rest[0]: the end */
    bool has_rest[4];
};

/* The position from which n continuation bytes of any value lead to the end. */
static uint32_t any_rest(struct utf8_ways *w, unsigned n)
{
    if (w->has_rest[n]) return w->rest[n];
    uint32_t next = any_rest(w, n - 1);
    w->rest[n] = program_position(w->l->p);
    w->has_rest[n] = true;
    add_bytes(w->l, w->rest[n], 0x80, 0xBF, next);
    return w->rest[n];
}

/* Code points first..last, whose last n bytes (6 bits each) come after this byte; `lead` holds the
 * fixed bits of this byte. Cuts the range so that in each part the bytes are independent. */
static void add_utf8(struct utf8_ways *w, uint32_t from, uint32_t first, uint32_t last, unsigned n,
                     uint32_t lead)
{
    struct lowering *l = w->l;
    uint32_t unit = (uint32_t)1 << 6 * n, low = first / unit, high = last / unit;
    if (n == 0) {
        add_bytes(l, from, lead + first, lead + last, w->rest[0]);
        return;
    }
    if (low == high) {
        uint32_t next = program_position(l->p);
        add_bytes(l, from, lead + low, lead + low, next);
        add_utf8(w, next, first % unit, last % unit, n - 1, 0x80);
        return;
    }
    if (first % unit) {
        add_utf8(w, from, first, low * unit + unit - 1, n, lead);
        low++;
    }
    if (last % unit != unit - 1) {
        add_utf8(w, from, high * unit, last, n, lead);
        if (low == high) return;
        high--;
    }
    if (low <= high) add_bytes(l, from, lead + low, lead + high, any_rest(w, n));
}

static void lower_class(struct lowering *l, const struct expr *e, uint32_t from, uint32_t to)
{
    static const struct {
        uint32_t first, last, n, lead;
    } lengths[] = {{0, 0x7F, 0, 0},
                   {0x80, 0x7FF, 1, 0xC0},
                   {0x800, 0xFFFF, 2, 0xE0},
                   {0x10000, CODE_POINT_MAX, 3, 0xF0}};
    static const struct char_range plain[] = {
        {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0xD7FF}, {0xE000, CODE_POINT_MAX}};
    enum { N_PLAIN = sizeof plain / sizeof *plain };
    struct utf8_ways w = {.l = l, .from = from, .rest = {to}, .has_rest = {true}};
    unsigned n_whole = 0;
    bool has_some = false;
    for (uint32_t i = 0; i < e->n; i++) {
        struct char_range r = e->as.ranges[i];
        for (unsigned k = 0; k < 4; k++) {
            uint32_t first = r.first > lengths[k].first ? r.first : lengths[k].first;
            uint32_t last = r.last < lengths[k].last ? r.last : lengths[k].last;
            if (first <= last) add_utf8(&w, from, first, last, lengths[k].n, lengths[k].lead);
        }
        for (unsigned k = 0; k < N_PLAIN; k++) {
            has_some |= r.first <= plain[k].last && r.last >= plain[k].first;
            n_whole += r.first <= plain[k].first && r.last >= plain[k].last;
        }
    }
    if (has_some) set_flag(l, from, n_whole == N_PLAIN ? POSITION_ALL : POSITION_SOME);
}

/* ---- Alternatives ----------------------------------------------------------------------- */

static int compare_texts(const void *left, const void *right)
{
    const struct expr *a = *(const struct expr *const *)left;
    const struct expr *b = *(const struct expr *const *)right;
    uint32_t n = a->n < b->n ? a->n : b->n;
    int order = memcmp(a->as.bytes, b->as.bytes, n);
    return order ? order : a->n < b->n ? -1 : a->n > b->n;
}

/* Sorted texts as a tree that shares equal beginnings: many alternatives at once would be slow.
 * From each text to the next, `path` keeps the positions of the longest common beginning. */
static void lower_texts(struct lowering *l, const struct expr **texts, uint32_t n, uint32_t from,
                        uint32_t to, uint32_t *path)
{
    uint32_t shared = 0; /* positions of path that the text has in common with the one before */
    for (uint32_t i = 0; i < n; i++) {
        const struct expr *e = texts[i];
        path[0] = from;
        for (uint32_t at = shared; at < e->n; at++) {
            unsigned c = (unsigned char)e->as.bytes[at];
            path[at + 1] = program_position(l->p);
            add_bytes(l, path[at], c, c, path[at + 1]);
            if (is_plain_byte(c)) set_flag(l, path[at], POSITION_SOME);
        }
        add_free(l, path[e->n], to);
        shared = 0;
        if (i + 1 == n) break;
        while (shared < e->n && shared < texts[i + 1]->n &&
               e->as.bytes[shared] == texts[i + 1]->as.bytes[shared])
            shared++;
    }
}

static bool lower_tree(struct lowering *l, const struct expr *e, uint32_t from, uint32_t to)
{
    enum { TREE_LEAST = 4 };
    uint32_t longest = 0;
    if (e->n < TREE_LEAST) return false;
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->as.items[i]->kind != EXPR_BYTES) return false;
        if (e->as.items[i]->n > longest) longest = e->as.items[i]->n;
    }
    const struct expr **sorted = mem_alloc(e->n, sizeof *sorted);
    uint32_t *path = mem_alloc(longest + 1, sizeof *path);
    if (sorted && path) {
        memcpy(sorted, e->as.items, e->n * sizeof *sorted);
        qsort(sorted, e->n, sizeof *sorted, compare_texts);
        lower_texts(l, sorted, e->n, from, to, path);
    } else {
        l->p->has_no_memory = true;
    }
    mem_free(sorted);
    mem_free(path);
    return true;
}

/* ---- Repetitions ------------------------------------------------------------------------ */

/* About how many positions an expression takes; at most UNROLLED_BYTES_MAX + 1. */
static uint32_t rough_size(const struct expr *e)
{
    enum { LARGE = UNROLLED_BYTES_MAX + 1 };
    uint32_t size = 1;
    switch ((enum expr_kind)e->kind) {
    case EXPR_BYTES: size = e->n; break;
    case EXPR_CLASS:
        if (e->as.ranges[e->n - 1].last >= 0x80) size = 8;
        break;
    case EXPR_SEQ:
    case EXPR_EITHER:
        for (uint32_t i = 0; i < e->n && size < LARGE; i++) size += rough_size(e->as.items[i]);
        break;
    case EXPR_REPEAT: {
        uint32_t times = e->most == EXPR_NO_LIMIT ? e->least + 1 : e->most;
        size = times > LARGE ? LARGE : times * rough_size(e->as.items[0]);
        break;
    }
    case EXPR_LIST:
    case EXPR_MEMBERS: size = LARGE; break;
    default: break;
    }
    return size < LARGE ? size : LARGE;
}

static void lower_star(struct lowering *l, const struct expr *item, uint32_t from, uint32_t to)
{
    uint32_t hub = program_position(l->p), end = program_position(l->p);
    add_free(l, from, hub);
    lower(l, item, hub, end);
    add_free(l, end, hub);
    add_free(l, hub, to);
}

/* Calls a rule least..most times; the machine counts. */
static void lower_counted(struct lowering *l, const struct expr *item, uint32_t least,
                          uint32_t most, uint32_t from, uint32_t to)
{
    uint32_t rule = item->kind == EXPR_RULE ? rule_number(l, item->as.rule) : new_rule(l, item);
    uint32_t repeat =
        program_repeat(l->p, (struct repeat){.rule = rule, .least = least, .most = most});
    program_edge(l->p, from, (struct edge){.kind = EDGE_REPEAT, .arg = repeat, .target = to});
}

static void lower_repeat(struct lowering *l, const struct expr *item, uint32_t least, uint32_t most,
                         uint32_t from, uint32_t to)
{
    bool is_open = most == EXPR_NO_LIMIT;
    uint64_t times = is_open ? least : most;
    if (times > 1 && times * rough_size(item) > UNROLLED_BYTES_MAX) {
        lower_counted(l, item, least, most, from, to);
        return;
    }
    for (uint32_t i = 0; i < times; i++) {
        bool is_last = i + 1 == times && !is_open;
        uint32_t next = is_last ? to : program_position(l->p);
        if (i >= least) add_free(l, from, to);
        lower(l, item, from, next);
        from = next;
    }
    if (is_open) lower_star(l, item, from, to);
}

static void lower_list(struct lowering *l, const struct expr *e, uint32_t from, uint32_t to)
{
    uint32_t before = program_position(l->p), after = program_position(l->p);
    if (e->least == 0) add_free(l, from, to);
    add_free(l, from, before);
    lower(l, e->as.items[0], before, after);
    lower(l, e->separator, after, before);
    add_free(l, after, to);
}

/* Three positions for each member i, before which all required ones have come: `first` (no member
 * has come yet), `later` (a separator has come), and the end of the member before it. Each item
 * stands once in the network, so its size is linear. */
static void lower_members(struct lowering *l, const struct expr *e, uint32_t from, uint32_t to)
{
    uint32_t first = from, later = NOWHERE, n_required = 0;
    for (uint32_t i = 0; i < e->n; i++) n_required += e->is_required[i];
    for (uint32_t i = 0; i < e->n; i++) {
        uint32_t start = program_position(l->p), end = program_position(l->p);
        uint32_t next = program_position(l->p);
        bool may_be_first = first != NOWHERE, may_skip = !e->is_required[i];
        if (may_be_first) add_free(l, first, start);
        if (later != NOWHERE) add_free(l, later, start);
        lower(l, e->as.items[i], start, end);
        n_required -= e->is_required[i];
        if (n_required == 0) add_free(l, end, to);
        if (i + 1 < e->n) lower(l, e->separator, end, next);
        if (may_skip && later != NOWHERE) add_free(l, later, next);
        later = next;
        if (may_be_first && may_skip && i + 1 < e->n) {
            uint32_t skipped = program_position(l->p);
            add_free(l, first, skipped);
            first = skipped;
        } else {
            first = NOWHERE;
        }
    }
}

/* ---- Everything ------------------------------------------------------------------------- */

static void lower_items(struct lowering *l, const struct expr *e, uint32_t from, uint32_t to)
{
    if (e->kind == EXPR_EITHER) {
        if (lower_tree(l, e, from, to)) return;
        for (uint32_t i = 0; i < e->n; i++) lower(l, e->as.items[i], from, to);
        return;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        uint32_t next = i + 1 == e->n ? to : program_position(l->p);
        lower(l, e->as.items[i], from, next);
        from = next;
    }
}

static void lower(struct lowering *l, const struct expr *e, uint32_t from, uint32_t to)
{
    if (++l->n_visits > VISITS_MAX) l->p->bound = "at most 2097152 steps of compilation expected";
    if (l->p->has_no_memory || l->p->bound) return;
    switch ((enum expr_kind)e->kind) {
    case EXPR_EMPTY: add_free(l, from, to); break;
    case EXPR_NEVER: break;
    case EXPR_BYTES: lower_bytes(l, e->as.bytes, e->n, from, to); break;
    case EXPR_CLASS: lower_class(l, e, from, to); break;
    case EXPR_TOKEN:
    case EXPR_NOT_TOKEN:
        program_edge(l->p, from,
                     (struct edge){.kind = e->kind == EXPR_TOKEN ? EDGE_TOKEN : EDGE_NOT_TOKEN,
                                   .arg = (uint32_t)e->as.id,
                                   .target = to});
        break;
    case EXPR_SEQ:
    case EXPR_EITHER: lower_items(l, e, from, to); break;
    case EXPR_REPEAT: lower_repeat(l, e->as.items[0], e->least, e->most, from, to); break;
    case EXPR_LIST: lower_list(l, e, from, to); break;
    case EXPR_MEMBERS: lower_members(l, e, from, to); break;
    case EXPR_RULE:
        program_edge(
            l->p, from,
            (struct edge){.kind = EDGE_CALL, .arg = rule_number(l, e->as.rule), .target = to});
        break;
    }
}

/* Lowers rule after rule: each one's positions are neighbours. */
static int lower_bodies(struct lowering *l, struct carat_error *err)
{
    struct program *p = l->p;
    for (uint32_t r = 0; r < p->n_rules; r++) {
        if (!l->bodies[r]) return err_set(err, CARAT_EUSAGE, "a rule has no definition");
        uint32_t start = program_position(p), final = program_position(p);
        p->rules[r] = (struct rule){.start = start, .final = final, .begin = start};
        lower(l, l->bodies[r], start, final);
        TRY(program_check(p, err));
        p->positions[final].flags |= POSITION_FINAL;
        p->rules[r].end = p->n_positions;
    }
    return CARAT_OK;
}

int lower_rules(struct program *p, const struct expr_builder *b, int32_t root,
                struct carat_error *err)
{
    struct lowering l = {.p = p, .b = b};
    TRY(builder_check(b, err));
    l.rules = mem_alloc((size_t)b->n_rules, sizeof *l.rules);
    if (!l.rules) return err_no_memory(err, "grammar", (size_t)b->n_rules * sizeof *l.rules);
    for (int32_t i = 0; i < b->n_rules; i++) l.rules[i] = NOWHERE;
    /* The first rule only calls the root: so the root may be rewritten, empty or recursive. */
    const struct expr call = {.kind = EXPR_RULE, .as.rule = root};
    p->root = new_rule(&l, &call);
    int status = program_check(p, err);
    if (!status) status = lower_bodies(&l, err);
    mem_free(l.rules);
    mem_free(l.bodies);
    return status;
}
