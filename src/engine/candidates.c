#include "engine/candidates.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* The heap's root is its last candidate in order. */
static void sift_down(struct candidate *heap, int32_t count, int32_t i)
{
    struct candidate item = heap[i];
    for (int32_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && candidate_after(heap[child + 1], heap[child])) child++;
        if (!candidate_after(heap[child], item)) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

static void make_heap(struct candidate *all, int32_t count)
{
    for (int32_t i = count / 2; i-- > 0;) sift_down(all, count, i);
}

void candidates_sort(struct candidate *all, int32_t count, bool is_heap)
{
    if (!is_heap) make_heap(all, count);
    while (count > 1) {
        struct candidate last = all[0];
        all[0] = all[--count];
        sift_down(all, count, 0);
        all[count] = last;
    }
}

/* A later logit replaces the last candidate only if it is greater: ties keep the lowest id. */
int32_t candidates_take(struct candidate *heap, int32_t k, const float *row, int32_t n)
{
    enum { BLOCK = 64 };
    int32_t count = 0;
    float least = -INFINITY;
    for (int32_t begin = 0; begin < n; begin += BLOCK) {
        int32_t length = n - begin < BLOCK ? n - begin : BLOCK;
        const float *x = row + begin;
        int is_interesting = 0, is_bad = 0;
        for (int32_t i = 0; i < length; i++) {
            is_interesting |= x[i] > least;
            is_bad |= !(x[i] <= FLT_MAX);
        }
        if (is_bad) return -1;
        if (!is_interesting) continue;
        for (int32_t i = 0; i < length; i++) {
            if (!(x[i] > least)) continue;
            struct candidate c = {.logit = x[i], .id = begin + i};
            if (count < k) {
                heap[count++] = c;
                if (count < k) continue;
                make_heap(heap, k);
            } else {
                heap[0] = c;
                sift_down(heap, k, 0);
            }
            least = heap[0].logit;
        }
    }
    if (count < k) make_heap(heap, count);
    return count;
}

int32_t candidates_best(struct candidate *heap, int32_t count, int32_t k)
{
    if (k > count) k = count;
    make_heap(heap, k);
    for (int32_t i = k; i < count; i++) {
        if (!candidate_after(heap[0], heap[i])) continue;
        heap[0] = heap[i];
        sift_down(heap, k, 0);
    }
    candidates_sort(heap, k, true);
    return k;
}

static int compare_ids(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    return a->id < b->id ? -1 : a->id > b->id;
}

void candidates_sort_by_id(struct candidate *all, int32_t count)
{
    qsort(all, (size_t)count, sizeof *all, compare_ids);
}

double candidates_weigh(struct candidate *all, int32_t count, double temperature)
{
    float best = -INFINITY;
    for (int32_t i = 0; i < count; i++)
        if (all[i].logit > best) best = all[i].logit;
    double sum = 0.0;
    for (int32_t i = 0; i < count; i++) {
        all[i].weight = exp(((double)all[i].logit - (double)best) / temperature);
        sum += all[i].weight;
    }
    return sum;
}

double candidates_sum(const struct candidate *all, int32_t count)
{
    double sum = 0.0;
    for (int32_t i = 0; i < count; i++) sum += all[i].weight;
    return sum;
}
