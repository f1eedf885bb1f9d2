#include "cli/offer.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/models.h"
#include "cli/pulling.h"
#include "cli/signals.h"
#include "cli/size_text.h"
#include "cli/terminal.h"
#include "hub/download.h"

/* A byte at a time, so that nothing of what follows is taken away from the command. */
bool ask_yes(const char *form, ...)
{
    char text[1024], line[16] = "";
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(text, sizeof text, form, arguments);
    va_end(arguments);
    err_printf("%s (y/N) ", text);
    fflush(stderr);
    size_t n = 0;
    for (char c = 0; c != '\n';) {
        ssize_t got = read(STDIN_FILENO, &c, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        if (c != '\n' && c != '\r' && n + 1 < sizeof line) line[n++] = c;
    }
    return strcasecmp(line, "y") == 0 || strcasecmp(line, "yes") == 0;
}

static bool wants_it(const struct pulling *p)
{
    struct buf name = {0}, path = {0}, folder = {0};
    hub_name_add(&p->pull.name, &name);
    pull_add_path(&p->pull, 0, &path);
    uint64_t free_bytes = download_room(buf_text(&path), &folder);
    char size[SIZE_TEXT_MAX], room[SIZE_TEXT_MAX];
    uint64_t bytes = hub_files_bytes(&p->pull.files);
    bool has_part = pull_bytes_left(&p->pull) < bytes;
    bool is_wanted = ask_yes("%s is not on this machine. Download it? %s%s, %s are free in %s",
                             buf_text(&name), bytes ? size_text(bytes, size) : "unknown size",
                             has_part ? " (a part is there)" : "", size_text(free_bytes, room),
                             buf_text(&p->folder));
    buf_deinit(&name);
    buf_deinit(&path);
    buf_deinit(&folder);
    return is_wanted;
}

static int offer(const struct options *o, const struct hub_name *name, struct buf *path,
                 struct carat_error *err)
{
    struct pulling p;
    struct carat_error why = {0};
    int status = pulling_open(&p, o, name, &why);
    bool is_refused = false;
    if (status == CARAT_OK) {
        watching_end(); /* Ctrl-C leaves while the question waits */
        is_refused = !wants_it(&p);
        watching_begin(&p);
        p.watch.retries = (int)opt_int(o, OPT_RETRIES);
    }
    if (status == CARAT_OK && !is_refused) {
        buf_clear(path);
        status = pulling_run(&p, false, path, &why);
    }
    bool is_stopped = status == CARAT_EBUSY && interrupt_wanted();
    if (is_stopped) pulling_report(&p, &why);
    pulling_close(&p);
    if (is_stopped) raise(SIGINT);        /* leaves, as Ctrl-C does everywhere */
    if (is_refused) return CARAT_EFORMAT; /* *err says what is missing */
    if (status != CARAT_OK) *err = why;
    return status;
}

int model_get(const struct options *o, const char *name, struct buf *path, struct carat_error *err)
{
    struct hub_name hub;
    int status = model_find(name, path, err);
    if (status != CARAT_EFORMAT || is_offline(o)) return status;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return status;
    bool is_name = hub_name_read(name, &hub, NULL) == CARAT_OK && hub.kind != HUB_NONE;
    bool is_tagged = !is_name && strchr(name, ':') && model_hub_name(name, &hub, NULL) == CARAT_OK;
    return is_name || is_tagged ? offer(o, &hub, path, err) : status;
}
