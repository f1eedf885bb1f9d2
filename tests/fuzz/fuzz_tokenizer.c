/* Any bytes in every mode: ids in range, no special ids without their mode, and the same bytes
 * back, whole and streamed. Only U+2581, which stands for a space, does not come back.
 *
 * Subject: src/text/tokenizer.c 90 */
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "support/text_fixture.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct vocab *v, const char *text, size_t size, enum carat_special special)
{
    struct carat_error err;
    int32_t *ids;
    size_t count, n;
    carat_assert(tokenizer_encode(v, text, size, special, false, &ids, &count, &err) == CARAT_OK);
    struct buf whole = {0}, streamed = {0};
    struct carat_decoder *d;
    carat_assert(decoder_open(&d, v, true, &err) == CARAT_OK);
    for (size_t i = 0; i < count; i++) {
        carat_assert(ids[i] >= 0 && ids[i] < vocab_count(v));
        if (special == CARAT_SPECIAL_NONE) carat_assert(!vocab_is_special(v, ids[i]));
        if (special == CARAT_SPECIAL_USER_DEFINED)
            carat_assert(vocab_class(v, ids[i]) != TOKEN_CONTROL);
        tokenizer_decode_one(v, ids[i], true, &whole);
        const char *piece = decoder_push(d, ids[i], &n);
        buf_add(&streamed, piece, n);
    }
    const char *rest = decoder_finish(d, &n);
    buf_add(&streamed, rest, n);
    carat_assert(whole.length == streamed.length);
    carat_assert(memcmp(buf_text(&whole), buf_text(&streamed), whole.length) == 0);
    if (!memmem(text, size, "\xE2\x96\x81", 3)) {
        carat_assert(whole.length == size);
        carat_assert(size == 0 || memcmp(whole.data, text, size) == 0);
    }
    decoder_close(d);
    buf_deinit(&whole);
    buf_deinit(&streamed);
    mem_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct vocab *v = shared_vocab();
    const char *text = (const char *)data;
    check(v, text, size, CARAT_SPECIAL_NONE);
    check(v, text, size, CARAT_SPECIAL_USER_DEFINED);
    check(v, text, size, CARAT_SPECIAL_ALL);
    return 0;
}
