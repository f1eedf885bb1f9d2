/* A piece of text without special tokens is cut into lines and runs of newlines; each is one
 * BPE word. Its symbols (code points at first) form a linked list; a heap holds the pairs that
 * may merge, ordered by rank and then by position. An entry is stale when the pair at its
 * position has another rank by now; two symbols only ever grow, so an entry is never valid twice.
 * Time O(n log n), memory O(n) of the longest line. Where the vocabulary lets no word merge with
 * the space after it, as Gemma's, a line is cut there too: the same ids, and the heap stays small.
 */
#include "text/tokenizer.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { NO_SYMBOL = -1 };

static const char space_mark[] = "\xE2\x96\x81"; /* U+2581 */

struct symbol {
    int32_t previous, next; /* NO_SYMBOL at the ends */
    int32_t id;             /* -1: not in the vocabulary, a single code point or bad byte */
    int32_t rank;           /* of merging it with the next one; -1: they do not merge */
    int32_t begin;          /* byte in the word, for byte tokens */
    int32_t bytes;          /* 0: merged into the one before */
};

struct encoder {
    const struct vocab *v;
    int32_t ascii[128]; /* plain tokens of one ASCII character, a space as U+2581 */
    struct symbol *symbols;
    uint64_t *heap; /* rank << 32 | position */
    size_t symbols_capacity, heap_capacity, heap_count;
    int32_t *ids;
    size_t count, capacity;
    struct buf joined; /* a piece made of several spans */
    bool failed;       /* out of memory */
};

static bool grow_block(void **block, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity) return true;
    size_t larger = *capacity ? *capacity * 2 : 256;
    while (larger < needed) larger *= 2;
    void *resized = mem_resize(*block, larger, size);
    if (!resized) return false;
    *block = resized;
    *capacity = larger;
    return true;
}

static void put_id(struct encoder *e, int32_t id)
{
    if (e->count == e->capacity) {
        void *block = e->ids;
        if (!grow_block(&block, &e->capacity, e->count + 1, sizeof *e->ids)) {
            e->failed = true;
            return;
        }
        e->ids = block;
    }
    e->ids[e->count++] = id;
}

/* ---- BPE -------------------------------------------------------------------------------- */

static void sift_down(uint64_t *heap, size_t count, size_t i)
{
    uint64_t item = heap[i];
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= item) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
}

static void heap_push(struct encoder *e, uint64_t item)
{
    size_t i = e->heap_count++;
    for (; i > 0 && e->heap[(i - 1) / 2] > item; i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = item;
}

static uint64_t heap_pop(struct encoder *e)
{
    uint64_t top = e->heap[0];
    e->heap[0] = e->heap[--e->heap_count];
    if (e->heap_count) sift_down(e->heap, e->heap_count, 0);
    return top;
}

static void rank_pair(struct encoder *e, int32_t left)
{
    struct symbol *a = &e->symbols[left];
    int32_t product;
    a->rank =
        a->next == NO_SYMBOL ? -1 : vocab_merge(e->v, a->id, e->symbols[a->next].id, &product);
}

static uint64_t heap_item(const struct encoder *e, int32_t left)
{
    return (uint64_t)(uint32_t)e->symbols[left].rank << 32 | (uint32_t)left;
}

static int32_t id_of_symbol(const struct encoder *e, const char *text, int32_t bytes)
{
    unsigned char c = (unsigned char)text[0];
    if (c < 128) return e->ascii[c];
    return vocab_find_plain(e->v, text, (size_t)bytes);
}

/* Makes the list of code points; returns their number. */
static int32_t split_symbols(struct encoder *e, const char *word, int32_t length)
{
    int32_t n = 0;
    for (int32_t at = 0; at < length; n++) {
        uint32_t code_point;
        int bytes = utf8_read(word + at, (size_t)(length - at), &code_point);
        if (bytes == 0) bytes = 1; /* a bad byte is its own symbol */
        e->symbols[n] = (struct symbol){.previous = n - 1,
                                        .next = n + 1,
                                        .id = id_of_symbol(e, word + at, bytes),
                                        .begin = at,
                                        .bytes = bytes};
        at += bytes;
    }
    e->symbols[n - 1].next = NO_SYMBOL;
    return n;
}

static void merge_with_next(struct encoder *e, int32_t left)
{
    struct symbol *a = &e->symbols[left], *b = &e->symbols[a->next];
    vocab_merge(e->v, a->id, b->id, &a->id);
    a->bytes += b->bytes;
    b->bytes = 0;
    b->rank = -1;
    a->next = b->next;
    if (a->next != NO_SYMBOL) e->symbols[a->next].previous = left;
    rank_pair(e, left);
    if (a->rank >= 0) heap_push(e, heap_item(e, left));
    if (a->previous == NO_SYMBOL) return;
    rank_pair(e, a->previous);
    if (e->symbols[a->previous].rank >= 0) heap_push(e, heap_item(e, a->previous));
}

static void encode_word(struct encoder *e, const char *word, size_t length)
{
    /* A merge takes one entry out and puts at most two in: 2n bounds the heap. */
    void *symbols = e->symbols, *heap = e->heap;
    bool fits = grow_block(&symbols, &e->symbols_capacity, length, sizeof *e->symbols);
    e->symbols = symbols;
    fits = fits && grow_block(&heap, &e->heap_capacity, 2 * length, sizeof *e->heap);
    e->heap = heap;
    if (!fits) {
        e->failed = true;
        return;
    }
    int32_t n = split_symbols(e, word, (int32_t)length);
    e->heap_count = 0;
    for (int32_t i = 0; i < n; i++) {
        rank_pair(e, i);
        if (e->symbols[i].rank >= 0) e->heap[e->heap_count++] = heap_item(e, i);
    }
    for (size_t i = e->heap_count / 2; i-- > 0;) sift_down(e->heap, e->heap_count, i);
    while (e->heap_count) {
        uint64_t item = heap_pop(e);
        int32_t left = (int32_t)(item & UINT32_MAX);
        if (e->symbols[left].bytes && e->symbols[left].rank == (int32_t)(item >> 32))
            merge_with_next(e, left);
    }
    for (int32_t i = 0; i != NO_SYMBOL; i = e->symbols[i].next) {
        const struct symbol *s = &e->symbols[i];
        if (s->id >= 0)
            put_id(e, s->id);
        else
            for (int32_t k = 0; k < s->bytes; k++)
                put_id(e, vocab_byte(e->v, (uint8_t)word[s->begin + k]));
    }
}

/* ---- Pieces ----------------------------------------------------------------------------- */

static void encode_newlines(struct encoder *e, const char *text, size_t length)
{
    int32_t id = length <= vocab_longest_plain(e->v) ? vocab_find_plain(e->v, text, length) : -1;
    if (id >= 0)
        put_id(e, id);
    else
        encode_word(e, text, length);
}

/* Whether a space at `at` follows the end of a word. */
static bool begins_word(const char *line, size_t at)
{
    return line[at] == ' ' && line[at - 1] != ' ' &&
           !(at >= 3 && memcmp(line + at - 3, space_mark, 3) == 0);
}

static void encode_line(struct encoder *e, const char *line, size_t length)
{
    size_t begin = 0;
    for (size_t at = 1; at < length && !vocab_joins_words(e->v); at++) {
        if (!begins_word(line, at)) continue;
        encode_word(e, line + begin, at - begin);
        begin = at;
    }
    encode_word(e, line + begin, length - begin);
}

/* Text without special tokens: lines and runs of newlines. */
static void encode_piece(struct encoder *e, const char *text, size_t length)
{
    for (size_t at = 0; at < length && !e->failed;) {
        size_t end = at;
        if (text[at] == '\n') {
            while (end < length && text[end] == '\n') end++;
            encode_newlines(e, text + at, end - at);
        } else {
            const char *newline = memchr(text + at, '\n', length - at);
            end = newline ? (size_t)(newline - text) : length;
            encode_line(e, text + at, end - at);
        }
        at = end;
    }
}

static void flush_piece(struct encoder *e)
{
    encode_piece(e, e->joined.data, e->joined.length);
    if (e->joined.failed) e->failed = true;
    buf_clear(&e->joined);
}

/* Adds text[0, length) of one span to the piece; each special token ends a piece. */
static void encode_span(struct encoder *e, const char *text, size_t length,
                        enum carat_special special)
{
    size_t begin = 0, at = 0;
    while (special != CARAT_SPECIAL_NONE && !e->failed) {
        at = vocab_next_special(e->v, text, at, length);
        if (at == length) break;
        size_t matched = 0;
        int32_t id = vocab_match_special(e->v, special, text + at, length - at, &matched);
        if (id < 0) {
            at++;
            continue;
        }
        buf_add(&e->joined, text + begin, at - begin);
        flush_piece(e);
        put_id(e, id);
        begin = at += matched;
    }
    buf_add(&e->joined, text + begin, length - begin);
}

static void encoder_init(struct encoder *e, const struct vocab *v)
{
    *e = (struct encoder){.v = v};
    for (int c = 0; c < 128; c++) {
        char text = (char)c;
        e->ascii[c] = c == ' ' ? vocab_find_plain(v, space_mark, 3) : vocab_find_plain(v, &text, 1);
    }
}

int tokenizer_encode_spans(const struct vocab *v, const char *text, const struct text_span *spans,
                           size_t n_spans, bool add_bos, int32_t **ids, size_t *count,
                           struct carat_error *err)
{
    *ids = NULL;
    *count = 0;
    size_t length = n_spans ? spans[n_spans - 1].end : 0;
    if (length > INT32_MAX)
        return err_set(err, CARAT_EUSAGE, "text: at most %d bytes expected, %zu found", INT32_MAX,
                       length);
    if (!text) text = ""; /* of length 0 */
    struct encoder e;
    encoder_init(&e, v);
    put_id(&e, vocab_special(v, VOCAB_BOS)); /* removed again below */
    for (size_t i = 0, begin = 0; i < n_spans && !e.failed; begin = spans[i++].end)
        encode_span(&e, text + begin, spans[i].end - begin, spans[i].special);
    if (!e.failed) flush_piece(&e);
    mem_free(e.symbols);
    mem_free(e.heap);
    buf_deinit(&e.joined);
    if (e.failed) {
        mem_free(e.ids);
        return err_no_memory(err, "tokens of a text", length);
    }
    bool has_bos = e.count > 1 && e.ids[1] == e.ids[0];
    if (!add_bos || has_bos) memmove(e.ids, e.ids + 1, --e.count * sizeof *e.ids);
    *ids = e.ids;
    *count = e.count;
    return CARAT_OK;
}

int tokenizer_encode(const struct vocab *v, const char *text, size_t length,
                     enum carat_special special, bool add_bos, int32_t **ids, size_t *count,
                     struct carat_error *err)
{
    struct text_span all = {length, special};
    return tokenizer_encode_spans(v, text, &all, 1, add_bos, ids, count, err);
}

/* ---- Decoding --------------------------------------------------------------------------- */

void tokenizer_decode_one(const struct vocab *v, int32_t id, bool show_special, struct buf *out)
{
    size_t length;
    const char *text = vocab_piece(v, id, &length);
    switch (vocab_class(v, id)) {
    case TOKEN_BYTE: buf_add_char(out, (char)vocab_byte_value(v, id)); return;
    case TOKEN_CONTROL:
        if (show_special) buf_add(out, text, length);
        return;
    case TOKEN_USER_DEFINED: buf_add(out, text, length); return;
    case TOKEN_PLAIN: break;
    }
    for (size_t i = 0; i < length;) {
        const char *mark = memmem(text + i, length - i, space_mark, 3);
        size_t end = mark ? (size_t)(mark - text) : length;
        buf_add(out, text + i, end - i);
        if (mark) buf_add_char(out, ' ');
        i = end + (mark ? 3 : 0);
    }
}

int tokenizer_decode(const struct vocab *v, const int32_t *ids, size_t count, bool show_special,
                     char **text, size_t *length, struct carat_error *err)
{
    struct buf all = {0};
    *text = NULL;
    *length = 0;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab_count(v))
            return err_set(err, CARAT_EUSAGE, "token id %d: the vocabulary ends at %d", ids[i],
                           vocab_count(v) - 1);
    buf_add(&all, "", 0); /* no ids are an empty text, not none */
    for (size_t i = 0; i < count; i++) tokenizer_decode_one(v, ids[i], show_special, &all);
    if (all.failed) {
        buf_deinit(&all);
        return err_no_memory(err, "text", count);
    }
    *text = all.data;
    *length = all.length;
    return CARAT_OK;
}

struct carat_decoder {
    const struct vocab *v;
    bool show_special, failed;
    struct buf text;
    size_t given; /* bytes of text that the caller has got */
};

int decoder_open(struct carat_decoder **out, const struct vocab *v, bool show_special,
                 struct carat_error *err)
{
    *out = NULL;
    struct carat_decoder *d = mem_alloc(1, sizeof *d);
    if (!d) return err_no_memory(err, "decoder", sizeof *d);
    d->v = v;
    d->show_special = show_special;
    *out = d;
    return CARAT_OK;
}

/* Drops what the caller has got; keeps what is held back. */
static void drop_given(struct carat_decoder *d)
{
    size_t held = d->text.length - d->given;
    if (held) memmove(d->text.data, d->text.data + d->given, held);
    d->text.length = held;
    d->text.failed = false;
    d->given = 0;
}

const char *decoder_push(struct carat_decoder *d, int32_t id, size_t *length)
{
    drop_given(d);
    tokenizer_decode_one(d->v, id, d->show_special, &d->text);
    d->failed = d->failed || d->text.failed;
    const char *text = buf_text(&d->text);
    d->given = d->text.length - utf8_incomplete_tail(text, d->text.length);
    *length = d->given;
    return text;
}

const char *decoder_finish(struct carat_decoder *d, size_t *length)
{
    drop_given(d);
    *length = d->given = d->text.length;
    return buf_text(&d->text);
}

bool decoder_failed(const struct carat_decoder *d)
{
    return d->failed;
}

void decoder_close(struct carat_decoder *d)
{
    if (!d) return;
    buf_deinit(&d->text);
    mem_free(d);
}
