/* What other threads hand to the thread of the server. Each entry is in the list at most once. */
#ifndef SERVER_INBOX_H
#define SERVER_INBOX_H

#include <pthread.h>
#include <stdbool.h>

struct news { /* a member of what is handed over */
    struct news *next, *previous;
    void *owner;
    bool is_listed;
};

struct inbox {
    pthread_mutex_t lock;
    struct news *first, *last;
};

void inbox_init(struct inbox *box);
void inbox_deinit(struct inbox *box);

/* Any thread. True: the inbox was empty, so its reader has to be woken. */
bool inbox_add(struct inbox *box, struct news *news);
/* The reader: the oldest one's owner; NULL: there is none. The same news may come again at once. */
void *inbox_take(struct inbox *box);
/* The reader, before it frees what the news is part of. */
void inbox_remove(struct inbox *box, struct news *news);

#endif
