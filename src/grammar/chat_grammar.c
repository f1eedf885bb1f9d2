/* An answer is text or calls. Text is free or of one form; calls may be banned, allowed or forced.
 *
 *     calls      text free                 text of a form
 *     none       all but <|tool_call>      text
 *     auto       free; call after <|tool_call>    text or calls
 *     required   calls                     calls
 *
 * With "enable_thinking" a thought may stand before any of them. Without it none may: the tokens
 * that a form allows are often so unlikely that the beginning of a thought would be chosen
 * instead. */
#include "grammar/chat_grammar.h"

#include <string.h>

#include "base/status.h"
#include "grammar/call_grammar.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "json/json_tree.h"

enum calls { CALLS_NONE, CALLS_AUTO, CALLS_REQUIRED };

struct chat {
    struct expr_builder *b;
    const struct vocab *v;
    const struct carat_value *request, *tools;
    enum calls calls;
    bool is_loose_kept;             /* schemas of tools that are not strict */
    const struct carat_value *only; /* the name of the tool to call; NULL: any */
    bool is_one;                    /* at most one call */
    struct carat_member type;       /* of any_object */
    struct carat_value object;
    const char *where; /* the member that says what text has to be; NULL: none */
    struct carat_error *err;
};

/* ---- Calls ------------------------------------------------------------------------------ */

static bool has_tools(const struct chat *c)
{
    return c->tools->kind == CARAT_ARRAY && c->tools->as.array.count > 0;
}

/* {"type": "function", "function": {"name": NAME}} */
static int read_named_choice(struct chat *c, const struct carat_value *choice)
{
    const struct carat_value *type = json_member(choice, "type");
    const struct carat_value *name = json_member(json_member(choice, "function"), "name");
    if (choice->kind != CARAT_OBJECT)
        return err_set(c->err, CARAT_EUSAGE,
                       "tool_choice: \"none\", \"auto\", \"required\" or an object expected");
    if (!json_text_is(type, "function"))
        return err_set(c->err, CARAT_EUSAGE, "tool_choice.type: \"function\" expected");
    if (name->kind != CARAT_STRING)
        return err_set(c->err, CARAT_EUSAGE,
                       "tool_choice.function.name: a string expected, %s found",
                       json_kind_name(name));
    c->calls = CALLS_REQUIRED;
    c->only = name;
    c->is_one = true;
    return CARAT_OK;
}

static int read_choice(struct chat *c)
{
    const struct carat_value *choice = json_member(c->request, "tool_choice");
    const struct carat_value *parallel = json_member(c->request, "parallel_tool_calls");
    c->tools = json_member(c->request, "tools");
    if (c->tools->kind != CARAT_NULL && c->tools->kind != CARAT_ARRAY)
        return err_set(c->err, CARAT_EUSAGE, "tools: an array expected, %s found",
                       json_kind_name(c->tools));
    if (parallel->kind != CARAT_NULL && parallel->kind != CARAT_BOOL)
        return err_set(c->err, CARAT_EUSAGE, "parallel_tool_calls: a boolean expected, %s found",
                       json_kind_name(parallel));
    c->is_one = parallel->kind == CARAT_BOOL && !parallel->as.boolean;
    c->calls = has_tools(c) ? CALLS_AUTO : CALLS_NONE;
    if (choice->kind == CARAT_NULL || json_text_is(choice, "auto")) return CARAT_OK;
    if (json_text_is(choice, "none"))
        c->calls = CALLS_NONE;
    else if (json_text_is(choice, "required"))
        c->calls = CALLS_REQUIRED;
    else
        TRY(read_named_choice(c, choice));
    if (c->calls == CALLS_REQUIRED && !has_tools(c))
        return err_set(c->err, CARAT_EUSAGE, "tool_choice: \"tools\" expected with it");
    return CARAT_OK;
}

/* One call or several; NULL if none is allowed. */
static int make_calls(struct chat *c, const struct expr **out)
{
    *out = NULL;
    if (c->calls == CALLS_NONE) return CARAT_OK;
    TRY(call_grammar_expr(out, c->b, c->v, c->tools, c->only, c->is_loose_kept, c->err));
    if (!c->is_one) *out = expr_repeat(c->b, *out, 1, EXPR_NO_LIMIT);
    return builder_check(c->b, c->err);
}

/* ---- Text ------------------------------------------------------------------------------- */

/* {"type": "object"} */
static const struct carat_value *any_object(struct chat *c)
{
    c->type.key.data = "type";
    c->type.key.length = strlen("type");
    c->type.value.kind = CARAT_STRING;
    c->type.value.as.string.data = "object";
    c->type.value.as.string.length = strlen("object");
    c->object.kind = CARAT_OBJECT;
    c->object.as.object.members = &c->type;
    c->object.as.object.count = 1;
    return &c->object;
}

/* The schema that "response_format" names; NULL: text is free. */
static int read_format(struct chat *c, const struct carat_value **schema)
{
    const struct carat_value *format = json_member(c->request, "response_format");
    const struct carat_value *type = json_member(format, "type");
    *schema = NULL;
    if (format->kind == CARAT_NULL || json_text_is(type, "text")) return CARAT_OK;
    if (format->kind != CARAT_OBJECT)
        return err_set(c->err, CARAT_EUSAGE, "response_format: an object expected, %s found",
                       json_kind_name(format));
    bool is_object = json_text_is(type, "json_object");
    if (!is_object && !json_text_is(type, "json_schema"))
        return err_set(c->err, CARAT_EUSAGE,
                       "response_format.type: \"text\", \"json_object\" or \"json_schema\" "
                       "expected");
    const struct carat_value *own = json_member(json_member(format, "json_schema"), "schema");
    c->where = "response_format.json_schema.schema";
    if (own->kind == CARAT_NULL) { /* as llama.cpp's server takes it */
        own = json_member(format, "schema");
        if (own->kind != CARAT_NULL) c->where = "response_format.schema";
    }
    if (own->kind == CARAT_NULL && is_object) own = any_object(c);
    if (own->kind != CARAT_OBJECT && own->kind != CARAT_BOOL)
        return err_set(c->err, CARAT_EUSAGE, "%s: an object expected, %s found", c->where,
                       json_kind_name(own));
    *schema = own;
    return CARAT_OK;
}

static int read_schema(struct chat *c, const struct carat_value *schema, const struct expr **out)
{
    static const struct value_syntax json = {.quote = -1};
    int status = json_schema_expr(c->b, schema, &json, out, c->err);
    if (status != CARAT_OK) err_within(c->err, "%s", c->where);
    return status;
}

/* What text has to be; NULL if it is free. */
static int make_text(struct chat *c, const struct expr **out)
{
    const struct carat_value *schema, *grammar = json_member(c->request, "grammar");
    const struct carat_value *bare = json_member(c->request, "json_schema");
    *out = NULL;
    TRY(read_format(c, &schema));
    int n = (schema != NULL) + (grammar->kind != CARAT_NULL) + (bare->kind != CARAT_NULL);
    if (n > 1)
        return err_set(c->err, CARAT_EUSAGE,
                       "one of response_format, json_schema and grammar expected, %d found", n);
    if (bare->kind != CARAT_NULL) {
        schema = bare;
        c->where = "json_schema";
    }
    if (schema) return read_schema(c, schema, out);
    if (grammar->kind == CARAT_NULL) return CARAT_OK;
    if (grammar->kind != CARAT_STRING)
        return err_set(c->err, CARAT_EUSAGE, "grammar: a string expected, %s found",
                       json_kind_name(grammar));
    int32_t root = -1;
    c->where = "grammar";
    int status =
        gbnf_read(c->b, c->v, grammar->as.string.data, grammar->as.string.length, &root, c->err);
    if (status != CARAT_OK) return status;
    *out = expr_rule(c->b, root);
    return builder_check(c->b, c->err);
}

/* ---- Both ------------------------------------------------------------------------------- */

/* Anything but a call, then perhaps one. */
static const struct expr *free_then(struct chat *c, const struct expr *call)
{
    int32_t begin = vocab_special(c->v, VOCAB_CALL_BEGIN);
    const struct expr *parts[2] = {expr_repeat(c->b, expr_not_token(c->b, begin), 0, EXPR_NO_LIMIT),
                                   NULL};
    if (!call) return parts[0];
    parts[1] = expr_optional(c->b, call);
    return parts[0] && parts[1] ? expr_seq(c->b, parts, 2) : NULL;
}

/* The body of the root rule; NULL: nothing is constrained. */
static int make_root(struct chat *c, const struct expr **out, int32_t *trigger)
{
    const struct expr *text, *calls;
    *out = NULL;
    *trigger = -1;
    TRY(read_choice(c));
    TRY(make_calls(c, &calls));
    TRY(make_text(c, &text));
    if (c->calls == CALLS_NONE && !text && !has_tools(c)) return CARAT_OK;
    const struct expr *both[2] = {text, calls};
    if (c->calls == CALLS_NONE) {
        *out = text ? text : free_then(c, NULL);
    } else if (c->calls == CALLS_REQUIRED) {
        *out = calls;
    } else if (text) {
        *out = expr_either(c->b, both, 2);
    } else if (c->is_one) {
        *out = free_then(c, calls);
    } else {
        *out = calls;
        *trigger = vocab_special(c->v, VOCAB_CALL_BEGIN);
    }
    return builder_check(c->b, c->err);
}

static int open_with(carat_grammar **out, const struct vocab *v, const struct token_index *index,
                     const struct carat_value *request, bool is_loose_kept, struct carat_error *err)
{
    struct expr_builder builder = {0};
    struct chat c = {
        .b = &builder, .v = v, .request = request, .is_loose_kept = is_loose_kept, .err = err};
    const struct carat_value *thinks = json_member(request, "enable_thinking");
    struct grammar_options options = {.takes_thoughts =
                                          thinks->kind == CARAT_BOOL && thinks->as.boolean,
                                      .call = vocab_special(v, VOCAB_CALL_BEGIN)};
    const struct expr *body;
    *out = NULL;
    int status = make_root(&c, &body, &options.trigger);
    if (status == CARAT_OK && body) {
        int32_t root = rule_add(&builder, "answer", strlen("answer"));
        rule_set(&builder, root, body);
        status = grammar_open(out, &builder, root, index, &options, err);
        bool is_wrong = status == CARAT_EUSAGE || status == CARAT_EUNSUPPORTED;
        if (is_wrong) err_within(err, "%s", c.where ? c.where : "tools");
    }
    builder_deinit(&builder);
    return status;
}

int chat_grammar_open(carat_grammar **out, const struct vocab *v, const struct token_index *index,
                      const struct carat_value *request, struct carat_error *err)
{
    bool has_tools = json_member(request, "tools")->kind == CARAT_ARRAY;
    int status = open_with(out, v, index, request, true, err);
    if (status != CARAT_EUNSUPPORTED || !has_tools) return status;
    return open_with(out, v, index, request, false, err);
}
