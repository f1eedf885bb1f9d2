/* --request FILE: a whole chat request in place of a prompt. */
#ifndef CLI_REQUEST_FILE_H
#define CLI_REQUEST_FILE_H

#include "cli/form.h"
#include "cli/generate.h"
#include "cli/options.h"
#include "json/chat_request.h"

/* Reads the file ("-": standard input), and takes into `g` and `request` what flags say instead:
 * --think, --tools, the form and how to sample. Errors begin with the name of the file. `tools` and
 * `form` are borrowed by the request. CARAT_EUSAGE for options that a request has no place for. */
int request_file_read(struct chat_request *request, struct generation *g, struct json_tree *tools,
                      const struct form *form, const struct options *o, const struct session *s,
                      struct carat_error *err);

/* How messages name the file. */
const char *request_file_name(const struct options *o);

/* The array of --tools; an empty tree without it. */
int tools_file_read(struct json_tree *tools, const struct options *o, struct carat_error *err);

#endif
