/* Text to token ids and back.
 *
 * Encoding: special tokens are cut out where they count, spaces become U+2581, lines and
 * runs of newlines are BPE words, merged by rank; what the vocabulary lacks becomes byte
 * tokens. Any bytes may be encoded; decoding gives the same bytes back (only U+2581 itself
 * comes back as a space). */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carat.h"
#include "text/vocab.h"

/* A stretch of a text, from the end of the one before to `end`, and which special tokens count in
 * it. */
struct text_span {
    size_t end;
    enum carat_special special;
};

/* *ids is freed with mem_free. Texts of 2 GiB and more are CARAT_EUSAGE. */
int tokenizer_encode(const struct vocab *v, const char *text, size_t length,
                     enum carat_special special, bool add_bos, int32_t **ids, size_t *count,
                     struct carat_error *err);

/* Spans with different rules. Between two special tokens text is one piece, wherever spans
 * meet: "user\n" of a template and "Hello" of a message give the ids of "user\nHello". A
 * special token counts only where all of it lies in one span that allows it. */
int tokenizer_encode_spans(const struct vocab *v, const char *text, const struct text_span *spans,
                           size_t n_spans, bool add_bos, int32_t **ids, size_t *count,
                           struct carat_error *err);

/* Appends the bytes that an id stands for: a byte token its byte, a control token nothing (its
 * text with show_special), everything else its text with U+2581 as a space. */
struct buf;
void tokenizer_decode_one(const struct vocab *v, int32_t id, bool show_special, struct buf *out);

/* Ids to text; as carat_detokenize. *text is freed with mem_free, NULL after an error. */
int tokenizer_decode(const struct vocab *v, const int32_t *ids, size_t count, bool show_special,
                     char **text, size_t *length, struct carat_error *err);

/* The same one by one, complete UTF-8 only. The text is borrowed until the next call. Without
 * memory the text is cut; `decoder_failed` says so. */
struct carat_decoder;
int decoder_open(struct carat_decoder **out, const struct vocab *v, bool show_special,
                 struct carat_error *err);
const char *decoder_push(struct carat_decoder *d, int32_t id, size_t *length);
const char *decoder_finish(struct carat_decoder *d, size_t *length);
bool decoder_failed(const struct carat_decoder *d);
void decoder_close(struct carat_decoder *d); /* NULL is fine */

#endif
