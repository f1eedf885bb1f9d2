/* Model output from bytes: the first says how ids are grouped, the second where the prompt
 * ends. Grouped parts must be those of ids that come one by one, and the pieces of streamed calls
 * must add up to the whole ones.
 *
 * Subject: src/text/parser.c 95
 * Subject: src/text/call_stream.c 95
 * Subject: src/text/call_syntax.c 95 */
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "support/text_fixture.h"
#include "text/parser.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct shown {
    struct buf *out;
    int open;
    struct buf name, arguments; /* of a streamed call */
};

static void add_part(struct shown *s, const struct carat_part *part)
{
    if (part->kind == CARAT_PART_CALL_BEGIN) {
        buf_clear(&s->name);
        buf_clear(&s->arguments);
        buf_add_text(&s->name, part->name);
    } else if (part->kind == CARAT_PART_CALL_ARGUMENTS) {
        carat_assert(part->length > 0);
        buf_add(&s->arguments, part->text, part->length);
    } else if (part->kind == CARAT_PART_CALL_END) {
        struct carat_part whole = {.kind = CARAT_PART_TOOL_CALL,
                                   .text = buf_text(&s->arguments),
                                   .length = s->arguments.length,
                                   .name = buf_text(&s->name),
                                   .is_complete = part->is_complete};
        add_part(s, &whole);
    } else {
        bool is_call = part->kind == CARAT_PART_TOOL_CALL;
        if (is_call || (int)part->kind != s->open)
            buf_printf(s->out, "\n%d%d%s:", (int)part->kind, part->is_complete, part->name);
        s->open = is_call ? -1 : (int)part->kind;
        buf_add(s->out, part->text, part->length);
    }
}

static void add_parts(struct shown *s, const struct carat_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) add_part(s, &parts[i]);
}

static void run(const struct vocab *v, const int32_t *ids, size_t n_prompt, size_t count,
                uint8_t grouping, bool streams_calls, struct buf *out)
{
    struct carat_parser *p;
    struct carat_error err;
    const struct carat_part *parts;
    size_t n;
    struct shown shown = {.out = out, .open = -1};
    carat_assert(parser_open(&p, v, ids, n_prompt, &err) == CARAT_OK);
    if (streams_calls) parser_stream_calls(p);
    for (size_t i = n_prompt, step; i < count; i += step) {
        step = grouping ? 1 + (i * grouping) % 7 : 1;
        if (step > count - i) step = count - i;
        carat_assert(parser_push(p, ids + i, step, &parts, &n, &err) == CARAT_OK);
        add_parts(&shown, parts, n);
    }
    buf_printf(out, "\n%d", parser_is_thinking(p));
    shown.open = -1;
    carat_assert(parser_finish(p, &parts, &n, &err) == CARAT_OK);
    add_parts(&shown, parts, n);
    parser_close(p);
    buf_deinit(&shown.name);
    buf_deinit(&shown.arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const struct vocab *v = shared_vocab();
    struct carat_error err;
    int32_t *ids;
    size_t count;
    carat_assert(tokenizer_encode(v, (const char *)data + 2, size - 2, CARAT_SPECIAL_ALL, false,
                                  &ids, &count, &err) == CARAT_OK);
    size_t n_prompt = data[1] % (count + 1);
    struct buf single = {0};
    run(v, ids, n_prompt, count, 0, false, &single);
    for (int i = 0; i < 2; i++) {
        struct buf grouped = {0};
        run(v, ids, n_prompt, count, data[0], i == 1, &grouped);
        carat_assert(single.length == grouped.length);
        carat_assert(memcmp(buf_text(&single), buf_text(&grouped), single.length) == 0);
        buf_deinit(&grouped);
    }
    buf_deinit(&single);
    mem_free(ids);
    return 0;
}
