#include "engine/pace.h"

#include "engine/limits.h"

#define SIGMAS 1.0
#define NO_LIMIT 3600.0
#define MARGIN 0.02 /* of the limit: what the caller does between two steps */
#define SLACK 1.15  /* of the limit, where a prompt would otherwise go on many times slower */

enum {
    ROWS_LEAST = 16,  /* a prompt gets these, whatever the limit says */
    ROWS_TILE = 64,   /* products compute this many rows of a step together */
    GROWTH = 2,       /* at most this many times the largest step that was measured */
    TRIAL_EVERY = 16, /* steps */
    TRIALS_MAX = 6    /* each failed one doubles the steps to the next, at most this many times */
};

void pace_init(struct pace *p, double limit)
{
    *p = (struct pace){.limit = limit, .since_many = TRIAL_EVERY};
}

bool pace_has_limit(const struct pace *p)
{
    return p->limit < NO_LIMIT;
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
    x[5] = s->prompt_positions / s->n_prompt;
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
    const double theta[] = {0.3 * seconds, 0.7 * row, row / (1 << 17), row / (1 << 17), 0, 0};
    const double spread[] = {0.5 * seconds,   row,           row / (1 << 16),
                             row / (1 << 16), 0.3 * seconds, seconds / (1 << 16)};
    estimate_init(e, 6, theta, spread);
}

static double limit_of(const struct pace *p, const struct pace_step *step)
{
    double x[ESTIMATE_FEATURES];
    decode_features(step, x);
    double twice = 2 * estimate_mean(&p->decode, x);
    return (twice > p->limit ? twice : p->limit) * (1 - MARGIN);
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
    bool is_few = s->n_decode + s->n_prompt <= STEADY_ROWS;
    struct estimate *e = is_few ? &p->few : &p->many;
    if (e->n == 0) begin_mixed(e, s, seconds);
    mixed_features(s, x);
    estimate_learn(e, x, seconds);
    p->largest -= p->largest / 256;
    if (s->n_prompt > p->largest) p->largest = s->n_prompt;
    if (is_few && p->since_many < TRIAL_EVERY << TRIALS_MAX) p->since_many++;
    if (is_few || s->n_decode == 0) return;
    p->since_many = 0;
    bool is_slow = seconds > SLACK * limit_of(p, s);
    p->n_slow = !is_slow ? 0 : p->n_slow < TRIALS_MAX ? p->n_slow + 1 : TRIALS_MAX;
}

/* What this many prompt rows take, with `sigmas` standard deviations of doubt added. */
static double seconds_of(const struct estimate *e, const struct pace_step *step, int32_t rows,
                         double sigmas)
{
    struct pace_step s = *step;
    double x[ESTIMATE_FEATURES];
    double position = step->n_prompt > 0 ? step->prompt_positions / step->n_prompt : 0;
    s.n_prompt = rows;
    s.prompt_positions = position * rows;
    mixed_features(&s, x);
    return estimate_high(e, x, sigmas);
}

/* Rounds prompt rows down so that they fill whole tiles together with the decode rows. */
static int32_t whole(int32_t rows, int32_t n_decode)
{
    int32_t filling = (rows + n_decode) / ROWS_TILE * ROWS_TILE - n_decode;
    return filling >= ROWS_LEAST ? filling : rows / ROWS_LEAST * ROWS_LEAST;
}

/* The most rows, low to high, that fit into the limit; 0: not even `low`. */
static int32_t most_fitting(const struct estimate *e, const struct pace_step *step, int32_t low,
                            int32_t high, double limit)
{
    if (e->n == 0 || low > high || seconds_of(e, step, low, SIGMAS) > limit) return 0;
    if (seconds_of(e, step, high, SIGMAS) <= limit) return high;
    int32_t least = low;
    while (high - low > ROWS_LEAST) { /* low fits, high does not */
        int32_t middle = low + (high - low) / 2;
        *(seconds_of(e, step, middle, SIGMAS) <= limit ? &low : &high) = middle;
    }
    int32_t rows = whole(low, step->n_decode);
    return rows > least ? rows : least;
}

/* Whether to take the smallest step of many rows although no such step fits into the limit. A few
 * rows of a prompt with many keys take about as long, so exceeding the limit a little is better.
 * Now and then such a step is tried whatever the estimate says, because the first ones may have
 * been slow by chance. It is not tried if even a few rows take too long, as on a CPU, where every
 * row takes its time. */
static bool is_worth_trying(const struct pace *p, const struct pace_step *step, int32_t rows,
                            double limit)
{
    int32_t few = STEADY_ROWS - step->n_decode;
    if (p->many.n > 0 && seconds_of(&p->many, step, rows, 0) <= SLACK * limit) return true;
    if (p->since_many < TRIAL_EVERY << p->n_slow || p->few.n == 0) return false;
    return few <= 0 || seconds_of(&p->few, step, few, 0) <= 1.5 * limit;
}

int32_t pace_rows(const struct pace *p, const struct pace_step *step, double share,
                  int32_t rows_max)
{
    bool is_new = p->few.n == 0 && p->many.n == 0;
    if (!pace_has_limit(p)) return rows_max;
    bool is_alone = step->n_decode == 0 && !step->is_awaited;
    if (is_alone && (share >= 1 || is_new)) return rows_max;
    /* How long such a decode step takes is not known yet: one step without prompt rows shows it. */
    if (step->n_decode > 2 * p->widest) return 0;
    double limit = share * limit_of(p, step);
    int32_t few = STEADY_ROWS - step->n_decode;
    int32_t low = few > 0 ? few + ROWS_TILE : 1, high = rows_max;
    if (high > GROWTH * p->largest) high = GROWTH * p->largest;
    int32_t rows = most_fitting(&p->many, step, low, high, limit);
    if (rows > 0) return rows;
    if (low <= rows_max && is_worth_trying(p, step, low, limit)) return low;
    rows = most_fitting(&p->few, step, ROWS_LEAST, few < high ? few : high, limit);
    if (rows > 0) return rows;
    return ROWS_LEAST < rows_max ? ROWS_LEAST : rows_max;
}

double pace_decode_seconds(const struct pace *p, const struct pace_step *step)
{
    double x[ESTIMATE_FEATURES];
    if (p->decode.n == 0) return 0;
    decode_features(step, x);
    return estimate_mean(&p->decode, x);
}

double pace_row_cost(const struct pace *p, const struct pace_step *step)
{
    if (p->decode.n == 0) return 1.0 / step->n_decode;
    double seconds = pace_decode_seconds(p, step);
    const double row[] = {0, 1, step->decode_positions / step->n_decode};
    double cost = estimate_high(&p->decode, row, -SIGMAS);
    return cost > 0 && seconds > 0 ? cost / seconds : 0;
}
