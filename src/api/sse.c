#include "api/sse.h"

void sse_begin(struct buf *out, const char *event)
{
    if (event) {
        buf_add_text(out, "event: ");
        buf_add_text(out, event);
        buf_add_char(out, '\n');
    }
    buf_add_text(out, "data: ");
}

void sse_end(struct buf *out)
{
    buf_add_text(out, "\n\n");
}

void sse_done(struct buf *out)
{
    buf_add_text(out, "data: [DONE]\n\n");
}

void sse_comment(struct buf *out, const char *text)
{
    buf_add_text(out, ": ");
    buf_add_text(out, text);
    buf_add_text(out, "\n\n");
}

void sse_ping(struct buf *out)
{
    sse_comment(out, "ping");
}
