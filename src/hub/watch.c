#include "hub/watch.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/os.h"

bool watch_goes_on(const struct hub_watch *watch)
{
    return !watch->goes_on || watch->goes_on(watch->user);
}

void watch_say(const struct hub_watch *watch, const char *form, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(text, sizeof text, form, arguments);
    va_end(arguments);
    if (watch->says) watch->says(watch->user, text);
}

void watch_move(const struct hub_watch *watch, const struct hub_progress *progress)
{
    if (watch->moves) watch->moves(watch->user, progress);
}

int watch_stopped(struct carat_error *err)
{
    return err_set(err, CARAT_EBUSY, "stopped");
}

int watch_sleep(const struct hub_watch *watch, double seconds, struct carat_error *err)
{
    static const struct timespec moment = {.tv_nsec = 50000000};
    for (double end = os_seconds() + seconds; os_seconds() < end; nanosleep(&moment, NULL))
        if (!watch_goes_on(watch)) return watch_stopped(err);
    return CARAT_OK;
}

double watch_delay(int n, int asked_s)
{
    enum { DOUBLED_MAX = 6, ASKED_MAX_S = 60 };
    if (asked_s > 0) return asked_s < ASKED_MAX_S ? asked_s : ASKED_MAX_S;
    return 0.5 * (1 << (n < DOUBLED_MAX ? n : DOUBLED_MAX));
}

int watch_wait(const struct hub_watch *watch, int n, int asked_s, const struct carat_error *why,
               struct carat_error *err)
{
    double seconds = watch_delay(n, asked_s);
    watch_say(watch, "%s; trying again in %.1f s", why->message, seconds);
    return watch_sleep(watch, seconds, err);
}
