#include "cli/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAX = 1 << 30 };

static int read_all(int fd, const char *shown, struct buf *out, struct carat_error *err)
{
    char block[65536];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(err, CARAT_EIO, "%s: %s", shown, strerror(errno));
        if (n == 0) break;
        if (out->length + (size_t)n > READ_MAX)
            return err_set(err, CARAT_EUSAGE, "%s: longer than %d bytes", shown, READ_MAX);
        buf_add(out, block, (size_t)n);
        if (out->failed) return err_no_memory(err, shown, out->length + (size_t)n);
    }
    return CARAT_OK;
}

int file_read(const char *path, struct buf *out, struct carat_error *err)
{
    if (strcmp(path, "-") == 0) return read_all(STDIN_FILENO, "standard input", out, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(err, CARAT_EUSAGE, "%s: %s", path, strerror(errno));
    int status = read_all(fd, path, out, err);
    close(fd);
    return status;
}

/* ---- Places ----------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISDIR(facts.st_mode);
}

/* Looks for folder/name and folder/name.gguf; notes the folder in `looked`. */
static bool look_in(const char *folder, const char *name, struct buf *path, struct buf *looked)
{
    static const char *const endings[] = {"", ".gguf"};
    for (int i = 0; i < 2; i++) {
        buf_clear(path);
        buf_printf(path, "%s/%s%s", folder, name, endings[i]);
        if (!path->failed && is_file(buf_text(path))) return true;
    }
    buf_printf(looked, "%s%s", looked->length ? ", " : "", folder);
    return false;
}

/* `folder` of an environment variable, or `fallback` below the home folder; "" when unknown. */
static void home_folder(const char *variable, const char *fallback, struct buf *out)
{
    const char *value = getenv(variable), *home = getenv("HOME");
    if (value && value[0] == '/')
        buf_add_text(out, value);
    else if (home && home[0])
        buf_printf(out, "%s/%s", home, fallback);
}

static bool look_everywhere(const char *name, struct buf *path, struct buf *looked)
{
    const char *own = getenv("CARAT_MODELS");
    if (own && own[0] && look_in(own, name, path, looked)) return true;
    if (look_in(".", name, path, looked)) return true;
    if (look_in("models", name, path, looked)) return true;

    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = n > 0 ? memrchr(program, '/', (size_t)n) : NULL;
    struct buf folder = {0};
    bool is_found = false;
    if (slash) { /* a build folder inside the project; an installed prefix */
        static const char *const places[] = {"../../models", "../share/carat/models"};
        for (int i = 0; i < 2 && !is_found; i++) {
            buf_clear(&folder);
            buf_printf(&folder, "%.*s/%s", (int)(slash - program), program, places[i]);
            is_found = look_in(buf_text(&folder), name, path, looked);
        }
    }
    if (!is_found) {
        buf_clear(&folder);
        home_folder("XDG_DATA_HOME", ".local/share", &folder);
        if (folder.length) {
            buf_add_text(&folder, "/carat/models");
            is_found = look_in(buf_text(&folder), name, path, looked);
        }
    }
    buf_deinit(&folder);
    return is_found;
}

int model_find(const char *name, struct buf *path, struct carat_error *err)
{
    buf_clear(path);
    if (strchr(name, '/')) { /* a path: what is wrong with it is found by opening it */
        buf_add_text(path, name);
        return path->failed ? err_no_memory(err, name, strlen(name)) : CARAT_OK;
    }
    struct buf looked = {0};
    int status = CARAT_OK;
    if (!name[0] || !look_everywhere(name, path, &looked)) {
        status = err_set(err, CARAT_EFORMAT, "%s: no such model; looked in %s",
                         name[0] ? name : "\"\"", buf_text(&looked));
        err_hint(err, "give a path, or put NAME.gguf into one of these folders "
                      "($CARAT_MODELS adds one)");
    } else if (path->failed) {
        status = err_no_memory(err, name, strlen(name));
    }
    buf_deinit(&looked);
    return status;
}

static void make_folders(char *path)
{
    for (char *c = path + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        mkdir(path, 0700);
        *c = '/';
    }
}

int state_path(const char *name, struct buf *path, struct carat_error *err)
{
    buf_clear(path);
    home_folder("XDG_STATE_HOME", ".local/state", path);
    if (!path->length) return err_set(err, CARAT_EIO, "neither XDG_STATE_HOME nor HOME is set");
    buf_printf(path, "/carat/%s", name);
    if (path->failed) return err_no_memory(err, name, strlen(name));
    make_folders(path->data);
    return CARAT_OK;
}
