/* Which engine a prompt goes to: the one that has read the longest beginning of it lately, unless
 * that one has far more to do than the least loaded one. Of several that have read equally much,
 * the one that served the prompt's session last.
 *
 * Beginnings are known in blocks of AFFINITY_BLOCK tokens, by a hash of the salt and of all tokens
 * up to the block's end. The table has a fixed size; what was read longest ago is forgotten first.
 *
 * "Far more": a match saves reading n_matched tokens. So an engine may have that much more work
 * than the least loaded one, and one job more for each AFFINITY_SLACK of its sequences. Where
 * neither a match nor a session decides, the least loaded engine is taken, and of equal ones the
 * first.
 *
 * Pure but for its table: no clock, no thread, no engine. */
#ifndef SERVER_AFFINITY_H
#define SERVER_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carat_status.h"

struct affinity;

enum {
    AFFINITY_BLOCK = 64,       /* tokens: nothing shorter is used again */
    AFFINITY_ENTRIES = 131072, /* blocks that are remembered, of all engines */
    AFFINITY_ENGINES_MAX = 64,
    AFFINITY_JOB = 256, /* work of an answer, in tokens of a prompt */
    AFFINITY_SLACK = 4  /* sequences */
};

struct affinity_load {
    int64_t work;  /* tokens of prompts that are not read, and AFFINITY_JOB for each job */
    int32_t n_seq; /* sequences side by side */
    bool is_out;   /* takes no jobs */
};

struct affinity_choice {
    int32_t engine;    /* -1: all are out */
    int32_t n_matched; /* tokens that it has read lately */
};

/* CARAT_EMEMORY; CARAT_EUSAGE: more than AFFINITY_ENGINES_MAX engines. */
int affinity_open(struct affinity **out, size_t n_engines, struct carat_error *err);
void affinity_close(struct affinity *a); /* NULL is fine */

struct affinity_prompt {
    uint64_t salt;    /* prompts of different ones have nothing in common */
    uint64_t session; /* of this salt; 0: none */
    const int32_t *ids;
    size_t n;
    bool is_private; /* matches nothing, and is not remembered */
};

/* Chooses, and remembers that this engine reads the prompt now. `loads`: one for each engine. */
struct affinity_choice affinity_choose(struct affinity *a, const struct affinity_load *loads,
                                       const struct affinity_prompt *prompt);

#endif
