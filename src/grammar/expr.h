/* Expressions: what a grammar is built from, before it becomes an automaton (program.h).
 *
 * Rules
 * 1. A builder owns everything that its functions return. An expression does not change and may
 *    stand in several places.
 * 2. A function returns NULL when the builder has failed: no memory, or a bound was passed. NULL
 *    arguments give NULL. So a compiler checks once, at its end: builder_check.
 * 3. Only rules make recursion. */
#ifndef GRAMMAR_EXPR_H
#define GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "carat.h"

enum {
    EXPR_DEPTH_MAX = 400,        /* expressions inside each other, without rules */
    GRAMMAR_RULES_MAX = 16384,   /* named ones and those that are made for repetitions */
    BUILDER_BYTES_MAX = 1 << 25, /* of all expressions */
    CODE_POINT_MAX = 0x10FFFF,
};
#define EXPR_NO_LIMIT UINT32_MAX

struct char_range {
    uint32_t first, last; /* code points */
};

enum expr_kind {
    EXPR_EMPTY,
    EXPR_NEVER,     /* matches nothing at all */
    EXPR_BYTES,     /* bytes */
    EXPR_CLASS,     /* ranges: one code point */
    EXPR_TOKEN,     /* id */
    EXPR_NOT_TOKEN, /* id: any other one, except those that end an answer */
    EXPR_SEQ,       /* items */
    EXPR_EITHER,    /* items */
    EXPR_REPEAT,    /* item, least, most */
    EXPR_LIST,      /* item (separator item)*, or nothing if least is 0 */
    EXPR_MEMBERS,   /* at least one of the items, in order; separators between */
    EXPR_RULE,      /* rule */
};

struct expr {
    uint8_t kind; /* enum expr_kind */
    uint16_t depth;
    uint32_t n; /* bytes, ranges, items */
    union {
        const char *bytes;
        const struct char_range *ranges; /* sorted, apart from each other */
        const struct expr **items;
        int32_t id;
        int32_t rule;
    } as;
    uint32_t least, most;
    const struct expr *separator;
    const bool *is_required; /* MEMBERS: n */
};

struct rule_body {
    const char *name;
    const struct expr *body; /* NULL: not defined yet */
};

struct expr_builder {
    struct arena arena;
    struct rule_body *rules; /* n_rules */
    int32_t n_rules, rules_capacity;
    bool has_no_memory;
    const char *bound; /* the bound that was passed, or NULL */
};

void builder_deinit(struct expr_builder *b); /* a zeroed builder is a valid empty one */

/* CARAT_EMEMORY, or CARAT_EUNSUPPORTED with the bound that was passed. */
int builder_check(const struct expr_builder *b, struct carat_error *err);

const struct expr *expr_empty(struct expr_builder *b);
const struct expr *expr_never(struct expr_builder *b);
const struct expr *expr_bytes(struct expr_builder *b, const char *bytes, size_t length);
const struct expr *expr_text(struct expr_builder *b, const char *text); /* up to its NUL */
/* One code point in (or outside of) any of `n` ranges, which may overlap; never a surrogate. */
const struct expr *expr_class(struct expr_builder *b, const struct char_range *ranges, size_t n,
                              bool is_negated);
/* One id: a special token, or a plain one as such. Negative: never. */
const struct expr *expr_token(struct expr_builder *b, int32_t id);
const struct expr *expr_not_token(struct expr_builder *b, int32_t id);
const struct expr *expr_seq(struct expr_builder *b, const struct expr *const *items, size_t n);
/* One expression and then another one. */
const struct expr *expr_then(struct expr_builder *b, const struct expr *first,
                             const struct expr *second);
const struct expr *expr_either(struct expr_builder *b, const struct expr *const *items, size_t n);
const struct expr *expr_repeat(struct expr_builder *b, const struct expr *item, uint32_t least,
                               uint32_t most);
const struct expr *expr_optional(struct expr_builder *b, const struct expr *item);
/* `item` stands once in the automaton unless the list is counted. */
const struct expr *expr_list(struct expr_builder *b, const struct expr *item,
                             const struct expr *separator, uint32_t least, uint32_t most);
/* At least one member. */
struct expr_member {
    const struct expr *item;
    bool is_required;
};
const struct expr *expr_members(struct expr_builder *b, const struct expr_member *members, size_t n,
                                const struct expr *separator);

/* Items that are collected one after another, for seq and either. Compilers that are recursive
 * share one and remember where theirs begin. */
struct expr_stack {
    const struct expr **items;
    size_t n, capacity;
};
void expr_push(struct expr_builder *b, struct expr_stack *s, const struct expr *item);
/* Takes the items from `begin` on off the stack. */
const struct expr *expr_pop_seq(struct expr_builder *b, struct expr_stack *s, size_t begin);
const struct expr *expr_pop_either(struct expr_builder *b, struct expr_stack *s, size_t begin);
void expr_stack_deinit(struct expr_stack *s);

/* A rule: its number, or -1. The name is copied. Its body may use it. */
int32_t rule_add(struct expr_builder *b, const char *name, size_t length);
void rule_set(struct expr_builder *b, int32_t rule, const struct expr *body);
const struct expr *expr_rule(struct expr_builder *b, int32_t rule);

#endif
