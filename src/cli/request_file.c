#include "cli/request_file.h"

#include <string.h>

#include "cli/files.h"

int tools_file_read(struct json_tree *tools, const struct options *o, struct carat_error *err)
{
    if (!opt_is_set(o, OPT_TOOLS)) return CARAT_OK;
    const char *path = opt_text(o, OPT_TOOLS);
    struct buf text = {0};
    int status = file_read(path, &text, err);
    if (status == CARAT_OK) {
        status = json_tree_read(tools, buf_text(&text), text.length, JSON_PLAIN, err);
        if (status != CARAT_OK) err_within(err, "%s", path);
    }
    buf_deinit(&text);
    return status;
}

const char *request_file_name(const struct options *o)
{
    const char *path = opt_text(o, OPT_REQUEST);
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* The request has the messages, so there is no place for another prompt. */
static int check_flags(const struct options *o, const struct session *s, struct carat_error *err)
{
    static const enum option_id others[] = {OPT_PROMPT,      OPT_PROMPT_FILE, OPT_SYSTEM,
                                            OPT_SYSTEM_FILE, OPT_RAW,         OPT_CONVERSATION};
    const char *found = s->next_argument < o->n_arguments ? "a prompt" : NULL;
    char option[64];
    if (!found)
        found = option_flag(o, others, sizeof others / sizeof *others, option, sizeof option);
    if (!found) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "run: --request and %s exclude each other", found);
    err_hint(err, "a request has all messages in it, the system's too");
    return CARAT_EUSAGE;
}

static int take_flags(struct chat_request *r, struct json_tree *tools, const struct options *o,
                      struct carat_error *err)
{
    bool is_said = json_member(&r->root, "enable_thinking")->kind != CARAT_NULL;
    const struct option_value *think = &o->values[OPT_THINK];
    struct carat_value thinks = {.kind = CARAT_BOOL};
    thinks.as.boolean = strcmp(think->text, "on") == 0;
    if (think->is_flag || (think->is_set && !is_said))
        TRY(chat_request_put(r, "enable_thinking", thinks, err));
    if (!o->values[OPT_TOOLS].is_flag) return CARAT_OK;
    TRY(tools_file_read(tools, o, err));
    return chat_request_put(r, "tools", tools->root, err);
}

int request_file_read(struct chat_request *request, struct generation *g, struct json_tree *tools,
                      const struct form *form, const struct options *o, const struct session *s,
                      struct carat_error *err)
{
    const char *path = opt_text(o, OPT_REQUEST);
    struct buf text = {0};
    TRY(check_flags(o, s, err));
    int status = file_read_some(path, JSON_BYTES_MAX, &text, err);
    if (status == CARAT_OK) {
        status = chat_request_read(request, buf_text(&text), text.length, &g->sampling, err);
        if (status == CARAT_OK) status = generation_take(g, o, s->model, request, err);
        if (status != CARAT_OK) err_within(err, "%s", request_file_name(o));
    }
    buf_deinit(&text);
    if (status == CARAT_OK) status = form_put(form, request, err);
    return status == CARAT_OK ? take_flags(request, tools, o, err) : status;
}
