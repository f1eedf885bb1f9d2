/* Errors that several parts of the server give, each in the same words. */
#ifndef SERVER_PROBLEMS_H
#define SERVER_PROBLEMS_H

#include "api/api_error.h"
#include "server/server.h"

/* 429: as many requests wait as `queue_max` allows. */
struct api_error problem_queue_full(const struct server_options *o);
/* 503: requests take HELD_MAX bytes already. */
struct api_error problem_no_room(void);
/* 503: the server ends before the answer does. */
struct api_error problem_shutdown(void);
/* 504: the answer took longer than `request_seconds`. */
struct api_error problem_timeout(const struct server_options *o);

#endif
