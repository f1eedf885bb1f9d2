#include "server/problems.h"

static struct api_error with_retry(struct api_error error, int seconds)
{
    error.retry_after = seconds;
    return error;
}

struct api_error problem_queue_full(const struct server_options *o)
{
    return with_retry(api_error_make(429, "queue_full",
                                     "%d requests wait already, no more are taken", o->queue_max),
                      1);
}

struct api_error problem_no_room(void)
{
    return with_retry(
        api_error_make(503, "overloaded", "the requests at work take all memory there is for them"),
        5);
}

struct api_error problem_shutdown(void)
{
    return api_error_make(503, "shutting_down", "the server ends before the answer does");
}

struct api_error problem_timeout(const struct server_options *o)
{
    return api_error_make(504, "timeout",
                          "the answer took longer than the %g seconds that a request may",
                          o->request_seconds);
}
