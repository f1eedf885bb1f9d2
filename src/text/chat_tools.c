/* Tools in the model's syntax: declarations, arguments, results. Nothing is escaped: the
 * <|"|> around strings is a token that text cannot contain. Odd details are those of the template
 * and kept on purpose: a schema without a type leaves its brace open, keys inside `items` are
 * quoted when their value is an object. */
#include "text/chat_internal.h"

#include <string.h>

#include "base/mem.h"

static void quoted(struct prompt *p, struct text t)
{
    prompt_mark(p, "<|\"|>");
    prompt_text(p, t.data, t.length);
    prompt_mark(p, "<|\"|>");
}

/* ASCII only: types are ASCII words. */
static void quoted_upper(struct prompt *p, struct text t)
{
    prompt_mark(p, "<|\"|>");
    for (size_t i = 0; i < t.length; i++) {
        char c = t.data[i];
        if (c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
        prompt_text(p, &c, 1);
    }
    prompt_mark(p, "<|\"|>");
}

/* A type that is no word is shown as Python would. */
static void quoted_type(struct prompt *p, const struct carat_value *type)
{
    char number[NUMBER_TEXT_MAX];
    struct text t = value_text(type);
    if (value_is(type, CARAT_NULL)) t = (struct text){"NONE", 4};
    if (value_is(type, CARAT_BOOL))
        t = type->as.boolean ? (struct text){"TRUE", 4} : (struct text){"FALSE", 5};
    if (value_is(type, CARAT_INT) || value_is(type, CARAT_REAL))
        t = (struct text){number, number_text(type, number)};
    quoted_upper(p, t);
}

/* ---- Values ----------------------------------------------------------------------------- */

static int array(struct prompt *p, const struct carat_value *value, bool quote_keys, int depth,
                 struct carat_error *err)
{
    prompt_mark(p, "[");
    for (size_t i = 0; i < value->as.array.count; i++) {
        if (i) prompt_mark(p, ",");
        TRY(chat_argument(p, &value->as.array.items[i], quote_keys, depth + 1, err));
    }
    prompt_mark(p, "]");
    return CARAT_OK;
}

int chat_members(struct prompt *p, const struct carat_value *object, bool quote_keys, int depth,
                 struct carat_error *err)
{
    const struct carat_member **order;
    TRY(value_sorted(object, &order, err));
    int status = CARAT_OK;
    for (size_t i = 0; i < object->as.object.count && status == CARAT_OK; i++) {
        struct text key = {order[i]->key.data, order[i]->key.length};
        if (i) prompt_mark(p, ",");
        if (quote_keys)
            quoted(p, key);
        else
            prompt_text(p, key.data, key.length);
        prompt_mark(p, ":");
        status = chat_argument(p, &order[i]->value, quote_keys, depth + 1, err);
    }
    mem_free(order);
    return status;
}

/* Checks the budget first: everything that repeats values passes here or through `property`. */
int chat_argument(struct prompt *p, const struct carat_value *value, bool quote_keys, int depth,
                  struct carat_error *err)
{
    if (depth > CHAT_DEPTH_MAX)
        return err_set(err, CARAT_EUSAGE, "nesting of at most %d expected", CHAT_DEPTH_MAX);
    TRY(prompt_check(p, err));
    char number[NUMBER_TEXT_MAX];
    switch (value->kind) {
    case CARAT_NULL: prompt_mark(p, "null"); break;
    case CARAT_BOOL: prompt_mark(p, value->as.boolean ? "true" : "false"); break;
    case CARAT_INT:
    case CARAT_REAL: prompt_text(p, number, number_text(value, number)); break;
    case CARAT_STRING: quoted(p, value_text(value)); break;
    case CARAT_ARRAY: return array(p, value, quote_keys, depth, err);
    case CARAT_OBJECT:
        prompt_mark(p, "{");
        TRY(chat_members(p, value, quote_keys, depth, err));
        prompt_mark(p, "}");
        break;
    }
    return CARAT_OK;
}

/* ---- Schemas ---------------------------------------------------------------------------- */

static int properties(struct prompt *p, const struct carat_value *object, bool skip_standard,
                      int depth, struct carat_error *err);

/* A value printed as it is, in Python's words. */
static int plain(struct prompt *p, const struct carat_value *value, const char *field,
                 struct carat_error *err)
{
    char number[NUMBER_TEXT_MAX];
    if (!value) return CARAT_OK;
    switch (value->kind) {
    case CARAT_NULL: prompt_mark(p, "None"); return CARAT_OK;
    case CARAT_BOOL: prompt_mark(p, value->as.boolean ? "True" : "False"); return CARAT_OK;
    case CARAT_INT:
    case CARAT_REAL: prompt_text(p, number, number_text(value, number)); return CARAT_OK;
    case CARAT_STRING:
        prompt_text(p, value->as.string.data, value->as.string.length);
        return CARAT_OK;
    case CARAT_ARRAY:
    case CARAT_OBJECT: break;
    }
    return err_set(err, CARAT_EUSAGE, "%s: a string expected, %s found", field,
                   value_kind_name(value));
}

static int description(struct prompt *p, const struct carat_value *value, struct carat_error *err)
{
    prompt_mark(p, "description:<|\"|>");
    TRY(plain(p, value, "description", err));
    prompt_mark(p, "<|\"|>");
    return CARAT_OK;
}

static int required(struct prompt *p, const struct carat_value *list, struct carat_error *err)
{
    if (!value_is(list, CARAT_ARRAY))
        return err_set(err, CARAT_EUSAGE, "required: an array expected, %s found",
                       value_kind_name(list));
    prompt_mark(p, "required:[");
    for (size_t i = 0; i < list->as.array.count; i++) {
        TRY(prompt_check(p, err));
        prompt_mark(p, i ? ",<|\"|>" : "<|\"|>");
        TRY(plain(p, &list->as.array.items[i], "required", err));
        prompt_mark(p, "<|\"|>");
    }
    prompt_mark(p, "]");
    return CARAT_OK;
}

static int item_type(struct prompt *p, const struct carat_value *type, struct carat_error *err)
{
    prompt_mark(p, "type:");
    if (value_is(type, CARAT_STRING)) {
        quoted_upper(p, value_text(type));
        return CARAT_OK;
    }
    if (!value_is(type, CARAT_ARRAY))
        return err_set(err, CARAT_EUSAGE, "type: a string expected, %s found",
                       value_kind_name(type));
    prompt_mark(p, "[");
    for (size_t i = 0; i < type->as.array.count; i++) {
        TRY(prompt_check(p, err));
        if (i) prompt_mark(p, ",");
        quoted_upper(p, value_text(&type->as.array.items[i]));
    }
    prompt_mark(p, "]");
    return CARAT_OK;
}

static int item_key(struct prompt *p, const struct carat_member *m, int depth,
                    struct carat_error *err)
{
    struct text key = {m->key.data, m->key.length};
    if (text_is(key, "required")) return required(p, &m->value, err);
    if (text_is(key, "type")) return item_type(p, &m->value, err);
    if (text_is(key, "properties")) {
        prompt_mark(p, "properties:{");
        if (value_is(&m->value, CARAT_OBJECT)) TRY(properties(p, &m->value, false, depth, err));
        prompt_mark(p, "}");
        return CARAT_OK;
    }
    prompt_text(p, key.data, key.length);
    prompt_mark(p, ":");
    return chat_argument(p, &m->value, true, depth, err);
}

static int items(struct prompt *p, const struct carat_value *object, int depth,
                 struct carat_error *err)
{
    prompt_spend(p, object->as.object.count); /* those without a value are not shown */
    const struct carat_member **order;
    TRY(value_sorted(object, &order, err));
    prompt_mark(p, "items:{");
    int status = CARAT_OK;
    bool is_first = true;
    for (size_t i = 0; i < object->as.object.count && status == CARAT_OK; i++) {
        if (order[i]->value.kind == CARAT_NULL) continue;
        if (!is_first) prompt_mark(p, ",");
        is_first = false;
        status = item_key(p, order[i], depth + 1, err);
    }
    if (status == CARAT_EUSAGE) schema_within(err, "", (struct text){"items", 5});
    prompt_mark(p, "}");
    mem_free(order);
    return status;
}

/* Puts a comma in front of every field but the first. */
static void begin_field(struct prompt *p, bool *needs_comma)
{
    if (*needs_comma) prompt_mark(p, ",");
    *needs_comma = true;
}

static bool type_is(struct text type, const char *upper)
{
    if (type.length != strlen(upper)) return false;
    for (size_t i = 0; i < type.length; i++) {
        char c = type.data[i];
        if (c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
        if (c != upper[i]) return false;
    }
    return true;
}

static int object_fields(struct prompt *p, const struct carat_value *schema, bool *needs_comma,
                         int depth, struct carat_error *err)
{
    const struct carat_value *own = value_get(schema, "properties");
    const struct carat_value *names = value_get(schema, "required");
    bool has_properties = value_is(own, CARAT_OBJECT);
    begin_field(p, needs_comma);
    prompt_mark(p, "properties:{");
    /* An object without properties shows its other keys instead. */
    TRY(properties(p, has_properties ? own : schema, !has_properties, depth + 1, err));
    prompt_mark(p, "}");
    if (!value_is_true(names)) return CARAT_OK;
    begin_field(p, needs_comma);
    return required(p, names, err);
}

static int property(struct prompt *p, const struct carat_member *m, int depth,
                    struct carat_error *err)
{
    const struct carat_value *schema = &m->value, *field;
    if (schema->kind == CARAT_OBJECT) prompt_spend(p, schema->as.object.count);
    TRY(prompt_check(p, err));
    struct text type = value_text(value_get(schema, "type"));
    bool needs_comma = false;
    prompt_text(p, m->key.data, m->key.length);
    prompt_mark(p, ":{");
    if (value_is_true(field = value_get(schema, "description"))) {
        begin_field(p, &needs_comma);
        TRY(description(p, field, err));
    }
    if (type_is(type, "STRING") && value_is_true(field = value_get(schema, "enum"))) {
        begin_field(p, &needs_comma);
        prompt_mark(p, "enum:");
        TRY(chat_argument(p, field, true, depth, err));
    }
    field = value_get(schema, "items");
    if (type_is(type, "ARRAY") && value_is(field, CARAT_OBJECT) && value_is_true(field)) {
        begin_field(p, &needs_comma);
        TRY(items(p, field, depth, err));
    }
    if (value_is_true(value_get(schema, "nullable"))) {
        begin_field(p, &needs_comma);
        prompt_mark(p, "nullable:true");
    }
    if (type_is(type, "OBJECT")) TRY(object_fields(p, schema, &needs_comma, depth, err));
    begin_field(p, &needs_comma);
    prompt_mark(p, "type:");
    quoted_type(p, value_get(schema, "type"));
    prompt_mark(p, "}");
    return CARAT_OK;
}

static bool is_standard_key(struct text key)
{
    return text_is(key, "description") || text_is(key, "type") || text_is(key, "properties") ||
           text_is(key, "required") || text_is(key, "nullable");
}

static int properties(struct prompt *p, const struct carat_value *object, bool skip_standard,
                      int depth, struct carat_error *err)
{
    if (depth > CHAT_DEPTH_MAX)
        return err_set(err, CARAT_EUSAGE, "nesting of at most %d expected", CHAT_DEPTH_MAX);
    const struct carat_member **order;
    TRY(value_sorted(object, &order, err));
    int status = CARAT_OK;
    bool is_first = true;
    for (size_t i = 0; i < object->as.object.count && status == CARAT_OK; i++) {
        struct text key = {order[i]->key.data, order[i]->key.length};
        if (skip_standard && is_standard_key(key)) continue;
        if (!is_first) prompt_mark(p, ",");
        is_first = false;
        status = property(p, order[i], depth, err);
        if (status == CARAT_EUSAGE) schema_within(err, skip_standard ? "" : "properties.", key);
    }
    mem_free(order);
    return status;
}

/* ---- Declarations ----------------------------------------------------------------------- */

static int parameters(struct prompt *p, const struct carat_value *schema, struct carat_error *err)
{
    const struct carat_value *own = value_get(schema, "properties");
    const struct carat_value *names = value_get(schema, "required");
    const struct carat_value *type = value_get(schema, "type");
    prompt_mark(p, ",parameters:{");
    if (value_is_true(own)) {
        if (!value_is(own, CARAT_OBJECT))
            return err_set(err, CARAT_EUSAGE, "properties: an object expected, %s found",
                           value_kind_name(own));
        prompt_mark(p, "properties:{");
        TRY(properties(p, own, false, 0, err));
        prompt_mark(p, "},");
    }
    if (value_is_true(names)) {
        TRY(required(p, names, err));
        prompt_mark(p, ",");
    }
    if (!value_is_true(type)) return CARAT_OK;
    prompt_mark(p, "type:");
    quoted_type(p, type);
    prompt_mark(p, "}");
    return CARAT_OK;
}

static int response(struct prompt *p, const struct carat_value *schema, struct carat_error *err)
{
    const struct carat_value *about = value_get(schema, "description");
    struct text type = value_text(value_get(schema, "type"));
    prompt_mark(p, ",response:{");
    if (value_is_true(about)) {
        TRY(description(p, about, err));
        prompt_mark(p, ",");
    }
    if (!type_is(type, "OBJECT")) return CARAT_OK;
    prompt_mark(p, "type:");
    quoted_upper(p, type);
    prompt_mark(p, "}");
    return CARAT_OK;
}

static int declare(struct prompt *p, const struct carat_value *function, struct schema_work *work,
                   struct arena *arena, struct carat_error *err)
{
    const struct carat_value *name = value_get(function, "name");
    const struct carat_value *schema = value_get(function, "parameters");
    if (!value_is(name, CARAT_STRING) || !value_is_true(name))
        return err_set(err, CARAT_EUSAGE, "name: a string expected, %s found",
                       value_is(name, CARAT_STRING) ? "an empty one" : value_kind_name(name));
    TRY(name_check(name, err));
    prompt_mark(p, "declaration:");
    prompt_text(p, name->as.string.data, name->as.string.length);
    prompt_mark(p, "{");
    TRY(description(p, value_get(function, "description"), err));
    if (value_is_true(schema)) {
        if (!value_is(schema, CARAT_OBJECT))
            return err_set(err, CARAT_EUSAGE, "parameters: an object expected, %s found",
                           value_kind_name(schema));
        struct carat_value flat;
        int status = schema_flatten(schema, work, arena, &flat, err);
        if (status == CARAT_OK) status = parameters(p, &flat, err);
        if (status != CARAT_OK) {
            err_within(err, "parameters");
            return status;
        }
    }
    const struct carat_value *result = value_get(function, "response");
    if (result) TRY(response(p, result, err));
    prompt_mark(p, "}");
    return CARAT_OK;
}

int chat_declare_tools(struct prompt *p, const struct carat_value *tools, struct carat_error *err)
{
    struct schema_work work = {.key = hash_key_random()};
    for (size_t i = 0; i < tools->as.array.count; i++) {
        const struct carat_value *function = value_get(&tools->as.array.items[i], "function");
        if (!value_is(function, CARAT_OBJECT))
            return err_set(err, CARAT_EUSAGE, "tools[%zu].function: an object expected, %s found",
                           i, value_kind_name(function));
        struct arena arena = {0};
        prompt_mark(p, "<|tool>");
        int status = declare(p, function, &work, &arena, err);
        prompt_mark(p, "<tool|>");
        arena_deinit(&arena);
        if (status != CARAT_OK) {
            err_within(err, "tools[%zu].function", i);
            return status;
        }
    }
    return CARAT_OK;
}
