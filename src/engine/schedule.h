/* Who comes next: which requests are admitted, which prompts get the rows of a step, and who has to
 * make room. Pure: works on plain structs, knows no time, memory or model.
 *
 * Order: higher priorities first. Within one priority the prompt with the fewest rows left is
 * first, where
 *   - rows that others were given since it came count in its favour (AGING of them for one), down
 *     to "nothing left", so that in an overload the order becomes that of arrival;
 *   - rows that its fairness key has had more than the least served key count against it.
 * Equal ones go in the order of arrival. Whatever the order says, the oldest prompt of the highest
 * priority gets a third of a step's prompt rows, and every fourth admission is the oldest
 * request's: a stream of short prompts makes a long one at most four times as slow. (A quarter of
 * the rows is not enough: the others need logits too, and then decode.) */
#ifndef ENGINE_SCHEDULE_H
#define ENGINE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SCHEDULE_AGING = 16, /* rows given to anybody for one that counts as done */
    SCHEDULE_SHARE = 3,  /* 1 row of 3 is the oldest prompt's */
    SCHEDULE_TURN = 4    /* 1 admission of 4 is the oldest request's */
};

/* A request as the scheduler sees it. */
struct schedule_item {
    bool is_paused;   /* wants nothing now: makes room before all others */
    int32_t priority; /* higher first */
    bool is_back;     /* it was running before: the first of its priority */
    uint64_t order;   /* of arrival; no two are equal */
    int32_t position; /* of its next row */
    int32_t left;     /* rows that it still wants */
    int32_t near;     /* rows until something that others wait for; `left` if nobody waits */
    uint64_t waited;  /* rows given to anybody since it came */
    uint64_t excess;  /* rows its key has had more than the least served one */
    int32_t rows;     /* result of schedule_prompts */
};

/* Whether a is before b. */
bool schedule_is_before(const struct schedule_item *a, const struct schedule_item *b);

/* Shares out `rows` rows of a step among prompts: fills in `rows` of each item. `order` is room for
 * n numbers; afterwards it lists the items, the first one first. */
void schedule_prompts(struct schedule_item *items, int32_t n, int32_t rows, int32_t *order);

/* The request to admit next; `n_admitted` were admitted before. -1: there are none. */
int32_t schedule_next(const struct schedule_item *items, int32_t n, uint64_t n_admitted);

/* Whether `victim` is stopped before `s` to make room: it is paused, has a lower priority, or came
 * later. */
bool schedule_yields(const struct schedule_item *victim, const struct schedule_item *s);

#endif
