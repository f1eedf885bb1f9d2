#include "api/ask.h"

#include <string.h>

#include "api/ask_readers.h"
#include "api/ask_take.h"
#include "base/status.h"
#include "json/json_fields.h"

/* OpenAI's chat form is what everything becomes, so its reader has nothing to do. */
static int chat_read(struct ask *ask, const struct carat_value *body,
                     const struct ask_limits *limits, struct carat_error *err)
{
    (void)limits;
    (void)err;
    ask->request.root = *body;
    return CARAT_OK;
}

/* A bound, because each lookup goes through all members. */
enum { MEMBERS_MAX = 4096 };

static const struct {
    ask_reader *read;
    enum json_purpose purpose;
} readers[API_COUNT] = {
    [API_CHAT] = {chat_read, JSON_CHAT},
    [API_COMPLETIONS] = {completions_read, JSON_PLAIN},
    [API_RESPONSES] = {responses_read, JSON_PLAIN},
    [API_MESSAGES] = {messages_read, JSON_PLAIN},
    [API_OLLAMA_CHAT] = {ollama_chat_read, JSON_PLAIN},
    [API_OLLAMA_GENERATE] = {ollama_generate_read, JSON_PLAIN},
};

int ask_check_model(const struct ask_limits *limits, const char *model, struct carat_error *err)
{
    if (!limits->model || model[0] == '\0' || strcmp(model, limits->model) == 0) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "model: \"%s\" expected, \"%.100s\" found", limits->model, model);
    err_hint(err, "GET /v1/models lists what is served here");
    return CARAT_EUSAGE;
}

static int read_all(struct ask *ask, enum api api, const char *body, size_t length,
                    const struct carat_sampling *defaults, const struct ask_limits *limits,
                    struct carat_error *err)
{
    struct json_tree *json = &ask->request.json;
    TRY(json_tree_read(json, body, length, readers[api].purpose, err));
    if (json->root.kind != CARAT_OBJECT)
        return json_wrong_kind("request", "an object", &json->root, err);
    if (json->root.as.object.count > MEMBERS_MAX)
        return err_set(err, CARAT_EUSAGE, "request: at most %d members expected, %zu found",
                       MEMBERS_MAX, json->root.as.object.count);
    TRY(readers[api].read(ask, &json->root, limits, err));
    return ask_take(ask, defaults, limits, err);
}

int ask_read(struct ask *ask, enum api api, const char *body, size_t length,
             const struct carat_sampling *defaults, const struct ask_limits *limits,
             struct carat_error *err)
{
    *ask = (struct ask){.api = api, .model = "", .session = "", .cache_salt = ""};
    int status = read_all(ask, api, body, length, defaults, limits, err);
    if (status == CARAT_OK) return ask_check_model(limits, ask->model, err);
    ask_use_names(ask, err);
    return status;
}

void ask_close(struct ask *ask)
{
    chat_request_close(&ask->request);
    *ask = (struct ask){0};
}
