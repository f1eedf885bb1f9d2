/* ollama's chat and generate in the form of OpenAI's chat API. Calls there may have no ids: results
 * then name their tool, or come in the order of the calls. */
#include <stdio.h>

#include "api/ask_readers.h"
#include "api/translation.h"
#include "api/root.h"
#include "base/samplers.h"
#include "base/status.h"
#include "json/json_fields.h"

enum { ID_MAX = 32 };

/* ---- Messages --------------------------------------------------------------------------- */

static int check_images(struct translation *r, const struct place *holder)
{
    struct place images = place_member(holder, "images");
    TRY(place_expect_or_null(&images, CARAT_ARRAY, r->err));
    if (place_is_null(&images) || images.value->as.array.count == 0) return CARAT_OK;
    return place_refuse(&images, "carat reads text only", r->err);
}

/* A text, "" when it is absent. */
static int read_text(struct translation *r, const struct place *text, struct carat_value *out)
{
    TRY(place_expect_or_null(text, CARAT_STRING, r->err));
    *out = place_is_null(text) ? tree_text("") : *text->value;
    return CARAT_OK;
}

/* The client's id, or a number that no other call of this message has. */
static struct carat_value id_of(struct translation *r, const struct place *call, size_t number)
{
    const struct carat_value *id = json_member(call->value, "id");
    char text[ID_MAX];
    if (id->kind == CARAT_STRING && id->as.string.length) return *id;
    int length = snprintf(text, sizeof text, "call_%zu", number);
    return tree_copy(&r->tree, text, (size_t)length);
}

static int read_call(struct translation *r, const struct place *call, size_t number)
{
    TRY(place_expect(call, CARAT_OBJECT, r->err));
    struct place function = place_member(call, "function");
    TRY(place_expect(&function, CARAT_OBJECT, r->err));
    struct place name = place_member(&function, "name");
    struct place arguments = place_member(&function, "arguments");
    struct carat_value values;
    TRY(place_expect_name(&name, TRANSLATION_NAME_MAX, r->err));
    TRY(translation_arguments(r, &arguments, &values));
    return turns_call(&r->turns, call, id_of(r, call, number), *name.value, values, r->err);
}

static int read_answer(struct translation *r, const struct place *message)
{
    struct place content = place_member(message, "content"), calls;
    struct place thought = place_member(message, "thinking");
    struct carat_value text, thinking;
    calls = place_member(message, "tool_calls");
    TRY(read_text(r, &content, &text));
    TRY(read_text(r, &thought, &thinking));
    TRY(place_expect_or_null(&calls, CARAT_ARRAY, r->err));
    turns_close(&r->turns);
    turns_thought(&r->turns, thinking);
    if (text.as.string.length) turns_text(&r->turns, text);
    size_t count = place_is_null(&calls) ? 0 : calls.value->as.array.count;
    for (size_t i = 0; i < count; i++) {
        struct place call = place_item(&calls, i);
        TRY(read_call(r, &call, i));
    }
    return CARAT_OK;
}

static int read_result(struct translation *r, const struct place *message)
{
    struct place content = place_member(message, "content");
    struct place id = place_member(message, "tool_call_id");
    struct place name = place_member(message, "tool_name");
    struct carat_value text;
    TRY(read_text(r, &content, &text));
    TRY(place_expect_or_null(&id, CARAT_STRING, r->err));
    if (!place_is_null(&id) && id.value->as.string.length)
        return turns_result(&r->turns, &id, text, r->err);
    if (place_is_null(&name)) name = place_member(message, "name");
    TRY(place_expect_or_null(&name, CARAT_STRING, r->err));
    return turns_result_by_name(&r->turns, &name, text, r->err);
}

static int read_message(struct translation *r, const struct place *message)
{
    static const char *const roles[] = {"system", "developer", "user"};
    TRY(place_expect(message, CARAT_OBJECT, r->err));
    TRY(check_images(r, message));
    struct place role = place_member(message, "role"), content = place_member(message, "content");
    struct carat_value text;
    if (json_text_is(role.value, "assistant")) return read_answer(r, message);
    if (json_text_is(role.value, "tool")) return read_result(r, message);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (!json_text_is(role.value, roles[i])) continue;
        TRY(read_text(r, &content, &text));
        turns_message(&r->turns, roles[i], text);
        return CARAT_OK;
    }
    return place_wrong(&role, "system, developer, user, assistant or tool", r->err);
}

/* ---- The rest --------------------------------------------------------------------------- */

static int read_think(struct translation *r)
{
    struct place think = place_member(&r->body, "think");
    if (place_is_null(&think)) return CARAT_OK;
    if (think.value->kind == CARAT_BOOL) {
        tree_put(&r->tree, &r->root, "enable_thinking", *think.value);
        return CARAT_OK;
    }
    if (think.value->kind != CARAT_STRING)
        return place_wrong(&think, "a boolean or a level", r->err);
    TRY(root_check_effort(&think, r->err));
    tree_put(&r->tree, &r->root, "reasoning_effort", *think.value);
    return CARAT_OK;
}

/* "json", a schema, or nothing. */
static int read_format(struct translation *r)
{
    struct place format = place_member(&r->body, "format");
    if (place_is_null(&format) || json_text_is(format.value, "")) return CARAT_OK;
    r->ask->schema_path = "format";
    if (format.value->kind == CARAT_OBJECT)
        return root_put_schema(&r->tree, &r->root, &format, r->err);
    if (!json_text_is(format.value, "json"))
        return place_wrong(&format, "\"json\" or a JSON schema", r->err);
    root_put_json(&r->tree, &r->root);
    return CARAT_OK;
}

/* Refuses ways to sample that carat does not have, unless they are switched off. */
static int check_absent(struct translation *r, const struct place *options)
{
    struct place tail_free = place_member(options, "tfs_z");
    struct place mirostat = place_member(options, "mirostat");
    int64_t version = 0;
    if (!place_is_null(&tail_free)) TRY(place_expect_real(&tail_free, 1, 1, r->err));
    if (place_is_null(&mirostat)) return CARAT_OK;
    TRY(place_read_whole(&mirostat, INT32_MIN, INT32_MAX, &version, r->err));
    return mirostat_check(version, mirostat.path, r->err);
}

/* Below 0 is no limit. */
static int read_length(struct translation *r, const struct place *options)
{
    struct place most = place_member(options, "num_predict");
    if (place_is_null(&most)) return CARAT_OK;
    int64_t n;
    TRY(place_read_whole(&most, -2, INT32_MAX, &n, r->err));
    tree_put(&r->tree, &r->root, "max_tokens", tree_int(n < 0 ? -1 : n));
    return CARAT_OK;
}

static int read_options(struct translation *r)
{
    static const struct {
        const char *name;
        double low, high;
    } reals[] = {{"temperature", 0, 100},
                 {"top_p", 0, 1},
                 {"min_p", 0, 1},
                 {"repeat_penalty", 0.01, 100},
                 {"presence_penalty", -2, 2},
                 {"frequency_penalty", -2, 2},
                 {"typical_p", 0, 1},
                 {"mirostat_tau", 0, 100},
                 {"mirostat_eta", 0, 100}};
    static const char *const same[] = {"temperature",    "top_p",
                                       "min_p",          "presence_penalty",
                                       "repeat_penalty", "frequency_penalty",
                                       "top_k",          "seed",
                                       "repeat_last_n",  "typical_p",
                                       "mirostat",       "mirostat_tau",
                                       "mirostat_eta",   NULL};
    struct place options = place_member(&r->body, "options"), stops, top_k, last_n, seed;
    TRY(place_expect_or_null(&options, CARAT_OBJECT, r->err));
    if (place_is_null(&options)) return CARAT_OK;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        struct place real = place_member(&options, reals[i].name);
        if (!place_is_null(&real))
            TRY(place_expect_real(&real, reals[i].low, reals[i].high, r->err));
    }
    top_k = place_member(&options, "top_k");
    last_n = place_member(&options, "repeat_last_n");
    seed = place_member(&options, "seed");
    stops = place_member(&options, "stop");
    if (!place_is_null(&top_k)) TRY(place_read_whole(&top_k, -1, INT32_MAX, NULL, r->err));
    if (!place_is_null(&last_n)) TRY(place_read_whole(&last_n, -1, INT32_MAX, NULL, r->err));
    if (!place_is_null(&seed)) TRY(place_read_whole(&seed, INT64_MIN, INT64_MAX, NULL, r->err));
    TRY(check_absent(r, &options));
    TRY(read_length(r, &options));
    TRY(root_put_stops(&r->tree, &r->root, &stops, r->limits->stops_max, r->err));
    root_put_same(&r->tree, &r->root, options.value, same);
    return CARAT_OK;
}

/* "0", "0s", 0: at once. Anything else keeps the model loaded, which it is anyway. */
static bool is_zero_time(const struct carat_value *value)
{
    if (value->kind == CARAT_INT) return value->as.integer == 0;
    if (value->kind == CARAT_REAL) return value->as.real == 0;
    if (value->kind != CARAT_STRING) return false;
    const char *text = value->as.string.data;
    bool is_zero = value->as.string.length > 0 && text[0] == '0';
    for (size_t i = 0; i < value->as.string.length; i++)
        if (text[i] >= '1' && text[i] <= '9') is_zero = false; /* "0h5m" */
    return is_zero;
}

/* Nothing to answer: clients load and unload models so. */
static void take_no_subject(struct translation *r)
{
    if (is_zero_time(json_member(r->body.value, "keep_alive")))
        r->ask->is_unload = true;
    else
        r->ask->is_load = true;
}

static int read_common(struct translation *r)
{
    static const char *const same[] = {"model", "stream", "logprobs", "top_logprobs", NULL};
    r->ask->is_stream = true;
    TRY(read_think(r));
    TRY(read_format(r));
    TRY(read_options(r));
    root_put_same(&r->tree, &r->root, r->body.value, same);
    return CARAT_OK;
}

/* ---- Chat ------------------------------------------------------------------------------- */

/* Tools are written as in OpenAI's API. */
static int read_tools(struct translation *r)
{
    struct place tools = place_member(&r->body, "tools");
    TRY(place_expect_or_null(&tools, CARAT_ARRAY, r->err));
    if (place_is_null(&tools) || tools.value->as.array.count == 0) return CARAT_OK;
    TRY(place_expect_count(&tools, 1, r->limits->tools_max, r->err));
    tree_put(&r->tree, &r->root, "tools", *tools.value);
    return CARAT_OK;
}

int ollama_chat_read(struct ask *ask, const struct carat_value *body,
                     const struct ask_limits *limits, struct carat_error *err)
{
    struct translation r;
    translation_begin(&r, ask, body, limits, err);
    struct place messages = place_member(&r.body, "messages");
    TRY(read_common(&r));
    TRY(read_tools(&r));
    if (!place_is_null(&messages)) TRY(place_expect_count(&messages, 0, limits->messages_max, err));
    size_t count = place_is_null(&messages) ? 0 : messages.value->as.array.count;
    for (size_t i = 0; i < count; i++) {
        struct place message = place_item(&messages, i);
        TRY(read_message(&r, &message));
    }
    if (count == 0) take_no_subject(&r);
    return translation_end(&r);
}

/* ---- Generate --------------------------------------------------------------------------- */

static int check_empty(struct translation *r, const char *key, const char *hint)
{
    struct place text = place_member(&r->body, key);
    TRY(place_expect_or_null(&text, CARAT_STRING, r->err));
    if (place_is_null(&text) || text.value->as.string.length == 0) return CARAT_OK;
    err_set(r->err, CARAT_EUSAGE, "%s: not supported", key);
    err_hint(r->err, "%s", hint);
    return CARAT_EUSAGE;
}

static int put_raw_prompt(struct translation *r, struct carat_value prompt)
{
    struct ask_prompt *one = arena_take(r->tree.arena, 1, sizeof *one);
    if (!one) return err_no_memory(r->err, "prompt", sizeof *one);
    *one = (struct ask_prompt){
        .text = prompt.as.string.data, .length = prompt.as.string.length, .has_special = true};
    r->ask->prompts = one;
    r->ask->n_prompts = 1;
    return CARAT_OK;
}

int ollama_generate_read(struct ask *ask, const struct carat_value *body,
                         const struct ask_limits *limits, struct carat_error *err)
{
    struct translation r;
    translation_begin(&r, ask, body, limits, err);
    struct place prompt = place_member(&r.body, "prompt"), raw = place_member(&r.body, "raw");
    struct place system = place_member(&r.body, "system");
    struct carat_value text, rules;
    TRY(read_common(&r));
    TRY(check_images(&r, &r.body));
    TRY(check_empty(&r, "suffix", "the model continues a text; it does not fill gaps"));
    TRY(check_empty(&r, "template", "the model's own template is used"));
    TRY(place_expect_or_null(&raw, CARAT_BOOL, err));
    TRY(read_text(&r, &prompt, &text));
    TRY(read_text(&r, &system, &rules));
    bool is_raw = raw.value->kind == CARAT_BOOL && raw.value->as.boolean;
    if (text.as.string.length == 0) {
        take_no_subject(&r);
    } else if (is_raw) {
        TRY(put_raw_prompt(&r, text));
    } else {
        if (rules.as.string.length) turns_message(&r.turns, "system", rules);
        turns_message(&r.turns, "user", text);
    }
    return translation_end(&r);
}
