#include <stdio.h>
#include <string.h>

#include "api/ask.h"
#include "json/json_tree.h"

/* Puts `to` in the place of the first `length` bytes of the message. */
static void replace(struct carat_error *err, size_t length, const char *to)
{
    char rest[sizeof err->message];
    snprintf(rest, sizeof rest, "%s", err->message + length);
    snprintf(err->message, sizeof err->message, "%.160s%.*s", to, (int)(sizeof err->message - 161),
             rest);
}

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "tools[I].function: parameters: ..." */
static void name_tool(const struct ask *ask, struct carat_error *err)
{
    size_t i = 0;
    int head = 0;
    if (sscanf(err->message, "tools[%zu].function%n", &i, &head) != 1 || head == 0) return;
    if (i >= ask->n_tool_paths || ask->tool_paths[i].kind != CARAT_STRING) return;
    const char *schema = ask->api == API_MESSAGES ? ".input_schema" : ".parameters";
    const struct {
        const char *inner, *to;
    } members[] = {{": parameters", schema}, {": name", ".name"}, {"", ""}};
    for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
        char path[192];
        if (!begins_with(err->message + head, members[k].inner)) continue;
        snprintf(path, sizeof path, "%.150s%s", ask->tool_paths[i].as.string.data, members[k].to);
        replace(err, (size_t)head + strlen(members[k].inner), path);
        return;
    }
}

void ask_use_names(const struct ask *ask, struct carat_error *err)
{
    static const char schema[] = "response_format.json_schema.schema";
    name_tool(ask, err);
    if (ask->schema_path && begins_with(err->message, schema))
        replace(err, sizeof schema - 1, ask->schema_path);
}
