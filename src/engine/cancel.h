/* Cancelling from any thread, without a lock. Each place for a request, queued or running, has a
 * cancel_slot. The engine's thread writes there which request has the place; other threads ask for
 * its end. Of two wishes for one place, the wish for the later request is kept. So a late wish for
 * a request that has ended cannot hide a wish for the next request. */
#ifndef ENGINE_CANCEL_H
#define ENGINE_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cancel_slot {
    _Atomic uint64_t running; /* the request that has the place; 0: none */
    _Atomic uint64_t wanted;  /* the last request whose end was asked for */
};

/* The engine's thread. */
static inline void cancel_begin(struct cancel_slot *slot, uint64_t request)
{
    atomic_store(&slot->running, request);
}

static inline void cancel_end(struct cancel_slot *slot)
{
    atomic_store(&slot->running, 0);
}

static inline bool cancel_is_wanted(struct cancel_slot *slot, uint64_t request)
{
    return atomic_load(&slot->wanted) == request;
}

/* Any thread; false if this request does not have the place. */
static inline bool cancel_ask(struct cancel_slot *slot, uint64_t request)
{
    if (request == 0 || atomic_load(&slot->running) != request) return false;
    uint64_t wanted = atomic_load(&slot->wanted);
    while (wanted < request && !atomic_compare_exchange_weak(&slot->wanted, &wanted, request)) {
    }
    return true;
}

#endif
