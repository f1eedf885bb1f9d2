/* The events of a streamed completion, from bytes as they come. Only what a load measures is read,
 * by the names of members: a name in a text would have its quotes escaped. Pure. */
#ifndef CLI_LOAD_STREAM_H
#define CLI_LOAD_STREAM_H

#include "base/buf.h"
#include "cli/load_target.h"

enum { LOAD_ERROR_MAX = 256 };

struct load_stream {           /* zeroed: at its beginning */
    struct buf line;           /* that is not whole yet */
    bool is_finished, is_done; /* the answer has an end, the stream too */
    double queue_seconds;
    int32_t n_cached;
    char error[LOAD_ERROR_MAX]; /* of an error event, or "" */
};

/* Hands out TOKEN and PROGRESS events by `tell`; the caller fills in index and seconds. An id is -1
 * where the server does not tell it. */
void load_stream_read(struct load_stream *s, const char *bytes, size_t n,
                      void (*tell)(void *user, const struct load_event *event), void *user);
void load_stream_deinit(struct load_stream *s);

/* The message of an error's body, as far as there is one; else the body's beginning. */
void load_stream_message(const char *body, size_t n, char out[LOAD_ERROR_MAX]);

#endif
