#include "json/chat_request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "json/json_fields.h"
#include "json/sampling_fields.h"

/* ---- Values ----------------------------------------------------------------------------- */

/* A text with a NUL at its end. */
static int copy_text(struct chat_request *r, const struct carat_value *value, const char **out,
                     struct carat_error *err)
{
    size_t length = value->as.string.length;
    *out = arena_copy_text(&r->json.arena, value->as.string.data, length);
    return *out ? CARAT_OK : err_no_memory(err, "request", length);
}

/* ---- What is refused -------------------------------------------------------------------- */

/* Null, false, 0 and what is empty ask for nothing. */
static bool asks_nothing(const struct carat_value *value)
{
    switch (value->kind) {
    case CARAT_NULL: return true;
    case CARAT_BOOL: return !value->as.boolean;
    case CARAT_INT: return value->as.integer == 0;
    case CARAT_REAL: return value->as.real == 0;
    case CARAT_STRING: return value->as.string.length == 0;
    case CARAT_ARRAY: return value->as.array.count == 0;
    case CARAT_OBJECT: return value->as.object.count == 0;
    }
    return false;
}

/* Members that other servers know and that would change the answer. */
static int check_members(const struct carat_value *root, struct carat_error *err)
{
    static const struct {
        const char *key, *hint;
    } refused[] = {
        {"functions", "put them in tools"},
        {"function_call", "tool_choice says it"},
        {"web_search_options", "carat searches nothing; leave it out"},
        {"audio", "carat writes text only"},
        {"guided_json", "response_format with a json_schema says it"},
        {"guided_regex", "response_format with a json_schema and its pattern says it"},
        {"guided_choice", "response_format with a json_schema and its enum says it"},
        {"guided_grammar", "put it in grammar"},
        {"structured_outputs", "response_format says it"},
        {"allowed_token_ids", "logit_bias can ban tokens"},
        {"bad_words", "logit_bias can ban tokens"},
        {"min_tokens", "leave it out"},
        {"stop_token_ids", "stop takes texts"},
        {"include_stop_str_in_output", "a stop text is never part of an answer"},
        {"truncate_prompt_tokens", "prompts are never shortened; leave it out"},
        {"use_beam_search", "there is no beam search; leave it out"},
        {"prompt_logprobs", "leave it out"},
        {"chat_template", "the model's own template is used"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct carat_value *value = json_member(root, refused[i].key);
        if (asks_nothing(value)) continue;
        err_set(err, CARAT_EUSAGE, "%s: not supported", refused[i].key);
        err_hint(err, "%s", refused[i].hint);
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static int check_modalities(const struct carat_value *root, struct carat_error *err)
{
    const struct carat_value *list = json_member(root, "modalities");
    if (list->kind == CARAT_NULL) return CARAT_OK;
    if (list->kind != CARAT_ARRAY) return json_wrong_kind("modalities", "an array", list, err);
    for (size_t i = 0; i < list->as.array.count; i++)
        if (!json_text_is(&list->as.array.items[i], "text"))
            return err_set(err, CARAT_EUSAGE,
                           "modalities[%zu]: \"text\" expected; carat writes text only", i);
    return CARAT_OK;
}

static int read_n(struct chat_request *r, int32_t n_max, struct carat_error *err)
{
    const struct carat_value *n = json_member(&r->root, "n");
    r->n = 1;
    if (n_max > 1) return json_read_whole(&r->root, "n", 1, n_max, &r->n, err);
    if (n->kind == CARAT_NULL || (json_is_number(n) && json_number(n) == 1)) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "n: 1 expected, more or less asked for");
    err_hint(err, "a request has one answer: ask again, with another seed, for more");
    return CARAT_EUSAGE;
}

int chat_request_refuse_part(const char *path, const struct carat_value *type,
                             struct carat_error *err)
{
    char shown[JSON_SHOWN_MAX];
    if (type->kind == CARAT_STRING)
        err_set(err, CARAT_EUNSUPPORTED, "%s: \"%s\" is not supported", path,
                json_shown(type, shown));
    else
        err_set(err, CARAT_EUSAGE, "%s: \"text\" expected, %s found", path, json_kind_name(type));
    err_hint(err, "carat reads text only: leave this part out");
    return err ? (int)err->code : CARAT_EUSAGE;
}

static int check_parts(const struct carat_value *parts, size_t i, struct carat_error *err)
{
    for (size_t k = 0; parts->kind == CARAT_ARRAY && k < parts->as.array.count; k++) {
        const struct carat_value *part = &parts->as.array.items[k];
        const struct carat_value *type = json_member(part, "type");
        const struct carat_value *text = json_member(part, "text");
        char path[80];
        if (part->kind != CARAT_OBJECT) continue; /* the template says so */
        snprintf(path, sizeof path, "messages[%zu].content[%zu].type", i, k);
        if (!json_text_is(type, "text")) return chat_request_refuse_part(path, type, err);
        snprintf(path, sizeof path, "messages[%zu].content[%zu].text", i, k);
        if (text->kind != CARAT_STRING) return json_wrong_kind(path, "a string", text, err);
    }
    return CARAT_OK;
}

/* A result may leave out the id of its call. If it has one, a call in the answer must have it. */
static int check_result(const struct carat_value *message, const struct carat_value *answer,
                        size_t i, struct carat_error *err)
{
    const struct carat_value *id = json_member(message, "tool_call_id");
    const struct carat_value *calls = json_member(answer, "tool_calls");
    char shown[JSON_SHOWN_MAX];
    if (id->kind != CARAT_STRING || calls->kind != CARAT_ARRAY) return CARAT_OK;
    for (size_t k = 0; k < calls->as.array.count; k++) {
        const struct carat_value *own = json_member(&calls->as.array.items[k], "id");
        size_t length = id->as.string.length;
        if (own->kind == CARAT_STRING && own->as.string.length == length &&
            memcmp(own->as.string.data, id->as.string.data, length) == 0)
            return CARAT_OK;
    }
    return err_set(err, CARAT_EUSAGE,
                   "messages[%zu].tool_call_id: the id of a call in the answer before it "
                   "expected, \"%s\" found",
                   i, json_shown(id, shown));
}

/* Refuses an assistant's message that says and calls nothing, a tool's that answers no call (the
 * template would leave it out), and parts that are not text. Whoever renders the messages finds
 * what else may be wrong with them. */
static int check_messages(const struct carat_value *root, struct carat_error *err)
{
    const struct carat_value *messages = json_member(root, "messages");
    size_t count = messages->kind == CARAT_ARRAY ? messages->as.array.count : 0;
    bool has_calls = false; /* the answer before, with nothing but results after it */
    const struct carat_value *answer = messages;
    for (size_t i = 0; i < count; i++) {
        const struct carat_value *message = &messages->as.array.items[i];
        const struct carat_value *content = json_member(message, "content");
        const struct carat_value *role = json_member(message, "role");
        bool is_answer = json_text_is(role, "assistant"), is_result = json_text_is(role, "tool");
        if (is_answer) answer = message;
        if (!is_result) has_calls = is_answer && !asks_nothing(json_member(message, "tool_calls"));
        if (is_answer && content->kind == CARAT_NULL && !has_calls)
            return err_set(err, CARAT_EUSAGE, "messages[%zu]: content or tool_calls expected", i);
        if (is_result && !has_calls)
            return err_set(err, CARAT_EUSAGE,
                           "messages[%zu].role: \"tool\" after an answer with tool_calls expected",
                           i);
        if (is_result) TRY(check_result(message, answer, i, err));
        TRY(check_parts(content, i, err));
    }
    return CARAT_OK;
}

static bool has_control(const struct carat_value *text)
{
    size_t length = text->kind == CARAT_STRING ? text->as.string.length : 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text->as.string.data[i];
        if (c < ' ' || c == 0x7F) return true;
    }
    return false;
}

static int check_tools(const struct carat_value *root, struct carat_error *err)
{
    const struct carat_value *tools = json_member(root, "tools");
    for (size_t i = 0; tools->kind == CARAT_ARRAY && i < tools->as.array.count; i++) {
        const struct carat_value *type = json_member(&tools->as.array.items[i], "type");
        const struct carat_value *function = json_member(&tools->as.array.items[i], "function");
        char shown[JSON_SHOWN_MAX];
        if (has_control(json_member(function, "name")))
            return err_set(err, CARAT_EUSAGE,
                           "tools[%zu].function.name: a name without control characters expected",
                           i);
        if (type->kind != CARAT_STRING || json_text_is(type, "function")) continue;
        err_set(err, CARAT_EUSAGE, "tools[%zu].type: \"function\" expected, \"%s\" found", i,
                json_shown(type, shown));
        err_hint(err, "describe it as a function");
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

/* ---- Sampling --------------------------------------------------------------------------- */

/* Any whole number is a seed, and -1 draws one. */
static int read_seed(struct chat_request *r, struct carat_error *err)
{
    const struct carat_value *value = json_member(&r->root, "seed");
    if (value->kind == CARAT_NULL) return CARAT_OK;
    int64_t seed;
    TRY(json_whole(value, "seed", INT64_MIN, INT64_MAX, &seed, err));
    r->has_seed = seed != -1;
    if (r->has_seed) r->sampling.seed = (uint64_t)seed;
    return CARAT_OK;
}

/* ---- Limits and reports ----------------------------------------------------------------- */

static int take_stop(struct chat_request *r, const struct carat_value *value, const char *where,
                     struct carat_error *err)
{
    if (value->kind != CARAT_STRING) return json_wrong_kind(where, "a string", value, err);
    size_t length = value->as.string.length;
    if (length == 0 || length > CARAT_STOP_BYTES_MAX)
        return err_set(err, CARAT_EUSAGE, "%s: 1 to %d bytes expected, %zu found", where,
                       CARAT_STOP_BYTES_MAX, length);
    if (memchr(value->as.string.data, '\0', length))
        return err_set(err, CARAT_EUSAGE, "%s: a text without NUL characters expected", where);
    return copy_text(r, value, &r->stops[r->n_stops++], err);
}

static int read_stops(struct chat_request *r, struct carat_error *err)
{
    const struct carat_value *value = json_member(&r->root, "stop");
    if (value->kind == CARAT_NULL) return CARAT_OK;
    bool is_list = value->kind == CARAT_ARRAY;
    if (!is_list && value->kind != CARAT_STRING)
        return json_wrong_kind("stop", "a string or an array", value, err);
    size_t count = is_list ? value->as.array.count : 1;
    if (count > CARAT_STOPS_MAX)
        return err_set(err, CARAT_EUSAGE, "stop: at most %d strings expected, %zu found",
                       CARAT_STOPS_MAX, count);
    r->stops = arena_take(&r->json.arena, count, sizeof *r->stops);
    if (!r->stops) return err_no_memory(err, "stop", count * sizeof *r->stops);
    if (!is_list) return take_stop(r, value, "stop", err);
    for (size_t i = 0; i < count; i++) {
        char where[32];
        snprintf(where, sizeof where, "stop[%zu]", i);
        TRY(take_stop(r, &value->as.array.items[i], where, err));
    }
    return CARAT_OK;
}

/* {"106": -5}. OpenAI's -100 and less ban. A bias that is too large is refused here, before an
 * answer begins. */
static int read_bias(struct chat_request *r, struct carat_error *err)
{
    const struct carat_value *map = json_member(&r->root, "logit_bias");
    enum { BANS_FROM = -100 };
    if (map->kind == CARAT_NULL) return CARAT_OK;
    if (map->kind != CARAT_OBJECT) return json_wrong_kind("logit_bias", "an object", map, err);
    size_t count = map->as.object.count;
    if (count > CARAT_BIAS_MAX)
        return err_set(err, CARAT_EUSAGE, "logit_bias: at most %d tokens expected, %zu found",
                       CARAT_BIAS_MAX, count);
    r->bias = arena_take(&r->json.arena, count, sizeof *r->bias);
    if (!r->bias) return err_no_memory(err, "logit_bias", count * sizeof *r->bias);
    for (size_t i = 0; i < count; i++) {
        const struct carat_member *m = &map->as.object.members[i];
        struct carat_value key_text = {.kind = CARAT_STRING};
        char key[16] = "", *end = key, shown[JSON_SHOWN_MAX];
        key_text.as.string.data = m->key.data;
        key_text.as.string.length = m->key.length;
        if (m->key.length < sizeof key) memcpy(key, m->key.data, m->key.length);
        long id = strtol(key, &end, 10);
        if (end == key || *end || id < 0 || id > INT32_MAX)
            return err_set(err, CARAT_EUSAGE,
                           "logit_bias: token ids expected as keys, \"%s\" found",
                           json_shown(&key_text, shown));
        if (!json_is_number(&m->value) || !(json_number(&m->value) <= CARAT_BIAS_LIMIT))
            return err_set(err, CARAT_EUSAGE, "logit_bias.%ld: a number of at most %d expected", id,
                           CARAT_BIAS_LIMIT);
        double bias = json_number(&m->value);
        r->bias[r->n_bias++] = (struct carat_logit_bias){
            .id = (int32_t)id, .bias = bias <= BANS_FROM ? -INFINITY : (float)bias};
    }
    return CARAT_OK;
}

static int read_limits(struct chat_request *r, struct carat_error *err)
{
    r->max_tokens = -1;
    TRY(json_read_whole(&r->root, "n_predict", -1, INT32_MAX, &r->max_tokens, err));
    TRY(json_read_whole(&r->root, "max_tokens", -1, INT32_MAX, &r->max_tokens, err));
    TRY(json_read_whole(&r->root, "max_completion_tokens", -1, INT32_MAX, &r->max_tokens, err));
    TRY(json_read_flag(&r->root, "ignore_eos", &r->ignores_stop, err));
    TRY(json_read_flag(&r->root, "logprobs", &r->want_logprobs, err));
    TRY(json_read_whole(&r->root, "top_logprobs", 0, CARAT_TOP_LOGPROBS_MAX, &r->n_top_logprobs,
                        err));
    if (r->n_top_logprobs > 0 && !r->want_logprobs)
        return err_set(err, CARAT_EUSAGE, "top_logprobs: \"logprobs\": true expected with it");
    return CARAT_OK;
}

/* ---- Thinking --------------------------------------------------------------------------- */

/* Of reasoning_effort: "none" is off and every other level on. */
static int read_effort(const struct carat_value *root, struct carat_value *thinks,
                       struct carat_error *err)
{
    static const char *const levels[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};
    const struct carat_value *value = json_member(root, "reasoning_effort");
    if (value->kind == CARAT_NULL) return CARAT_OK;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!json_text_is(value, levels[i])) continue;
        *thinks = (struct carat_value){.kind = CARAT_BOOL, .as.boolean = i > 0};
        return CARAT_OK;
    }
    return err_set(err, CARAT_EUSAGE,
                   "reasoning_effort: \"none\", \"minimal\", \"low\", \"medium\", \"high\", "
                   "\"xhigh\" or \"max\" expected");
}

/* A flag for the template: the request's own, else what chat_template_kwargs says, else `other`. */
static int put_flag(struct chat_request *r, const char *key, struct carat_value other,
                    struct carat_error *err)
{
    const struct carat_value *more = json_member(&r->root, "chat_template_kwargs");
    const struct carat_value *own = json_member(&r->root, key), *theirs = json_member(more, key);
    if (more->kind != CARAT_NULL && more->kind != CARAT_OBJECT)
        return json_wrong_kind("chat_template_kwargs", "an object", more, err);
    struct carat_value value = own->kind != CARAT_NULL      ? *own
                               : theirs->kind != CARAT_NULL ? *theirs
                                                            : other;
    if (value.kind == CARAT_NULL) return CARAT_OK;
    if (value.kind == CARAT_BOOL) return chat_request_put(r, key, value, err);
    int status = json_wrong_kind(key, "a boolean", &value, err);
    if (own->kind == CARAT_NULL) err_within(err, "chat_template_kwargs");
    return status;
}

/* Several names of one thing, the last wins; -1: no limit, 0: no thoughts at all. */
static int read_budget(struct chat_request *r, struct carat_error *err)
{
    static const char *const names[] = {"thinking_budget_tokens", "reasoning_budget"};
    const struct carat_value off = {.kind = CARAT_BOOL, .as.boolean = false};
    int32_t budget = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TRY(json_read_whole(&r->root, names[i], -1, INT32_MAX, &budget, err));
    if (budget > 0) r->thinking_max = budget;
    return budget == 0 ? chat_request_put(r, "enable_thinking", off, err) : CARAT_OK;
}

static int read_thinking(struct chat_request *r, struct carat_error *err)
{
    struct carat_value thinks = {.kind = CARAT_NULL}, nothing = {.kind = CARAT_NULL};
    TRY(read_effort(&r->root, &thinks, err));
    TRY(put_flag(r, "enable_thinking", thinks, err));
    TRY(read_budget(r, err));
    return put_flag(r, "preserve_thinking", nothing, err);
}

/* ---- Answers that are begun -------------------------------------------------------------- */

/* A form holds for a whole answer, and nobody has checked its beginning. */
static int check_beginning(const struct carat_value *root, struct carat_error *err)
{
    const struct carat_value *format = json_member(root, "response_format");
    const struct carat_value *choice = json_member(root, "tool_choice");
    bool continues = false;
    TRY(json_read_flag(root, "continue_final_message", &continues, err));
    bool has_format =
        format->kind != CARAT_NULL && !json_text_is(json_member(format, "type"), "text");
    bool has_choice = choice->kind == CARAT_OBJECT || json_text_is(choice, "required");
    const char *form = has_format                                             ? "response_format"
                       : json_member(root, "json_schema")->kind != CARAT_NULL ? "json_schema"
                       : json_member(root, "grammar")->kind != CARAT_NULL     ? "grammar"
                       : has_choice                                           ? "tool_choice"
                                                                              : NULL;
    if (!continues || !form) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%s: nothing expected with continue_final_message", form);
    err_hint(err, "it would have to hold for the whole answer; leave out one of the two");
    return CARAT_EUSAGE;
}

/* ---- Requests --------------------------------------------------------------------------- */

int chat_request_put(struct chat_request *r, const char *key, struct carat_value value,
                     struct carat_error *err)
{
    size_t count = r->root.as.object.count, length = strlen(key), at = 0;
    const struct carat_member *old = r->root.as.object.members;
    struct carat_member *members = arena_take(&r->json.arena, count + 1, sizeof *members);
    if (!members) return err_no_memory(err, "request", (count + 1) * sizeof *members);
    if (count) memcpy(members, old, count * sizeof *members);
    while (at < count &&
           (members[at].key.length != length || memcmp(members[at].key.data, key, length) != 0))
        at++;
    members[at].key.data = key;
    members[at].key.length = length;
    members[at].value = value;
    r->root.as.object.members = members;
    r->root.as.object.count = at == count ? count + 1 : count;
    return CARAT_OK;
}

int chat_request_take(struct chat_request *r, struct carat_value root,
                      const struct carat_sampling *defaults, int32_t n_max, struct carat_error *err)
{
    *r = (struct chat_request){.json = r->json, .root = root, .sampling = *defaults};
    if (root.kind != CARAT_OBJECT) return json_wrong_kind("request", "an object", &root, err);
    TRY(read_n(r, n_max, err));
    TRY(check_members(&r->root, err));
    TRY(check_modalities(&r->root, err));
    TRY(check_messages(&r->root, err));
    TRY(check_tools(&r->root, err));
    TRY(check_beginning(&r->root, err));
    TRY(sampling_fields_read(&r->sampling, &r->root, &r->json.arena, err));
    TRY(read_seed(r, err));
    TRY(read_stops(r, err));
    TRY(read_bias(r, err));
    TRY(read_limits(r, err));
    return read_thinking(r, err);
}

int chat_request_read(struct chat_request *r, const char *text, size_t length,
                      const struct carat_sampling *defaults, struct carat_error *err)
{
    *r = (struct chat_request){0};
    TRY(json_tree_read(&r->json, text, length, JSON_CHAT_FILE, err));
    int status = chat_request_take(r, r->json.root, defaults, 1, err);
    if (status != CARAT_OK) chat_request_close(r);
    return status;
}

void chat_request_close(struct chat_request *r)
{
    json_tree_free(&r->json);
    *r = (struct chat_request){0};
}
