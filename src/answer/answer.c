/* The parser cuts ids into parts; text passes through the stop strings on its way out.
 *
 * Invariant: `text` holds the texts of this push's TEXT parts one after another, and then what is
 * held back. So a TEXT part stores no address: it begins where the one before ends. Addresses are
 * set when all parts are there and the buffer no longer moves. */
#include "answer/answer.h"

#include <string.h>

#include "answer/stop.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/sized.h"
#include "text/parser.h"
#include "text/tokenizer.h"

struct carat_answer {
    struct carat_parser *parser;   /* or */
    struct carat_decoder *decoder; /* is_raw */
    struct stop_strings stops;
    const char *stop; /* the stop string that ended the answer */
    struct buf text;
    size_t n_given; /* bytes of `text` that are in parts */
    struct carat_part *parts;
    size_t n_parts, capacity;
    bool failed; /* text was lost: no further push can be right */
};

int answer_open(carat_answer **out, const struct vocab *v, const int32_t *prompt, size_t n_prompt,
                const struct carat_answer_options *options, struct carat_error *err)
{
    struct carat_answer_options o = {0};
    *out = NULL;
    if (options)
        TRY(sized_copy(&o, sizeof o, SIZED_THROUGH(struct carat_answer_options, streams_calls),
                       options, "answer options", err));
    struct carat_answer *a = mem_alloc(1, sizeof *a);
    if (!a) return err_no_memory(err, "answer", sizeof *a);
    int status = stop_strings_open(&a->stops, o.stops, o.n_stops, err);
    if (status == CARAT_OK)
        status = o.is_raw ? decoder_open(&a->decoder, v, o.show_special, err)
                          : parser_open(&a->parser, v, prompt, n_prompt, err);
    if (status == CARAT_OK && o.streams_calls && a->parser) parser_stream_calls(a->parser);
    if (status == CARAT_OK)
        *out = a;
    else
        answer_close(a);
    return status;
}

void answer_close(carat_answer *a)
{
    if (!a) return;
    parser_close(a->parser);
    decoder_close(a->decoder);
    stop_strings_close(&a->stops);
    buf_deinit(&a->text);
    mem_free(a->parts);
    mem_free(a);
}

const char *answer_stop(const carat_answer *a)
{
    return a->stop;
}

bool answer_is_thinking(const carat_answer *a)
{
    return a->parser && parser_is_thinking(a->parser);
}

static bool reserve(carat_answer *a, size_t n)
{
    if (n <= a->capacity) return true;
    struct carat_part *more = mem_resize(a->parts, n, sizeof *more);
    if (!more) return false;
    a->parts = more;
    a->capacity = n;
    return true;
}

/* Drops the text that was handed out, keeps what is held back. */
static void begin(carat_answer *a)
{
    size_t held = a->text.length - a->n_given;
    if (a->n_given) {
        memmove(a->text.data, a->text.data + a->n_given, held);
        a->text.data[held] = '\0';
    }
    a->text.length = held;
    a->n_given = a->n_parts = 0;
}

/* Makes the text up to `end` part of the answer. */
static void give_text(carat_answer *a, size_t end)
{
    if (end <= a->n_given) return;
    struct carat_part *last = a->n_parts ? &a->parts[a->n_parts - 1] : NULL;
    if (!last || last->kind != CARAT_PART_TEXT) {
        last = &a->parts[a->n_parts++];
        *last = (struct carat_part){.kind = CARAT_PART_TEXT, .name = "", .is_complete = true};
    }
    last->length += end - a->n_given;
    a->n_given = end;
}

static void take_text(carat_answer *a, const char *text, size_t length)
{
    size_t certain;
    buf_add(&a->text, text, length);
    if (a->text.failed) return;
    size_t held = a->text.length - a->n_given;
    a->stop = stop_strings_find(&a->stops, buf_text(&a->text) + a->n_given, held, &certain);
    give_text(a, a->n_given + certain);
    if (a->stop) a->text.length = a->n_given;
}

/* No stop string goes across a thought or a call between two texts. */
static void take_part(carat_answer *a, const struct carat_part *part)
{
    if (part->kind == CARAT_PART_TEXT) {
        take_text(a, part->text, part->length);
    } else {
        give_text(a, a->text.length);
        a->parts[a->n_parts++] = *part;
    }
}

static int hand_out(carat_answer *a, const struct carat_part **parts, size_t *n_parts,
                    struct carat_error *err)
{
    *parts = NULL;
    *n_parts = 0;
    if (a->failed || a->text.failed) {
        a->failed = true;
        return err_no_memory(err, "answer", a->text.length);
    }
    const char *at = buf_text(&a->text);
    for (size_t i = 0; i < a->n_parts; i++) {
        if (a->parts[i].kind != CARAT_PART_TEXT) continue;
        a->parts[i].text = at;
        at += a->parts[i].length;
    }
    *parts = a->parts;
    *n_parts = a->n_parts;
    return CARAT_OK;
}

static int take_ids(carat_answer *a, const int32_t *ids, size_t count, bool is_end,
                    struct carat_error *err)
{
    const struct carat_part *parts;
    size_t n;
    TRY(is_end ? parser_finish(a->parser, &parts, &n, err)
               : parser_push(a->parser, ids, count, &parts, &n, err));
    if (!reserve(a, 2 * n + 1)) return err_no_memory(err, "answer", n * sizeof *parts);
    for (size_t i = 0; i < n && !a->stop; i++) take_part(a, &parts[i]);
    return CARAT_OK;
}

static int take_raw(carat_answer *a, const int32_t *ids, size_t count, bool is_end,
                    struct carat_error *err)
{
    size_t length;
    if (!reserve(a, 1)) return err_no_memory(err, "answer", sizeof *a->parts);
    for (size_t i = 0; i < count && !a->stop; i++) {
        const char *text = decoder_push(a->decoder, ids[i], &length);
        take_text(a, text, length);
    }
    if (is_end && !a->stop) {
        const char *text = decoder_finish(a->decoder, &length);
        take_text(a, text, length);
    }
    return decoder_failed(a->decoder) ? err_no_memory(err, "answer", a->text.length) : CARAT_OK;
}

static int take_tokens(carat_answer *a, const int32_t *ids, size_t count, bool is_end,
                       struct carat_error *err)
{
    begin(a);
    if (a->stop || a->failed) return CARAT_OK;
    int status =
        a->decoder ? take_raw(a, ids, count, is_end, err) : take_ids(a, ids, count, is_end, err);
    if (status) a->failed = true;
    return status;
}

int answer_push(carat_answer *a, const int32_t *ids, size_t count, const struct carat_part **parts,
                size_t *n_parts, struct carat_error *err)
{
    *parts = NULL;
    *n_parts = 0;
    TRY(take_tokens(a, ids, count, false, err));
    return hand_out(a, parts, n_parts, err);
}

int answer_finish(carat_answer *a, const struct carat_part **parts, size_t *n_parts,
                  struct carat_error *err)
{
    *parts = NULL;
    *n_parts = 0;
    TRY(take_tokens(a, NULL, 0, true, err));
    if (!a->stop && !a->failed) give_text(a, a->text.length);
    return hand_out(a, parts, n_parts, err);
}
