#include "support/heard.h"

#include <string.h>

#include "base/assert.h"
#include "support/values.h"

static void add_text(struct buf *out, const struct carat_value *value)
{
    if (value->kind == CARAT_STRING) buf_add(out, value->as.string.data, value->as.string.length);
}

static void add_name(struct heard *heard, const struct carat_value *call)
{
    const struct carat_value *name = json_member(call, "name");
    add_text(&heard->calls, name);
    if (name->kind == CARAT_STRING) buf_add_char(&heard->calls, '(');
}

static void add_object(struct heard *heard, const struct carat_value *arguments)
{
    struct json j = {.out = &heard->calls};
    if (arguments->kind == CARAT_OBJECT) put_value(&j, arguments);
}

static const struct carat_value *item(const struct carat_value *list, size_t i)
{
    return list->kind == CARAT_ARRAY && i < list->as.array.count ? &list->as.array.items[i] : NULL;
}

/* ---- OpenAI ----------------------------------------------------------------------------- */

static void hear_choice(struct heard *answers, const struct carat_value *choice)
{
    struct heard *heard = &answers[json_member(choice, "index")->as.integer];
    const struct carat_value *delta = json_member(choice, "delta"), *call;
    if (delta->kind == CARAT_NULL) delta = json_member(choice, "message");
    const struct carat_value *ids = json_member(choice, "token_ids");
    if (ids->kind == CARAT_ARRAY) heard->n_ids += ids->as.array.count;
    add_text(&heard->text, json_member(choice, "text"));
    add_text(&heard->text, json_member(delta, "content"));
    add_text(&heard->thought, json_member(delta, "reasoning_content"));
    const struct carat_value *calls = json_member(delta, "tool_calls");
    for (size_t i = 0; (call = item(calls, i)) != NULL; i++) {
        const struct carat_value *function = json_member(call, "function");
        add_name(heard, function);
        add_text(&heard->calls, json_member(function, "arguments"));
    }
}

static void hear_choices(struct heard *answers, const struct carat_value *root)
{
    const struct carat_value *choices = json_member(root, "choices"), *choice;
    for (size_t i = 0; (choice = item(choices, i)) != NULL; i++) hear_choice(answers, choice);
}

static void hear_parts(struct buf *out, const struct carat_value *parts)
{
    const struct carat_value *part;
    for (size_t i = 0; (part = item(parts, i)) != NULL; i++)
        add_text(out, json_member(part, "text"));
}

static void hear_output(struct heard *heard, const struct carat_value *one)
{
    hear_parts(&heard->text, json_member(one, "content"));
    hear_parts(&heard->thought, json_member(one, "summary"));
    add_name(heard, one);
    add_text(&heard->calls, json_member(one, "arguments"));
    add_text(&heard->calls, json_member(one, "input"));
}

static void hear_responses(struct heard *heard, const struct carat_value *root)
{
    const struct carat_value *type = json_member(root, "type"), *one;
    const struct carat_value *delta = json_member(root, "delta");
    const struct carat_value *output = json_member(root, "output"); /* of a whole body */
    if (json_text_is(type, "response.output_text.delta")) add_text(&heard->text, delta);
    if (json_text_is(type, "response.reasoning_summary_text.delta"))
        add_text(&heard->thought, delta);
    if (json_text_is(type, "response.function_call_arguments.delta") ||
        json_text_is(type, "response.custom_tool_call_input.delta"))
        add_text(&heard->calls, delta);
    if (json_text_is(type, "response.output_item.added"))
        add_name(heard, json_member(root, "item"));
    for (size_t i = 0; (one = item(output, i)) != NULL; i++) hear_output(heard, one);
}

/* ---- Others ----------------------------------------------------------------------------- */

/* A block, a delta or a line. */
static void hear_said(struct heard *heard, const struct carat_value *said)
{
    static const char *const texts[] = {"text", "content", "response"};
    for (size_t i = 0; i < 3; i++) add_text(&heard->text, json_member(said, texts[i]));
    add_text(&heard->thought, json_member(said, "thinking"));
}

static void hear_messages(struct heard *heard, const struct carat_value *root)
{
    const struct carat_value *delta = json_member(root, "delta"), *block;
    const struct carat_value *blocks = json_member(root, "content");
    hear_said(heard, delta);
    add_text(&heard->calls, json_member(delta, "partial_json"));
    add_name(heard, json_member(root, "content_block"));
    for (size_t i = 0; (block = item(blocks, i)) != NULL; i++) {
        hear_said(heard, block);
        add_name(heard, block);
        add_object(heard, json_member(block, "input"));
    }
}

static void hear_line(struct heard *heard, const struct carat_value *said)
{
    const struct carat_value *calls = json_member(said, "tool_calls"), *call;
    hear_said(heard, said);
    for (size_t i = 0; (call = item(calls, i)) != NULL; i++) {
        add_name(heard, json_member(call, "function"));
        add_object(heard, json_member(json_member(call, "function"), "arguments"));
    }
}

/* ---- Lines ------------------------------------------------------------------------------ */

static void hear_json(struct heard *answers, enum api api, const char *text, size_t length)
{
    struct json_tree tree;
    carat_assert(!memchr(text, '\n', length) && !memchr(text, '\r', length));
    carat_assert(json_tree_read(&tree, text, length, JSON_OWN, NULL) == CARAT_OK);
    switch (api) {
    case API_CHAT:
    case API_COMPLETIONS: hear_choices(answers, &tree.root); break;
    case API_RESPONSES: hear_responses(answers, &tree.root); break;
    case API_MESSAGES: hear_messages(answers, &tree.root); break;
    case API_OLLAMA_CHAT: hear_line(answers, json_member(&tree.root, "message")); break;
    case API_OLLAMA_GENERATE: hear_line(answers, &tree.root); break;
    }
    json_tree_free(&tree);
}

void heard_add(struct heard *answers, enum api api, const struct buf *reply)
{
    const char *at = buf_text(reply), *end = at + reply->length;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        carat_assert(line_end);
        size_t length = (size_t)(line_end - at);
        if (length > 6 && memcmp(at, "data: ", 6) == 0) {
            if (length != 12 || memcmp(at, "data: [DONE]", 12) != 0)
                hear_json(answers, api, at + 6, length - 6);
        } else if (*at == '{') {
            hear_json(answers, api, at, length);
        } else {
            carat_assert(length == 0 || *at == ':' || memcmp(at, "event: ", 7) == 0);
        }
        at = line_end + 1;
    }
}

void heard_deinit(struct heard *answer)
{
    buf_deinit(&answer->text);
    buf_deinit(&answer->thought);
    buf_deinit(&answer->calls);
    *answer = (struct heard){0};
}
