#include "engine/pace.h"

#define SIGMAS 2.0
#define NO_LIMIT 3600.0
#define MARGIN 0.02 /* of the limit: what the caller does between two steps */

enum {
    ROWS_LEAST = 16, /* a prompt goes on, whatever the limit says */
    ROWS_TILE = 64,  /* products compute so many rows of a step together */
    GROWTH = 2       /* at most so many times the largest step that was measured */
};

void pace_init(struct pace *p, double limit)
{
    *p = (struct pace){.limit = limit};
}

static void decode_features(const struct pace_step *s, double *x)
{
    x[0] = 1;
    x[1] = s->n_decode;
    x[2] = s->decode_positions;
}

static void mixed_features(const struct pace_step *s, double *x)
{
    x[0] = 1;
    x[1] = (double)s->n_decode + s->n_prompt;
    x[2] = s->prompt_positions;
    x[3] = s->decode_positions;
    x[4] = s->n_decode > 0;
}

/* The first measurement sets the scale: nothing else tells a fast device from a slow one. Rows that
 * it does not explain are assumed to be expensive. */
static void begin_decode(struct estimate *e, const struct pace_step *s, double seconds)
{
    double row = seconds / (s->n_decode + 8);
    const double theta[] = {8 * row, row, row / (1 << 15)};
    const double spread[] = {seconds, 2 * row, row / (1 << 13)};
    estimate_init(e, 3, theta, spread);
}

static void begin_mixed(struct estimate *e, const struct pace_step *s, double seconds)
{
    double row = seconds / (s->n_decode + s->n_prompt);
    const double theta[] = {0.3 * seconds, 0.7 * row, row / (1 << 17), row / (1 << 17), 0};
    const double spread[] = {0.5 * seconds, row, row / (1 << 16), row / (1 << 16), 0.3 * seconds};
    estimate_init(e, 5, theta, spread);
}

void pace_note(struct pace *p, const struct pace_step *s, double seconds)
{
    double x[ESTIMATE_FEATURES];
    if (seconds <= 0 || s->n_decode + s->n_prompt <= 0) return;
    if (s->n_prompt == 0) {
        if (p->decode.n == 0) begin_decode(&p->decode, s, seconds);
        decode_features(s, x);
        estimate_learn(&p->decode, x, seconds);
        if (s->n_decode > p->widest) p->widest = s->n_decode;
        return;
    }
    if (p->mixed.n == 0) begin_mixed(&p->mixed, s, seconds);
    mixed_features(s, x);
    estimate_learn(&p->mixed, x, seconds);
    p->largest -= p->largest / 256;
    if (s->n_prompt > p->largest) p->largest = s->n_prompt;
}

static double limit_of(const struct pace *p, const struct pace_step *step)
{
    double x[ESTIMATE_FEATURES];
    decode_features(step, x);
    double twice = 2 * estimate_mean(&p->decode, x);
    return (twice > p->limit ? twice : p->limit) * (1 - MARGIN);
}

static bool fits(const struct pace *p, const struct pace_step *step, double position, int32_t rows,
                 double limit)
{
    struct pace_step s = *step;
    double x[ESTIMATE_FEATURES];
    s.n_prompt = rows;
    s.prompt_positions = position * rows;
    mixed_features(&s, x);
    return estimate_high(&p->mixed, x, SIGMAS) <= limit;
}

/* Rows that fill the tiles of a step, with the decode rows in them. */
static int32_t whole(int32_t rows, int32_t n_decode)
{
    int32_t filling = (rows + n_decode) / ROWS_TILE * ROWS_TILE - n_decode;
    return filling >= ROWS_LEAST ? filling : rows / ROWS_LEAST * ROWS_LEAST;
}

int32_t pace_rows(const struct pace *p, const struct pace_step *step, double share,
                  int32_t rows_max)
{
    if (p->limit >= NO_LIMIT) return rows_max;
    if (step->n_decode == 0 && (share >= 1 || p->mixed.n == 0)) return rows_max;
    /* Decode steps of unknown length: one step without prompt rows tells. */
    if (step->n_decode > 2 * p->widest) return 0;
    int32_t low = ROWS_LEAST, high = rows_max;
    if (high > GROWTH * p->largest) high = GROWTH * p->largest;
    if (p->mixed.n == 0 || high <= low) return low < rows_max ? low : rows_max;
    double limit = share * limit_of(p, step);
    double position = step->n_prompt > 0 ? step->prompt_positions / step->n_prompt : 0;
    if (fits(p, step, position, high, limit)) return high;
    while (high - low > ROWS_LEAST) { /* low fits, or is the least; high does not fit */
        int32_t middle = low + (high - low) / 2;
        if (fits(p, step, position, middle, limit))
            low = middle;
        else
            high = middle;
    }
    return whole(low, step->n_decode);
}
