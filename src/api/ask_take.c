#include "api/ask_take.h"

#include "base/status.h"
#include "json/json_fields.h"

enum { NAME_BYTES_MAX = 512, PRIORITY_MAX = 1000000 };

static int check_count(const struct carat_value *root, const char *key, size_t most,
                       struct carat_error *err)
{
    const struct carat_value *list = json_member(root, key);
    if (list->kind != CARAT_ARRAY || list->as.array.count <= most) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: at most %zu expected, %zu found", key, most,
                   list->as.array.count);
}

static int check_counts(const struct carat_value *root, const struct ask_limits *limits,
                        struct carat_error *err)
{
    TRY(check_count(root, "messages", limits->messages_max, err));
    TRY(check_count(root, "tools", limits->tools_max, err));
    return check_count(root, "stop", limits->stops_max, err);
}

/* A request has messages, of which there is at least one, or prompts. */
static int check_subject(const struct ask *ask, struct carat_error *err)
{
    const struct carat_value *messages = json_member(&ask->request.root, "messages");
    if (ask->n_prompts || ask->is_unload || ask->is_load) return CARAT_OK;
    if (messages->kind != CARAT_ARRAY)
        return json_wrong_kind("messages", "an array", messages, err);
    if (messages->as.array.count == 0)
        return err_set(err, CARAT_EUSAGE, "messages: at least one expected, none found");
    return CARAT_OK;
}

/* The limit counts the answers to all prompts together. */
static int take_n(struct ask *ask, const struct ask_limits *limits, struct carat_error *err)
{
    size_t prompts = ask->n_prompts ? ask->n_prompts : 1, most = (size_t)limits->n_max;
    ask->n = ask->request.n;
    if ((size_t)ask->n * prompts <= most) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "n: at most %zu answers expected, %d to each of %zu found",
                   most, ask->n, prompts);
}

static int take_stream(struct ask *ask, struct carat_error *err)
{
    const struct carat_value *root = &ask->request.root;
    const struct carat_value *options = json_member(root, "stream_options");
    TRY(json_read_flag(root, "stream", &ask->is_stream, err));
    if (options->kind != CARAT_NULL && options->kind != CARAT_OBJECT)
        return json_wrong_kind("stream_options", "an object", options, err);
    int status = json_read_flag(options, "include_usage", &ask->wants_usage, err);
    if (status != CARAT_OK) return err_within(err, "stream_options"), status;
    TRY(json_read_flag(root, "return_progress", &ask->wants_progress, err));
    TRY(json_read_flag(root, "return_token_ids", &ask->wants_ids, err));
    return json_read_flag(root, "timings_per_token", &ask->wants_timings, err);
}

/* The name of the conversation, if the client gives one. What is not a text, or too long, is
 * ignored: it is not worth a refusal. */
static int take_session(struct ask *ask, struct carat_error *err)
{
    static const char *const names[] = {"prompt_cache_key", "user"};
    const struct carat_value *root = &ask->request.root;
    if (ask->session && *ask->session) return CARAT_OK;
    ask->session = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct carat_value *name = json_member(root, names[i]);
        size_t length = name->kind == CARAT_STRING ? name->as.string.length : 0;
        if (length == 0 || length > NAME_BYTES_MAX) continue;
        return json_read_text(root, names[i], NAME_BYTES_MAX, &ask->request.json.arena,
                              &ask->session, err);
    }
    return CARAT_OK;
}

/* Members of vLLM's API. A lower priority is served earlier there, but nobody goes ahead of others
 * by saying so: a request can only step back. */
static int take_place(struct ask *ask, struct carat_error *err)
{
    const struct carat_value *root = &ask->request.root;
    TRY(json_read_text(root, "cache_salt", NAME_BYTES_MAX, &ask->request.json.arena,
                       &ask->cache_salt, err));
    if (json_text_is(json_member(root, "cache_salt"), ""))
        return err_set(err, CARAT_EUSAGE, "cache_salt: 1 to %d bytes expected, 0 found",
                       NAME_BYTES_MAX);
    int status = json_read_whole(root, "priority", 0, PRIORITY_MAX, &ask->priority, err);
    if (status != CARAT_OK) err_hint(err, "a request can step back, but not ahead of others");
    return status;
}

static int take_flags(struct ask *ask, struct carat_error *err)
{
    const struct carat_value *root = &ask->request.root;
    bool uses_cache = !ask->no_cache;
    TRY(json_read_flag(root, "cache_prompt", &uses_cache, err));
    ask->no_cache = !uses_cache;
    return CARAT_OK;
}

int ask_take(struct ask *ask, const struct carat_sampling *defaults,
             const struct ask_limits *limits, struct carat_error *err)
{
    struct carat_value root = ask->request.root;
    if (!ask->model) ask->model = "";
    if (!ask->cache_salt) ask->cache_salt = "";
    TRY(check_counts(&root, limits, err));
    TRY(chat_request_take(&ask->request, root, defaults, limits->n_max, err));
    TRY(check_subject(ask, err));
    TRY(take_n(ask, limits, err));
    TRY(take_stream(ask, err));
    TRY(take_session(ask, err));
    TRY(take_flags(ask, err));
    TRY(take_place(ask, err));
    return json_read_text(&root, "model", NAME_BYTES_MAX, &ask->request.json.arena, &ask->model,
                          err);
}
