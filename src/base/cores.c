#include "base/cores.h"

#include <pthread.h>

#include "base/allowance.h"
#include "base/topology.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int total, busy;
    unsigned next_ticket, served; /* tickets are served in order */
    int pinned[PROCESSORS_MAX];   /* threads that stay on each processor */
} cores = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void cores_take(int n_threads)
{
    pthread_mutex_lock(&cores.lock);
    if (!cores.total) cores.total = allowed_threads();
    unsigned ticket = cores.next_ticket++;
    while (ticket != cores.served || (cores.busy > 0 && cores.busy + n_threads > cores.total))
        pthread_cond_wait(&cores.changed, &cores.lock);
    cores.busy += n_threads;
    cores.served++;
    pthread_cond_broadcast(&cores.changed);
    pthread_mutex_unlock(&cores.lock);
}

int cores_waiting(void)
{
    pthread_mutex_lock(&cores.lock);
    int waiting = (int)(cores.next_ticket - cores.served);
    pthread_mutex_unlock(&cores.lock);
    return waiting;
}

void cores_give(int n_threads)
{
    pthread_mutex_lock(&cores.lock);
    cores.busy -= n_threads;
    pthread_cond_broadcast(&cores.changed);
    pthread_mutex_unlock(&cores.lock);
}

int cores_pin(const struct topology *topology)
{
    int best = -1;
    pthread_mutex_lock(&cores.lock);
    for (int i = 0; i < topology->n_processors; i++) {
        int processor = topology->order[i];
        if (best < 0 || cores.pinned[processor] < cores.pinned[best]) best = processor;
    }
    if (best >= 0) cores.pinned[best]++;
    pthread_mutex_unlock(&cores.lock);
    return best;
}

void cores_unpin(int processor)
{
    if (processor < 0) return;
    pthread_mutex_lock(&cores.lock);
    cores.pinned[processor]--;
    pthread_mutex_unlock(&cores.lock);
}
