#include "api/responses_tools.h"

#include <string.h>

#include "api/root.h"
#include "base/status.h"
#include "json/json_tree.h"

enum { NAME_BYTES_MAX = 256 };

struct tools_reader {
    struct ask *ask;
    size_t tools_max;
    struct tree *tree;
    struct tree_object *root;
    struct tree_array tools, paths; /* of each tool: where the client has it */
    size_t capacity;                /* of ask->renamed */
    struct carat_error *err;
};

/* ---- Names ------------------------------------------------------------------------------ */

struct carat_value responses_shown_name(struct tree *tree, struct carat_value space,
                                        struct carat_value name)
{
    if (space.kind != CARAT_STRING || space.as.string.length == 0) return name;
    bool ends_in_line = space.as.string.data[space.as.string.length - 1] == '_';
    return tree_join(tree, space, ends_in_line ? "" : "__", name);
}

static const char *copy_name(struct tree *tree, const struct carat_value *text)
{
    if (text->kind != CARAT_STRING) return "";
    return tree_copy(tree, text->as.string.data, text->as.string.length).as.string.data;
}

static void remember(struct tools_reader *r, struct carat_value shown, const struct place *space,
                     const struct place *name, bool is_custom)
{
    struct ask *ask = r->ask;
    if (ask->n_renamed == r->capacity) {
        size_t more = r->capacity ? 2 * r->capacity : 8;
        struct ask_tool *grown =
            r->tree->failed ? NULL : arena_take(r->tree->arena, more, sizeof *grown);
        r->tree->failed |= !grown;
        if (!grown) return;
        if (ask->n_renamed) memcpy(grown, ask->renamed, ask->n_renamed * sizeof *grown);
        ask->renamed = grown;
        r->capacity = more;
    }
    ask->renamed[ask->n_renamed++] = (struct ask_tool){.shown = copy_name(r->tree, &shown),
                                                       .name = copy_name(r->tree, name->value),
                                                       .space = copy_name(r->tree, space->value),
                                                       .is_custom = is_custom};
}

const struct ask_tool *responses_tool_find(const struct ask *ask, const char *shown, size_t length)
{
    for (size_t i = 0; i < ask->n_renamed; i++)
        if (strlen(ask->renamed[i].shown) == length &&
            memcmp(ask->renamed[i].shown, shown, length) == 0)
            return &ask->renamed[i];
    return NULL;
}

/* ---- Custom tools ----------------------------------------------------------------------- */

struct carat_value responses_custom_arguments(struct tree *tree, struct carat_value input)
{
    struct tree_object arguments = {0};
    tree_put(tree, &arguments, "input", input);
    return tree_object_value(&arguments);
}

/* An object with one string. A grammar of the client's stands in its description: it is not
 * enforced, but the model reads it. */
static struct carat_value custom_schema(struct tree *tree, const struct place *format)
{
    struct tree_object schema = {0}, properties = {0}, input = {0};
    struct tree_array required = {0};
    const struct carat_value *grammar = json_member(format->value, "definition");
    tree_put(tree, &input, "type", tree_text("string"));
    if (grammar->kind == CARAT_STRING) tree_put(tree, &input, "description", *grammar);
    tree_put(tree, &properties, "input", tree_object_value(&input));
    tree_push(tree, &required, tree_text("input"));
    tree_put(tree, &schema, "type", tree_text("object"));
    tree_put(tree, &schema, "properties", tree_object_value(&properties));
    tree_put(tree, &schema, "required", tree_array_value(&required));
    return tree_object_value(&schema);
}

/* ---- Tools ------------------------------------------------------------------------------ */

static int put_parameters(struct tools_reader *r, const struct place *tool, bool is_custom,
                          struct tree_object *function)
{
    struct place schema = place_member(tool, "parameters"), format = place_member(tool, "format");
    struct place strict = place_member(tool, "strict");
    TRY(place_expect_or_null(&format, CARAT_OBJECT, r->err));
    if (is_custom) {
        tree_put(r->tree, function, "parameters", custom_schema(r->tree, &format));
        return CARAT_OK;
    }
    TRY(place_expect_or_null(&schema, CARAT_OBJECT, r->err));
    TRY(place_expect_or_null(&strict, CARAT_BOOL, r->err));
    if (!place_is_null(&schema)) tree_put(r->tree, function, "parameters", *schema.value);
    if (!place_is_null(&strict)) tree_put(r->tree, function, "strict", *strict.value);
    return CARAT_OK;
}

/* A function or a custom tool; `space` is the namespace's name, or null. */
static int read_function(struct tools_reader *r, const struct place *tool,
                         const struct place *space, bool is_custom)
{
    struct place name = place_member(tool, "name"), about = place_member(tool, "description");
    struct tree_object function = {0};
    TRY(place_expect_name(&name, NAME_BYTES_MAX, r->err));
    TRY(place_expect_or_null(&about, CARAT_STRING, r->err));
    struct carat_value shown = responses_shown_name(r->tree, *space->value, *name.value);
    if (shown.as.string.length > NAME_BYTES_MAX)
        return err_set(r->err, CARAT_EUSAGE, "%s: at most %d bytes with its namespace expected",
                       name.path, NAME_BYTES_MAX);
    if (r->tools.count == r->tools_max)
        return err_set(r->err, CARAT_EUSAGE, "tools: at most %zu expected, more found",
                       r->tools_max);
    tree_put(r->tree, &function, "name", shown);
    if (!place_is_null(&about)) tree_put(r->tree, &function, "description", *about.value);
    TRY(put_parameters(r, tool, is_custom, &function));
    tree_push(r->tree, &r->tools, root_function(r->tree, &function));
    tree_push(r->tree, &r->paths, tree_copy(r->tree, tool->path, strlen(tool->path)));
    if (is_custom || !place_is_null(space)) remember(r, shown, space, &name, is_custom);
    return CARAT_OK;
}

/* A function, a custom tool, or a namespace of these. Any other kind runs at a provider, and is
 * left out. */
static int read_tool(struct tools_reader *r, const struct place *tool, const struct place *space)
{
    TRY(place_expect(tool, CARAT_OBJECT, r->err));
    struct place type = place_member(tool, "type");
    TRY(place_expect(&type, CARAT_STRING, r->err));
    bool is_custom = json_text_is(type.value, "custom");
    if (is_custom || json_text_is(type.value, "function"))
        return read_function(r, tool, space, is_custom);
    if (!json_text_is(type.value, "namespace") || !place_is_null(space)) {
        r->ask->n_ignored_tools++;
        return CARAT_OK;
    }
    struct place name = place_member(tool, "name"), tools = place_member(tool, "tools");
    TRY(place_expect_name(&name, NAME_BYTES_MAX, r->err));
    TRY(place_expect_count(&tools, 0, r->tools_max, r->err));
    for (size_t i = 0; i < tools.value->as.array.count; i++) {
        struct place one = place_item(&tools, i), type_of_one;
        TRY(place_expect(&one, CARAT_OBJECT, r->err));
        type_of_one = place_member(&one, "type");
        bool is_one_custom = json_text_is(type_of_one.value, "custom");
        TRY(read_function(r, &one, &name, is_one_custom));
    }
    return CARAT_OK;
}

static int read_list(struct tools_reader *r, const struct place *list)
{
    static const struct carat_value null = {.kind = CARAT_NULL};
    struct place no_space = {.value = &null};
    if (place_is_null(list)) return CARAT_OK;
    TRY(place_expect_count(list, 0, r->tools_max, r->err));
    for (size_t i = 0; i < list->value->as.array.count; i++) {
        struct place tool = place_item(list, i);
        TRY(read_tool(r, &tool, &no_space));
    }
    return CARAT_OK;
}

/* Those of the request, and those that items of its input bring along. */
static int read_tools(struct tools_reader *r, const struct place *body)
{
    struct place list = place_member(body, "tools"), input = place_member(body, "input");
    size_t count = input.value->kind == CARAT_ARRAY ? input.value->as.array.count : 0;
    TRY(read_list(r, &list));
    for (size_t i = 0; i < count; i++) {
        const struct carat_value *item = &input.value->as.array.items[i];
        if (!json_text_is(json_member(item, "type"), "additional_tools")) continue;
        struct place holder = place_item(&input, i);
        list = place_member(&holder, "tools");
        TRY(read_list(r, &list));
    }
    if (r->tools.count) tree_put(r->tree, r->root, "tools", tree_array_value(&r->tools));
    return CARAT_OK;
}

/* ---- Choice ----------------------------------------------------------------------------- */

static struct carat_value chosen_name(struct tools_reader *r, const struct carat_value *choice)
{
    return responses_shown_name(r->tree, *json_member(choice, "namespace"),
                                *json_member(choice, "name"));
}

static int read_named(struct tools_reader *r, const struct place *choice)
{
    struct place name = place_member(choice, "name"), space = place_member(choice, "namespace");
    TRY(place_expect(&name, CARAT_STRING, r->err));
    TRY(place_expect_or_null(&space, CARAT_STRING, r->err));
    struct carat_value shown = chosen_name(r, choice->value);
    name.value = &shown;
    return root_put_named_choice(r->tree, r->root, &name, r->err);
}

static bool has_name(const struct tree_array *names, const struct carat_value *tool)
{
    const struct carat_value *name = json_member(json_member(tool, "function"), "name");
    for (size_t i = 0; i < names->count; i++) {
        const struct carat_value *one = &names->items[i];
        if (one->kind == CARAT_STRING && one->as.string.length == name->as.string.length &&
            memcmp(one->as.string.data, name->as.string.data, name->as.string.length) == 0)
            return true;
    }
    return false;
}

/* Only some of the tools: the others are left out. */
static int read_allowed(struct tools_reader *r, const struct place *choice)
{
    struct place list = place_member(choice, "tools"), mode = place_member(choice, "mode");
    struct tree_array names = {0}, kept = {0}, paths = {0};
    bool is_required = json_text_is(mode.value, "required");
    if (!is_required && !json_text_is(mode.value, "auto"))
        return place_wrong(&mode, "\"auto\" or \"required\"", r->err);
    TRY(place_expect_count(&list, 1, r->tools_max, r->err));
    for (size_t i = 0; i < list.value->as.array.count; i++) {
        struct place one = place_item(&list, i);
        TRY(place_expect(&one, CARAT_OBJECT, r->err));
        tree_push(r->tree, &names, chosen_name(r, one.value));
    }
    for (size_t i = 0; i < r->tools.count && !r->tree->failed; i++) {
        if (!has_name(&names, &r->tools.items[i])) continue;
        tree_push(r->tree, &kept, r->tools.items[i]);
        tree_push(r->tree, &paths, r->paths.items[i]);
    }
    r->paths = paths;
    if (kept.count == 0) return place_wrong(&list, "names of some of the tools", r->err);
    tree_put(r->tree, r->root, "tools", tree_array_value(&kept));
    return root_put_choice(r->tree, r->root, &list, is_required ? "required" : "auto", r->err);
}

static int read_choice(struct tools_reader *r, const struct place *body)
{
    static const char *const words[] = {"auto", "none", "required"};
    struct place choice = place_member(body, "tool_choice");
    if (place_is_null(&choice)) return CARAT_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (json_text_is(choice.value, words[i]))
            return root_put_choice(r->tree, r->root, &choice, words[i], r->err);
    if (choice.value->kind != CARAT_OBJECT)
        return place_wrong(&choice, "\"auto\", \"none\", \"required\" or an object", r->err);
    struct place type = place_member(&choice, "type");
    if (json_text_is(type.value, "function") || json_text_is(type.value, "custom"))
        return read_named(r, &choice);
    if (json_text_is(type.value, "allowed_tools")) return read_allowed(r, &choice);
    if (type.value->kind != CARAT_STRING) return place_wrong(&type, "a string", r->err);
    return place_refuse(&type, "tools that a provider runs itself are not here", r->err);
}

int responses_read_tools(struct ask *ask, const struct place *body, size_t tools_max,
                         struct tree *tree, struct tree_object *root, struct carat_error *err)
{
    struct tools_reader r = {
        .ask = ask, .tools_max = tools_max, .tree = tree, .root = root, .err = err};
    TRY(read_tools(&r, body));
    TRY(read_choice(&r, body));
    ask->tool_paths = r.paths.items;
    ask->n_tool_paths = r.paths.count;
    return CARAT_OK;
}
