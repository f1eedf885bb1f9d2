/* Model output from bytes: the first says how ids are grouped, the second where the prompt
 * ends. Grouped parts must be those of ids that come one by one.
 *
 * Subject: src/text/parser.c 95
 * Subject: src/text/call_syntax.c 95 */
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "support/text_fixture.h"
#include "text/parser.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_parts(struct buf *out, int *open, const struct carat_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (parts[i].kind == CARAT_PART_TOOL_CALL || (int)parts[i].kind != *open)
            buf_printf(out, "\n%d%d%s:", (int)parts[i].kind, parts[i].is_complete, parts[i].name);
        *open = parts[i].kind == CARAT_PART_TOOL_CALL ? -1 : (int)parts[i].kind;
        buf_add(out, parts[i].text, parts[i].length);
    }
}

static void run(const struct vocab *v, const int32_t *ids, size_t n_prompt, size_t count,
                uint8_t grouping, struct buf *out)
{
    struct carat_parser *p;
    struct carat_error err;
    const struct carat_part *parts;
    size_t n;
    int open = -1;
    carat_assert(parser_open(&p, v, ids, n_prompt, &err) == CARAT_OK);
    for (size_t i = n_prompt, step; i < count; i += step) {
        step = grouping ? 1 + (i * grouping) % 7 : 1;
        if (step > count - i) step = count - i;
        carat_assert(parser_push(p, ids + i, step, &parts, &n, &err) == CARAT_OK);
        add_parts(out, &open, parts, n);
    }
    buf_printf(out, "\n%d", parser_is_thinking(p));
    carat_assert(parser_finish(p, &parts, &n, &err) == CARAT_OK);
    add_parts(out, &open, parts, n);
    parser_close(p);
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
    struct buf single = {0}, grouped = {0};
    run(v, ids, n_prompt, count, 0, &single);
    run(v, ids, n_prompt, count, data[0], &grouped);
    carat_assert(single.length == grouped.length);
    carat_assert(memcmp(buf_text(&single), buf_text(&grouped), single.length) == 0);
    buf_deinit(&single);
    buf_deinit(&grouped);
    mem_free(ids);
    return 0;
}
