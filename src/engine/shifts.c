#include "engine/shifts.h"

#include <math.h>
#include <stdlib.h>

enum {
    ROWS_LEAST = 32,
    STEPS_EACH = 4,   /* of a try: the fastest one counts */
    STEPS_KEPT = 256, /* to the next try */
    DRIFT = 16        /* a try holds until n has changed by one in so many */
};
#define GAIN 0.95 /* the time for a row must fall to this before shifts begin */

void shifts_init(struct shifts *s, int32_t least)
{
    *s = (struct shifts){.least = ROWS_LEAST, .tried = 2 * STEPS_EACH};
    while (s->least < least) s->least *= 2;
}

/* The largest power of two below n, if n is slightly above it; else 0. */
static int32_t size_for(const struct shifts *s, int32_t n)
{
    int32_t size = s->least;
    while (2 * size < n) size *= 2;
    return n > size && n <= size + size / 2 ? size : 0;
}

static bool is_trying(const struct shifts *s)
{
    return s->tried < 2 * STEPS_EACH;
}

static void begin_try(struct shifts *s, int32_t n, int32_t size)
{
    if (size != s->size) s->are_better = false;
    s->n = n;
    s->size = size;
    s->tried = 0;
    s->seconds[0] = s->seconds[1] = INFINITY;
}

static void end_try(struct shifts *s)
{
    s->are_better = s->seconds[1] < s->seconds[0] * (s->are_better ? 1.0 : GAIN);
    s->since = 0;
}

int32_t shifts_rows(struct shifts *s, int32_t n)
{
    int32_t size = size_for(s, n);
    s->given = 0;
    if (size == 0) return n;
    bool is_old = size != s->size || abs(n - s->n) > n / DRIFT;
    if (is_old || (!is_trying(s) && s->since >= STEPS_KEPT)) begin_try(s, n, size);
    bool is_other = is_trying(s) && s->tried % 2; /* in turns with what was better */
    s->is_shift = s->are_better != is_other;
    s->given = s->is_shift ? size : n;
    return s->given;
}

void shifts_note(struct shifts *s, int32_t rows, double seconds)
{
    if (rows == 0 || rows != s->given || !(seconds > 0)) return;
    if (!is_trying(s)) {
        s->since++;
        return;
    }
    double *least = &s->seconds[s->is_shift];
    *least = fmin(*least, seconds / rows);
    s->tried++;
    if (!is_trying(s)) end_try(s);
}
