/* OpenAI's responses in the form of its chat API. Items of the input are what chat messages are
 * made of: a thought, a text and calls that follow each other are one message of the assistant. */
#include "api/ask_readers.h"
#include "api/translation.h"
#include "api/responses_tools.h"
#include "api/root.h"
#include "base/status.h"
#include "json/json_fields.h"

static const struct translation_type texts[] = {
    {"input_text", "text"},     {"output_text", "text"}, {"text", "text"}, {"summary_text", "text"},
    {"reasoning_text", "text"}, {"refusal", "refusal"},  {NULL, NULL}};

/* Agents pass on what they are told as if it were encrypted; it is plain text. */
static const struct translation_type agent_texts[] = {
    {"input_text", "text"}, {"encrypted_content", "encrypted_content"}, {NULL, NULL}};

/* ---- Items ------------------------------------------------------------------------------ */

/* A text or a thought after the text of an answer begins the next one. But calls stay together with
 * what stands between them and their results. */
static void begin_answer(struct translation *r)
{
    if (r->turns.texts.count && !r->turns.calls.count) turns_close(&r->turns);
    turns_open(&r->turns);
}

static int read_message(struct translation *r, const struct place *item)
{
    static const char *const roles[] = {"system", "developer", "user"};
    struct place role = place_member(item, "role"), content = place_member(item, "content");
    struct tree_array parts = {0};
    TRY(translation_content(r, &content, texts, &parts));
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!json_text_is(role.value, roles[i])) continue;
        turns_message(&r->turns, roles[i], turns_content(&parts));
        return CARAT_OK;
    }
    if (!json_text_is(role.value, "assistant"))
        return place_wrong(&role, "user, assistant, system or developer", r->err);
    begin_answer(r);
    turns_texts(&r->turns, &parts);
    return CARAT_OK;
}

/* What one agent tells another one. */
static int read_agent_message(struct translation *r, const struct place *item)
{
    struct place content = place_member(item, "content");
    struct tree_array parts = {0};
    TRY(translation_content(r, &content, agent_texts, &parts));
    turns_message(&r->turns, "user", turns_content(&parts));
    return CARAT_OK;
}

/* Its content, else its summary. Encrypted content is of another provider, and only that one can
 * read it. */
static int read_thought(struct translation *r, const struct place *item)
{
    struct place content = place_member(item, "content"), summary = place_member(item, "summary");
    struct tree_array parts = {0};
    TRY(place_expect_or_null(&content, CARAT_ARRAY, r->err));
    TRY(place_expect_or_null(&summary, CARAT_ARRAY, r->err));
    if (!place_is_null(&content)) TRY(translation_content(r, &content, texts, &parts));
    if (!parts.count && !place_is_null(&summary))
        TRY(translation_content(r, &summary, texts, &parts));
    if (!parts.count) return CARAT_OK;
    begin_answer(r);
    turns_thoughts(&r->turns, &parts);
    return CARAT_OK;
}

static int read_call(struct translation *r, const struct place *item, bool is_custom)
{
    struct place id = place_member(item, "call_id"), name = place_member(item, "name");
    struct place space = place_member(item, "namespace"), input = place_member(item, "input");
    struct place arguments = place_member(item, "arguments");
    struct carat_value values, shown;
    TRY(place_expect(&id, CARAT_STRING, r->err));
    TRY(place_expect_name(&name, TRANSLATION_NAME_MAX, r->err));
    TRY(place_expect_or_null(&space, CARAT_STRING, r->err));
    if (is_custom) {
        TRY(place_expect(&input, CARAT_STRING, r->err));
        values = responses_custom_arguments(&r->tree, *input.value);
    } else {
        TRY(place_expect(&arguments, CARAT_STRING, r->err));
        TRY(translation_arguments(r, &arguments, &values));
    }
    shown = responses_shown_name(&r->tree, *space.value, *name.value);
    return turns_call(&r->turns, item, *id.value, shown, values, r->err);
}

static int read_result(struct translation *r, const struct place *item)
{
    struct place id = place_member(item, "call_id"), output = place_member(item, "output");
    struct tree_array parts = {0};
    TRY(place_expect(&id, CARAT_STRING, r->err));
    TRY(translation_content(r, &output, texts, &parts));
    return turns_result(&r->turns, &id, turns_content(&parts), r->err);
}

static int read_item(struct translation *r, const struct place *item)
{
    TRY(place_expect(item, CARAT_OBJECT, r->err));
    struct place type = place_member(item, "type");
    if (place_is_null(&type) || json_text_is(type.value, "message")) return read_message(r, item);
    if (json_text_is(type.value, "function_call")) return read_call(r, item, false);
    if (json_text_is(type.value, "custom_tool_call")) return read_call(r, item, true);
    if (json_text_is(type.value, "function_call_output") ||
        json_text_is(type.value, "custom_tool_call_output"))
        return read_result(r, item);
    if (json_text_is(type.value, "agent_message")) return read_agent_message(r, item);
    if (json_text_is(type.value, "reasoning")) return read_thought(r, item);
    if (json_text_is(type.value, "additional_tools")) return CARAT_OK; /* read with the others */
    if (type.value->kind != CARAT_STRING) return place_wrong(&type, "a string", r->err);
    if (json_text_is(type.value, "item_reference"))
        return place_refuse(&type,
                            "nothing is stored here: send the item itself, as many clients do with "
                            "\"store\": false",
                            r->err);
    return place_refuse(&type, "send messages, reasoning, function calls and their outputs",
                        r->err);
}

static int read_input(struct translation *r)
{
    struct place input = place_member(&r->body, "input");
    struct place instructions = place_member(&r->body, "instructions");
    TRY(place_expect_or_null(&instructions, CARAT_STRING, r->err));
    if (!place_is_null(&instructions) && instructions.value->as.string.length)
        turns_message(&r->turns, "system", *instructions.value);
    if (input.value->kind == CARAT_STRING) {
        turns_message(&r->turns, "user", *input.value);
    } else if (input.value->kind == CARAT_ARRAY) {
        TRY(place_expect_count(&input, 1, r->limits->messages_max, r->err));
        for (size_t i = 0; i < input.value->as.array.count; i++) {
            struct place item = place_item(&input, i);
            TRY(read_item(r, &item));
        }
    } else {
        return place_wrong(&input, "a string or an array", r->err);
    }
    turns_close(&r->turns);
    if (r->turns.messages.count) return CARAT_OK;
    return err_set(r->err, CARAT_EUSAGE, "input: a message expected, none found");
}

/* ---- The rest --------------------------------------------------------------------------- */

/* Refuses what needs stored answers, or a provider's machines. */
static int check_stateless(struct translation *r)
{
    static const struct {
        const char *key, *hint;
    } refused[] = {
        {"previous_response_id", "nothing is stored here: send the whole conversation in input"},
        {"conversation", "nothing is stored here: send the whole conversation in input"},
        {"prompt", "nothing is stored here: send instructions and input"},
        {"background", "ask without it, and read the answer from the reply"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct place member = place_member(&r->body, refused[i].key);
        bool is_off = member.value->kind == CARAT_BOOL && !member.value->as.boolean;
        if (place_is_null(&member) || is_off) continue;
        err_set(r->err, CARAT_EUSAGE, "%s: not supported", refused[i].key);
        err_hint(r->err, "%s", refused[i].hint);
        return CARAT_EUSAGE;
    }
    return CARAT_OK;
}

static int read_format(struct translation *r)
{
    struct place text = place_member(&r->body, "text");
    TRY(place_expect_or_null(&text, CARAT_OBJECT, r->err));
    struct place format = place_member(&text, "format");
    TRY(place_expect_or_null(&format, CARAT_OBJECT, r->err));
    if (place_is_null(&format)) return CARAT_OK;
    struct place type = place_member(&format, "type"), schema = place_member(&format, "schema");
    r->ask->schema_path = "text.format.schema";
    if (json_text_is(type.value, "text")) return CARAT_OK;
    if (json_text_is(type.value, "json_schema"))
        return root_put_schema(&r->tree, &r->root, &schema, r->err);
    if (!json_text_is(type.value, "json_object"))
        return place_wrong(&type, "\"text\", \"json_object\" or \"json_schema\"", r->err);
    root_put_json(&r->tree, &r->root);
    return CARAT_OK;
}

static int read_reasoning(struct translation *r)
{
    struct place reasoning = place_member(&r->body, "reasoning");
    TRY(place_expect_or_null(&reasoning, CARAT_OBJECT, r->err));
    struct place effort = place_member(&reasoning, "effort");
    if (place_is_null(&effort)) return CARAT_OK;
    TRY(root_check_effort(&effort, r->err));
    tree_put(&r->tree, &r->root, "reasoning_effort", *effort.value);
    return CARAT_OK;
}

static int read_logprobs(struct translation *r)
{
    struct place n = place_member(&r->body, "top_logprobs");
    struct place include = place_member(&r->body, "include");
    TRY(place_expect_or_null(&include, CARAT_ARRAY, r->err));
    size_t count = include.value->kind == CARAT_ARRAY ? include.value->as.array.count : 0;
    bool is_wanted = false;
    for (size_t i = 0; i < count; i++)
        is_wanted |=
            json_text_is(&include.value->as.array.items[i], "message.output_text.logprobs");
    if (!place_is_null(&n)) {
        int64_t n_top;
        TRY(place_read_whole(&n, 0, CARAT_TOP_LOGPROBS_MAX, &n_top, r->err));
        is_wanted |= n_top > 0;
        if (is_wanted) tree_put(&r->tree, &r->root, "top_logprobs", *n.value);
    }
    if (is_wanted) tree_put(&r->tree, &r->root, "logprobs", tree_bool(true));
    return CARAT_OK;
}

static int read_length(struct translation *r)
{
    struct place most = place_member(&r->body, "max_output_tokens");
    if (place_is_null(&most)) return CARAT_OK;
    TRY(place_read_whole(&most, 1, INT32_MAX, NULL, r->err));
    tree_put(&r->tree, &r->root, "max_tokens", *most.value);
    return CARAT_OK;
}

static int read_all(struct translation *r)
{
    static const char *const same[] = {"model",        "stream",     "temperature",
                                       "top_p",        "top_k",      "min_p",
                                       "seed",         "user",       "prompt_cache_key",
                                       "cache_prompt", "ignore_eos", "parallel_tool_calls",
                                       "cache_salt",   "priority",   NULL};
    struct place parallel = place_member(&r->body, "parallel_tool_calls");
    TRY(check_stateless(r));
    TRY(place_expect_or_null(&parallel, CARAT_BOOL, r->err));
    TRY(read_input(r));
    TRY(responses_read_tools(r->ask, &r->body, r->limits->tools_max, &r->tree, &r->root, r->err));
    TRY(read_format(r));
    TRY(read_reasoning(r));
    TRY(read_logprobs(r));
    TRY(read_length(r));
    root_put_same(&r->tree, &r->root, r->body.value, same);
    return translation_end(r);
}

int responses_read(struct ask *ask, const struct carat_value *body, const struct ask_limits *limits,
                   struct carat_error *err)
{
    struct translation r;
    translation_begin(&r, ask, body, limits, err);
    return read_all(&r);
}
