#include "grammar/call_grammar.h"

#include <string.h>

#include "base/status.h"
#include "grammar/json_schema.h"
#include "grammar/lower.h"
#include "json/json_tree.h"

/* ---- Names ------------------------------------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The reader of calls ends a name at a bracket, and drops blanks around it. */
static int check_name(const struct carat_value *name, struct carat_error *err)
{
    char shown[JSON_SHOWN_MAX];
    if (name->kind != CARAT_STRING)
        return err_set(err, CARAT_EUSAGE, "name: a string expected, %s found",
                       json_kind_name(name));
    const char *text = name->as.string.data;
    size_t length = name->as.string.length;
    bool is_fine = length > 0 && !is_blank(text[0]) && !is_blank(text[length - 1]) &&
                   !memchr(text, '{', length) && !memchr(text, '(', length) &&
                   !memchr(text, '\0', length);
    if (is_fine) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "name: \"%s\" cannot be called; letters and digits expected",
                   json_shown(name, shown));
}

static bool is_same_text(const struct carat_value *a, const struct carat_value *b)
{
    return a->kind == CARAT_STRING && b->kind == CARAT_STRING &&
           a->as.string.length == b->as.string.length &&
           memcmp(a->as.string.data, b->as.string.data, a->as.string.length) == 0;
}

/* Bare keys end at a colon, a comma or a closing bracket, and blanks around them are dropped. What
 * begins with a quotation mark is read to the next one. Readers of JSON take no NUL in a key. */
static int check_key(const char *key, size_t length, struct carat_error *err)
{
    bool is_fine = length == 0 || (!is_blank(key[0]) && !is_blank(key[length - 1]) &&
                                   key[0] != '"' && key[0] != '\'');
    for (size_t i = 0; i < length && is_fine; i++)
        is_fine = !memchr(":,}])", key[i], sizeof ":,}])");
    if (is_fine) return CARAT_OK;
    struct carat_value text = {.kind = CARAT_STRING};
    char shown[JSON_SHOWN_MAX];
    text.as.string.data = key;
    text.as.string.length = length;
    return err_set(err, CARAT_EUNSUPPORTED, "a call cannot have the key \"%s\"",
                   json_shown(&text, shown));
}

/* Checks all keys of a value that "enum" or "const" lists. */
static int check_value(const struct carat_value *value, struct carat_error *err)
{
    for (size_t i = 0; value->kind == CARAT_ARRAY && i < value->as.array.count; i++)
        TRY(check_value(&value->as.array.items[i], err));
    for (size_t i = 0; value->kind == CARAT_OBJECT && i < value->as.object.count; i++) {
        const struct carat_member *m = &value->as.object.members[i];
        TRY(check_key(m->key.data, m->key.length, err));
        TRY(check_value(&m->value, err));
    }
    return CARAT_OK;
}

static bool key_is(const struct carat_member *m, const char *key)
{
    return m->key.length == strlen(key) && memcmp(m->key.data, key, m->key.length) == 0;
}

static int check_names(const struct carat_value *list, struct carat_error *err)
{
    for (size_t i = 0; list->kind == CARAT_ARRAY && i < list->as.array.count; i++) {
        const struct carat_value *name = &list->as.array.items[i];
        if (name->kind == CARAT_STRING)
            TRY(check_key(name->as.string.data, name->as.string.length, err));
    }
    return CARAT_OK;
}

/* Checks the keys that values of a schema may have. `has_names`: this is the object of
 * "properties", whose keys are such keys. */
static int check_schema(const struct carat_value *schema, bool has_names, struct carat_error *err)
{
    for (size_t i = 0; schema->kind == CARAT_ARRAY && i < schema->as.array.count; i++)
        TRY(check_schema(&schema->as.array.items[i], false, err));
    for (size_t i = 0; schema->kind == CARAT_OBJECT && i < schema->as.object.count; i++) {
        const struct carat_member *m = &schema->as.object.members[i];
        if (has_names) TRY(check_key(m->key.data, m->key.length, err));
        if (!has_names && (key_is(m, "enum") || key_is(m, "const")))
            TRY(check_value(&m->value, err));
        else if (!has_names && key_is(m, "required"))
            TRY(check_names(&m->value, err));
        else if (has_names || !(key_is(m, "default") || key_is(m, "examples")))
            TRY(check_schema(&m->value, !has_names && key_is(m, "properties"), err));
    }
    return CARAT_OK;
}

/* ---- Arguments -------------------------------------------------------------------------- */

static struct carat_value text_value(const char *text)
{
    struct carat_value value = {.kind = CARAT_STRING};
    value.as.string.data = text;
    value.as.string.length = strlen(text);
    return value;
}

/* The schema with "type": "object", which clients sometimes leave out. */
static const struct carat_value *as_object(struct expr_builder *b, const struct carat_value *schema)
{
    static const char *const others[] = {"type", "$ref", "anyOf", "oneOf", "allOf"};
    size_t count = schema->kind == CARAT_OBJECT ? schema->as.object.count : 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (json_member(schema, others[i])->kind != CARAT_NULL) return schema;
    struct carat_value *object = arena_take(&b->arena, 1, sizeof *object);
    struct carat_member *members = arena_take(&b->arena, count + 1, sizeof *members);
    if (!object || !members) return NULL;
    if (count) memcpy(members, schema->as.object.members, count * sizeof *members);
    members[count].key.data = "type";
    members[count].key.length = strlen("type");
    members[count].value = text_value("object");
    object->kind = CARAT_OBJECT;
    object->as.object.members = members;
    object->as.object.count = count + 1;
    return object;
}

/* If nothing is said of parameters, there are none. */
static bool has_parameters(const struct carat_value *schema)
{
    return schema->kind != CARAT_NULL &&
           !(schema->kind == CARAT_OBJECT && schema->as.object.count == 0);
}

/* Whether some text fits an expression, within all bounds. */
static int check_possible(struct expr_builder *b, const struct expr *e, struct carat_error *err)
{
    static const char nothing[] = "nothing fits this schema";
    struct program program = {0};
    int32_t rule = rule_add(b, "arguments", strlen("arguments"));
    rule_set(b, rule, e);
    TRY(builder_check(b, err));
    int status = lower_rules(&program, b, rule, err);
    if (status == CARAT_OK) status = program_analyse(&program, err);
    program_deinit(&program);
    return status == CARAT_EUSAGE ? err_set(err, CARAT_EUNSUPPORTED, nothing) : status;
}

static int any_arguments(const struct expr **out, struct expr_builder *b,
                         const struct value_syntax *syntax, struct carat_error *err)
{
    static const struct carat_value nothing = {.kind = CARAT_NULL};
    const struct carat_value *object = as_object(b, &nothing);
    if (!object) return err_no_memory(err, "parameters", sizeof *object);
    return json_schema_expr(b, object, syntax, out, err);
}

/* Arguments that fit the schema, which is not null. */
static int fitting_arguments(const struct expr **out, struct expr_builder *b,
                             const struct value_syntax *syntax, const struct carat_value *schema,
                             struct carat_error *err)
{
    const struct carat_value *object = as_object(b, schema);
    if (!object) return err_no_memory(err, "parameters", sizeof *object);
    TRY(check_schema(object, false, err));
    TRY(json_schema_expr(b, object, syntax, out, err));
    return check_possible(b, *out, err);
}

static int arguments(const struct expr **out, struct expr_builder *b,
                     const struct value_syntax *syntax, const struct carat_value *function,
                     bool is_loose_kept, struct carat_error *err)
{
    const struct carat_value *schema = json_member(function, "parameters");
    const struct carat_value *strict = json_member(function, "strict");
    if (!has_parameters(schema)) {
        *out = expr_text(b, "{}");
        return builder_check(b, err);
    }
    if (schema->kind != CARAT_OBJECT)
        return err_set(err, CARAT_EUSAGE, "parameters: an object expected, %s found",
                       json_kind_name(schema));
    const struct carat_value *type = json_member(schema, "type");
    if (type->kind != CARAT_NULL && !json_text_is(type, "object"))
        return err_set(err, CARAT_EUSAGE, "parameters.type: \"object\" expected");
    bool is_strict = strict->kind == CARAT_BOOL && strict->as.boolean;
    if (!is_strict && !is_loose_kept) return any_arguments(out, b, syntax, err);
    int status = fitting_arguments(out, b, syntax, schema, err);
    bool is_whole = builder_check(b, NULL) == CARAT_OK;
    if (status == CARAT_EUNSUPPORTED && is_whole && !is_strict)
        return any_arguments(out, b, syntax, err);
    if (status != CARAT_OK) err_within(err, "parameters");
    return status;
}

/* ---- Calls ------------------------------------------------------------------------------ */

static int tool(const struct expr **out, struct expr_builder *b, const struct value_syntax *syntax,
                const struct carat_value *function, bool is_loose_kept, struct carat_error *err)
{
    const struct carat_value *name = json_member(function, "name");
    const struct expr *parts[2];
    if (function->kind != CARAT_OBJECT)
        return err_set(err, CARAT_EUSAGE, "an object expected, %s found", json_kind_name(function));
    TRY(check_name(name, err));
    TRY(arguments(&parts[1], b, syntax, function, is_loose_kept, err));
    parts[0] = expr_bytes(b, name->as.string.data, name->as.string.length);
    if (parts[0]) *out = expr_seq(b, parts, 2);
    return builder_check(b, err);
}

static int either_tool(const struct expr **out, struct expr_builder *b,
                       const struct value_syntax *syntax, const struct carat_value *tools,
                       const struct carat_value *only, bool is_loose_kept, struct carat_error *err)
{
    size_t n = 0, count = tools->as.array.count;
    const struct expr **calls = arena_take(&b->arena, count, sizeof *calls);
    if (!calls) return err_no_memory(err, "tools", count * sizeof *calls);
    for (size_t i = 0; i < count; i++) {
        const struct carat_value *function = json_member(&tools->as.array.items[i], "function");
        if (only && !is_same_text(json_member(function, "name"), only)) continue;
        int status = tool(&calls[n++], b, syntax, function, is_loose_kept, err);
        if (status != CARAT_OK) return err_within(err, "tools[%zu].function", i), status;
    }
    char shown[JSON_SHOWN_MAX];
    if (n == 0 && only)
        return err_set(err, CARAT_EUSAGE, "tool_choice.function.name: there is no tool \"%s\"",
                       json_shown(only, shown));
    *out = expr_either(b, calls, n);
    return builder_check(b, err);
}

int call_grammar_expr(const struct expr **out, struct expr_builder *b, const struct vocab *v,
                      const struct carat_value *tools, const struct carat_value *only,
                      bool is_loose_kept, struct carat_error *err)
{
    struct value_syntax syntax = {.quote = vocab_special(v, VOCAB_QUOTE)};
    const struct expr *parts[4] = {
        expr_token(b, vocab_special(v, VOCAB_CALL_BEGIN)),
        expr_text(b, "call:"),
        NULL,
        expr_token(b, vocab_special(v, VOCAB_CALL_END)),
    };
    *out = NULL;
    if (syntax.quote < 0)
        return err_set(err, CARAT_EUNSUPPORTED, "tools: this model has no marks for calls");
    TRY(either_tool(&parts[2], b, &syntax, tools, only, is_loose_kept, err));
    TRY(builder_check(b, err));
    *out = expr_seq(b, parts, 4);
    return builder_check(b, err);
}
