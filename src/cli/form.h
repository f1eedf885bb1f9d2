/* --json-schema, --grammar and --format: what an answer is held to. */
#ifndef CLI_FORM_H
#define CLI_FORM_H

#include "base/buf.h"
#include "cli/options.h"
#include "json/chat_request.h"

struct form {
    struct buf text;            /* a grammar */
    struct json_tree schema;    /* or a schema */
    struct carat_member type;   /* of --format */
    struct carat_member member; /* of a chat request: "grammar", "json_schema", "response_format" */
    bool is_set, is_flag;       /* is_flag: on the command line */
    char option[32];
    const char *source; /* for messages: the option, or its file */
};

/* Reads the one option that is set, if any; a zeroed form is a valid empty one. CARAT_EUSAGE: there
 * are two, the file is not there, or it is no JSON (with line and column). */
int form_read(struct form *f, const struct options *o, struct carat_error *err);
void form_close(struct form *f);

/* Puts it in the place of what the request says, if the option stands on the command line or the
 * request says nothing. */
int form_put(const struct form *f, struct chat_request *request, struct carat_error *err);

/* The grammar of a request of which this form is part; *out is NULL if the answer is free. */
int form_open_grammar(const struct form *f, const carat_model *model,
                      const struct carat_value *request, carat_grammar **out,
                      struct carat_error *err);

#endif
