/* What work costs compared with other work, for bounds that also hold on busy machines. */
#ifndef SUPPORT_COST_H
#define SUPPORT_COST_H

#include <stddef.h>

/* Prepares what it needs, calls cost_begin, does the work of size n, calls cost_end. */
typedef void (*cost_work)(void *user, size_t n);
void cost_begin(void);
void cost_end(void);

/* Of all threads of this process. Unlike a clock it does not grow with the work of others. */
double cost_cpu_seconds(void);

/* Processor time of work(large) by that of work(small), each the least of a few. */
double cost_ratio(cost_work work, void *user, size_t small, size_t large);

/* For four times the size: 4 is linear, 16 quadratic, and this lies between. */
enum { LINEAR_MAX = 8 };

#endif
