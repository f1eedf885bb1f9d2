/* The messages of a conversation, and the chat request they make. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"
#include "carat.h"
#include "cli/options.h"

enum { MESSAGES_MAX = 4096 };

struct message {
    const char *role; /* "system", "user" or "assistant" */
    char *text;       /* owned */
    size_t length;
};

struct conversation {
    struct message *messages; /* MESSAGES_MAX of them; owned */
    size_t n;
    bool thinks;                     /* enable_thinking */
    const struct carat_value *tools; /* borrowed; NULL: none */
    const struct carat_member *form; /* what answers are held to; borrowed; NULL: nothing */
    /* The request tree, rebuilt by conversation_request. */
    struct carat_value *items;
    struct carat_member *members; /* two a message */
    struct carat_member root[4];
    struct carat_value request;
};

int conversation_open(struct conversation *c, struct carat_error *err);
void conversation_close(struct conversation *c);

int conversation_add(struct conversation *c, const char *role, const char *text, size_t length,
                     struct carat_error *err);
void conversation_cut(struct conversation *c, size_t n); /* keeps the first n messages */
bool conversation_has_system(const struct conversation *c);

/* --system, --system-file, --escape and --think. */
int conversation_configure(struct conversation *c, const struct options *o,
                           struct carat_error *err);

/* The prompt that the command line gives: --prompt, the arguments from `first` on, and, after
 * `joint`, --file, of which little more than bytes_max bytes are read. */
int prompt_given(const struct options *o, size_t first, const char *joint, size_t bytes_max,
                 struct buf *out, struct carat_error *err);

/* On a terminal, prints a note that thinking is off and how to switch it on, unless the user has
 * chosen. `--think off` and CARAT_THINK=off are choices too. */
void note_thinking(const struct options *o);

/* Sets, replaces or (empty text) removes the system message. */
int conversation_set_system(struct conversation *c, const char *text, struct carat_error *err);

/* Borrowed; valid until the conversation changes. */
const struct carat_value *conversation_request(struct conversation *c);

#endif
