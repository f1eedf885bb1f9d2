/* Filling in and passing on `struct carat_error`. Any thread; the record is the caller's. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stddef.h>

#include "carat_status.h"

/* Writes code and message (printf form, cut to fit) and returns `code`, so that a failing
 * function can `return err_set(err, CARAT_EFORMAT, "...")`. `err` may be NULL. */
int err_set(struct carat_error *err, enum carat_status code, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds what the user can do about it; keeps the code and message. */
void err_hint(struct carat_error *err, const char *form, ...) __attribute__((format(printf, 2, 3)));

/* Puts "where: " in front of the message: an outer function names its object. Returns the code. */
int err_within(struct carat_error *err, const char *form, ...)
    __attribute__((format(printf, 2, 3)));

/* Out of host memory: one sentence for everybody. */
int err_no_memory(struct carat_error *err, const char *what, size_t bytes);

/* Returns from the calling function when `call` fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_status_ = (call);                                                                  \
        if (try_status_ != CARAT_OK) return try_status_;                                           \
    } while (0)

#endif
