/* The left-corner transform. For a rule A in a circle of rules that begin with each other, the new
 * network reads upwards instead of downwards: first something with which any rule C of the circle
 * begins that is not in the circle itself; when C is complete, it was the beginning of some D that
 * begins with C, and D goes on after it; whenever A is complete, it may be the whole.
 *
 * For each A the network holds a copy of all rules of its circle, so it grows with the square of
 * the circle's size, up to the program's bounds. Calls inside the copies go to the new networks.
 * Empty rules were dealt with before: a call is never empty (program_analyse). */
#include "grammar/left.h"

#include <string.h>

#include "base/mem.h"

/* Tarjan's search for circles, with a stack of its own. */
struct circles {
    struct program *p;
    uint32_t *index, *low; /* rules: order of discovery + 1, 0: not yet; earliest one in reach */
    uint32_t *open, *path; /* rules: those without a circle yet; the search's way */
    uint32_t *circle;      /* rules: number of its circle, NOWHERE while open */
    bool *is_recursive;    /* rules: begins with itself */
    uint32_t *leftmost;    /* positions where a rule may still be when it has taken nothing */
    uint32_t *next_left;   /* rules: which of them the search looks at next */
    uint32_t *begin_left;  /* rules: n_rules + 1 */
    bool *is_leftmost;     /* positions */
    uint32_t n_open, n_path, n_found, n_circles;
};

static void circles_deinit(struct circles *s)
{
    mem_free(s->index);
    mem_free(s->low);
    mem_free(s->open);
    mem_free(s->path);
    mem_free(s->circle);
    mem_free(s->is_recursive);
    mem_free(s->leftmost);
    mem_free(s->next_left);
    mem_free(s->begin_left);
    mem_free(s->is_leftmost);
}

static int circles_init(struct circles *s, struct program *p, struct carat_error *err)
{
    size_t n = p->n_rules;
    *s = (struct circles){
        .p = p,
        .index = mem_alloc(n, sizeof *s->index),
        .low = mem_alloc(n, sizeof *s->low),
        .open = mem_alloc(n, sizeof *s->open),
        .path = mem_alloc(n, sizeof *s->path),
        .circle = mem_alloc(n, sizeof *s->circle),
        .is_recursive = mem_alloc(n, sizeof *s->is_recursive),
        .leftmost = mem_alloc(p->n_positions, sizeof *s->leftmost),
        .next_left = mem_alloc(n, sizeof *s->next_left),
        .begin_left = mem_alloc(n + 1, sizeof *s->begin_left),
        .is_leftmost = mem_alloc(p->n_positions, sizeof *s->is_leftmost),
    };
    if (s->index && s->low && s->open && s->path && s->circle && s->is_recursive && s->leftmost &&
        s->next_left && s->begin_left && s->is_leftmost)
        return CARAT_OK;
    circles_deinit(s);
    return err_no_memory(err, "grammar", n * 8 * sizeof *s->index);
}

static void list_leftmost(struct circles *s)
{
    const struct program *p = s->p;
    uint32_t n = 0;
    for (uint32_t r = 0; r < p->n_rules; r++) {
        s->begin_left[r] = s->next_left[r] = n;
        s->leftmost[n++] = p->rules[r].start;
        s->is_leftmost[p->rules[r].start] = true;
        for (uint32_t i = s->begin_left[r]; i < n; i++) {
            uint32_t e = p->positions[s->leftmost[i]].first_edge;
            for (; e != NOWHERE; e = p->edges[e].next) {
                uint32_t to = p->edges[e].target;
                if (p->edges[e].kind != EDGE_FREE || s->is_leftmost[to]) continue;
                s->is_leftmost[to] = true;
                s->leftmost[n++] = to;
            }
        }
    }
    s->begin_left[p->n_rules] = n;
}

static void open_rule(struct circles *s, uint32_t rule)
{
    s->index[rule] = s->low[rule] = ++s->n_found;
    s->circle[rule] = NOWHERE;
    s->open[s->n_open++] = rule;
    s->path[s->n_path++] = rule;
}

/* Looks at the calls of one leftmost position. Returns a rule that has to be searched first. */
static uint32_t look(struct circles *s, uint32_t rule, uint32_t position)
{
    const struct program *p = s->p;
    for (uint32_t e = p->positions[position].first_edge; e != NOWHERE; e = p->edges[e].next) {
        uint32_t other = program_callee(p, &p->edges[e]);
        if (other == NOWHERE) continue;
        if (other == rule) s->is_recursive[rule] = true;
        if (s->index[other] == 0) return other;
        if (s->circle[other] == NOWHERE && s->low[other] < s->low[rule])
            s->low[rule] = s->low[other];
    }
    return NOWHERE;
}

static void close_rule(struct circles *s, uint32_t rule)
{
    if (s->low[rule] != s->index[rule]) return;
    uint32_t n = 0, member;
    do {
        member = s->open[--s->n_open];
        s->circle[member] = s->n_circles;
        n++;
    } while (member != rule);
    if (n > 1)
        for (uint32_t i = 0; i < n; i++) s->is_recursive[s->open[s->n_open + i]] = true;
    s->n_circles++;
}

static void find_circles(struct circles *s)
{
    for (uint32_t r = 0; r < s->p->n_rules; r++) {
        if (s->index[r]) continue;
        open_rule(s, r);
        while (s->n_path) {
            uint32_t rule = s->path[s->n_path - 1], inner = NOWHERE;
            while (s->next_left[rule] < s->begin_left[rule + 1]) {
                inner = look(s, rule, s->leftmost[s->next_left[rule]]);
                if (inner != NOWHERE) break; /* and look at this position again afterwards */
                s->next_left[rule]++;
            }
            if (inner != NOWHERE) {
                open_rule(s, inner);
                continue;
            }
            s->n_path--;
            close_rule(s, rule);
        }
    }
}

/* ---- New networks ----------------------------------------------------------------------- */

struct rewriting {
    struct circles *s;
    uint32_t goal, circle;
    uint32_t *copies; /* rules of the circle: where the copy of their first position is */
    uint32_t final;
};

static bool is_inside(const struct rewriting *w, uint32_t rule)
{
    return rule != NOWHERE && w->s->circle[rule] == w->circle;
}

static uint32_t copy_of(const struct rewriting *w, uint32_t rule, uint32_t position)
{
    return w->copies[rule] + position - w->s->p->rules[rule].begin;
}

static void add_free(struct program *p, uint32_t from, uint32_t to)
{
    program_edge(p, from, (struct edge){.kind = EDGE_FREE, .target = to});
}

static void copy_rule(struct rewriting *w, uint32_t rule)
{
    struct program *p = w->s->p;
    struct rule r = p->rules[rule];
    w->copies[rule] = p->n_positions;
    for (uint32_t i = r.begin; i < r.end; i++) {
        uint32_t copy = program_position(p);
        if (p->bound || p->has_no_memory) return;
        p->positions[copy].flags = p->positions[i].flags & (uint8_t)~POSITION_FINAL;
    }
    for (uint32_t i = r.begin; i < r.end; i++) {
        for (uint32_t e = p->positions[i].first_edge; e != NOWHERE;) {
            struct edge edge = p->edges[e];
            e = edge.next;
            edge.target = copy_of(w, rule, edge.target);
            program_edge(p, copy_of(w, rule, i), edge);
        }
    }
}

/* What the new network begins with: the beginnings of `rule` that are not in the circle. */
static int add_beginnings(struct rewriting *w, uint32_t start, uint32_t rule,
                          struct carat_error *err)
{
    struct circles *s = w->s;
    struct program *p = s->p;
    for (uint32_t i = s->begin_left[rule]; i < s->begin_left[rule + 1]; i++) {
        uint32_t from = s->leftmost[i], begin = program_position(p);
        TRY(program_check(p, err));
        p->positions[begin].flags = p->positions[from].flags & (uint8_t)~POSITION_FINAL;
        add_free(p, start, begin);
        for (uint32_t e = p->positions[from].first_edge; e != NOWHERE;) {
            struct edge edge = p->edges[e];
            e = edge.next;
            if (edge.kind == EDGE_FREE) continue;
            if (is_inside(w, program_callee(p, &edge))) {
                if (edge.kind == EDGE_CALL) continue;
                return err_set(err, CARAT_EUNSUPPORTED,
                               "a rule begins with itself inside a repetition of more than %d "
                               "positions: that is not supported",
                               64);
            }
            edge.target = copy_of(w, rule, edge.target);
            program_edge(p, begin, edge);
        }
    }
    return CARAT_OK;
}

/* When a rule of the circle is complete, `rule` may go on after it where it begins with it. */
static void add_ascents(struct rewriting *w, uint32_t rule)
{
    struct circles *s = w->s;
    struct program *p = s->p;
    for (uint32_t i = s->begin_left[rule]; i < s->begin_left[rule + 1]; i++) {
        for (uint32_t e = p->positions[s->leftmost[i]].first_edge; e != NOWHERE;) {
            struct edge edge = p->edges[e];
            e = edge.next;
            if (edge.kind != EDGE_CALL || !is_inside(w, edge.arg)) continue;
            add_free(p, copy_of(w, edge.arg, p->rules[edge.arg].final),
                     copy_of(w, rule, edge.target));
        }
    }
}

static int rewrite_rule(struct rewriting *w, struct rule *out, struct carat_error *err)
{
    struct program *p = w->s->p;
    uint32_t n_rules = p->n_rules, begin = p->n_positions;
    uint32_t start = program_position(p), final = program_position(p);
    for (uint32_t r = 0; r < n_rules; r++) {
        if (!is_inside(w, r)) continue;
        copy_rule(w, r);
        TRY(program_check(p, err));
    }
    for (uint32_t r = 0; r < n_rules; r++) {
        if (!is_inside(w, r)) continue;
        TRY(add_beginnings(w, start, r, err));
        add_ascents(w, r);
    }
    add_free(p, copy_of(w, w->goal, p->rules[w->goal].final), final);
    TRY(program_check(p, err));
    p->positions[final].flags |= POSITION_FINAL;
    *out = p->rules[w->goal];
    out->start = start;
    out->final = final;
    out->begin = begin;
    out->end = p->n_positions;
    return CARAT_OK;
}

static int rewrite_all(struct circles *s, struct carat_error *err)
{
    struct program *p = s->p;
    uint32_t *copies = mem_alloc(p->n_rules, sizeof *copies);
    struct rule *rules = mem_alloc(p->n_rules, sizeof *rules);
    int status = CARAT_OK;
    if (!copies || !rules) status = err_no_memory(err, "grammar", p->n_rules * sizeof *rules);
    for (uint32_t r = 0; !status && r < p->n_rules; r++) {
        struct rewriting w = {.s = s, .goal = r, .circle = s->circle[r], .copies = copies};
        rules[r] = p->rules[r];
        if (s->is_recursive[r]) status = rewrite_rule(&w, &rules[r], err);
    }
    if (!status) memcpy(p->rules, rules, p->n_rules * sizeof *rules);
    mem_free(copies);
    mem_free(rules);
    return status;
}

int left_rewrite(struct program *p, struct carat_error *err)
{
    struct circles s;
    TRY(circles_init(&s, p, err));
    list_leftmost(&s);
    find_circles(&s);
    int status = rewrite_all(&s, err);
    circles_deinit(&s);
    return status;
}
