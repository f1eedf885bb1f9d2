#include "grammar/program.h"

#include <string.h>

#include "base/mem.h"

void program_deinit(struct program *p)
{
    mem_free(p->positions);
    mem_free(p->edges);
    mem_free(p->rules);
    mem_free(p->repeats);
    *p = (struct program){0};
}

int program_check(const struct program *p, struct carat_error *err)
{
    if (p->has_no_memory)
        return err_no_memory(err, "grammar", (size_t)p->n_edges * sizeof *p->edges);
    if (!p->bound) return CARAT_OK;
    return err_set(err, CARAT_EUNSUPPORTED, "the grammar is too large: %s", p->bound);
}

/* ---- Building --------------------------------------------------------------------------- */

/* Makes room for one more of `size` bytes; false after a failure. */
static bool grow(struct program *p, void **items, uint32_t n, uint32_t *capacity, size_t size)
{
    if (p->has_no_memory || p->bound) return false;
    if (n < *capacity) return true;
    uint32_t larger = *capacity ? *capacity * 2 : 256;
    void *grown = mem_resize(*items, larger, size);
    if (!grown) {
        p->has_no_memory = true;
        return false;
    }
    *items = grown;
    *capacity = larger;
    return true;
}

uint32_t program_position(struct program *p)
{
    if (p->n_positions == PROGRAM_POSITIONS_MAX) p->bound = "at most 524288 positions expected";
    void *items = p->positions;
    bool has_room = grow(p, &items, p->n_positions, &p->positions_capacity, sizeof *p->positions);
    p->positions = items;
    if (!has_room) return 0;
    p->positions[p->n_positions] = (struct position){.first_edge = NOWHERE};
    return p->n_positions++;
}

void program_edge(struct program *p, uint32_t from, struct edge edge)
{
    if (p->n_edges == PROGRAM_EDGES_MAX) p->bound = "at most 1048576 edges expected";
    void *items = p->edges;
    bool has_room = grow(p, &items, p->n_edges, &p->edges_capacity, sizeof *p->edges);
    p->edges = items;
    if (!has_room) return;
    edge.next = p->positions[from].first_edge;
    p->positions[from].first_edge = p->n_edges;
    p->edges[p->n_edges++] = edge;
}

uint32_t program_rule(struct program *p)
{
    if (p->n_rules == PROGRAM_POSITIONS_MAX) p->bound = "at most 524288 rules expected";
    void *items = p->rules;
    bool has_room = grow(p, &items, p->n_rules, &p->rules_capacity, sizeof *p->rules);
    p->rules = items;
    if (!has_room) return 0;
    p->rules[p->n_rules] = (struct rule){0};
    return p->n_rules++;
}

uint32_t program_repeat(struct program *p, struct repeat repeat)
{
    void *items = p->repeats;
    bool has_room = grow(p, &items, p->n_repeats, &p->repeats_capacity, sizeof *p->repeats);
    p->repeats = items;
    if (!has_room) return 0;
    p->repeats[p->n_repeats] = repeat;
    return p->n_repeats++;
}

/* ---- Which rules may be empty, and which can end ---------------------------------------- */

uint32_t program_callee(const struct program *p, const struct edge *e)
{
    return e->kind == EDGE_CALL     ? e->arg
           : e->kind == EDGE_REPEAT ? p->repeats[e->arg].rule
                                    : NOWHERE;
}

/* A search backwards from the rules' ends over all positions at once. Each edge waits at its target
 * until that is reached, and a call also until its rule is done. */
struct backwards {
    const struct program *p;
    bool takes_bytes;                    /* edges that take something count too */
    bool *is_reached;                    /* positions */
    bool *is_done;                       /* rules: their start is reached */
    uint32_t *source;                    /* of each edge */
    uint32_t *by_target, *by_callee;     /* the first edge of a chain: positions, rules */
    uint32_t *same_target, *same_callee; /* the next one: edges */
    uint32_t *rule_at;                   /* positions: the rule that starts here, or NOWHERE */
    uint32_t *waiting;                   /* positions */
    uint32_t n_waiting;
};

static void reach(struct backwards *s, uint32_t position)
{
    if (s->is_reached[position]) return;
    s->is_reached[position] = true;
    s->waiting[s->n_waiting++] = position;
}

static bool may_pass(const struct backwards *s, const struct edge *e)
{
    switch ((enum edge_kind)e->kind) {
    case EDGE_FREE: return true;
    case EDGE_BYTES:
    case EDGE_TOKEN:
    case EDGE_NOT_TOKEN: return s->takes_bytes;
    case EDGE_REPEAT:
        if (s->p->repeats[e->arg].least == 0) return true;
        break;
    case EDGE_CALL: break;
    }
    return s->is_done[program_callee(s->p, e)];
}

static void pass(struct backwards *s, uint32_t edge)
{
    const struct edge *e = &s->p->edges[edge];
    if (s->is_reached[e->target] && may_pass(s, e)) reach(s, s->source[edge]);
}

static void search(struct backwards *s)
{
    for (uint32_t r = 0; r < s->p->n_rules; r++) reach(s, s->p->rules[r].final);
    while (s->n_waiting) {
        uint32_t at = s->waiting[--s->n_waiting], rule = s->rule_at[at];
        for (uint32_t e = s->by_target[at]; e != NOWHERE; e = s->same_target[e]) pass(s, e);
        if (rule == NOWHERE || s->is_done[rule]) continue;
        s->is_done[rule] = true;
        for (uint32_t e = s->by_callee[rule]; e != NOWHERE; e = s->same_callee[e]) pass(s, e);
    }
}

static void list_edges(struct backwards *s)
{
    const struct program *p = s->p;
    for (uint32_t i = 0; i < p->n_positions; i++) s->by_target[i] = s->rule_at[i] = NOWHERE;
    for (uint32_t r = 0; r < p->n_rules; r++) s->by_callee[r] = NOWHERE;
    for (uint32_t r = 0; r < p->n_rules; r++) s->rule_at[p->rules[r].start] = r;
    for (uint32_t i = 0; i < p->n_positions; i++) {
        for (uint32_t e = p->positions[i].first_edge; e != NOWHERE; e = p->edges[e].next) {
            const struct edge *edge = &p->edges[e];
            uint32_t rule = program_callee(p, edge);
            s->source[e] = i;
            s->same_target[e] = s->by_target[edge->target];
            s->by_target[edge->target] = e;
            if (rule == NOWHERE) continue;
            s->same_callee[e] = s->by_callee[rule];
            s->by_callee[rule] = e;
        }
    }
}

static void backwards_deinit(struct backwards *s)
{
    mem_free(s->is_reached);
    mem_free(s->is_done);
    mem_free(s->source);
    mem_free(s->by_target);
    mem_free(s->by_callee);
    mem_free(s->same_target);
    mem_free(s->same_callee);
    mem_free(s->rule_at);
    mem_free(s->waiting);
}

static int search_backwards(struct backwards *s, const struct program *p, bool takes_bytes,
                            struct carat_error *err)
{
    *s = (struct backwards){
        .p = p,
        .takes_bytes = takes_bytes,
        .is_reached = mem_alloc(p->n_positions, sizeof *s->is_reached),
        .is_done = mem_alloc(p->n_rules, sizeof *s->is_done),
        .source = mem_alloc(p->n_edges, sizeof *s->source),
        .by_target = mem_alloc(p->n_positions, sizeof *s->by_target),
        .by_callee = mem_alloc(p->n_rules, sizeof *s->by_callee),
        .same_target = mem_alloc(p->n_edges, sizeof *s->same_target),
        .same_callee = mem_alloc(p->n_edges, sizeof *s->same_callee),
        .rule_at = mem_alloc(p->n_positions, sizeof *s->rule_at),
        .waiting = mem_alloc(p->n_positions, sizeof *s->waiting),
    };
    if (!s->is_reached || !s->is_done || !s->source || !s->by_target || !s->by_callee ||
        !s->same_target || !s->same_callee || !s->rule_at || !s->waiting) {
        backwards_deinit(s);
        return err_no_memory(err, "grammar", (size_t)p->n_edges * 3 * sizeof *s->source);
    }
    list_edges(s);
    search(s);
    return CARAT_OK;
}

static void add_ways_around(struct program *p)
{
    uint32_t n_edges = p->n_edges;
    for (uint32_t i = 0; i < p->n_positions; i++) {
        for (uint32_t e = p->positions[i].first_edge; e != NOWHERE && e < n_edges;) {
            struct edge edge = p->edges[e];
            uint32_t rule = program_callee(p, &edge);
            bool may_be_empty = rule != NOWHERE && p->rules[rule].is_nullable;
            if (edge.kind == EDGE_REPEAT && p->repeats[edge.arg].least == 0) may_be_empty = true;
            if (may_be_empty)
                program_edge(p, i, (struct edge){.kind = EDGE_FREE, .target = edge.target});
            e = edge.next;
        }
    }
}

int program_analyse(struct program *p, struct carat_error *err)
{
    struct backwards s;
    TRY(program_check(p, err));
    TRY(search_backwards(&s, p, false, err));
    for (uint32_t r = 0; r < p->n_rules; r++) p->rules[r].is_nullable = s.is_done[r];
    backwards_deinit(&s);
    TRY(search_backwards(&s, p, true, err));
    for (uint32_t r = 0; r < p->n_rules; r++) p->rules[r].can_end = s.is_done[r];
    backwards_deinit(&s);
    if (!p->rules[p->root].can_end)
        return err_set(err, CARAT_EUSAGE, "the grammar matches no text of finite length");
    add_ways_around(p);
    return program_check(p, err);
}

/* ---- The final form --------------------------------------------------------------------- */

static bool is_useful(const struct backwards *s, const struct edge *e)
{
    uint32_t rule = program_callee(s->p, e);
    return s->is_reached[e->target] && (rule == NOWHERE || s->is_done[rule]);
}

int program_finish(struct program *p, struct carat_error *err)
{
    struct backwards s;
    TRY(program_check(p, err));
    TRY(search_backwards(&s, p, true, err));
    struct edge *sorted = mem_alloc(p->n_edges, sizeof *sorted);
    uint32_t n = 0;
    for (uint32_t i = 0; sorted && i < p->n_positions; i++) {
        struct position *at = &p->positions[i];
        uint32_t first = n;
        for (uint32_t e = at->first_edge; e != NOWHERE; e = p->edges[e].next)
            if (is_useful(&s, &p->edges[e])) sorted[n++] = p->edges[e];
        at->first_edge = first;
        at->n_edges = n - first;
        if ((at->flags & POSITION_FINAL) && at->n_edges == 0) at->flags |= POSITION_RETURN;
    }
    backwards_deinit(&s);
    if (!sorted) return err_no_memory(err, "grammar", (size_t)p->n_edges * sizeof *sorted);
    mem_free(p->edges);
    p->edges = sorted;
    p->n_edges = n;
    return CARAT_OK;
}
