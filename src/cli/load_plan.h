/* The requests of a load, drawn from a seed before anything runs: who asks when, with how many
 * tokens, and which. Equal groups and seeds give equal requests, on every machine. */
#ifndef CLI_LOAD_PLAN_H
#define CLI_LOAD_PLAN_H

#include <stdbool.h>

#include "base/rng.h"
#include "cli/load_spec.h"

struct load_request {
    int32_t group, chat, turn; /* turn from 0 */
    int32_t before, next;      /* requests of the chat's turns before and after it; -1: none */
    int32_t root;              /* the request of its first turn */
    bool is_warmup;
    double at;          /* a first turn of an open loop: seconds since its group began; else 0 */
    int32_t n_prefix;   /* shared tokens that the prompt begins with; 0 in later turns */
    int32_t n_new;      /* tokens after them, or after the last answer */
    int32_t n_out;      /* tokens of the answer */
    double cancel_when; /* < 0: never. [0, 1): in the queue, [1, 2): after this share + 1 of the
                           prompt, [2, 3): after this share + 2 of the answer */
};

struct load_plan {
    const struct load_group *groups;
    size_t n_groups;
    uint64_t seed;
    int32_t repetition; /* draws other tokens, but the same lengths and times */
    struct load_request *requests;
    size_t n;
    size_t first[LOAD_GROUPS_MAX + 1]; /* of each group in `requests`, its warm-up first */
};

/* The groups are borrowed. CARAT_EMEMORY. Owned: load_plan_deinit. */
int load_plan_init(struct load_plan *plan, const struct load_group *groups, size_t n_groups,
                   uint64_t seed, struct carat_error *err);
void load_plan_deinit(struct load_plan *plan);

/* Writes the n_prefix + n_new tokens that the request adds to its chat: ids below n_vocab that are
 * not banned (NULL: none is; at least one must remain). */
void load_plan_tokens(const struct load_plan *plan, const struct load_request *request,
                      int32_t n_vocab, const bool *is_banned, int32_t *out);

#endif
