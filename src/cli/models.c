#include "cli/models.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files.h"

bool models_each_folder(folder_fn visit, void *user)
{
    const char *own = getenv("CARAT_MODELS");
    if (own && own[0] && visit(user, own)) return true;
    if (visit(user, ".") || visit(user, "models")) return true;

    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = n > 0 ? memrchr(program, '/', (size_t)n) : NULL;
    struct buf folder = {0};
    bool is_over = false;
    if (slash) { /* a build folder inside the project; an installed prefix */
        static const char *const places[] = {"../../models", "../share/carat/models"};
        for (int i = 0; i < 2 && !is_over; i++) {
            buf_clear(&folder);
            buf_printf(&folder, "%.*s/%s", (int)(slash - program), program, places[i]);
            is_over = visit(user, buf_text(&folder));
        }
    }
    if (!is_over) {
        buf_clear(&folder);
        home_folder("XDG_DATA_HOME", ".local/share", &folder);
        if (folder.length) {
            buf_add_text(&folder, "/carat/models");
            is_over = visit(user, buf_text(&folder));
        }
    }
    buf_deinit(&folder);
    return is_over;
}

/* ---- By name ---------------------------------------------------------------------------- */

struct search {
    const char *name;
    struct buf *path;
    struct buf looked; /* folders without it */
};

static bool is_file(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISDIR(facts.st_mode);
}

/* Looks for folder/name and folder/name.gguf. */
static bool look_in(void *user, const char *folder)
{
    static const char *const endings[] = {"", ".gguf"};
    struct search *s = user;
    for (int i = 0; i < 2; i++) {
        buf_clear(s->path);
        buf_printf(s->path, "%s/%s%s", folder, s->name, endings[i]);
        if (!s->path->failed && is_file(buf_text(s->path))) return true;
    }
    buf_printf(&s->looked, "%s%s", s->looked.length ? ", " : "", folder);
    return false;
}

int model_find(const char *name, struct buf *path, struct carat_error *err)
{
    static const char *const hubs[] = {"hf.co/", "huggingface.co/", "hf:"};
    buf_clear(path);
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs; i++) {
        size_t n = strlen(hubs[i]);
        if (strncmp(name, hubs[i], n) != 0 || is_file(name)) continue;
        err_set(err, CARAT_EFORMAT, "%s: is not on this machine", name);
        hint_download(name + n, err);
        return CARAT_EFORMAT;
    }
    if (strchr(name, '/')) { /* a path: opening it shows what is wrong */
        buf_add_text(path, name);
        return path->failed ? err_no_memory(err, name, strlen(name)) : CARAT_OK;
    }
    struct search s = {.name = name, .path = path};
    int status = CARAT_OK;
    if (!name[0] || !models_each_folder(look_in, &s)) {
        status = err_set(err, CARAT_EFORMAT, "%s: no such model; looked in %s",
                         name[0] ? name : "\"\"", buf_text(&s.looked));
        err_hint(err, "`carat ls` lists the models; give a path, or put NAME.gguf into one of "
                      "these folders ($CARAT_MODELS adds one)");
    } else if (path->failed) {
        status = err_no_memory(err, name, strlen(name));
    }
    buf_deinit(&s.looked);
    return status;
}

bool model_is_named(const char *word)
{
    static const char ending[] = ".gguf";
    struct buf path = {0};
    bool is_found = model_find(word, &path, NULL) == CARAT_OK;
    size_t n = path.length, length = sizeof ending - 1;
    is_found = is_found && n > length && strcmp(buf_text(&path) + n - length, ending) == 0;
    buf_deinit(&path);
    return is_found;
}

/* ---- Elsewhere -------------------------------------------------------------------------- */

/* "unsloth/gemma-4-E2B-it-GGUF:Q4_K_M": files are named as gemma-4-E2B-it-Q4_K_M.gguf. */
void hint_download(const char *repository, struct carat_error *err)
{
    if (strstr(repository, "://")) {
        err_hint(err, "this version downloads nothing: curl -L -O %s", repository);
        return;
    }
    int whole = (int)strcspn(repository, ":");
    const char *quantisation = repository[whole] ? repository + whole + 1 : "Q4_K_M";
    const char *slash = memrchr(repository, '/', (size_t)whole);
    const char *name = slash ? slash + 1 : repository;
    int length = whole - (int)(name - repository);
    if (length > 5 && strncasecmp(name + length - 5, "-GGUF", 5) == 0) length -= 5;
    err_hint(err,
             "this version downloads nothing: curl -L -O "
             "https://huggingface.co/%.*s/resolve/main/%.*s-%s.gguf",
             whole, repository, length, name, quantisation);
}
