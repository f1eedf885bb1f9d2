#include <stdio.h>
#include <string.h>

#include "api/ask.h"
#include "api/ask_path.h"

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Puts `to` in the place of the first `length` bytes of the message. */
static void replace(struct carat_error *err, size_t length, const char *to)
{
    char rest[sizeof err->message];
    snprintf(rest, sizeof rest, "%s", err->message + length);
    snprintf(err->message, sizeof err->message, "%.160s%.*s", to, (int)(sizeof err->message - 161),
             rest);
}

/* "tools[I].function.parameters: ..." */
static void name_tool(const struct ask *ask, struct carat_error *err)
{
    static const char schema[] = ".parameters";
    size_t i = 0;
    int head = 0;
    if (sscanf(err->message, "tools[%zu].function%n", &i, &head) != 1 || head == 0) return;
    if (i >= ask->n_tool_paths || ask->tool_paths[i].kind != CARAT_STRING) return;
    bool is_schema = begins_with(err->message + head, schema);
    if (is_schema && ask->api == API_MESSAGES) {
        char path[192];
        snprintf(path, sizeof path, "%.150s.input_schema", ask->tool_paths[i].as.string.data);
        replace(err, (size_t)head + sizeof schema - 1, path);
        return;
    }
    replace(err, (size_t)head, ask->tool_paths[i].as.string.data);
}

void ask_use_names(const struct ask *ask, struct carat_error *err)
{
    static const char schema[] = "response_format.json_schema.schema";
    if (!err) return;
    ask_path_join(err);
    name_tool(ask, err);
    if (ask->schema_path && begins_with(err->message, schema))
        replace(err, sizeof schema - 1, ask->schema_path);
    if (ask->api == API_MESSAGES) ask_path_dots(err);
}
