#include "api/root.h"

#include <string.h>

#include "base/status.h"
#include "json/json_tree.h"

void root_put_same(struct tree *t, struct tree_object *root, const struct carat_value *from,
                   const char *const *names)
{
    for (; *names; names++) {
        const struct carat_value *value = json_member(from, *names);
        if (value->kind != CARAT_NULL) tree_put(t, root, *names, *value);
    }
}

static int check_stop(const struct place *stop, struct carat_error *err)
{
    TRY(place_expect_text(stop, CARAT_STOP_BYTES_MAX, err));
    if (!memchr(stop->value->as.string.data, '\0', stop->value->as.string.length)) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "%s: a text without NUL characters expected", stop->path);
}

int root_put_stops(struct tree *t, struct tree_object *root, const struct place *stops, size_t most,
                   struct carat_error *err)
{
    if (place_is_null(stops)) return CARAT_OK;
    if (stops->value->kind == CARAT_STRING) TRY(check_stop(stops, err));
    if (stops->value->kind != CARAT_STRING) {
        TRY(place_expect_count(stops, 0, most, err));
        for (size_t i = 0; i < stops->value->as.array.count; i++) {
            struct place stop = place_item(stops, i);
            TRY(check_stop(&stop, err));
        }
    }
    tree_put(t, root, "stop", *stops->value);
    return CARAT_OK;
}

int root_put_schema(struct tree *t, struct tree_object *root, const struct place *schema,
                    struct carat_error *err)
{
    struct tree_object form = {0}, format = {0};
    TRY(place_expect(schema, CARAT_OBJECT, err));
    tree_put(t, &form, "name", tree_text("answer"));
    tree_put(t, &form, "schema", *schema->value);
    tree_put(t, &format, "type", tree_text("json_schema"));
    tree_put(t, &format, "json_schema", tree_object_value(&form));
    tree_put(t, root, "response_format", tree_object_value(&format));
    return CARAT_OK;
}

void root_put_json(struct tree *t, struct tree_object *root)
{
    struct tree_object format = {0};
    tree_put(t, &format, "type", tree_text("json_object"));
    tree_put(t, root, "response_format", tree_object_value(&format));
}

int root_check_effort(const struct place *effort, struct carat_error *err)
{
    static const char *const levels[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (json_text_is(effort->value, levels[i])) return CARAT_OK;
    return place_wrong(effort, "none, minimal, low, medium, high, xhigh or max", err);
}

struct carat_value root_function(struct tree *t, const struct tree_object *function)
{
    struct tree_object tool = {0};
    tree_put(t, &tool, "type", tree_text("function"));
    tree_put(t, &tool, "function", tree_object_value(function));
    return tree_object_value(&tool);
}

static const struct carat_value *tools_of(const struct tree_object *root)
{
    struct carat_value value = tree_object_value(root);
    return json_member(&value, "tools");
}

/* Those were left out, so a client may wonder where its tool is. */
static int hint_at_provider(struct carat_error *err)
{
    err_hint(err, "tools that a provider runs itself do not count");
    return CARAT_EUSAGE;
}

int root_put_choice(struct tree *t, struct tree_object *root, const struct place *where,
                    const char *word, struct carat_error *err)
{
    if (tools_of(root)->kind == CARAT_ARRAY) {
        tree_put(t, root, "tool_choice", tree_text(word));
    } else if (strcmp(word, "required") == 0) {
        err_set(err, CARAT_EUSAGE, "%s: tools to call expected with it, none found", where->path);
        return hint_at_provider(err);
    }
    return CARAT_OK;
}

static bool has_tool(const struct tree_object *root, const struct carat_value *name)
{
    const struct carat_value *tools = tools_of(root);
    size_t count = tools->kind == CARAT_ARRAY ? tools->as.array.count : 0;
    for (size_t i = 0; i < count; i++) {
        const struct carat_value *own =
            json_member(json_member(&tools->as.array.items[i], "function"), "name");
        if (own->as.string.length == name->as.string.length &&
            memcmp(own->as.string.data, name->as.string.data, own->as.string.length) == 0)
            return true;
    }
    return false;
}

int root_put_named_choice(struct tree *t, struct tree_object *root, const struct place *name,
                          struct carat_error *err)
{
    struct tree_object function = {0};
    TRY(place_expect(name, CARAT_STRING, err));
    if (!has_tool(root, name->value)) {
        place_wrong(name, "the name of one of the tools", err);
        return hint_at_provider(err);
    }
    tree_put(t, &function, "name", *name->value);
    tree_put(t, root, "tool_choice", root_function(t, &function));
    return CARAT_OK;
}
