#include "support/cost.h"

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 5 };

static double begun, taken;

double cost_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cost_begin(void)
{
    begun = cost_cpu_seconds();
}

void cost_end(void)
{
    taken = cost_cpu_seconds() - begun;
}

double cost_ratio(cost_work work, void *user, size_t small, size_t large)
{
    double least[2] = {1e9, 1e9};
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            work(user, i ? large : small);
            if (taken < least[i]) least[i] = taken;
        }
    double ratio = least[1] / (least[0] + 1e-6);
    printf("%.3f ms and %.3f ms of processor time: %.1f\n", least[0] * 1e3, least[1] * 1e3, ratio);
    return ratio;
}
