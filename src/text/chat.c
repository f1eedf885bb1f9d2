/* The turns of a prompt. The template is a small state machine over the messages: `last`
 * remembers what the newest message ended with, and decides how its turn is closed, whether the
 * next assistant message continues it, and what the model is given to start from. Tool messages
 * have no turn: the assistant message whose calls they answer renders them. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat_internal.h"

enum last { LAST_OTHER, LAST_CALL, LAST_RESPONSE };

struct renderer {
    struct prompt *prompt;
    enum carat_size size;
    const struct carat_value *messages; /* array of objects with known roles */
    size_t first;                       /* after the system message */
    bool is_thinking, preserves_thinking, begins_answer;
    bool continues_last; /* the last message is the beginning of the answer */
    size_t n_until_user; /* messages up to and including the user's last; 0: none */
    enum last last;
    bool continues_turn; /* the last message other than a tool's was the assistant's */
    bool ends_closed;    /* the newest text is the end of a turn */
    struct carat_error *err;
};

static void mark(struct renderer *r, const char *template_text)
{
    prompt_mark(r->prompt, template_text);
    r->ends_closed = false;
}

static void text(struct renderer *r, struct text t)
{
    prompt_text(r->prompt, t.data, t.length);
    if (t.length) r->ends_closed = false;
}

static const struct carat_value *message_at(const struct renderer *r, size_t i)
{
    return &r->messages->as.array.items[i];
}

static struct text role_of(const struct renderer *r, size_t i)
{
    return value_text(value_get(message_at(r, i), "role"));
}

static bool role_is(const struct renderer *r, size_t i, const char *role)
{
    return text_is(role_of(r, i), role);
}

static int wrong(struct renderer *r, size_t i, const char *field, const char *expected,
                 const struct carat_value *found)
{
    return err_set(r->err, CARAT_EUSAGE, "messages[%zu].%s: %s expected, %s found", i, field,
                   expected, value_kind_name(found));
}

/* ---- Content ---------------------------------------------------------------------------- */

/* Old thoughts are not shown again: drops what lies between <|channel> and <channel|>. */
static void text_without_thoughts(struct renderer *r, struct text t)
{
    static const char open[] = "<|channel>", shut[] = "<channel|>";
    struct buf kept = {0};
    while (t.length) {
        const char *end = memmem(t.data, t.length, shut, sizeof shut - 1);
        size_t part = end ? (size_t)(end - t.data) : t.length;
        const char *thought = part ? memmem(t.data, part, open, sizeof open - 1) : NULL;
        buf_add(&kept, t.data, thought ? (size_t)(thought - t.data) : part);
        size_t step = end ? part + sizeof shut - 1 : part;
        t.data += step;
        t.length -= step;
    }
    if (kept.failed) r->prompt->failed = true;
    text(r, text_trim((struct text){buf_text(&kept), kept.length}));
    buf_deinit(&kept);
}

static void message_text(struct renderer *r, struct text t, bool is_model)
{
    if (is_model)
        text_without_thoughts(r, t);
    else
        text(r, text_trim(t));
}

/* The placeholder of a part that is no text; NULL for one that is; "" when it is unknown. */
static const char *placeholder(const struct carat_value *part)
{
    struct text type = value_text(value_get(part, "type"));
    if (text_is(type, "text")) return NULL;
    if (text_is(type, "image") || text_is(type, "image_url")) return "<|image|>";
    if (text_is(type, "audio") || text_is(type, "input_audio")) return "<|audio|>";
    if (text_is(type, "video")) return "<|video|>";
    return "";
}

/* An array of parts: objects of known types, with text where text is due. */
static int check_parts(struct renderer *r, size_t i, const struct carat_value *parts)
{
    for (size_t k = 0; k < parts->as.array.count; k++) {
        const struct carat_value *part = &parts->as.array.items[k], *t = value_get(part, "text");
        char field[48], shown[SHOWN_MAX];
        snprintf(field, sizeof field, "content[%zu]", k);
        if (!value_is(part, CARAT_OBJECT)) return wrong(r, i, field, "an object", part);
        const char *holder = placeholder(part);
        if (holder && !*holder)
            return err_set(
                r->err, CARAT_EUSAGE,
                "messages[%zu].content[%zu].type: \"text\", \"image_url\", \"input_audio\" "
                "or \"video\" expected, \"%s\" found",
                i, k, text_shown(value_text(value_get(part, "type")), shown));
        snprintf(field, sizeof field, "content[%zu].text", k);
        if (!holder && t && t->kind != CARAT_STRING && t->kind != CARAT_NULL)
            return wrong(r, i, field, "a string", t);
    }
    return CARAT_OK;
}

/* Content of a turn: a string, parts, or nothing. */
static void content(struct renderer *r, const struct carat_value *value, bool is_model)
{
    if (value_is(value, CARAT_STRING)) message_text(r, value_text(value), is_model);
    for (size_t k = 0; value_is(value, CARAT_ARRAY) && k < value->as.array.count; k++) {
        const struct carat_value *part = &value->as.array.items[k];
        const char *holder = placeholder(part);
        if (holder)
            mark(r, holder);
        else
            message_text(r, value_text(value_get(part, "text")), is_model);
    }
}

/* ---- Calls and responses ---------------------------------------------------------------- */

static int call(struct renderer *r, size_t i, size_t k, const struct carat_value *function)
{
    const struct carat_value *name = value_get(function, "name");
    const struct carat_value *arguments = value_get(function, "arguments");
    char field[64];
    snprintf(field, sizeof field, "tool_calls[%zu].function.name", k);
    if (!value_is(name, CARAT_STRING)) return wrong(r, i, field, "a string", name);
    if (name_check(name, r->err))
        return err_within(r->err, "messages[%zu].tool_calls[%zu].function", i, k);
    mark(r, "<|tool_call>call:");
    text(r, value_text(name));
    mark(r, "{");
    snprintf(field, sizeof field, "tool_calls[%zu].function.arguments", k);
    if (value_is(arguments, CARAT_OBJECT)) {
        int status = chat_members(r->prompt, arguments, false, 0, r->err);
        if (status == CARAT_EUSAGE) err_within(r->err, "messages[%zu].%s", i, field);
        TRY(status);
    } else if (value_is(arguments, CARAT_STRING)) {
        if (text_trim(value_text(arguments)).length)
            return err_set(r->err, CARAT_EUSAGE,
                           "messages[%zu].%s: a JSON object expected, other text found", i, field);
    } else if (arguments && arguments->kind != CARAT_NULL) {
        return wrong(r, i, field, "an object", arguments);
    }
    mark(r, "}<tool_call|>");
    return CARAT_OK;
}

static int calls(struct renderer *r, size_t i, const struct carat_value *list)
{
    if (!value_is(list, CARAT_ARRAY)) return wrong(r, i, "tool_calls", "an array", list);
    if (list->as.array.count > CALLS_MAX)
        return err_set(r->err, CARAT_EUSAGE,
                       "messages[%zu].tool_calls: at most %d expected, %zu found", i, CALLS_MAX,
                       list->as.array.count);
    for (size_t k = 0; k < list->as.array.count; k++)
        TRY(call(r, i, k, value_get(&list->as.array.items[k], "function")));
    r->last = LAST_CALL;
    return CARAT_OK;
}

static int response(struct renderer *r, struct text name, const struct carat_value *value)
{
    static const struct carat_value nothing = {.kind = CARAT_NULL};
    if (!value) value = &nothing;
    bool is_object = value->kind == CARAT_OBJECT;
    mark(r, "<|tool_response>response:");
    text(r, name);
    mark(r, is_object ? "{" : "{value:");
    if (is_object)
        TRY(chat_members(r->prompt, value, false, 0, r->err));
    else
        TRY(chat_argument(r->prompt, value, false, 0, r->err));
    mark(r, "}<tool_response|>");
    r->last = LAST_RESPONSE;
    return CARAT_OK;
}

static struct text or_unknown(const struct carat_value *name)
{
    return value_is(name, CARAT_STRING) && value_is_true(name) ? value_text(name)
                                                               : (struct text){"unknown", 7};
}

static int own_responses(struct renderer *r, size_t i, const struct carat_value *list)
{
    if (!value_is(list, CARAT_ARRAY)) return wrong(r, i, "tool_responses", "an array", list);
    for (size_t k = 0; k < list->as.array.count; k++) {
        const struct carat_value *one = &list->as.array.items[k], *name = value_get(one, "name");
        int status = name_check(name, r->err);
        if (status == CARAT_OK) status = response(r, or_unknown(name), value_get(one, "response"));
        if (status == CARAT_EUSAGE) err_within(r->err, "messages[%zu].tool_responses[%zu]", i, k);
        TRY(status);
    }
    return CARAT_OK;
}

/* ---- Calls by id ---- */

/* A call's id and name, looked up once. */
struct call_id {
    const struct carat_value *id; /* NULL: it has none */
    struct text name;
    size_t place; /* in the message */
};

/* Calls of one message, ordered by id. */
struct call_ids {
    struct call_id *calls;
    size_t count;
};

/* Ids of calls are strings, sometimes numbers; a missing id equals null. A value of another kind
 * equals nothing. */
enum id_kind { ID_MISSING, ID_NUMBER, ID_TEXT, ID_OTHER };

static enum id_kind id_kind_of(const struct carat_value *id)
{
    if (!id || id->kind == CARAT_NULL) return ID_MISSING;
    return id->kind == CARAT_INT ? ID_NUMBER : id->kind == CARAT_STRING ? ID_TEXT : ID_OTHER;
}

static int compare_ids(const struct carat_value *a, const struct carat_value *b)
{
    enum id_kind x = id_kind_of(a), y = id_kind_of(b);
    if (x != y) return x < y ? -1 : 1;
    if (x == ID_NUMBER) return (a->as.integer > b->as.integer) - (a->as.integer < b->as.integer);
    if (x != ID_TEXT) return 0;
    struct text t = value_text(a), u = value_text(b);
    if (t.length != u.length) return t.length < u.length ? -1 : 1;
    return memcmp(t.data, u.data, t.length);
}

static int compare_calls(const void *left, const void *right)
{
    const struct call_id *a = left, *b = right;
    int order = compare_ids(a->id, b->id);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

static int call_ids_open(struct call_ids *ids, const struct carat_value *list,
                         struct carat_error *err)
{
    ids->count = list->as.array.count;
    ids->calls = mem_alloc(ids->count, sizeof *ids->calls);
    if (!ids->calls) return err_no_memory(err, "calls", ids->count * sizeof *ids->calls);
    for (size_t i = 0; i < ids->count; i++) {
        const struct carat_value *call = &list->as.array.items[i];
        struct text name = value_text(value_get(value_get(call, "function"), "name"));
        ids->calls[i] = (struct call_id){value_get(call, "id"), name, i};
    }
    qsort(ids->calls, ids->count, sizeof *ids->calls, compare_calls);
    return CARAT_OK;
}

/* The last call with this id, NULL if there is none. */
static const struct call_id *call_of_id(const struct call_ids *ids, const struct carat_value *id)
{
    size_t low = 0, high = ids->count; /* narrowed to the first call after those with this id */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_ids(ids->calls[middle].id, id) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || id_kind_of(id) == ID_OTHER) return NULL;
    return compare_ids(ids->calls[low - 1].id, id) == 0 ? &ids->calls[low - 1] : NULL;
}

/* The texts of an array of parts as one string, then placeholders for the other parts. */
static int response_of_parts(struct renderer *r, struct text name, const struct carat_value *parts)
{
    struct buf joined = {0};
    for (size_t k = 0; k < parts->as.array.count; k++) {
        const struct carat_value *part = &parts->as.array.items[k];
        struct text t = value_text(value_get(part, "text"));
        if (!placeholder(part)) buf_add(&joined, t.data, t.length);
    }
    if (joined.failed) r->prompt->failed = true;
    struct carat_value value = {.kind = CARAT_STRING};
    value.as.string.data = buf_text(&joined);
    value.as.string.length = joined.length;
    int status = response(r, name, &value);
    buf_deinit(&joined);
    for (size_t k = 0; k < parts->as.array.count; k++) {
        const char *holder = placeholder(&parts->as.array.items[k]);
        if (holder) mark(r, holder);
    }
    return status;
}

/* Renders message k, a tool's, as an answer to one of these calls. */
static int tool_message(struct renderer *r, size_t k, const struct call_ids *ids)
{
    const struct carat_value *message = message_at(r, k);
    const struct carat_value *body = value_get(message, "content");
    const struct carat_value *own = value_get(message, "name");
    const struct call_id *call = call_of_id(ids, value_get(message, "tool_call_id"));
    struct text name = or_unknown(own);
    if (name_check(own, r->err)) return err_within(r->err, "messages[%zu]", k);
    if (call) name = call->name;
    TRY(prompt_check(r->prompt, r->err));
    int status =
        value_is(body, CARAT_ARRAY) ? response_of_parts(r, name, body) : response(r, name, body);
    if (status == CARAT_EUSAGE) err_within(r->err, "messages[%zu].content", k);
    return status;
}

static int responses(struct renderer *r, size_t i)
{
    const struct carat_value *own = value_get(message_at(r, i), "tool_responses");
    const struct carat_value *list = value_get(message_at(r, i), "tool_calls");
    size_t count = r->messages->as.array.count;
    if (value_is_true(own)) return own_responses(r, i, own);
    if (!value_is_true(list) || i + 1 == count || !role_is(r, i + 1, "tool")) return CARAT_OK;
    struct call_ids ids;
    TRY(call_ids_open(&ids, list, r->err));
    int status = CARAT_OK;
    for (size_t k = i + 1; k < count && role_is(r, k, "tool") && status == CARAT_OK; k++)
        status = tool_message(r, k, &ids);
    mem_free(ids.calls);
    return status;
}

/* ---- Turns ------------------------------------------------------------------------------ */

static int thoughts(struct renderer *r, size_t i)
{
    const struct carat_value *message = message_at(r, i);
    const struct carat_value *thought = value_get(message, "reasoning");
    bool is_kept = i >= r->n_until_user ||
                   (r->preserves_thinking && value_is_true(value_get(message, "tool_calls")));
    if (!value_is_true(thought)) thought = value_get(message, "reasoning_content");
    if (!value_is_true(thought) || !is_kept) return CARAT_OK;
    if (!value_is(thought, CARAT_STRING)) return wrong(r, i, "reasoning", "a string", thought);
    mark(r, "<|channel>thought\n");
    text(r, value_text(thought));
    mark(r, "\n<channel|>");
    return CARAT_OK;
}

static void close_turn(struct renderer *r, size_t i, bool has_responses, bool has_content)
{
    size_t next = i + 1, count = r->messages->as.array.count;
    while (next < count && role_is(r, next, "tool")) next++;
    bool has_calls = value_is_true(value_get(message_at(r, i), "tool_calls"));
    bool is_model = role_is(r, i, "assistant");
    if (r->last == LAST_CALL && !has_responses) {
        mark(r, "<|tool_response>"); /* where the model stopped and the tool goes on */
    } else if (is_model && next < count && role_is(r, next, "assistant") &&
               (!has_calls || has_responses)) {
        return; /* the next message continues this turn */
    } else if (!has_responses || has_content || next < count) {
        mark(r, "<turn|>\n");
        r->ends_closed = true;
    }
}

static int message(struct renderer *r, size_t i)
{
    const struct carat_value *m = message_at(r, i);
    bool is_model = role_is(r, i, "assistant");
    if (!is_model || !r->continues_turn) {
        mark(r, "<|turn>");
        if (is_model)
            mark(r, "model");
        else
            text(r, role_of(r, i));
        mark(r, "\n");
    }
    r->last = LAST_OTHER;
    TRY(thoughts(r, i));
    const struct carat_value *list = value_get(m, "tool_calls");
    if (value_is_true(list)) TRY(calls(r, i, list));
    TRY(responses(r, i));
    bool has_responses = r->last == LAST_RESPONSE;
    size_t before = r->prompt->text.length;
    content(r, value_get(m, "content"), is_model);
    close_turn(r, i, has_responses, r->prompt->text.length > before);
    r->continues_turn = is_model;
    return CARAT_OK;
}

static int system_turn(struct renderer *r, const struct carat_value *tools)
{
    bool has_text = role_is(r, 0, "system") || role_is(r, 0, "developer");
    if (!has_text && !r->is_thinking && !value_is_true(tools)) return CARAT_OK;
    mark(r, "<|turn>system\n");
    if (r->is_thinking) mark(r, "<|think|>\n");
    if (has_text) {
        const struct carat_value *value = value_get(message_at(r, 0), "content");
        if (value_is(value, CARAT_STRING)) text(r, text_trim(value_text(value)));
        for (size_t k = 0; value_is(value, CARAT_ARRAY) && k < value->as.array.count; k++) {
            text(r, text_trim(value_text(value_get(&value->as.array.items[k], "text"))));
            mark(r, " ");
        }
        r->first = 1;
    }
    if (value_is_true(tools)) TRY(chat_declare_tools(r->prompt, tools, r->err));
    mark(r, "<turn|>\n");
    r->ends_closed = true;
    return CARAT_OK;
}

static void answer_prompt(struct renderer *r)
{
    if (r->last == LAST_OTHER) {
        mark(r, "<|turn>model\n");
        if (r->size == CARAT_SIZE_LARGE && !r->is_thinking)
            mark(r, "<|channel>thought\n<channel|>");
    } else if (r->last == LAST_RESPONSE && r->is_thinking) {
        mark(r, "<|channel>thought\n");
    }
    /* The published template leaves the model without a turn after a message with both text
     * and answered calls. */
    if (r->ends_closed) mark(r, "<|turn>model\n");
}

/* ---- The beginning of an answer ---------------------------------------------------------- */

static int refuse_member(struct renderer *r, size_t i, const char *field)
{
    if (!value_is_true(value_get(message_at(r, i), field))) return CARAT_OK;
    return err_set(r->err, CARAT_EUSAGE,
                   "messages[%zu].%s: nothing expected in a message that is continued", i, field);
}

/* The last message can be continued if it is a text of the assistant. */
static int check_beginning(struct renderer *r)
{
    static const char *const others[] = {"tool_calls", "tool_responses", "reasoning",
                                         "reasoning_content"};
    size_t i = r->messages->as.array.count - 1, length = 0;
    const struct carat_value *body = value_get(message_at(r, i), "content");
    if (!role_is(r, i, "assistant"))
        return err_set(r->err, CARAT_EUSAGE,
                       "messages[%zu].role: assistant expected with continue_final_message, "
                       "%.*s found",
                       i, (int)role_of(r, i).length, role_of(r, i).data);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) TRY(refuse_member(r, i, others[k]));
    if (value_is(body, CARAT_STRING)) length = value_text(body).length;
    for (size_t k = 0; value_is(body, CARAT_ARRAY) && k < body->as.array.count; k++) {
        const struct carat_value *part = &body->as.array.items[k];
        if (placeholder(part))
            return err_set(
                r->err, CARAT_EUSAGE,
                "messages[%zu].content[%zu].type: \"text\" expected in a message that is "
                "continued",
                i, k);
        length += value_text(value_get(part, "text")).length;
    }
    if (length) return CARAT_OK;
    return err_set(r->err, CARAT_EUSAGE,
                   "messages[%zu].content: a text to continue expected, none found", i);
}

static int check_continued(struct renderer *r, const struct carat_value *request)
{
    if (value_is_true(value_get(request, "add_generation_prompt")))
        return err_set(r->err, CARAT_EUSAGE,
                       "add_generation_prompt: false expected with continue_final_message, true "
                       "found");
    if (r->is_thinking) {
        err_set(r->err, CARAT_EUSAGE,
                "enable_thinking: false expected with continue_final_message, true found");
        err_hint(r->err, "a thought stands before an answer, so none can follow its beginning");
        return CARAT_EUSAGE;
    }
    return check_beginning(r);
}

/* Writes the last message with its white space. It follows what begins an answer, or goes on in a
 * turn that the message before it left open. */
static void begin_with_last(struct renderer *r)
{
    const struct carat_value *last = message_at(r, r->messages->as.array.count - 1);
    const struct carat_value *body = value_get(last, "content");
    if (!r->continues_turn) answer_prompt(r);
    text(r, value_text(body));
    for (size_t k = 0; value_is(body, CARAT_ARRAY) && k < body->as.array.count; k++)
        text(r, value_text(value_get(&body->as.array.items[k], "text")));
}

/* ---- Requests --------------------------------------------------------------------------- */

static int read_flag(const struct carat_value *request, const char *key, bool *out,
                     struct carat_error *err)
{
    const struct carat_value *value = value_get(request, key);
    if (!value || value->kind == CARAT_NULL) return CARAT_OK;
    if (value->kind != CARAT_BOOL)
        return err_set(err, CARAT_EUSAGE, "%s: a boolean expected, %s found", key,
                       value_kind_name(value));
    *out = value->as.boolean;
    return CARAT_OK;
}

static int check_message(struct renderer *r, size_t i)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const struct carat_value *m = message_at(r, i), *role = value_get(m, "role");
    if (!value_is(m, CARAT_OBJECT))
        return err_set(r->err, CARAT_EUSAGE, "messages[%zu]: an object expected, %s found", i,
                       value_kind_name(m));
    if (!value_is(role, CARAT_STRING)) return wrong(r, i, "role", "a string", role);
    bool is_known = false;
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        is_known = is_known || text_is(value_text(role), roles[k]);
    char shown[SHOWN_MAX];
    if (!is_known)
        return err_set(r->err, CARAT_EUSAGE,
                       "messages[%zu].role: system, developer, user, assistant or tool expected, "
                       "\"%s\" found",
                       i, text_shown(value_text(role), shown));
    const struct carat_value *body = value_get(m, "content");
    if (value_is(body, CARAT_ARRAY)) return check_parts(r, i, body);
    if (!body || body->kind == CARAT_STRING || body->kind == CARAT_NULL || role_is(r, i, "tool"))
        return CARAT_OK;
    return wrong(r, i, "content", "a string or an array", body);
}

static int read_request(struct renderer *r, const struct carat_value *request,
                        const struct carat_value **tools)
{
    if (!value_is(request, CARAT_OBJECT))
        return err_set(r->err, CARAT_EUSAGE, "request: an object expected, %s found",
                       value_kind_name(request));
    r->begins_answer = true;
    TRY(read_flag(request, "enable_thinking", &r->is_thinking, r->err));
    TRY(read_flag(request, "preserve_thinking", &r->preserves_thinking, r->err));
    TRY(read_flag(request, "add_generation_prompt", &r->begins_answer, r->err));
    TRY(read_flag(request, "continue_final_message", &r->continues_last, r->err));
    *tools = value_get(request, "tools");
    if (*tools && (*tools)->kind != CARAT_ARRAY && (*tools)->kind != CARAT_NULL)
        return err_set(r->err, CARAT_EUSAGE, "tools: an array expected, %s found",
                       value_kind_name(*tools));
    r->messages = value_get(request, "messages");
    if (!value_is(r->messages, CARAT_ARRAY))
        return err_set(r->err, CARAT_EUSAGE, "messages: an array expected, %s found",
                       value_kind_name(r->messages));
    if (r->messages->as.array.count == 0)
        return err_set(r->err, CARAT_EUSAGE, "messages: at least one expected, none found");
    for (size_t i = 0; i < r->messages->as.array.count; i++) {
        TRY(check_message(r, i));
        if (role_is(r, i, "user")) r->n_until_user = i + 1;
    }
    return r->continues_last ? check_continued(r, request) : CARAT_OK;
}

static int render(struct prompt *prompt, enum carat_size size, const struct carat_value *request,
                  struct carat_error *err)
{
    struct carat_error unused; /* the files of the template read the code from it */
    if (!err) err = &unused;
    struct renderer r = {.prompt = prompt, .size = size, .err = err};
    const struct carat_value *tools = NULL;
    TRY(read_request(&r, request, &tools));
    mark(&r, "<bos>");
    TRY(system_turn(&r, tools));
    size_t whole = r.messages->as.array.count - (r.continues_last ? 1 : 0);
    for (size_t i = r.first; i < whole; i++)
        if (!role_is(&r, i, "tool")) TRY(message(&r, i));
    if (r.continues_last)
        begin_with_last(&r);
    else if (r.begins_answer)
        answer_prompt(&r);
    return prompt_check(prompt, err);
}

int chat_text(enum carat_size size, const struct carat_value *request, char **out, size_t *length,
              struct carat_error *err)
{
    *out = NULL;
    *length = 0;
    struct prompt prompt = {0};
    int status = render(&prompt, size, request, err);
    if (status == CARAT_OK) {
        *out = prompt.text.data;
        *length = prompt.text.length;
        prompt.text = (struct buf){0}; /* the caller's now */
    }
    prompt_deinit(&prompt);
    return status;
}

int chat_tokenize(const struct vocab *v, enum carat_size size, const struct carat_value *request,
                  int32_t n_ctx, int32_t **ids, size_t *count, struct carat_error *err)
{
    *ids = NULL;
    *count = 0;
    struct prompt prompt = {0};
    int status = render(&prompt, size, request, err);
    if (status == CARAT_OK) status = vocab_check_length(v, prompt.text.length, n_ctx, NULL, err);
    if (status == CARAT_OK)
        status = tokenizer_encode_spans(v, buf_text(&prompt.text), prompt.spans, prompt.n_spans,
                                        true, ids, count, err);
    prompt_deinit(&prompt);
    return status;
}
