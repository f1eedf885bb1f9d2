/* carat template: the prompt that a chat request becomes, byte for byte. */
#include <string.h>

#include "carat.h"
#include "cli/command.h"
#include "cli/files.h"
#include "json/chat_request.h"
#include "cli/session.h"
#include "cli/terminal.h"

static int render(enum carat_size size, const char *path, struct carat_error *err)
{
    struct buf text = {0};
    struct chat_request request = {0};
    const struct carat_sampling sampling = {0};
    char *prompt = NULL;
    size_t length = 0;
    int status = file_read(path, &text, err);
    if (status != CARAT_OK) {
        err_hint(err, "give a file with a chat request in JSON, or - for standard input");
    } else {
        status = chat_request_read(&request, buf_text(&text), text.length, &sampling, err);
        if (status == CARAT_OK)
            status = carat_chat_text(size, &request.root, &prompt, &length, err);
        if (status != CARAT_OK) err_within(err, "%s", path);
    }
    if (status == CARAT_OK) out_model_text(prompt, length);
    carat_free(prompt);
    chat_request_close(&request);
    buf_deinit(&text);
    return status;
}

int command_template(const struct options *o)
{
    struct carat_error err = {0};
    struct session s = {0};
    enum carat_size size = CARAT_SIZE_SMALL;
    int status = CARAT_OK;
    if (opt_is_set(o, OPT_SIZE)) {
        if (strcmp(opt_text(o, OPT_SIZE), "large") == 0) size = CARAT_SIZE_LARGE;
    } else {
        status = session_open(&s, o, &err);
        if (status == CARAT_OK) size = carat_model_info(s.model)->size;
    }
    if (status == CARAT_OK && o->n_arguments != s.next_argument + 1) {
        status = err_set(&err, CARAT_EUSAGE, "template: one REQUEST.json is expected");
        err_hint(&err, "carat template MODEL REQUEST.json, or --size small|large REQUEST.json");
    }
    if (status == CARAT_OK) status = render(size, o->arguments[s.next_argument], &err);
    session_close(&s);
    return status == CARAT_OK ? 0 : report(&err);
}
