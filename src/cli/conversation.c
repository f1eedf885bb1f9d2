#include "cli/conversation.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/escapes.h"
#include "cli/files.h"
#include "cli/session.h"
#include "cli/terminal.h"

int conversation_open(struct conversation *c, struct carat_error *err)
{
    *c = (struct conversation){0};
    c->messages = mem_alloc(MESSAGES_MAX, sizeof *c->messages);
    c->items = mem_alloc(MESSAGES_MAX, sizeof *c->items);
    c->members = mem_alloc(2 * MESSAGES_MAX, sizeof *c->members);
    if (c->messages && c->items && c->members) return CARAT_OK;
    conversation_close(c);
    return err_no_memory(err, "conversation", MESSAGES_MAX * sizeof *c->messages);
}

void conversation_close(struct conversation *c)
{
    if (c->messages) conversation_cut(c, 0);
    mem_free(c->messages);
    mem_free(c->items);
    mem_free(c->members);
    *c = (struct conversation){0};
}

int conversation_add(struct conversation *c, const char *role, const char *text, size_t length,
                     struct carat_error *err)
{
    if (c->n == MESSAGES_MAX) {
        err_set(err, CARAT_EUSAGE, "the conversation has %d messages, no more fit", MESSAGES_MAX);
        err_hint(err, "/clear starts a new one");
        return CARAT_EUSAGE;
    }
    char *copy = mem_copy_text(text, length);
    if (!copy) return err_no_memory(err, "message", length);
    c->messages[c->n++] = (struct message){.role = role, .text = copy, .length = length};
    return CARAT_OK;
}

void conversation_cut(struct conversation *c, size_t n)
{
    while (c->n > n) mem_free(c->messages[--c->n].text);
}

bool conversation_has_system(const struct conversation *c)
{
    return c->n > 0 && strcmp(c->messages[0].role, "system") == 0;
}

int conversation_set_system(struct conversation *c, const char *text, struct carat_error *err)
{
    size_t length = strlen(text);
    bool has_system = conversation_has_system(c);
    if (length == 0) {
        if (!has_system) return CARAT_OK;
        mem_free(c->messages[0].text);
        c->n--;
        memmove(c->messages, c->messages + 1, c->n * sizeof *c->messages);
        return CARAT_OK;
    }
    TRY(conversation_add(c, "system", text, length, err));
    struct message system = c->messages[c->n - 1];
    if (has_system) {
        mem_free(c->messages[0].text);
        c->n--;
    } else {
        memmove(c->messages + 1, c->messages, (c->n - 1) * sizeof *c->messages);
    }
    c->messages[0] = system;
    return CARAT_OK;
}

/* Adds `text`; with --escape \n and the like become characters. */
static void add_given(struct buf *out, const struct options *o, const char *text)
{
    if (opt_is_set(o, OPT_ESCAPE))
        add_unescaped(out, text);
    else
        buf_add_text(out, text);
}

int prompt_given(const struct options *o, size_t first, const char *joint, size_t bytes_max,
                 struct buf *out, struct carat_error *err)
{
    add_given(out, o, opt_text(o, OPT_PROMPT));
    if (out->length && first < o->n_arguments) buf_add_char(out, ' ');
    join_arguments(o, first, out);
    if (!opt_is_set(o, OPT_PROMPT_FILE)) return CARAT_OK;
    if (out->length) buf_add_text(out, joint);
    return file_read_some(opt_text(o, OPT_PROMPT_FILE), bytes_max, out, err);
}

int conversation_configure(struct conversation *c, const struct options *o, struct carat_error *err)
{
    struct buf system = {0};
    int status = CARAT_OK;
    c->thinks = strcmp(opt_text(o, OPT_THINK), "on") == 0;
    add_given(&system, o, opt_text(o, OPT_SYSTEM));
    if (opt_is_set(o, OPT_SYSTEM_FILE)) {
        if (system.length) buf_add_text(&system, "\n\n");
        status = file_read(opt_text(o, OPT_SYSTEM_FILE), &system, err);
    }
    if (status == CARAT_OK && system.failed) status = err_no_memory(err, "prompt", system.length);
    if (status == CARAT_OK) status = conversation_set_system(c, buf_text(&system), err);
    buf_deinit(&system);
    return status;
}

void note_thinking(const struct options *o)
{
    bool is_raw = o->command == COMMAND_RUN && opt_is_set(o, OPT_RAW);
    bool is_person = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    if (opt_is_set(o, OPT_THINK) || is_raw || !is_person) return;
    note("thinking is off; --think switches it on (CARAT_THINK=off silences this note)");
}

static struct carat_value text_value(const char *text, size_t length)
{
    struct carat_value v = {.kind = CARAT_STRING};
    v.as.string.data = text;
    v.as.string.length = length;
    return v;
}

static struct carat_member member(const char *key, struct carat_value value)
{
    struct carat_member m = {.value = value};
    m.key.data = key;
    m.key.length = strlen(key);
    return m;
}

const struct carat_value *conversation_request(struct conversation *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct message *m = &c->messages[i];
        struct carat_member *pair = &c->members[2 * i];
        pair[0] = member("role", text_value(m->role, strlen(m->role)));
        pair[1] = member("content", text_value(m->text, m->length));
        c->items[i] = (struct carat_value){.kind = CARAT_OBJECT};
        c->items[i].as.object.members = pair;
        c->items[i].as.object.count = 2;
    }
    struct carat_value messages = {.kind = CARAT_ARRAY};
    messages.as.array.items = c->items;
    messages.as.array.count = c->n;
    struct carat_value thinks = {.kind = CARAT_BOOL};
    thinks.as.boolean = c->thinks;
    c->root[0] = member("messages", messages);
    c->root[1] = member("enable_thinking", thinks);
    size_t n = 2;
    if (c->tools) c->root[n++] = member("tools", *c->tools);
    if (c->form) c->root[n++] = *c->form;
    c->request = (struct carat_value){.kind = CARAT_OBJECT};
    c->request.as.object.members = c->root;
    c->request.as.object.count = n;
    return &c->request;
}
