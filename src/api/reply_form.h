/* The state of a reply, for the files that write the replies of one API each, and the functions of
 * such a file. reply.c collects and numbers; a form writes. */
#ifndef API_REPLY_FORM_H
#define API_REPLY_FORM_H

#include "api/custom_input.h"
#include "api/reply.h"
#include "api/reply_tokens.h"
#include "base/json_writer.h"

struct reply_call {
    struct buf name, arguments; /* arguments: as far as they came */
    bool is_complete;
};

/* What an answer is made of, in its order: pieces of one kind that follow each other. */
enum reply_item_kind { ITEM_TEXT, ITEM_THOUGHT, ITEM_CALL };
struct reply_item {
    enum reply_item_kind kind;
    size_t from, length; /* in the answer's text or thought, as far as that is kept */
    int32_t call;
    size_t first_row, end_row; /* of the answer's tokens, as far as those are kept */
};

struct reply_answer {
    struct buf text, thought; /* not a stream, or keeps_all: all of it */
    struct reply_call *calls; /* [n_calls]; in a stream without keeps_all: names, no arguments */
    int32_t n_calls, capacity;
    struct reply_item *items; /* [n_items] */
    int32_t n_items, items_capacity;
    bool has_cut_call; /* the last call is not whole */
    bool is_done;
    struct reply_tokens tokens; /* not yet written */
    struct buf ids;             /* int32_t each, not yet written; of a body all */
    struct reply_done done;     /* usage: the newest, before is_done, too */
};

enum reply_piece {
    PIECE_TEXT,
    PIECE_THOUGHT,
    PIECE_CALL_BEGIN, /* the text is the name; the newest of answer->calls */
    PIECE_CALL_ARGUMENTS,
    PIECE_CALL_END /* no text; is_complete of the call is set */
};

/* Every function but `whole` may be NULL, and `piece` only without has_ids. Those above `whole`
 * write streams. When `piece` is called, the state already includes the piece. */
struct reply_form {
    const char *stream_type; /* of HTTP */
    bool keeps_all;          /* a stream, too, needs whole texts at its end */
    bool has_ids;            /* writes ids, and `piece` writes them even without text */
    void (*begin)(struct reply *r, struct buf *out);
    void (*progress)(struct reply *r, int32_t answer, int32_t done, int32_t total, int32_t cached,
                     struct buf *out);
    void (*piece)(struct reply *r, int32_t answer, enum reply_piece kind, const char *text,
                  size_t length, struct buf *out);
    void (*answer_done)(struct reply *r, int32_t answer, struct buf *out);
    void (*finish)(struct reply *r, struct buf *out);
    void (*fail)(struct reply *r, const struct api_error *error, struct buf *out);
    void (*ping)(const struct reply *r, struct buf *out);
    void (*whole)(struct reply *r, struct buf *out);
};

struct reply {
    const struct ask *ask;
    struct reply_facts facts;
    const struct reply_form *form;
    struct reply_answer *answers; /* [n_answers] */
    int32_t n_answers;
    int32_t n_events;          /* free for the form */
    int32_t open_item;         /* free for the form: the number of an item, from 1; 0: none */
    struct custom_input input; /* of the item that is open, if it is a custom tool's call */
    struct buf head;           /* free for the form: what it writes again and again */
    bool failed;               /* memory is out */
};

extern const struct reply_form chat_form, completions_form, messages_form, responses_form,
    ollama_form;

#endif
