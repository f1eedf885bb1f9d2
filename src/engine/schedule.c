#include "engine/schedule.h"

/* The oldest prompt's share of rows is a multiple of this, which kernels compute together. */
enum { GRAIN = 64 };

static uint64_t effective_left(const struct schedule_item *s)
{
    uint64_t left = (uint64_t)(s->near < s->left ? s->near : s->left);
    uint64_t aged = s->waited / SCHEDULE_AGING;
    return (left > aged ? left - aged : 0) + s->excess;
}

bool schedule_is_before(const struct schedule_item *a, const struct schedule_item *b)
{
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->is_back != b->is_back) return a->is_back;
    uint64_t left_a = effective_left(a), left_b = effective_left(b);
    if (left_a != left_b) return left_a < left_b;
    return a->order < b->order;
}

/* Restores the heap below `i`: each entry comes after both of its children. */
static void sift(const struct schedule_item *items, int32_t *heap, int32_t i, int32_t n)
{
    for (;;) {
        int32_t last = i;
        for (int32_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
            if (schedule_is_before(&items[heap[last]], &items[heap[child]])) last = child;
        if (last == i) return;
        int32_t moved = heap[i];
        heap[i] = heap[last];
        heap[last] = moved;
        i = last;
    }
}

/* A heap sort: no memory, and no bad case. */
static void sort(const struct schedule_item *items, int32_t *order, int32_t n)
{
    for (int32_t i = 0; i < n; i++) order[i] = i;
    for (int32_t i = n / 2; i-- > 0;) sift(items, order, i, n);
    for (int32_t end = n; end-- > 1;) {
        int32_t moved = order[0];
        order[0] = order[end];
        order[end] = moved;
        sift(items, order, 0, end);
    }
}

/* The oldest item of the highest priority; -1: there are none. */
static int32_t oldest(const struct schedule_item *items, int32_t n)
{
    int32_t found = -1;
    for (int32_t i = 0; i < n; i++) {
        if (found >= 0 && items[i].priority < items[found].priority) continue;
        if (found < 0 || items[i].priority > items[found].priority ||
            items[i].order < items[found].order)
            found = i;
    }
    return found;
}

static int32_t give(struct schedule_item *s, int32_t rows)
{
    int32_t left = s->left - s->rows;
    int32_t given = left < rows ? left : rows;
    s->rows += given;
    return given;
}

void schedule_prompts(struct schedule_item *items, int32_t n, int32_t rows, int32_t *order)
{
    for (int32_t i = 0; i < n; i++) items[i].rows = 0;
    sort(items, order, n);
    int32_t first = oldest(items, n);
    if (first < 0) return;
    int32_t share = (rows + SCHEDULE_SHARE - 1) / SCHEDULE_SHARE;
    if (rows >= SCHEDULE_SHARE * GRAIN) share = (share + GRAIN - 1) / GRAIN * GRAIN;
    rows -= give(&items[first], share);
    for (int32_t i = 0; i < n && rows > 0; i++) rows -= give(&items[order[i]], rows);
}

int32_t schedule_next(const struct schedule_item *items, int32_t n, uint64_t n_admitted)
{
    int32_t next = oldest(items, n);
    bool is_turn = n_admitted % SCHEDULE_TURN == SCHEDULE_TURN - 1;
    for (int32_t i = 0; i < n; i++) {
        const struct schedule_item *a = &items[i], *b = &items[next];
        bool is_returning = a->is_back && a->priority == b->priority;
        if ((!is_turn || is_returning) && schedule_is_before(a, b)) next = i;
    }
    return next;
}

bool schedule_yields(const struct schedule_item *victim, const struct schedule_item *s)
{
    if (victim->is_paused != s->is_paused) return victim->is_paused;
    if (victim->priority != s->priority) return victim->priority < s->priority;
    return victim->order > s->order;
}
