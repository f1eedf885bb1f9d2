/* Anthropic's messages in the form of OpenAI's chat API. In a message with results of tools, these
 * are taken first, whatever stands before them: they answer the calls. */
#include <string.h>

#include "api/ask_readers.h"
#include "api/translation.h"
#include "api/root.h"
#include "base/status.h"
#include "json/json_fields.h"

enum { MAX_TOKENS = 4096 };

static const struct translation_type text_only[] = {{"text", "text"}, {NULL, NULL}};
/* A search for tools answers with their names; the model has seen all of them. */
static const struct translation_type in_result[] = {
    {"text", "text"}, {"tool_reference", "tool_name"}, {NULL, NULL}};

/* ---- The system prompt ------------------------------------------------------------------ */

/* Drops the first line when it is a client's accounting: it changes with each request, so with it
 * in front no two prompts begin alike. */
static struct carat_value without_billing_line(struct translation *r, struct carat_value text)
{
    static const char mark[] = "x-anthropic-billing-header:";
    size_t length = text.as.string.length;
    const char *data = text.as.string.data;
    if (length < sizeof mark - 1 || memcmp(data, mark, sizeof mark - 1) != 0) return text;
    const char *end = memchr(data, '\n', length);
    size_t line = end ? (size_t)(end - data) + 1 : length;
    r->ask->has_billing_line = true;
    return tree_string(data + line, length - line);
}

static int read_system(struct translation *r)
{
    struct place system = place_member(&r->body, "system");
    struct tree_array read = {0}, kept = {0};
    if (place_is_null(&system)) return CARAT_OK;
    TRY(translation_content(r, &system, text_only, &read));
    for (size_t i = 0; i < read.count; i++) {
        struct carat_value text = *json_member(&read.items[i], "text");
        if (i == 0) text = without_billing_line(r, text);
        if (text.as.string.length) tree_push(&r->tree, &kept, turns_part(&r->tree, text));
    }
    if (kept.count) turns_message(&r->turns, "system", turns_content(&kept));
    return CARAT_OK;
}

/* ---- Messages --------------------------------------------------------------------------- */

static int read_result(struct translation *r, const struct place *block)
{
    struct place id = place_member(block, "tool_use_id"), content = place_member(block, "content");
    struct place failed = place_member(block, "is_error");
    struct tree_array parts = {0};
    TRY(place_expect(&id, CARAT_STRING, r->err));
    TRY(place_expect_or_null(&failed, CARAT_BOOL, r->err));
    if (!place_is_null(&content)) TRY(translation_content(r, &content, in_result, &parts));
    bool is_error = failed.value->kind == CARAT_BOOL && failed.value->as.boolean;
    return turns_result(&r->turns, &id,
                        is_error ? turns_failure(&r->tree, &parts) : turns_content(&parts), r->err);
}

static int read_user(struct translation *r, const struct place *content)
{
    struct tree_array texts = {0};
    bool has_result = false;
    if (content->value->kind != CARAT_ARRAY)
        TRY(translation_content(r, content, text_only, &texts));
    size_t count = content->value->kind == CARAT_ARRAY ? content->value->as.array.count : 0;
    for (size_t i = 0; i < count; i++) {
        struct place block = place_item(content, i);
        TRY(place_expect(&block, CARAT_OBJECT, r->err));
        if (json_text_is(json_member(block.value, "type"), "tool_result")) {
            has_result = true;
            TRY(read_result(r, &block));
        } else {
            TRY(translation_part(r, &block, text_only, &texts));
        }
    }
    if (texts.count || !has_result) turns_message(&r->turns, "user", turns_content(&texts));
    return CARAT_OK;
}

static int read_call(struct translation *r, const struct place *block)
{
    static const struct carat_value empty = {.kind = CARAT_OBJECT};
    struct place id = place_member(block, "id"), name = place_member(block, "name");
    struct place input = place_member(block, "input");
    TRY(place_expect(&id, CARAT_STRING, r->err));
    TRY(place_expect_name(&name, TRANSLATION_NAME_MAX, r->err));
    TRY(place_expect_or_null(&input, CARAT_OBJECT, r->err));
    TRY(place_expect_depth(&input, TURNS_DEPTH_MAX, r->err));
    return turns_call(&r->turns, block, *id.value, *name.value,
                      place_is_null(&input) ? empty : *input.value, r->err);
}

static int read_answer_block(struct translation *r, const struct place *block)
{
    struct place type = place_member(block, "type"), thought = place_member(block, "thinking");
    struct tree_array texts = {0};
    if (json_text_is(type.value, "tool_use")) return read_call(r, block);
    if (json_text_is(type.value, "redacted_thinking")) return CARAT_OK; /* nobody can read it */
    if (json_text_is(type.value, "thinking")) {
        TRY(place_expect(&thought, CARAT_STRING, r->err));
        turns_thought(&r->turns, *thought.value);
        return CARAT_OK;
    }
    TRY(translation_part(r, block, text_only, &texts));
    turns_texts(&r->turns, &texts);
    return CARAT_OK;
}

static int read_answer(struct translation *r, const struct place *content)
{
    turns_close(&r->turns);
    turns_open(&r->turns);
    if (content->value->kind == CARAT_STRING) {
        turns_text(&r->turns, *content->value);
        return CARAT_OK;
    }
    if (content->value->kind != CARAT_ARRAY)
        return place_wrong(content, "a string or an array", r->err);
    for (size_t i = 0; i < content->value->as.array.count; i++) {
        struct place block = place_item(content, i);
        TRY(place_expect(&block, CARAT_OBJECT, r->err));
        TRY(read_answer_block(r, &block));
    }
    return CARAT_OK;
}

static int read_message(struct translation *r, const struct place *message)
{
    TRY(place_expect(message, CARAT_OBJECT, r->err));
    struct place role = place_member(message, "role"), content = place_member(message, "content");
    if (json_text_is(role.value, "user")) return read_user(r, &content);
    if (json_text_is(role.value, "assistant")) return read_answer(r, &content);
    if (json_text_is(role.value, "system")) {
        struct tree_array parts = {0};
        TRY(translation_content(r, &content, text_only, &parts));
        turns_message(&r->turns, "system", turns_content(&parts));
        return CARAT_OK;
    }
    return place_wrong(&role, "user, assistant or system", r->err);
}

static int read_messages(struct translation *r)
{
    struct place messages = place_member(&r->body, "messages");
    TRY(place_expect_count(&messages, 1, r->limits->messages_max, r->err));
    for (size_t i = 0; i < messages.value->as.array.count; i++) {
        struct place message = place_item(&messages, i);
        TRY(read_message(r, &message));
    }
    return CARAT_OK;
}

/* ---- Tools ------------------------------------------------------------------------------ */

static int read_tool(struct translation *r, const struct place *tool, struct tree_array *tools,
                     struct tree_array *paths)
{
    TRY(place_expect(tool, CARAT_OBJECT, r->err));
    struct place type = place_member(tool, "type"), name = place_member(tool, "name");
    struct place about = place_member(tool, "description");
    struct place schema = place_member(tool, "input_schema");
    struct place strict = place_member(tool, "strict");
    struct tree_object function = {0};
    TRY(place_expect_or_null(&type, CARAT_STRING, r->err));
    if (!place_is_null(&type) && !json_text_is(type.value, "custom")) {
        r->ask->n_ignored_tools++;
        return CARAT_OK;
    }
    TRY(place_expect_name(&name, TRANSLATION_NAME_MAX, r->err));
    TRY(place_expect_or_null(&about, CARAT_STRING, r->err));
    TRY(place_expect(&schema, CARAT_OBJECT, r->err));
    TRY(place_expect_or_null(&strict, CARAT_BOOL, r->err));
    tree_put(&r->tree, &function, "name", *name.value);
    if (!place_is_null(&about)) tree_put(&r->tree, &function, "description", *about.value);
    tree_put(&r->tree, &function, "parameters", *schema.value);
    if (!place_is_null(&strict)) tree_put(&r->tree, &function, "strict", *strict.value);
    tree_push(&r->tree, tools, root_function(&r->tree, &function));
    tree_push(&r->tree, paths, tree_copy(&r->tree, tool->path, strlen(tool->path)));
    return CARAT_OK;
}

static int read_tools(struct translation *r)
{
    struct place list = place_member(&r->body, "tools");
    struct tree_array tools = {0}, paths = {0};
    if (place_is_null(&list)) return CARAT_OK;
    TRY(place_expect_count(&list, 0, r->limits->tools_max, r->err));
    for (size_t i = 0; i < list.value->as.array.count; i++) {
        struct place tool = place_item(&list, i);
        TRY(read_tool(r, &tool, &tools, &paths));
    }
    r->ask->tool_paths = paths.items;
    r->ask->n_tool_paths = paths.count;
    if (tools.count) tree_put(&r->tree, &r->root, "tools", tree_array_value(&tools));
    return CARAT_OK;
}

static int read_tool_choice(struct translation *r)
{
    struct place choice = place_member(&r->body, "tool_choice");
    TRY(place_expect_or_null(&choice, CARAT_OBJECT, r->err));
    if (place_is_null(&choice)) return CARAT_OK;
    struct place type = place_member(&choice, "type"), name = place_member(&choice, "name");
    struct place single = place_member(&choice, "disable_parallel_tool_use");
    TRY(place_expect_or_null(&single, CARAT_BOOL, r->err));
    if (single.value->kind == CARAT_BOOL && single.value->as.boolean)
        tree_put(&r->tree, &r->root, "parallel_tool_calls", tree_bool(false));
    if (json_text_is(type.value, "tool"))
        return root_put_named_choice(&r->tree, &r->root, &name, r->err);
    const char *word = json_text_is(type.value, "auto")   ? "auto"
                       : json_text_is(type.value, "any")  ? "required"
                       : json_text_is(type.value, "none") ? "none"
                                                          : NULL;
    if (!word) return place_wrong(&type, "\"auto\", \"any\", \"tool\" or \"none\"", r->err);
    return root_put_choice(&r->tree, &r->root, &type, word, r->err);
}

/* ---- The rest --------------------------------------------------------------------------- */

static int read_thinking(struct translation *r)
{
    struct place thinking = place_member(&r->body, "thinking");
    TRY(place_expect_or_null(&thinking, CARAT_OBJECT, r->err));
    if (place_is_null(&thinking)) return CARAT_OK;
    struct place type = place_member(&thinking, "type");
    struct place budget = place_member(&thinking, "budget_tokens");
    bool is_enabled = json_text_is(type.value, "enabled");
    bool is_off = json_text_is(type.value, "disabled");
    bool is_free =
        json_text_is(type.value, "adaptive") || json_text_is(type.value, "between_tools");
    if (!is_enabled && !is_off && !is_free)
        return place_wrong(&type, "\"enabled\", \"disabled\" or \"adaptive\"", r->err);
    if (is_enabled && !place_is_null(&budget)) {
        int64_t tokens;
        TRY(place_read_whole(&budget, 1, INT32_MAX, &tokens, r->err));
        tree_put(&r->tree, &r->root, "thinking_budget_tokens", tree_int(tokens));
    }
    tree_put(&r->tree, &r->root, "enable_thinking", tree_bool(!is_off));
    return CARAT_OK;
}

/* {"type": "json_schema", "schema": ..}: output_config.format, or output_format, its old name. */
static int read_format(struct translation *r)
{
    struct place config = place_member(&r->body, "output_config");
    struct place format = place_member(&r->body, "output_format");
    TRY(place_expect_or_null(&config, CARAT_OBJECT, r->err));
    r->ask->schema_path = "output_format.schema";
    if (place_is_null(&format)) {
        format = place_member(&config, "format");
        r->ask->schema_path = "output_config.format.schema";
    }
    TRY(place_expect_or_null(&format, CARAT_OBJECT, r->err));
    if (place_is_null(&format)) return CARAT_OK;
    struct place type = place_member(&format, "type"), schema = place_member(&format, "schema");
    if (!json_text_is(type.value, "json_schema"))
        return place_wrong(&type, "\"json_schema\"", r->err);
    return root_put_schema(&r->tree, &r->root, &schema, r->err);
}

static int read_session(struct translation *r)
{
    struct place metadata = place_member(&r->body, "metadata");
    TRY(place_expect_or_null(&metadata, CARAT_OBJECT, r->err));
    struct place user = place_member(&metadata, "user_id");
    TRY(place_expect_or_null(&user, CARAT_STRING, r->err));
    if (!place_is_null(&user)) tree_put(&r->tree, &r->root, "user", *user.value);
    return CARAT_OK;
}

/* What came before in a thread would be at the server; here it would be missing. */
static int check_stateless(const struct translation *r)
{
    struct place thread = place_member(&r->body, "thread");
    if (place_is_null(&thread)) return CARAT_OK;
    return place_refuse(
        &thread, "nothing is stored here: send the whole conversation without thread", r->err);
}

static int read_length(struct translation *r)
{
    struct place most = place_member(&r->body, "max_tokens");
    if (!place_is_null(&most)) TRY(place_read_whole(&most, 1, INT32_MAX, NULL, r->err));
    tree_put(&r->tree, &r->root, "max_tokens",
             place_is_null(&most) ? tree_int(MAX_TOKENS) : *most.value);
    return CARAT_OK;
}

/* ---- An answer that the client begins --------------------------------------------------- */

static bool has_text(const struct tree_array *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        if (json_member(&texts->items[i], "text")->as.string.length) return true;
    return false;
}

static bool ends_blank(const struct tree_array *texts)
{
    const struct carat_value *text = json_member(&texts->items[texts->count - 1], "text");
    size_t length = text->as.string.length;
    return length && memchr(" \t\r\n", text->as.string.data[length - 1], 4);
}

/* The member that cannot be kept in an answer that the client has begun; NULL: none. */
static const char *contradiction(const struct translation *r)
{
    struct place thinking = place_member(&r->body, "thinking");
    struct place choice = place_member(&r->body, "tool_choice");
    const struct carat_value *config = json_member(r->body.value, "output_config");
    const struct carat_value *word = json_member(choice.value, "type");
    bool is_off = json_text_is(json_member(thinking.value, "type"), "disabled");
    if (!place_is_null(&thinking) && !is_off) return "thinking";
    if (json_member(r->body.value, "output_format")->kind != CARAT_NULL) return "output_format";
    if (json_member(config, "format")->kind != CARAT_NULL) return "output_config.format";
    if (json_text_is(word, "any") || json_text_is(word, "tool")) return "tool_choice";
    return NULL;
}

static int check_beginning(const struct translation *r, const struct place *message)
{
    const char *other = contradiction(r);
    if (other) {
        err_set(r->err, CARAT_EUSAGE,
                "%s: an answer cannot be begun by the client together with %s", message->path,
                other);
        err_hint(r->err, "leave that out, or end with a message of the user");
        return CARAT_EUSAGE;
    }
    if (!ends_blank(&r->turns.texts)) return CARAT_OK;
    return err_set(r->err, CARAT_EUSAGE,
                   "%s: final assistant content cannot end with trailing whitespace",
                   message->path);
}

/* The model continues a message of the assistant at the end. Its thoughts are left out: they belong
 * to a request that thinks. A message without text begins no answer: it is dropped if it has no
 * thoughts either. */
static int read_beginning(struct translation *r)
{
    struct turns *t = &r->turns;
    struct place messages = place_member(&r->body, "messages");
    if (!t->is_open) return CARAT_OK;
    struct place last = place_item(&messages, messages.value->as.array.count - 1);
    if (t->calls.count)
        return err_set(r->err, CARAT_EUSAGE,
                       "%s: a message with a tool_result for each tool_use expected after it, none "
                       "found",
                       last.path);
    if (!has_text(&t->texts)) {
        if (t->messages.count + t->thoughts.count == 0)
            return err_set(r->err, CARAT_EUSAGE,
                           "%s.content: a text expected in the only message, none found",
                           last.path);
        t->is_open = t->thoughts.count > 0;
        t->texts = (struct tree_array){0};
        return CARAT_OK;
    }
    TRY(check_beginning(r, &last));
    t->thoughts = (struct tree_array){0};
    tree_put(&r->tree, &r->root, "continue_final_message", tree_bool(true));
    return CARAT_OK;
}

static int read_all(struct translation *r)
{
    static const char *const same[] = {"model", "stream", "temperature",  "top_p",      "top_k",
                                       "min_p", "seed",   "cache_prompt", "ignore_eos", NULL};
    struct place stops = place_member(&r->body, "stop_sequences");
    TRY(check_stateless(r));
    TRY(read_system(r));
    TRY(read_messages(r));
    TRY(read_tools(r));
    TRY(read_tool_choice(r));
    TRY(read_thinking(r));
    TRY(read_format(r));
    TRY(read_session(r));
    TRY(read_length(r));
    TRY(root_put_stops(&r->tree, &r->root, &stops, r->limits->stops_max, r->err));
    root_put_same(&r->tree, &r->root, r->body.value, same);
    TRY(read_beginning(r));
    return translation_end(r);
}

int messages_read(struct ask *ask, const struct carat_value *body, const struct ask_limits *limits,
                  struct carat_error *err)
{
    struct translation r;
    translation_begin(&r, ask, body, limits, err);
    return read_all(&r);
}
