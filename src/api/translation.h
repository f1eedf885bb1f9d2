/* What readers of other APIs than OpenAI's chat share: the request in two forms, the client's and
 * the one that it becomes, and the values that several APIs write alike. */
#ifndef API_TRANSLATION_H
#define API_TRANSLATION_H

#include "api/ask.h"
#include "api/place.h"
#include "api/turns.h"

enum { TRANSLATION_NAME_MAX = 256 }; /* bytes of a function's name */

struct translation { /* points into itself: stays where it is */
    struct ask *ask;
    struct place body;
    const struct ask_limits *limits;
    struct tree tree;        /* builds what follows */
    struct tree_object root; /* of the request in OpenAI's form */
    struct turns turns;      /* its messages */
    struct carat_error *err;
};

void translation_begin(struct translation *r, struct ask *ask, const struct carat_value *body,
                       const struct ask_limits *limits, struct carat_error *err);
/* Puts the messages, if there are any, and makes `root` that of the request. */
int translation_end(struct translation *r);

/* A part that is text: its "type", and the member that has the text. */
struct translation_type {
    const char *type, *key; /* NULL: the end of a list */
};
/* Adds the text of a part of one of these types to `parts`. Others are refused by their type. */
int translation_part(struct translation *r, const struct place *part,
                     const struct translation_type *types, struct tree_array *parts);
/* The same for content: a string, or an array of parts. */
int translation_content(struct translation *r, const struct place *content,
                        const struct translation_type *types, struct tree_array *parts);

/* Arguments of a call: an object, or a string of JSON that is one. Null and all other strings are
 * an empty one. Owned by the request. */
int translation_arguments(struct translation *r, const struct place *arguments,
                          struct carat_value *out);

#endif
