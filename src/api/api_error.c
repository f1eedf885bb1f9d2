#include "api/api_error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"

/* Types of OpenAI's and of Anthropic's API for each status. */
static const struct {
    int status;
    const char *openai, *anthropic, *code;
} kinds[] = {
    {400, "invalid_request_error", "invalid_request_error", NULL},
    {401, "authentication_error", "authentication_error", "invalid_api_key"},
    {403, "permission_error", "permission_error", NULL},
    {404, "not_found_error", "not_found_error", NULL},
    {405, "invalid_request_error", "invalid_request_error", "method_not_allowed"},
    {408, "timeout_error", "timeout_error", NULL},
    {411, "invalid_request_error", "invalid_request_error", NULL},
    {413, "request_too_large", "request_too_large", "request_too_large"},
    {415, "invalid_request_error", "invalid_request_error", "unsupported_media_type"},
    {429, "rate_limit_error", "rate_limit_error", NULL},
    {431, "request_too_large", "request_too_large", NULL},
    {500, "server_error", "api_error", NULL},
    {501, "not_supported", "invalid_request_error", "not_supported"},
    {503, "unavailable_error", "overloaded_error", NULL},
    {504, "timeout_error", "timeout_error", "timeout"},
};

enum api_family api_family(enum api api)
{
    if (api == API_MESSAGES) return FAMILY_ANTHROPIC;
    return api == API_OLLAMA_CHAT || api == API_OLLAMA_GENERATE ? FAMILY_OLLAMA : FAMILY_OPENAI;
}

static size_t kind_of(int status)
{
    size_t n = sizeof kinds / sizeof *kinds;
    for (size_t i = 0; i < n; i++)
        if (kinds[i].status == status) return i;
    int general = status < 500 ? 400 : 500;
    for (size_t i = 0; i < n; i++)
        if (kinds[i].status == general) return i;
    return 0;
}

static struct api_error make(int status, const char *code)
{
    size_t kind = kind_of(status);
    return (struct api_error){
        .status = status, .type = kinds[kind].openai, .code = code ? code : kinds[kind].code};
}

struct api_error api_error_make(int status, const char *code, const char *form, ...)
{
    struct api_error error = make(status, code);
    va_list args;
    va_start(args, form);
    vsnprintf(error.message, sizeof error.message, form, args);
    va_end(args);
    return error;
}

struct api_error api_error_context(int32_t n_prompt, int32_t n_ctx)
{
    struct api_error error =
        api_error_make(400, "context_length_exceeded",
                       "prompt of %d tokens exceeds the available context size of %d tokens, of "
                       "which the answer needs at least one; shorten the conversation",
                       n_prompt, n_ctx);
    error.n_prompt = n_prompt;
    error.n_ctx = n_ctx;
    return error;
}

/* ---- From a carat_error ----------------------------------------------------------------- */

/* The member that a message begins with: "messages[0].role: ...". */
static void find_param(struct api_error *error)
{
    const char *text = error->message;
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("_.[]$-", text[n]))) n++;
    bool is_path = n > 0 && text[n] == ':' && text[n + 1] == ' ' && n < sizeof error->param;
    if (!is_path || strncmp(text, "request:", 8) == 0 || strncmp(text, "JSON:", 5) == 0) return;
    memcpy(error->param, text, n);
    error->param[n] = '\0';
}

/* The message of `err`, and its hint if it has one. */
static void set_message(struct api_error *error, const struct carat_error *err)
{
    if (err->hint[0])
        snprintf(error->message, sizeof error->message, "%s; %s", err->message, err->hint);
    else
        snprintf(error->message, sizeof error->message, "%s", err->message);
}

static struct api_error from_context(const struct carat_error *err)
{
    static const char needed[] = "exceeds the available context size";
    struct api_error error = make(400, "context_length_exceeded");
    int32_t n_prompt = 0, n_ctx = 0;
    if (sscanf(err->message, "prompt of %d tokens exceeds the available context size of %d",
               &n_prompt, &n_ctx) == 2)
        return api_error_context(n_prompt, n_ctx);
    set_message(&error, err);
    size_t length = strlen(error.message);
    if (!strstr(error.message, needed))
        snprintf(error.message + length, sizeof error.message - length, "; it %s", needed);
    return error;
}

struct api_error api_error_from(const struct carat_error *err)
{
    struct api_error error;
    switch (err->code) {
    case CARAT_EUSAGE:
        error = make(400, strncmp(err->message, "not valid JSON", 14) == 0 ? "invalid_json" : NULL);
        break;
    case CARAT_EUNSUPPORTED: error = make(400, "unsupported_value"); break;
    case CARAT_ECONTEXT: return from_context(err);
    case CARAT_EBUSY:
        error = make(429, "queue_full");
        error.retry_after = 1;
        break;
    case CARAT_EMEMORY:
        error = api_error_make(503, "out_of_memory", "not enough memory for this request now");
        error.retry_after = 1;
        return error;
    case CARAT_EDEVICE:
        return api_error_make(503, "device_lost", "the device that computes has failed");
    case CARAT_ENUMERIC:
        return api_error_make(500, "non_finite_logits", "%s", carat_status_text(err->code));
    default: return api_error_make(500, NULL, "internal failure");
    }
    set_message(&error, err);
    if (error.status == 400) find_param(&error);
    return error;
}

/* ---- Bodies ----------------------------------------------------------------------------- */

static void write_openai(const struct api_error *error, struct json *j)
{
    json_key_object(j, "error");
    json_key_string(j, "message", error->message);
    json_key_string(j, "type", error->type);
    json_key_string(j, "param", error->param[0] ? error->param : NULL);
    json_key_string(j, "code", error->code);
    if (error->n_ctx > 0) {
        json_key_int(j, "n_prompt_tokens", error->n_prompt);
        json_key_int(j, "n_ctx", error->n_ctx);
    }
    json_end_object(j);
}

/* As Anthropic says it: agents shorten their conversation when they read this. */
static void put_too_long(const struct api_error *error, struct json *j)
{
    char text[sizeof error->message + 64];
    if (error->n_ctx > 0)
        snprintf(
            text, sizeof text,
            "prompt is too long: %d tokens > %d maximum; it exceeds the available context size",
            error->n_prompt, error->n_ctx);
    else
        snprintf(text, sizeof text, "prompt is too long: %s", error->message);
    json_put_string(j, text);
}

static void write_anthropic(const struct api_error *error, const char *request_id, struct json *j)
{
    json_key_string(j, "type", "error");
    json_key_object(j, "error");
    json_key_string(j, "type", kinds[kind_of(error->status)].anthropic);
    json_key(j, "message");
    if (error->code && strcmp(error->code, "context_length_exceeded") == 0)
        put_too_long(error, j);
    else
        json_put_string(j, error->message);
    if (strcmp(error->param, "thread") == 0) {
        /* Clients that read this send the conversation again, whole and without a thread. */
        json_key_object(j, "details");
        json_key_string(j, "error_code", "thread_unsupported_request");
        json_end_object(j);
    }
    json_end_object(j);
    json_key_string(j, "request_id", request_id);
}

void api_error_body(const struct api_error *error, enum api_family family, const char *request_id,
                    struct buf *out)
{
    struct json j = {.out = out};
    json_begin_object(&j);
    switch (family) {
    case FAMILY_OPENAI: write_openai(error, &j); break;
    case FAMILY_ANTHROPIC: write_anthropic(error, request_id, &j); break;
    case FAMILY_OLLAMA: json_key_string(&j, "error", error->message); break;
    }
    json_end_object(&j);
    buf_add_char(out, '\n');
}
