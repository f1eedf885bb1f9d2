/* The messages of a chat in the form of OpenAI's API, collected from the items of other APIs. There
 * an answer may be several items (thoughts, texts, calls). Here it is one message, and results of
 * tools are messages of their own.
 *
 * Rules
 * 1. Texts are borrowed. Memory comes from the tree's arena; running out shows in tree->failed.
 * 2. One part of text is written as a string, several as an array: so the same conversation gives
 *    the same prompt whichever API it comes through. */
#ifndef API_TURNS_H
#define API_TURNS_H

#include "api/place.h"
#include "api/tree.h"

enum {
    TURNS_CALLS_MAX = 1024, /* of one answer */
    TURNS_DEPTH_MAX = 60    /* of the arguments of a call */
};

struct turns {
    struct tree *tree;
    struct tree_array messages;
    /* The answer that is being collected. */
    bool is_open;
    struct tree_array thoughts, texts, calls;
    /* The calls of the newest answer, which results may name. */
    struct turns_call {
        struct carat_value id, name;
        bool is_answered;
    } * asked; /* [n_asked] */
    size_t n_asked;
};

/* A text as a part of a message's content; and such parts as the content. */
struct carat_value turns_part(struct tree *tree, struct carat_value text);
struct carat_value turns_content(const struct tree_array *parts);
/* The content of a result that tells of a failure: {"error": texts}. */
struct carat_value turns_failure(struct tree *tree, const struct tree_array *parts);

/* Ends the answer that is being collected, if there is one. */
void turns_close(struct turns *t);

/* A message of another role than the assistant's. `role` has static lifetime. */
void turns_message(struct turns *t, const char *role, struct carat_value content);

/* Parts of an answer, in any order. _open alone makes an empty one. */
void turns_open(struct turns *t);
void turns_thought(struct turns *t, struct carat_value text);
void turns_text(struct turns *t, struct carat_value text);
/* The texts of parts. */
void turns_thoughts(struct turns *t, const struct tree_array *parts);
void turns_texts(struct turns *t, const struct tree_array *parts);
/* `where` is the call. */
int turns_call(struct turns *t, const struct place *where, struct carat_value id,
               struct carat_value name, struct carat_value arguments, struct carat_error *err);

/* The result of the call of that id, or CARAT_EUSAGE: `where`, the place of the id, names none. */
int turns_result(struct turns *t, const struct place *where, struct carat_value content,
                 struct carat_error *err);
/* The result of the first call of that name that has none yet; of any name, when it is null. */
int turns_result_by_name(struct turns *t, const struct place *where, struct carat_value content,
                         struct carat_error *err);

#endif
