/* Server-sent events. What is between sse_begin and sse_end must have no raw line ends: JSON of
 * base/json_writer.h has none. */
#ifndef API_SSE_H
#define API_SSE_H

#include "base/buf.h"

#define SSE_TYPE "text/event-stream"

void sse_begin(struct buf *out, const char *event); /* NULL: without a name */
void sse_end(struct buf *out);
void sse_done(struct buf *out); /* OpenAI's end of a stream */
/* Comments, which clients skip. The text has no line ends. */
void sse_comment(struct buf *out, const char *text);
void sse_ping(struct buf *out);

#endif
