#include "support/replies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

const struct reply_usage replies_usage = {.n_prompt = 10,
                                          .n_cached = 4,
                                          .n_generated = 5,
                                          .n_thinking = 2,
                                          .queue_seconds = 1,
                                          .prefill_seconds = 0.5,
                                          .decode_seconds = 0.25};

struct reply *replies_open(const struct ask *ask)
{
    static const struct reply_facts facts = {
        .id = "r1", .model = "m", .created = 7, .fingerprint = "f", .n_prompt = 10};
    struct reply *r = NULL;
    assert_int_equal(reply_open(&r, ask, &facts, NULL), CARAT_OK);
    return r;
}

void replies_part(struct reply *r, enum carat_part_kind kind, const char *text, struct buf *out)
{
    struct carat_part part = {.kind = kind, .text = text, .length = strlen(text), .name = ""};
    reply_part(r, 0, &part, out);
}

void replies_call(struct reply *r, const char *name, const char *arguments, bool is_complete,
                  struct buf *out)
{
    char text[256];
    snprintf(text, sizeof text, "%s", arguments);
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    struct carat_part part = {.kind = CARAT_PART_TOOL_CALL,
                              .text = text,
                              .length = strlen(text),
                              .name = name,
                              .is_complete = is_complete};
    reply_part(r, 0, &part, out);
}

void replies_done(struct reply *r, enum reply_end end, const char *stop, struct buf *out)
{
    struct reply_done done = {.end = end, .stop = stop, .usage = replies_usage};
    reply_answer_done(r, 0, &done, out);
}

void replies_expect(struct buf *out, const char *text)
{
    struct buf shown = {0};
    assert_false(out->failed);
    buf_add(&shown, buf_text(out), out->length);
    for (size_t i = 0; i < shown.length; i++)
        if (shown.data[i] == '"') shown.data[i] = '\'';
    if (strcmp(buf_text(&shown), text) != 0)
        fail_msg("found:\n%s\nexpected:\n%s", buf_text(&shown), text);
    buf_deinit(&shown);
    buf_clear(out);
}
