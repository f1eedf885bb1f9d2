/* What OpenAI's chat and completions replies have in common. */
#ifndef API_OPENAI_WORDS_H
#define API_OPENAI_WORDS_H

#include "api/reply_form.h"

/* The event up to "choices": [, for openai_end to close. `prefix` goes before the id. The events of
 * a reply are all of one object. */
void openai_begin(struct reply *r, struct json *j, const char *prefix, const char *object);
/* Closes "choices". In a stream whose end will have a usage, every chunk says that it has none. */
void openai_end(const struct reply *r, struct json *j);
/* The same for a whole body, with usage, times and the end of its line. */
void openai_end_body(const struct reply *r, struct json *j);
/* As llama.cpp's server says it. */
void openai_write_timings(const struct reply_usage *usage, struct json *j);
/* How much of a prompt is read, likewise. */
void openai_write_progress(int32_t done, int32_t total, int32_t cached, struct json *j);
/* "finish_reason", and what else there is to say about an end. */
void openai_write_end(const struct reply_answer *a, struct json *j);

/* A stream's ends and comments. */
void openai_finish_stream(struct reply *r, const char *prefix, const char *object, struct buf *out);
void openai_fail(struct reply *r, const struct api_error *error, struct buf *out);
void openai_ping(const struct reply *r, struct buf *out);

#endif
