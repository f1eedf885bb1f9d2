#include "server/inbox.h"

#include <stddef.h>

void inbox_init(struct inbox *box)
{
    *box = (struct inbox){0};
    pthread_mutex_init(&box->lock, NULL);
}

void inbox_deinit(struct inbox *box)
{
    pthread_mutex_destroy(&box->lock);
}

bool inbox_add(struct inbox *box, struct news *news)
{
    pthread_mutex_lock(&box->lock);
    bool was_empty = !box->first;
    if (!news->is_listed) {
        news->is_listed = true;
        news->next = NULL;
        news->previous = box->last;
        if (box->last)
            box->last->next = news;
        else
            box->first = news;
        box->last = news;
    }
    pthread_mutex_unlock(&box->lock);
    return was_empty;
}

/* With the lock. */
static void unlist(struct inbox *box, struct news *news)
{
    if (news->previous)
        news->previous->next = news->next;
    else
        box->first = news->next;
    if (news->next)
        news->next->previous = news->previous;
    else
        box->last = news->previous;
    news->is_listed = false;
}

void *inbox_take(struct inbox *box)
{
    pthread_mutex_lock(&box->lock);
    struct news *news = box->first;
    void *owner = news ? news->owner : NULL;
    if (news) unlist(box, news);
    pthread_mutex_unlock(&box->lock);
    return owner;
}

void inbox_remove(struct inbox *box, struct news *news)
{
    pthread_mutex_lock(&box->lock);
    if (news->is_listed) unlist(box, news);
    pthread_mutex_unlock(&box->lock);
}
