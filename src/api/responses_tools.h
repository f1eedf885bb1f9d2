/* Tools of OpenAI's responses: functions, functions in a namespace, and custom tools, which take a
 * text. All become functions, and replies call them what the client calls them. */
#ifndef API_RESPONSES_TOOLS_H
#define API_RESPONSES_TOOLS_H

#include "api/ask.h"
#include "api/place.h"
#include "api/tree.h"

/* Puts "tools" and "tool_choice" into the root, and fills in ask->renamed and n_ignored_tools. */
int responses_read_tools(struct ask *ask, const struct place *body, size_t tools_max,
                         struct tree *tree, struct tree_object *root, struct carat_error *err);

/* The name of a function in the prompt: "SPACE__NAME". `space` may be null or empty. */
struct carat_value responses_shown_name(struct tree *tree, struct carat_value space,
                                        struct carat_value name);
/* The arguments of a custom tool's function: {"input": text}. */
struct carat_value responses_custom_arguments(struct tree *tree, struct carat_value input);

/* What the client calls the tool of that name in the prompt; NULL: the same, a function. */
const struct ask_tool *responses_tool_find(const struct ask *ask, const char *shown, size_t length);

#endif
