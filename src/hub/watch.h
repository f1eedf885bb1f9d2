/* What a download tells whoever waits for it, and whether it should go on. */
#ifndef HUB_WATCH_H
#define HUB_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct hub_progress {
    const char *what;    /* "loading" or "checking" */
    const char *file;    /* its name, without folders */
    uint64_t done, size; /* bytes; size 0: unknown */
};

struct hub_watch { /* called in the thread that downloads; functions may be NULL */
    void *user;
    bool (*goes_on)(void *user); /* asked about once a second, and more often while bytes come */
    void (*says)(void *user, const char *text); /* one line that people should know */
    void (*moves)(void *user, const struct hub_progress *progress);
    int retries; /* further tries after a failure that may pass */
};

bool watch_goes_on(const struct hub_watch *watch);
void watch_say(const struct hub_watch *watch, const char *form, ...)
    __attribute__((format(printf, 2, 3)));
void watch_move(const struct hub_watch *watch, const struct hub_progress *progress);

/* CARAT_EBUSY: this is how work ends that was stopped. */
int watch_stopped(struct carat_error *err);

/* Sleeps this long, in short pieces. CARAT_EBUSY: stopped. */
int watch_sleep(const struct hub_watch *watch, double seconds, struct carat_error *err);

/* Seconds to wait before further try `n`, as watch_wait does. */
double watch_delay(int n, int asked_s);

/* Waits before further try `n` (0: the first) after the failure `why`: half a second, doubled each
 * time up to 32, or the `asked_s` seconds that the server asks for, at most 60. */
int watch_wait(const struct hub_watch *watch, int n, int asked_s, const struct carat_error *why,
               struct carat_error *err);

#endif
