/* Model output from bytes, up to stop strings: the first byte says how ids are grouped and whether
 * the answer is raw, the second which stop strings there are. Grouped parts must be those of ids
 * that come one by one, and no text may have a stop string in it.
 *
 * Subject: src/answer/answer.c 95
 * Subject: src/answer/stop.c 95 */
#include <string.h>

#include "answer/answer.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "support/text_fixture.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const stops[] = {"ab", "abc", "bca", "\n\n", "call:", "\xc3\xa9", "0", "aab"};

static void add_parts(struct buf *out, int *open, const struct carat_answer_options *options,
                      const struct carat_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        carat_assert(parts[i].length > 0);
        if (parts[i].kind == CARAT_PART_TOOL_CALL || (int)parts[i].kind != *open)
            buf_printf(out, "\n%d%d%s:", (int)parts[i].kind, parts[i].is_complete, parts[i].name);
        *open = (int)parts[i].kind;
        buf_add(out, parts[i].text, parts[i].length);
        for (size_t k = 0; k < options->n_stops && parts[i].kind == CARAT_PART_TEXT; k++)
            carat_assert(!memmem(parts[i].text, parts[i].length, options->stops[k],
                                 strlen(options->stops[k])));
    }
}

static void run(const struct vocab *v, const struct carat_answer_options *options,
                const int32_t *ids, size_t count, uint8_t grouping, struct buf *out)
{
    carat_answer *a;
    struct carat_error err;
    const struct carat_part *parts;
    size_t n;
    int open = -1;
    carat_assert(answer_open(&a, v, NULL, 0, options, &err) == CARAT_OK);
    for (size_t i = 0, step; i < count; i += step) {
        step = grouping ? 1 + (i * grouping) % 7 : 1;
        if (step > count - i) step = count - i;
        carat_assert(answer_push(a, ids + i, step, &parts, &n, &err) == CARAT_OK);
        carat_assert(!answer_is_thinking(a) || !options->is_raw);
        add_parts(out, &open, options, parts, n);
    }
    carat_assert(answer_finish(a, &parts, &n, &err) == CARAT_OK);
    add_parts(out, &open, options, parts, n);
    buf_printf(out, "\n%s", answer_stop(a) ? answer_stop(a) : "");
    answer_close(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const struct vocab *v = shared_vocab();
    struct carat_error err;
    int32_t *ids;
    size_t count;
    const char *chosen[8];
    struct carat_answer_options options = {.stops = chosen, .is_raw = data[0] & 128};
    for (size_t i = 0; i < 8; i++)
        if (data[1] >> i & 1) chosen[options.n_stops++] = stops[i];
    carat_assert(tokenizer_encode(v, (const char *)data + 2, size - 2, CARAT_SPECIAL_ALL, false,
                                  &ids, &count, &err) == CARAT_OK);
    struct buf single = {0}, grouped = {0};
    run(v, &options, ids, count, 0, &single);
    run(v, &options, ids, count, data[0] & 127, &grouped);
    carat_assert(single.length == grouped.length);
    carat_assert(memcmp(buf_text(&single), buf_text(&grouped), single.length) == 0);
    buf_deinit(&single);
    buf_deinit(&grouped);
    mem_free(ids);
    return 0;
}
