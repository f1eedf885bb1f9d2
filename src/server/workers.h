/* A few threads for what takes longer than the thread of the server may: reading bodies, rendering
 * templates, tokenising, compiling grammars. One bounded queue, in the order of arrival; but one
 * thread leaves large work to the others, so that small work never waits for it alone. */
#ifndef SERVER_WORKERS_H
#define SERVER_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct workers;

struct work { /* a member of what is worked on */
    struct work *next, *previous;
    void *owner;
    bool is_large; /* set before workers_add */
    bool is_queued;
};

/* `run` is called with each owner in one of `n` threads, and hands it on at its end. */
typedef void (*workers_fn)(void *user, void *owner);
int workers_open(struct workers **out, int n, int32_t queue_max, workers_fn run, void *user,
                 struct carat_error *err);
/* Waits for the threads to end what they are at; what is queued is not begun. NULL is fine. */
void workers_close(struct workers *w);

bool workers_add(struct workers *w, struct work *work); /* false: the queue is full */
/* True: it had not begun and will not. False: `run` has it, or is done with it. */
bool workers_withdraw(struct workers *w, struct work *work);
int32_t workers_waiting(struct workers *w);

#endif
