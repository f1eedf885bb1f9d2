#include "engine/shape.h"

#include <math.h>

/* ---- Top-n-sigma ------------------------------------------------------------------------ */

float shape_sigma_floor(const float *logits, int32_t n, float n_sigma)
{
    double sum = 0.0, squares = 0.0;
    float best = -INFINITY;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        bool is_possible = logits[i] > -INFINITY;
        if (logits[i] > best) best = logits[i];
        sum += is_possible ? (double)logits[i] : 0.0;
        count += is_possible;
    }
    double mean = sum / count;
    for (int32_t i = 0; i < n; i++) {
        double from_mean = logits[i] > -INFINITY ? (double)logits[i] - mean : 0.0;
        squares += from_mean * from_mean;
    }
    return (float)((double)best - (double)n_sigma * sqrt(squares / count));
}

int32_t shape_keep_from(struct candidate *all, int32_t count, float floor)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++)
        if (all[i].logit >= floor) all[kept++] = all[i];
    return kept;
}

/* ---- Locally typical sampling ----------------------------------------------------------- */

/* How far a candidate's information is from the expected one, and on which place it stands among
 * those that are as far. */
static bool is_farther(struct candidate a, struct candidate b, double expected)
{
    double x = fabs((double)a.logit - expected), y = fabs((double)b.logit - expected);
    return x > y || (x == y && candidate_after(a, b));
}

/* A heap whose root is the nearest one. */
static void sift_farther(struct candidate *heap, int32_t count, int32_t i, double expected)
{
    struct candidate item = heap[i];
    for (int32_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && is_farther(heap[child], heap[child + 1], expected)) child++;
        if (!is_farther(item, heap[child], expected)) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

/* The information of a candidate is a constant minus its logit over the temperature. So what is
 * nearest to the expected information is what is nearest to the expected logit. Each of the nearest
 * goes from the heap's root to the place at the end that the heap leaves, and then to the
 * beginning. */
int32_t shape_typical(struct candidate *all, int32_t count, float share, double temperature)
{
    double sum = candidates_weigh(all, count, temperature), expected = 0.0, held = 0.0;
    for (int32_t i = 0; i < count; i++)
        if (all[i].weight > 0.0) expected += all[i].weight / sum * (double)all[i].logit;
    for (int32_t i = count / 2; i-- > 0;) sift_farther(all, count, i, expected);
    int32_t left = count;
    while (left > 0 && !(held > (double)share * sum)) {
        struct candidate nearest = all[0];
        all[0] = all[--left];
        all[left] = nearest;
        held += nearest.weight;
        sift_farther(all, left, 0, expected);
    }
    int32_t kept = count - left;
    for (int32_t i = 0; i < kept; i++) all[i] = all[left + i];
    candidates_sort(all, kept, false);
    return kept;
}

/* ---- Dynamic temperature ---------------------------------------------------------------- */

double shape_temperature(struct candidate *all, int32_t count, float temperature, float range,
                         float exponent)
{
    double low = (double)temperature - (double)range, high = (double)temperature + (double)range;
    if (low < 0.0) low = 0.0;
    if (count < 2) return high;
    double sum = candidates_weigh(all, count, 1.0), entropy = 0.0;
    for (int32_t i = 0; i < count; i++) {
        double p = all[i].weight / sum;
        if (p > 0.0) entropy -= p * log(p);
    }
    double part = entropy / log((double)count); /* 0 .. 1, but for rounding */
    if (part > 1.0) part = 1.0;
    return low + (high - low) * pow(part > 0.0 ? part : 0.0, (double)exponent);
}

/* ---- XTC -------------------------------------------------------------------------------- */

int32_t shape_drop_choices(struct candidate *all, int32_t count, double threshold)
{
    double least = threshold * candidates_sum(all, count);
    int32_t last = -1, kept = 0;
    for (int32_t i = 0; i < count; i++)
        if (all[i].weight >= least && (last < 0 || candidate_after(all[i], all[last]))) last = i;
    for (int32_t i = 0; i < count; i++)
        if (i == last || !(all[i].weight >= least)) all[kept++] = all[i];
    return kept;
}

/* ---- Mirostat --------------------------------------------------------------------------- */

int32_t shape_keep_unsurprising(struct candidate *all, int32_t count, double sum, double bits)
{
    double least = sum * exp2(-bits);
    int32_t best = 0, kept = 0;
    for (int32_t i = 1; i < count; i++)
        if (candidate_after(all[best], all[i])) best = i;
    struct candidate first = all[best];
    for (int32_t i = 0; i < count; i++)
        if (all[i].weight >= least) all[kept++] = all[i];
    if (kept == 0) all[kept++] = first;
    candidates_sort(all, kept, false);
    return kept;
}
