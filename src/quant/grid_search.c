#include "quant/grid_search.h"

#include <math.h>
#include <string.h>

#include "quant/half.h"
#include "quant/levels.h"
#include "quant/search.h"

enum { POINT_MAX = 8, RUNS_MAX = 256 };

/* ---- The nearest point ------------------------------------------------------------------- */

/* Points with the same second half of values: they follow each other. */
struct run {
    int half, first, end;
};

struct finder {
    const struct grid_facts *facts;
    const int8_t *table; /* of levels */
    int n_values;        /* of a point */
    int half_bits;       /* of half a point */
    int n_runs;
    struct run runs[RUNS_MAX];
};

static void finder_init(struct finder *f, const struct grid_facts *facts)
{
    f->facts = facts;
    f->table = format_levels(facts->format);
    f->n_values = facts->bits == 2 ? 8 : 4;
    f->half_bits = f->n_values * facts->bits / 2;
    f->n_runs = 0;
    for (int i = 0; i < facts->n_points; i++) {
        int half = facts->points[i] >> f->half_bits;
        if (f->n_runs == 0 || f->runs[f->n_runs - 1].half != half)
            f->runs[f->n_runs++] = (struct run){.half = half, .first = i};
        f->runs[f->n_runs - 1].end = i + 1;
    }
}

/* Squared errors of all that half a point may be, from those of its values at each level. Returns
 * the least. */
static float sum_half(int bits, float errors[][8], float sums[256])
{
    float pairs[2][16], least = INFINITY;
    const int n = bits == 3 ? 8 : 16; /* of each part of the half */
    if (bits == 3) {
        for (int b = 0; b < 8; b++)
            for (int a = 0; a < 8; a++) sums[b * 8 + a] = errors[0][a] + errors[1][b];
    } else {
        for (int p = 0; p < 2; p++)
            for (int b = 0; b < 4; b++)
                for (int a = 0; a < 4; a++)
                    pairs[p][b * 4 + a] = errors[p * 2][a] + errors[p * 2 + 1][b];
        for (int b = 0; b < 16; b++)
            for (int a = 0; a < 16; a++) sums[b * 16 + a] = pairs[0][a] + pairs[1][b];
    }
    for (int i = 0; i < n * n; i++) least = sums[i] < least ? sums[i] : least;
    return least;
}

/* The index of the point with the least sum of errors, which is returned too; 0 if all are NaN. */
static int find_point(const struct finder *f, float errors[POINT_MAX][8], float *error)
{
    float first[256], second[256], best = INFINITY;
    const uint16_t *points = f->facts->points;
    const int mask = (1 << f->half_bits) - 1;
    int index = 0;
    float least = sum_half(f->facts->bits, errors, first);
    sum_half(f->facts->bits, errors + f->n_values / 2, second);
    for (const struct run *r = f->runs; r < f->runs + f->n_runs; r++) {
        float half = second[r->half];
        if (!(half + least < best)) continue;
        for (int i = r->first; i < r->end; i++) {
            float sum = first[points[i] & mask] + half;
            if (!(sum < best)) continue;
            best = sum;
            index = i;
        }
    }
    *error = best;
    return index;
}

/* ---- Values that share a factor ---------------------------------------------------------- */

/* Up to 32 values, as those that points are compared with: magnitudes, if points are. Then at most
 * one of eight is negative: the smallest, whose sign has to be the wrong one. */
struct target {
    int n;
    float x[GRID_GROUP], importance[GRID_GROUP], largest;
    uint8_t signs[4];
};

/* Points for a target with a trial scale. */
struct choice {
    uint16_t index[8];
    uint8_t signs[4];
    float xq, qq; /* <x, levels>, <levels, levels> */
    float error;  /* squared, of x / scale */
};

static void take_signs(struct target *t, bool is_even, int eight)
{
    int smallest = 0, n_signs = 0;
    float *x = t->x + eight * 8, costs[8];
    for (int i = 0; i < 8; i++) {
        bool is_negative = x[i] < 0.0f;
        n_signs += is_negative;
        t->signs[eight] |= (uint8_t)(is_negative << i);
        x[i] = fabsf(x[i]);
        costs[i] = x[i] * sqrtf(t->importance[eight * 8 + i]);
        if (costs[i] < costs[smallest]) smallest = i;
    }
    if (!is_even || n_signs % 2 == 0) return;
    t->signs[eight] ^= (uint8_t)(1 << smallest);
    x[smallest] = -x[smallest];
}

static void target_init(struct target *t, const struct grid_facts *facts, const float *x,
                        const float *importance)
{
    *t = (struct target){.n = facts->n_shared};
    for (int i = 0; i < t->n; i++) {
        t->x[i] = x[i];
        t->importance[i] = importance_at(importance, i);
        if (fabsf(x[i]) > t->largest) t->largest = fabsf(x[i]);
    }
    if (facts->signs == GRID_EVEN_SIGNS || facts->signs == GRID_SIGNS)
        for (int e = 0; e < t->n / 8; e++) take_signs(t, facts->signs == GRID_EVEN_SIGNS, e);
}

/* Level i of a point's values is levels[base + i * step]. */
struct scale_of_levels {
    int base, step;
};

/* Adds the nearest points of values [first, end) to a choice. */
static void choose_points(const struct finder *f, const struct target *t, int first, int end,
                          struct scale_of_levels s, float inverse, struct choice *out)
{
    const int bits = f->facts->bits, n_levels = bits == 2 ? 3 : 8;
    float steps[8];
    for (int m = 0; m < 8; m++) { /* points do not have those after the last */
        int last = m < n_levels ? m : n_levels - 1;
        steps[m] = (float)f->table[s.base + last * s.step];
    }
    for (int at = first; at < end; at += f->n_values) {
        float errors[POINT_MAX][8], error;
        for (int i = 0; i < f->n_values; i++)
            for (int m = 0; m < 8; m++) {
                float difference = t->x[at + i] * inverse - steps[m];
                errors[i][m] = difference * difference * t->importance[at + i];
            }
        int index = find_point(f, errors, &error);
        for (int i = 0; i < f->n_values; i++) {
            float q = steps[f->facts->points[index] >> bits * i & ((1 << bits) - 1)];
            float weighted = t->importance[at + i] * q;
            out->xq += t->x[at + i] * weighted;
            out->qq += weighted * q;
        }
        out->index[at / f->n_values] = (uint16_t)index;
        out->error += error;
    }
}

/* The same with the better of both shifts. */
static void choose_shift(const struct finder *f, const struct target *t, int first, int end,
                         float inverse, struct choice *out)
{
    struct choice plus = *out, minus = *out;
    choose_points(f, t, first, end, (struct scale_of_levels){6, 2}, inverse, &plus);
    choose_points(f, t, first, end, (struct scale_of_levels){5, 2}, inverse, &minus);
    bool is_minus = minus.error < plus.error;
    *out = is_minus ? minus : plus;
    for (int e = first / 8; e < end / 8; e++) out->signs[e] = is_minus;
}

static struct choice choose(const struct finder *f, const struct target *t, float inverse)
{
    struct choice c = {0};
    enum grid_signs signs = f->facts->signs;
    memcpy(c.signs, t->signs, sizeof c.signs);
    if (signs == GRID_EVEN_SIGNS || signs == GRID_SIGNS)
        choose_points(f, t, 0, t->n, (struct scale_of_levels){8, 1}, inverse, &c);
    else if (signs == GRID_SHIFTS)
        choose_shift(f, t, 0, t->n, inverse, &c);
    else
        for (int i = 0; i < t->n; i += 8) choose_shift(f, t, i, i + 8, inverse, &c);
    return c;
}

/* The best of some scales, fitted to the points that it gives (search.c has the reason); 0 if all
 * values are. */
static float search_points_scale(const struct finder *f, const struct target *t)
{
    const struct grid_facts *facts = f->facts;
    if (!(t->largest > 1e-30f) || isinf(t->largest)) return 0.0f;
    float plain = t->largest / (float)f->table[LEVELS - 1], best = plain, gain_max = 0.0f;
    for (int trial = 0; trial < facts->n_trials; trial++) {
        float share = (float)trial / (float)(facts->n_trials - 1);
        float part = facts->from + (facts->to - facts->from) * share;
        struct choice c = choose(f, t, 1.0f / (plain * part));
        if (c.xq > 0.0f && c.xq * c.xq / c.qq > gain_max) {
            gain_max = c.xq * c.xq / c.qq;
            best = c.xq / c.qq;
        }
    }
    return best;
}

/* ---- Blocks ------------------------------------------------------------------------------ */

/* What is chosen for a target with factors near the best one. Returns k of the factor 2 k + 1. */
static int choose_factor(const struct finder *f, const struct target *t, float scale, float found,
                         struct choice *out)
{
    int most = f->facts->factor_max / 2, best = 0;
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f, least = INFINITY;
    float near = found * inverse * 0.5f - 0.5f;
    int middle = near > 0.0f ? near < (float)most ? (int)(near + 0.5f) : most : 0;
    const int first = middle > 0 ? middle - 1 : 0;
    for (int k = first; k <= middle + 1 && k <= most; k++) {
        float factor = (float)(2 * k + 1);
        struct choice c = choose(f, t, inverse / factor);
        float error = c.error * factor * factor;      /* in the same unit */
        if (k != first && !(error < least)) continue; /* none is less than NaN */
        least = error;
        best = k;
        *out = c;
    }
    return best;
}

static void put_choice(const struct finder *f, const struct choice *c, int k, int first,
                       struct grid_group groups[GRID_GROUPS])
{
    struct grid_group *g = &groups[first / GRID_GROUP];
    int at = first % GRID_GROUP, n = f->facts->n_shared;
    memcpy(g->index + at / f->n_values, c->index, (size_t)(n / f->n_values) * sizeof *g->index);
    memcpy(g->signs + at / 8, c->signs, (size_t)n / 8);
    for (int h = at / 16; h < (at + n) / 16; h++) g->factor[h] = (uint8_t)k;
}

/* Chooses everything for a block. Returns the half. */
static uint16_t encode_block(const struct finder *f, const float *x, const float *importance,
                             struct grid_group groups[GRID_GROUPS])
{
    const struct grid_facts *facts = f->facts;
    const int n_shared = facts->n_shared, n = GRID_VALUES / n_shared;
    struct target targets[GRID_VALUES / 16];
    float found[GRID_VALUES / 16], largest = 0.0f, xq = 0.0f, qq = 0.0f;
    const float unit = grid_unit(facts->format);
    for (int i = 0; i < n; i++) {
        target_init(&targets[i], facts, x + i * n_shared,
                    importance_from(importance, i * n_shared));
        found[i] = search_points_scale(f, &targets[i]);
        if (found[i] > largest) largest = found[i];
    }
    float scale = unit * half_to_float(float_to_half(largest / ((float)facts->factor_max * unit)));
    for (int i = 0; i < n; i++) {
        struct choice c = {0};
        int k = choose_factor(f, &targets[i], scale, found[i], &c);
        float factor = (float)(2 * k + 1);
        put_choice(f, &c, k, i * n_shared, groups);
        xq += c.xq * factor;
        qq += c.qq * factor * factor;
    }
    /* The scale that fits what was chosen. */
    float fitted = xq / qq;
    return float_to_half((fitted > 0.0f && scale > 0.0f ? fitted : scale) / unit);
}

void grid_encode(const struct grid_facts *facts, grid_put *put,
                 void (*put_scale)(uint8_t *block, uint16_t half), const float *src,
                 const float *importance, void *dst, int64_t n)
{
    struct finder finder;
    const size_t bytes = (size_t)format_traits(facts->format)->block_bytes;
    uint8_t *block = dst;
    finder_init(&finder, facts);
    for (int64_t b = 0; b < n / GRID_VALUES; b++, block += bytes, src += GRID_VALUES) {
        struct grid_group groups[GRID_GROUPS] = {0};
        uint16_t half =
            encode_block(&finder, src, importance_from(importance, b * GRID_VALUES), groups);
        memset(block, 0, bytes);
        for (int j = 0; j < GRID_GROUPS; j++) put(block, j, &groups[j]);
        if (put_scale)
            put_scale(block, half);
        else
            memcpy(block, &half, sizeof half);
    }
}
