/* Runs a program byte by byte. A state is a set of configurations: a position and a stack of frames
 * to come back to. Frames are shared by all stacks, equal frames and equal states exist once, and
 * what a byte makes of a state is remembered: after a while a step is one look-up.
 *
 * Rules
 * 1. Everything is allocated by machine_open. When the tables are full, calls answer MACHINE_FULL;
 *    then machine_compact keeps what the marked states need, and the call can be repeated.
 * 2. One thread at a time.
 * 3. Numbers of states hold until the next machine_compact. */
#ifndef GRAMMAR_MACHINE_H
#define GRAMMAR_MACHINE_H

#include "grammar/program.h"

enum {
    MACHINE_STATES_MAX = 4096,
    MACHINE_FRAMES_MAX = 1 << 15,
    MACHINE_CONFIGS_MAX = 1 << 17, /* of all states */
    MACHINE_WIDTH_MAX = 4096,      /* configurations of one state: alternatives at once */
    MACHINE_DEPTH_MAX = 256,       /* frames of a stack: what would push more is refused */
};

/* Numbers of states. */
enum { MACHINE_FULL = 0, MACHINE_DEAD = 1, MACHINE_FIRST = 2 };

struct machine_state {
    uint32_t first_config, n_configs;
    bool is_complete;  /* the text so far is one that the grammar takes */
    bool has_tokens;   /* some ids lead on */
    bool is_plain;     /* all plain characters lead to the same state (see index.h) */
    bool takes_plain;  /* some plain character may lead on */
    uint64_t bytes[4]; /* which bytes may lead on */
};

struct machine;

/* The program must outlive the machine. CARAT_EMEMORY: *out is NULL. */
int machine_open(struct machine **out, const struct program *p, struct carat_error *err);
void machine_close(struct machine *m); /* NULL is fine */

uint32_t machine_start(struct machine *m);
uint32_t machine_byte(struct machine *m, uint32_t state, uint8_t byte);
/* An id as such, not its bytes. `is_stop`: it ends an answer. */
uint32_t machine_token(struct machine *m, uint32_t state, int32_t id, bool is_stop);

/* The state that takes what either of two states takes. Neither is MACHINE_FULL. */
uint32_t machine_either(struct machine *m, uint32_t a, uint32_t b);

/* Never for MACHINE_FULL. Borrowed until the next call that makes states. */
const struct machine_state *machine_state(const struct machine *m, uint32_t state);

/* Calls `add` for each id with which machine_token leads on, as far as single ids are named.
 * Returns whether also any other id does, except *excluded; -1: no id is excluded. */
typedef void (*machine_id_fn)(void *user, int32_t id);
bool machine_tokens(const struct machine *m, uint32_t state, machine_id_fn add, void *user,
                    int32_t *excluded);

/* Makes room: mark the states that are still needed, compact, ask for their new numbers, and at
 * last forget the marks. All other states are dropped. */
void machine_mark(struct machine *m, uint32_t state);
void machine_compact(struct machine *m);
uint32_t machine_moved(const struct machine *m, uint32_t state); /* 0: it was dropped */
void machine_forget_marks(struct machine *m);

/* Whether some alternative was ever dropped because of a bound. */
bool machine_was_cut(const struct machine *m);

#endif
