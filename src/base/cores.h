/* The cores of this machine, shared by all engines of this process: two of them take turns with all
 * their threads rather than slow each other down at every barrier. Threads are counted against the
 * physical cores that the process may use. Who asks first goes first. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

/* Waits until `n_threads` cores are free, or all cores if there are fewer. For any thread. */
void cores_take(int n_threads);
/* Gives back what cores_take took, with the same number. */
void cores_give(int n_threads);

/* Threads that wait in cores_take now. */
int cores_waiting(void);

struct topology;

/* A processor for a thread that is to stay on one: the first in the topology's order among those
 * with the fewest such threads of this process; -1 if the topology has none. */
int cores_pin(const struct topology *topology);
/* Gives back what cores_pin returned. */
void cores_unpin(int processor);

#endif
