/* Replies with the fields that all have: x-request-id, what the guard adds, how long it took. */
#ifndef SERVER_RESPOND_H
#define SERVER_RESPOND_H

#include "server/call.h"

/* What is known of a call's times, as Server-Timing has it: of its first answer when that is done,
 * else only how long it took to prepare. */
enum { TIMING_MAX = 192 };
void respond_timing(const struct call *c, char out[TIMING_MAX]);

/* Nothing happens when the client is gone. After each the call is ENDING, except respond_stream. */
void respond_bytes(struct call *c, int status, const char *type, const char *body, size_t length);
/* With further fields. */
void respond_fields(struct call *c, int status, const char *type, const struct http_field *more,
                    size_t n_more, const char *body, size_t length);
/* If the body did not fit into memory, the reply is 503 instead. */
void respond_buf(struct call *c, int status, const char *type, const struct http_field *more,
                 size_t n_more, const struct buf *body);
void respond_json(struct call *c, int status, const struct buf *body);
void respond_error(struct call *c, const struct api_error *error);
/* Begins a reply that comes bit by bit. */
void respond_stream(struct call *c, const char *type);

#endif
