/* The cores of this machine, shared by all who compute in this process: two engines take turns with
 * all their threads rather than slow each other down at every barrier. Threads are counted against
 * the physical cores that the process may use; who asks first goes first. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

/* Waits until `n_threads` of them are free, or all of them where there are fewer; any thread. */
void cores_take(int n_threads);
/* What was taken, by the same number. */
void cores_give(int n_threads);

/* Threads that wait in cores_take now. */
int cores_waiting(void);

#endif
