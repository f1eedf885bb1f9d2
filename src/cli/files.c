#include "cli/files.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { READ_MAX = 1 << 30 };

int file_read(const char *path, struct buf *out, struct carat_error *err)
{
    return file_read_some(path, SIZE_MAX, out, err);
}

int file_read_some(const char *path, size_t bytes_max, struct buf *out, struct carat_error *err)
{
    const bool is_input = strcmp(path, "-") == 0;
    const char *shown = is_input ? "standard input" : path;
    if (bytes_max > READ_MAX) bytes_max = READ_MAX;
    switch (is_input ? file_read_open(STDIN_FILENO, bytes_max, out)
                     : file_read_bounded(path, 0, bytes_max, out)) {
    case FILE_UNOPENED: return err_set(err, CARAT_EUSAGE, "%s: %s", shown, strerror(errno));
    case FILE_BROKEN: return err_set(err, CARAT_EIO, "%s: %s", shown, strerror(errno));
    case FILE_NO_MEMORY: return err_no_memory(err, shown, out->length);
    case FILE_LONGER: /* the caller reports it, unless the file is too long for all callers */
        if (out->length <= READ_MAX) break;
        return err_set(err, CARAT_EUSAGE, "%s: longer than %d bytes", shown, READ_MAX);
    case FILE_WHOLE: break;
    }
    return CARAT_OK;
}

/* ---- Places ----------------------------------------------------------------------------- */

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

void home_folder(const char *variable, const char *fallback, struct buf *out)
{
    const char *value = environment(variable), *home = environment("HOME");
    if (value[0] == '/')
        buf_add_text(out, value);
    else if (home[0])
        buf_printf(out, "%s/%s", home, fallback);
}

static int make_folders(char *path, struct carat_error *err)
{
    for (char *c = path + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return err_set(err, CARAT_EIO, "%s: cannot be made: %s", path, strerror(errno));
        *c = '/';
    }
    return CARAT_OK;
}

int state_path(const char *name, struct buf *path, struct carat_error *err)
{
    buf_clear(path);
    home_folder("XDG_STATE_HOME", ".local/state", path);
    if (!path->length) return err_set(err, CARAT_EIO, "neither XDG_STATE_HOME nor HOME is set");
    buf_printf(path, "/carat/%s", name);
    if (path->failed) return err_no_memory(err, name, strlen(name));
    return make_folders(path->data, err);
}
