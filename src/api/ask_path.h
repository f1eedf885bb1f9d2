/* The path of the wrong member, with which an error begins, in one form. Each function on the way
 * out of a member puts that member's name in front: "tools[0].function: parameters: json schema:
 * #/properties/a/type: an array expected". A client wants
 * "tools[0].function.parameters.properties.a.type: an array expected". */
#ifndef API_ASK_PATH_H
#define API_ASK_PATH_H

#include "carat_status.h"

/* Joins the names and JSON pointers in front of a message. One without a path stays as it is. */
void ask_path_join(struct carat_error *err);
/* Writes places in lists as Anthropic's API does: "messages.3.content.1: ...". */
void ask_path_dots(struct carat_error *err);

#endif
