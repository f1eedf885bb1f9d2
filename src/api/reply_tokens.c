#include "api/reply_tokens.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static void add_row(struct reply_tokens *t, const char *bytes, size_t length, float logprob,
                    int32_t n_top)
{
    if (t->n_rows == t->capacity) {
        size_t more = t->capacity ? 2 * t->capacity : 32;
        struct reply_row *rows = mem_resize(t->rows, more, sizeof *rows);
        if (!rows) {
            t->failed = true;
            return;
        }
        t->rows = rows;
        t->capacity = more;
    }
    t->rows[t->n_rows++] = (struct reply_row){t->bytes.length, length, logprob, n_top};
    buf_add(&t->bytes, bytes, length);
    t->failed |= t->bytes.failed;
}

void reply_tokens_add(struct reply_tokens *t, const struct reply_token *token)
{
    if (t->failed) return;
    add_row(t, token->bytes, token->length, token->logprob, (int32_t)token->n_top);
    for (size_t i = 0; i < token->n_top; i++)
        add_row(t, token->top[i].bytes, token->top[i].length, token->top[i].logprob, 0);
}

void reply_tokens_clear(struct reply_tokens *t)
{
    buf_clear(&t->bytes);
    t->n_rows = 0;
}

void reply_tokens_deinit(struct reply_tokens *t)
{
    buf_deinit(&t->bytes);
    mem_free(t->rows);
    *t = (struct reply_tokens){0};
}

static const char *bytes_of(const struct reply_tokens *t, const struct reply_row *row)
{
    return buf_text(&t->bytes) + row->first;
}

/* OpenAI writes what is impossible as -9999. */
static void write_logprob(struct json *j, float logprob)
{
    json_double(j, isfinite(logprob) ? (double)logprob : -9999.0);
}

/* ---- Chat ------------------------------------------------------------------------------- */

static void write_entry(const struct reply_tokens *t, const struct reply_row *row, struct json *j)
{
    const char *bytes = bytes_of(t, row);
    json_key_text(j, "token", bytes, row->length);
    json_key(j, "logprob");
    write_logprob(j, row->logprob);
    json_key_array(j, "bytes");
    for (size_t i = 0; i < row->length; i++) json_int(j, (unsigned char)bytes[i]);
    json_end_array(j);
}

void reply_tokens_write_rows(const struct reply_tokens *t, size_t first, size_t end, struct json *j)
{
    json_begin_array(j);
    for (size_t i = first; i < end; i += 1 + (size_t)t->rows[i].n_top) {
        json_begin_object(j);
        write_entry(t, &t->rows[i], j);
        json_key_array(j, "top_logprobs");
        for (size_t k = 1; k <= (size_t)t->rows[i].n_top && i + k < end; k++) {
            json_begin_object(j);
            write_entry(t, &t->rows[i + k], j);
            json_end_object(j);
        }
        json_end_array(j);
        json_end_object(j);
    }
    json_end_array(j);
}

void reply_tokens_write_list(const struct reply_tokens *t, struct json *j)
{
    reply_tokens_write_rows(t, 0, t->n_rows, j);
}

void reply_tokens_write_chat(const struct reply_tokens *t, struct json *j)
{
    if (t->n_rows == 0 || t->failed) {
        json_put_null(j);
        return;
    }
    json_begin_object(j);
    json_key(j, "content");
    reply_tokens_write_list(t, j);
    json_key_null(j, "refusal");
    json_end_object(j);
}

/* ---- Completions ------------------------------------------------------------------------ */

static size_t characters(const char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

static void write_text(const struct reply_tokens *t, const struct reply_row *row, struct json *j)
{
    json_text(j, bytes_of(t, row), row->length);
}

/* {"token": logprob, ...}, the likeliest first. Bytes that are no characters become U+FFFD, and so
 * do NULs, because some readers refuse a whole document with a NUL in a key. Of tokens that are
 * then alike it has the likeliest alone: of equal keys most readers would keep the last. */
static void write_best(const struct reply_tokens *t, const struct reply_row *row, struct json *j)
{
    struct buf text = {0};
    struct buf seen = {0}, key = {0}; /* keys as they are written, each between line ends */
    json_begin_object(j);
    for (const struct reply_row *top = row + 1; top <= row + row->n_top; top++) {
        buf_clear(&text);
        buf_clear(&key);
        buf_add(&text, bytes_of(t, top), top->length);
        for (size_t i = 0; i < text.length; i++)
            if (!text.data[i]) text.data[i] = (char)0xFF; /* in no character */
        buf_add_char(&key, '\n');
        json_escape(&key, buf_text(&text), text.length);
        buf_add_char(&key, '\n');
        if (strstr(buf_text(&seen), buf_text(&key))) continue;
        buf_add(&seen, buf_text(&key), key.length);
        json_key(j, buf_text(&text));
        write_logprob(j, top->logprob);
    }
    json_end_object(j);
    j->out->failed |= text.failed || seen.failed || key.failed;
    buf_deinit(&text);
    buf_deinit(&seen);
    buf_deinit(&key);
}

void reply_tokens_write_completion(struct reply_tokens *t, struct json *j)
{
    if (t->n_rows == 0 || t->failed) {
        json_put_null(j);
        return;
    }
    const struct reply_row *rows = t->rows, *end = rows + t->n_rows;
    json_begin_object(j);
    json_key_array(j, "tokens");
    for (const struct reply_row *row = rows; row < end; row += 1 + row->n_top)
        write_text(t, row, j);
    json_end_array(j);
    json_key_array(j, "token_logprobs");
    for (const struct reply_row *row = rows; row < end; row += 1 + row->n_top)
        write_logprob(j, row->logprob);
    json_end_array(j);
    json_key_array(j, "top_logprobs");
    for (const struct reply_row *row = rows; row < end; row += 1 + row->n_top)
        write_best(t, row, j);
    json_end_array(j);
    json_key_array(j, "text_offset");
    for (const struct reply_row *row = rows; row < end; row += 1 + row->n_top) {
        json_int(j, (int64_t)t->n_characters);
        t->n_characters += characters(bytes_of(t, row), row->length);
    }
    json_end_array(j);
    json_end_object(j);
}
