#include "server/workers.h"

#include <pthread.h>

#include "base/mem.h"

enum { WORKERS_MAX = 16 };

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    struct work *first, *last;
    int32_t n_queued, queue_max;
    int n_large; /* large ones that threads are at */
    bool is_over;
    workers_fn run;
    void *user;
    pthread_t threads[WORKERS_MAX];
    int n;
};

static void unlink_work(struct workers *w, struct work *work)
{
    if (work->previous)
        work->previous->next = work->next;
    else
        w->first = work->next;
    if (work->next)
        work->next->previous = work->previous;
    else
        w->last = work->previous;
    work->is_queued = false;
    w->n_queued--;
}

/* The first that may begin now; NULL: there is none. */
static struct work *next_work(struct workers *w)
{
    bool takes_large = w->n_large < w->n - 1 || w->n == 1;
    struct work *work = w->first;
    while (work && work->is_large && !takes_large) work = work->next;
    return work;
}

/* What was run belongs to somebody else by the time that `run` returns. */
static void run_work(struct workers *w, struct work *work)
{
    bool is_large = work->is_large;
    unlink_work(w, work);
    w->n_large += is_large;
    pthread_mutex_unlock(&w->lock);
    w->run(w->user, work->owner);
    pthread_mutex_lock(&w->lock);
    w->n_large -= is_large;
    if (is_large) pthread_cond_signal(&w->has_work);
}

static void *work_thread(void *user)
{
    struct workers *w = user;
    pthread_mutex_lock(&w->lock);
    while (!w->is_over) {
        struct work *work = next_work(w);
        if (work)
            run_work(w, work);
        else
            pthread_cond_wait(&w->has_work, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int workers_open(struct workers **out, int n, int32_t queue_max, workers_fn run, void *user,
                 struct carat_error *err)
{
    struct workers *w = mem_alloc(1, sizeof *w);
    *out = w;
    if (!w) return err_no_memory(err, "workers", sizeof *w);
    *w = (struct workers){.run = run, .user = user, .queue_max = queue_max};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->has_work, NULL);
    pthread_mutex_lock(&w->lock); /* threads read how many they are */
    while (w->n < n && w->n < WORKERS_MAX) {
        if (pthread_create(&w->threads[w->n], NULL, work_thread, w) != 0) break;
        w->n++;
    }
    pthread_mutex_unlock(&w->lock);
    if (w->n > 0) return CARAT_OK;
    workers_close(w);
    *out = NULL;
    return err_set(err, CARAT_EMEMORY, "workers: no thread could be started");
}

void workers_close(struct workers *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->is_over = true;
    pthread_cond_broadcast(&w->has_work);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->has_work);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

bool workers_add(struct workers *w, struct work *work)
{
    pthread_mutex_lock(&w->lock);
    bool has_room = w->n_queued < w->queue_max;
    if (has_room) {
        work->next = NULL;
        work->previous = w->last;
        if (w->last)
            w->last->next = work;
        else
            w->first = work;
        w->last = work;
        work->is_queued = true;
        w->n_queued++;
        pthread_cond_signal(&w->has_work);
    }
    pthread_mutex_unlock(&w->lock);
    return has_room;
}

bool workers_withdraw(struct workers *w, struct work *work)
{
    pthread_mutex_lock(&w->lock);
    bool was_queued = work->is_queued;
    if (was_queued) unlink_work(w, work);
    pthread_mutex_unlock(&w->lock);
    return was_queued;
}

int32_t workers_waiting(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    int32_t n = w->n_queued;
    pthread_mutex_unlock(&w->lock);
    return n;
}
