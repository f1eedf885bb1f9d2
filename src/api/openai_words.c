#include "api/openai_words.h"

#include "api/reply_common.h"
#include "api/sse.h"

/* The same bytes for every chunk, so they are made once. */
static void make_head(struct reply *r, const char *prefix, const char *object)
{
    struct json j = {.out = &r->head};
    struct buf id = {0};
    buf_printf(&id, "%s%s", prefix, r->facts.id);
    json_begin_object(&j);
    json_key_string(&j, "id", buf_text(&id));
    json_key_string(&j, "object", object);
    json_key_int(&j, "created", r->facts.created);
    json_key_string(&j, "model", r->facts.model);
    json_key_string(&j, "system_fingerprint", r->facts.fingerprint);
    json_key_array(&j, "choices");
    r->failed |= id.failed || r->head.failed;
    buf_deinit(&id);
}

void openai_begin(struct reply *r, struct json *j, const char *prefix, const char *object)
{
    if (r->head.length == 0) make_head(r, prefix, object);
    j->out->failed |= r->failed;
    buf_add(j->out, buf_text(&r->head), r->head.length);
    j->need_comma = false;
}

void openai_end(const struct reply *r, struct json *j)
{
    json_end_array(j);
    if (!r->ask->is_stream || !r->ask->wants_usage) return;
    json_key_null(j, "usage");
}

static void write_usage(const struct reply *r, struct json *j)
{
    struct reply_usage sum = reply_usage_sum(r);
    json_key_object(j, "usage");
    json_key_int(j, "prompt_tokens", sum.n_prompt);
    json_key_int(j, "completion_tokens", sum.n_generated);
    json_key_int(j, "total_tokens", (int64_t)sum.n_prompt + sum.n_generated);
    json_key_object(j, "prompt_tokens_details");
    json_key_int(j, "cached_tokens", sum.n_cached);
    json_end_object(j);
    json_key_object(j, "completion_tokens_details");
    json_key_int(j, "reasoning_tokens", sum.n_thinking);
    json_end_object(j);
    json_end_object(j);
}

/* "NAME_n": n, "NAME_ms", "NAME_per_token_ms", "NAME_per_second" */
static void write_pace(struct json *j, const char *const keys[4], int32_t n, double seconds)
{
    json_key_int(j, keys[0], n);
    json_key_double(j, keys[1], seconds * 1e3);
    json_key_double(j, keys[2], n > 0 ? seconds * 1e3 / n : 0);
    json_key_double(j, keys[3], seconds > 0 ? n / seconds : 0);
}

void openai_write_timings(const struct reply_usage *usage, struct json *j)
{
    static const char *const prompt[4] = {"prompt_n", "prompt_ms", "prompt_per_token_ms",
                                          "prompt_per_second"};
    static const char *const predicted[4] = {"predicted_n", "predicted_ms",
                                             "predicted_per_token_ms", "predicted_per_second"};
    json_key_object(j, "timings");
    json_key_int(j, "cache_n", usage->n_cached);
    write_pace(j, prompt, usage->n_prompt - usage->n_cached, usage->prefill_seconds);
    write_pace(j, predicted, usage->n_generated, usage->decode_seconds);
    json_key_double(j, "queue_ms", usage->queue_seconds * 1e3);
    if (usage->n_drafted > 0) {
        json_key_int(j, "draft_n", usage->n_drafted);
        json_key_int(j, "draft_n_accepted", usage->n_accepted);
    }
    json_end_object(j);
}

void openai_end_body(const struct reply *r, struct json *j)
{
    openai_end(r, j);
    write_usage(r, j);
    openai_write_timings(&r->answers[0].done.usage, j);
    json_end_object(j);
    buf_add_char(j->out, '\n');
}

void openai_write_progress(int32_t done, int32_t total, int32_t cached, struct json *j)
{
    json_key_object(j, "prompt_progress");
    json_key_int(j, "total", total);
    json_key_int(j, "cache", cached);
    json_key_int(j, "processed", done);
    json_end_object(j);
}

void openai_write_end(const struct reply_answer *a, struct json *j)
{
    bool has_calls = a->n_calls > 0;
    json_key_string(j, "finish_reason",
                    reply_is_cut(a) ? "length"
                    : has_calls     ? "tool_calls"
                                    : "stop");
    if (a->done.end == REPLY_STOP_TEXT && a->done.stop) {
        json_key_string(j, "stop_reason", a->done.stop);
    }
    if (a->done.is_cut_in_thought) {
        json_key_bool(j, "reasoning_truncated", true);
    }
}

void openai_finish_stream(struct reply *r, const char *prefix, const char *object, struct buf *out)
{
    struct json j = {.out = out};
    if (r->ask->wants_usage) {
        sse_begin(out, NULL);
        openai_begin(r, &j, prefix, object);
        json_end_array(&j);
        write_usage(r, &j);
        json_end_object(&j);
        sse_end(out);
    }
    sse_done(out);
}

void openai_fail(struct reply *r, const struct api_error *error, struct buf *out)
{
    sse_begin(out, NULL);
    reply_write_error(r, error, out);
    sse_end(out);
}

void openai_ping(const struct reply *r, struct buf *out)
{
    (void)r;
    sse_ping(out);
}
