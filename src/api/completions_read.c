/* OpenAI's completions: prompts as they are, without a template. */
#include <stdio.h>

#include "api/ask_readers.h"
#include "api/tree.h"
#include "base/status.h"
#include "json/json_fields.h"

enum { MAX_TOKENS = 16, LOGPROBS_MAX = CARAT_TOP_LOGPROBS_MAX };

/* ---- Prompts ---------------------------------------------------------------------------- */

static bool is_tokens(const struct carat_value *value)
{
    return value->kind == CARAT_ARRAY && value->as.array.count > 0 &&
           json_is_number(&value->as.array.items[0]);
}

static int take_tokens(struct ask *ask, const struct carat_value *list, struct ask_prompt *out,
                       struct carat_error *err)
{
    size_t count = list->as.array.count;
    int32_t *ids = arena_take(&ask->request.json.arena, count, sizeof *ids);
    if (!ids) return err_no_memory(err, "prompt", count * sizeof *ids);
    for (size_t i = 0; i < count; i++) {
        char where[32];
        int64_t id;
        snprintf(where, sizeof where, "[%zu]", i);
        TRY(json_whole(&list->as.array.items[i], where, 0, INT32_MAX, &id, err));
        ids[i] = (int32_t)id;
    }
    *out = (struct ask_prompt){.text = "", .ids = ids, .n_ids = count};
    return CARAT_OK;
}

/* A text, in which special tokens count: there is no template that could write them. */
static int take_prompt(struct ask *ask, const struct carat_value *value, struct ask_prompt *out,
                       struct carat_error *err)
{
    if (is_tokens(value)) return take_tokens(ask, value, out, err);
    if (value->kind != CARAT_STRING)
        return err_set(err, CARAT_EUSAGE, ": a string or an array of token ids expected, %s found",
                       json_kind_name(value));
    *out = (struct ask_prompt){
        .text = value->as.string.data, .length = value->as.string.length, .has_special = true};
    return CARAT_OK;
}

/* A string, an array of strings, of token ids, or of arrays of token ids. */
static int take_prompts(struct ask *ask, const struct carat_value *value,
                        const struct ask_limits *limits, struct carat_error *err)
{
    bool is_list = value->kind == CARAT_ARRAY && !is_tokens(value);
    size_t count = is_list ? value->as.array.count : 1;
    if (count == 0 || count > (size_t)limits->n_max)
        return err_set(err, CARAT_EUSAGE, "prompt: 1 to %d prompts expected, %zu found",
                       limits->n_max, count);
    ask->prompts = arena_take(&ask->request.json.arena, count, sizeof *ask->prompts);
    if (!ask->prompts) return err_no_memory(err, "prompt", count * sizeof *ask->prompts);
    ask->n_prompts = count;
    for (size_t i = 0; i < count; i++) {
        struct carat_error inner = {0};
        const struct carat_value *one = is_list ? &value->as.array.items[i] : value;
        int status = take_prompt(ask, one, &ask->prompts[i], &inner);
        if (status == CARAT_OK) continue;
        if (is_list) return err_set(err, inner.code, "prompt[%zu]%s", i, inner.message);
        return err_set(err, inner.code, "prompt%s", inner.message);
    }
    return CARAT_OK;
}

/* ---- The rest --------------------------------------------------------------------------- */

static int check_suffix(const struct carat_value *body, struct carat_error *err)
{
    const struct carat_value *suffix = json_member(body, "suffix");
    bool is_empty = suffix->kind == CARAT_STRING && suffix->as.string.length == 0;
    if (suffix->kind == CARAT_NULL || is_empty) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "suffix: not supported");
    err_hint(err, "the model continues a text; it does not fill gaps");
    return CARAT_EUSAGE;
}

static int check_best_of(const struct carat_value *body, const struct ask_limits *limits,
                         struct carat_error *err)
{
    int32_t n = 1;
    TRY(json_read_whole(body, "n", 1, limits->n_max, &n, err));
    int32_t best_of = n;
    TRY(json_read_whole(body, "best_of", 1, INT32_MAX, &best_of, err));
    if (best_of == n) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "best_of: as much as n expected, %d and %d found", best_of, n);
    err_hint(err, "carat returns every answer it makes");
    return CARAT_EUSAGE;
}

/* The number of best tokens to report; 0 reports the chosen ones alone. As in llama.cpp's
 * server, true means 0 and false means nothing. */
static int put_logprobs(struct tree *t, struct tree_object *root, const struct carat_value *body,
                        struct carat_error *err)
{
    const struct carat_value *value = json_member(body, "logprobs");
    int32_t n = 0;
    bool is_wanted = value->kind != CARAT_NULL;
    if (value->kind == CARAT_BOOL)
        is_wanted = value->as.boolean;
    else
        TRY(json_read_whole(body, "logprobs", 0, LOGPROBS_MAX, &n, err));
    if (!is_wanted) return CARAT_OK;
    tree_put(t, root, "logprobs", tree_bool(true));
    tree_put(t, root, "top_logprobs", tree_int(n));
    return CARAT_OK;
}

/* The chat form of the request: without what only chats have, or what means something else
 * there. */
static int make_root(struct ask *ask, const struct carat_value *body, struct carat_error *err)
{
    static const char *const except[] = {"prompt",
                                         "messages",
                                         "tools",
                                         "tool_choice",
                                         "parallel_tool_calls",
                                         "logprobs",
                                         "top_logprobs",
                                         "enable_thinking",
                                         "reasoning_effort",
                                         "reasoning_budget",
                                         "thinking_budget_tokens",
                                         "chat_template_kwargs",
                                         NULL};
    struct tree t = {.arena = &ask->request.json.arena};
    struct tree_object root = {0};
    TRY(put_logprobs(&t, &root, body, err));
    tree_put_all(&t, &root, body, except);
    bool has_length = json_member(body, "max_tokens")->kind != CARAT_NULL ||
                      json_member(body, "max_completion_tokens")->kind != CARAT_NULL ||
                      json_member(body, "n_predict")->kind != CARAT_NULL;
    if (!has_length) tree_put(&t, &root, "max_tokens", tree_int(MAX_TOKENS));
    ask->request.root = tree_object_value(&root);
    return tree_check(&t, err);
}

/* An echo with log-probabilities would need those of the prompt, which are not computed. */
static int check_echo(const struct ask *ask, struct carat_error *err)
{
    const struct carat_value *logprobs = json_member(&ask->request.root, "logprobs");
    if (!ask->wants_echo || logprobs->kind == CARAT_NULL) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "echo: false expected with logprobs");
    err_hint(err, "log-probabilities are those of the answer alone");
    return CARAT_EUSAGE;
}

int completions_read(struct ask *ask, const struct carat_value *body,
                     const struct ask_limits *limits, struct carat_error *err)
{
    TRY(check_suffix(body, err));
    TRY(check_best_of(body, limits, err));
    TRY(take_prompts(ask, json_member(body, "prompt"), limits, err));
    TRY(json_read_flag(body, "echo", &ask->wants_echo, err));
    TRY(make_root(ask, body, err));
    return check_echo(ask, err);
}
