/* The engine of carat.h: requests, their sequences and events, on top of a runner.
 *
 *   engine.c   opens and closes; takes requests and cancels them
 *   step.c     carat_step: ends, admits, shares out rows, runs, hands out
 *   drafting.c guesses of the next tokens, also by a drafter
 *   admit.c    gives slots to requests that wait
 *   room.c     takes pages for the rows of a step; stops requests to make room
 *   masks.c    computes grammar masks while the device computes
 *   results.c  what a step gives to a sequence: its next token, or its end
 *   request.c  shared by these: moves a request to a slot, back to the queue, to its end
 *   prefixes.c saves what the prefix cache holds, and takes it in again */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/batch.h"
#include "engine/cancel.h"
#include "engine/events.h"
#include "engine/fairness.h"
#include "engine/model_file.h"
#include "engine/paging.h"
#include "engine/rows.h"
#include "engine/sequence.h"
#include "engine/shifts.h"

struct carat_engine {
    const carat_model *model;
    struct runner *runner;
    struct arena arena;           /* everything below; sealed after opening */
    struct step step, draft_step; /* rows of the model; of a pass of the drafter */
    struct paging paging;
    struct prefix_watch cache_watch;
    carat_on_cache_fn on_cache; /* NULL: none */
    void *on_cache_user;
    struct sequence *requests;   /* [n_requests] places, running and queued ones alike */
    struct cancel_slot *cancels; /* one per place; other threads touch nothing else */
    int32_t n_requests, end;     /* places from `end` on are free */
    struct sequence **slots;     /* [n_seq]: who runs there; NULL: nobody */
    struct events events;
    struct fairness fairness;
    struct pace pace;
    struct shifts shifts;
    int32_t next_left; /* where the search for those whom a shift leaves out goes on */
    double step_end;   /* when the last step ended, if it left work to do; else 0 */
    int32_t step_rows; /* the most that a step has */
    int32_t n_draft;   /* guesses of a sequence in a step, at most */
    bool is_apart;     /* prompts and those that decode take turns, */
    bool has_read;     /* and it was the prompts' turn last */
    bool has_cache;
    bool is_exact, is_steady; /* options that keys and values depend on */
    /* Room for the scheduler: items, their sequences, and their order. [n_requests] */
    struct schedule_item *items;
    struct sequence **whose;
    int32_t *order;
    struct draft **drafts;        /* of sequences that may guess in this step. [n_seq] */
    struct draft_chances chances; /* of the guesses of all sequences */
    double pass_seconds;          /* what a pass of the drafter takes; 0: not known yet */
    double drafting_seconds;      /* what passes took in this step */
    int32_t *suppressed;
    size_t n_suppressed;
    carat_request_id last_request;
    uint64_t n_admitted;
    struct carat_stats stats;
};

/* What an engine's runner is made from. `options` are those of options_copy. */
struct layout_source engine_source(const carat_model *model,
                                   const struct carat_engine_options *options);

static inline bool engine_is_idle(const carat_engine *e)
{
    return e->end == 0;
}

/* The most rows of a step with guesses, each of which may be a token; 0: nothing is guessed. */
static inline int32_t engine_draft_rows(const carat_engine *e)
{
    return e->n_draft > 0 ? e->runner->layout.draft_rows : 0;
}

/* Whether a step has something to do: some request is not paused. */
bool engine_has_work(const carat_engine *e);

#endif
