/* The object behind carat_grammar: a program, the machine that runs it, and masks that were costly
 * to compute. What it accepts never changes, and any thread may use it: the machine and the masks
 * only remember what follows from the program, under a lock.
 *
 * A request sees it through state.h. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <pthread.h>

#include "grammar/expr.h"
#include "grammar/index.h"
#include "grammar/machine.h"
#include "grammar/mask.h"

struct grammar_options {
    int32_t trigger; /* < 0: the root rule from the first token on. Else text is free until this id,
                        with which the root rule begins; free again when the rule is complete */
    bool takes_thoughts; /* thoughts may come before anything that the root rule takes */
    int32_t call; /* > 0: the id that begins a call of a tool, and so ends a thought. It is the one
                     thing in thoughts that is not free */
};

/* A place in the machine that must survive compacting. */
struct grammar_user {
    struct grammar_user *next, *previous;
    uint32_t at;
};

enum { GRAMMAR_MASKS = 16 };

struct cached_mask {
    uint32_t at; /* 0: empty */
    uint64_t last_use;
    uint64_t *bits;
};

struct carat_grammar {
    struct program program;
    const struct token_index *index;
    struct grammar_options options;
    pthread_mutex_t lock; /* for all below */
    struct machine *machine;
    struct masker *masker;
    struct grammar_user start, *users;
    struct cached_mask masks[GRAMMAR_MASKS];
    uint64_t n_uses;
};

/* Compiles rule `root` of the builder, which is not needed afterwards. The index must outlive the
 * grammar. CARAT_EUSAGE: no text fits. CARAT_EUNSUPPORTED: a bound was passed, with its name. */
int grammar_open(carat_grammar **out, const struct expr_builder *b, int32_t root,
                 const struct token_index *index, const struct grammar_options *options,
                 struct carat_error *err);
void grammar_close(carat_grammar *g); /* NULL is fine */

void grammar_add_user(carat_grammar *g,
                      struct grammar_user *user);                 /* user->at is set to the start */
void grammar_return(carat_grammar *g, struct grammar_user *user); /* back to the start */
void grammar_remove_user(carat_grammar *g, struct grammar_user *user);

enum grammar_answer {
    GRAMMAR_NO,
    GRAMMAR_YES,
    GRAMMAR_FULL, /* more memory would be needed than there is */
};
/* Whether an id may come next, according to the grammar; with `moves` the user goes there. */
enum grammar_answer grammar_step(carat_grammar *g, struct grammar_user *user, int32_t id,
                                 bool moves);
bool grammar_is_complete(carat_grammar *g, const struct grammar_user *user);

/* Bits of the ids that grammar_step allows, and of stop ids where the text is complete. Costly ones
 * are remembered. False: as GRAMMAR_FULL. */
bool grammar_mask(carat_grammar *g, const struct grammar_user *user, uint64_t *bits);

/* At most `most` ids that are likely to come after `last`, because the grammar leaves nothing else
 * but blanks: names of members, marks between values. Returns how many. */
int32_t grammar_expect(carat_grammar *g, const struct grammar_user *user, int32_t last,
                       int32_t *ids, int32_t most);

#endif
