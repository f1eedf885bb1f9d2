/* A compiled grammar: positions and edges, one network for each rule. A call leaves a network for
 * another one and comes back, which is what the stacks of machine.h are for.
 *
 * Built in three passes: lower.c makes networks of expressions, left.c rewrites those that begin
 * with a call of themselves, program_finish drops what leads nowhere and sorts the edges.
 * After that it does not change: any thread may use it. */
#ifndef GRAMMAR_PROGRAM_H
#define GRAMMAR_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    PROGRAM_POSITIONS_MAX = 1 << 19,
    PROGRAM_EDGES_MAX = 1 << 20,
};
#define NOWHERE UINT32_MAX

enum edge_kind {
    EDGE_FREE,      /* takes nothing */
    EDGE_BYTES,     /* a byte of low..high */
    EDGE_TOKEN,     /* the id `arg` */
    EDGE_NOT_TOKEN, /* any id but `arg` and those that end an answer */
    EDGE_CALL,      /* the rule `arg`, not empty */
    EDGE_REPEAT,    /* the repetition `arg`, not empty */
};

struct edge {
    uint32_t target, arg;
    uint32_t next; /* of the same position; NOWHERE: the last. While building */
    uint8_t kind, low, high;
};

/* What a position does with plain characters: printable ones that JSON strings take as they are
 * (index.h). No flag: with none of them. */
enum position_flag {
    POSITION_FINAL = 1,  /* its rule is complete */
    POSITION_ALL = 2,    /* each plain character leads to the same place */
    POSITION_SOME = 4,   /* it depends on the character */
    POSITION_RETURN = 8, /* FINAL, and nothing else: a call that comes back here needs no stack */
};

struct position {
    uint32_t first_edge; /* into edges; while building a list through `next` */
    uint32_t n_edges;
    uint8_t flags;
};

struct rule {
    uint32_t start, final;
    uint32_t begin, end; /* its positions */
    bool is_nullable;
    bool can_end;
};

struct repeat {
    uint32_t rule, least, most; /* most UINT32_MAX: no limit */
};

struct program {
    struct position *positions;
    struct edge *edges;
    struct rule *rules;
    struct repeat *repeats;
    uint32_t n_positions, n_edges, n_rules, n_repeats;
    uint32_t positions_capacity, edges_capacity, rules_capacity, repeats_capacity;
    uint32_t root; /* a rule */
    bool has_no_memory;
    const char *bound; /* the bound that was passed, or NULL */
};

void program_deinit(struct program *p);
int program_check(const struct program *p, struct carat_error *err);

/* While building. They return 0, which is a position too, after a failure: program_check. */
uint32_t program_position(struct program *p);
void program_edge(struct program *p, uint32_t from, struct edge edge);
uint32_t program_rule(struct program *p);
uint32_t program_repeat(struct program *p, struct repeat repeat);

/* The rule that an edge calls, or NOWHERE. */
uint32_t program_callee(const struct program *p, const struct edge *e);

/* Sets is_nullable and can_end of every rule, and makes a free way around each call that may be
 * empty. CARAT_EUSAGE: the root rule can never end. */
int program_analyse(struct program *p, struct carat_error *err);

/* Drops edges from which no rule can end, and stores the edges of each position next to each
 * other. */
int program_finish(struct program *p, struct carat_error *err);

#endif
