#include "cli/models.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files.h"

int models_own_store(struct buf *out, struct carat_error *err)
{
    home_folder("XDG_DATA_HOME", ".local/share", out);
    if (!out->length) {
        err_set(err, CARAT_EIO, "neither XDG_DATA_HOME nor HOME is set");
        err_hint(err, "set one of them, or name a folder by --dir");
        return CARAT_EIO;
    }
    buf_add_text(out, "/carat/models");
    return out->failed ? err_no_memory(err, "path", out->length) : CARAT_OK;
}

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
    buf_clear(&folder);
    if (!is_over && models_own_store(&folder, NULL) == CARAT_OK)
        is_over = visit(user, buf_text(&folder));
    buf_deinit(&folder);
    return is_over;
}

/* ---- Stores ----------------------------------------------------------------------------- */

static bool is_folder_of(const char *variable, const char *below, struct buf *out)
{
    const char *value = getenv(variable);
    buf_clear(out);
    if (!value || !value[0]) return false;
    buf_printf(out, "%s%s", value, below);
    return true;
}

static void add_hf_cache(struct buf *out)
{
    if (is_folder_of("HF_HUB_CACHE", "", out) || is_folder_of("HUGGINGFACE_HUB_CACHE", "", out) ||
        is_folder_of("HF_HOME", "/hub", out))
        return;
    home_folder("XDG_CACHE_HOME", ".cache", out);
    if (out->length) buf_add_text(out, "/huggingface/hub");
}

struct store_visit {
    models_store_fn visit;
    void *user;
};

static bool visit_own(void *user, const char *folder)
{
    struct store_visit *v = user;
    return v->visit(v->user, &(struct store){STORE_OWN, folder});
}

bool models_each_store(const char *only, models_store_fn visit, void *user)
{
    struct store_visit v = {visit, user};
    struct buf folder = {0};
    if (only[0]) return visit_own(&v, only);
    bool is_over = models_each_folder(visit_own, &v);
    add_hf_cache(&folder);
    if (!is_over && folder.length)
        is_over = visit(user, &(struct store){STORE_HF_CACHE, buf_text(&folder)});
    if (!is_folder_of("OLLAMA_MODELS", "", &folder)) {
        home_folder("", ".ollama/models", &folder);
        /* Where the service of ollama's packages keeps them. */
        static const struct store service = {STORE_OLLAMA, "/usr/share/ollama/.ollama/models"};
        if (!is_over) is_over = visit(user, &service);
    }
    if (!is_over && folder.length)
        is_over = visit(user, &(struct store){STORE_OLLAMA, buf_text(&folder)});
    buf_deinit(&folder);
    return is_over;
}

int model_hub_name(const char *text, struct hub_name *out, struct carat_error *err)
{
    struct buf name = {0};
    TRY(hub_name_read(text, out, err));
    if (out->kind != HUB_NONE) return CARAT_OK;
    buf_printf(&name, "ollama:%s", text);
    int status = strchr(text, '/') ? CARAT_EUSAGE : hub_name_read(buf_text(&name), out, NULL);
    buf_deinit(&name);
    if (status == CARAT_OK) return CARAT_OK;
    err_set(err, CARAT_EUSAGE, "%.200s: is no name of a registry", text);
    err_hint(err, "hf:USER/REPO:QUANT, ollama:NAME:TAG, or the https address of a .gguf file");
    return CARAT_EUSAGE;
}

/* ---- By name ---------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && !S_ISDIR(facts.st_mode);
}

struct look_up {
    const struct hub_name *name;
    bool takes_only;
    struct buf *path;
};

static bool look_in_store(void *user, const struct store *store)
{
    struct look_up *l = user;
    return store_find(store, l->name, l->takes_only, l->path);
}

/* The time of a record says when its model was last looked up. */
static void note_use(const char *path)
{
    struct buf record = {0};
    buf_printf(&record, "%s.json", path);
    if (!record.failed) utimensat(AT_FDCWD, buf_text(&record), NULL, 0);
    buf_deinit(&record);
}

static bool find_downloaded(const struct hub_name *name, struct buf *path)
{
    struct look_up l = {name, false, path};
    bool is_found = models_each_store("", look_in_store, &l);
    l.takes_only = true;
    if (!is_found && !models_each_store("", look_in_store, &l)) return false;
    note_use(buf_text(path));
    return true;
}

struct search {
    const char *name;
    struct buf *path;
    struct buf looked; /* folders without it */
};

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

/* A name without a registry: in a folder of models, else what ollama calls so. */
static int find_plain(const char *name, struct buf *path, struct carat_error *err)
{
    struct search s = {.name = name, .path = path};
    struct hub_name hub;
    bool can_be_hub = model_hub_name(name, &hub, NULL) == CARAT_OK;
    bool is_found = models_each_folder(look_in, &s);
    if (!is_found && can_be_hub) is_found = find_downloaded(&hub, path);
    int status = CARAT_OK;
    if (path->failed) {
        status = err_no_memory(err, name, strlen(name));
    } else if (!is_found) {
        status = err_set(err, CARAT_EFORMAT, "%s: no such model; looked in %s", name,
                         buf_text(&s.looked));
        if (can_be_hub && strchr(name, ':'))
            err_hint(err, "carat pull ollama:%s", name);
        else
            err_hint(err, "`carat ls` lists the models; give a path, put NAME.gguf into one of "
                          "these folders ($CARAT_MODELS adds one), or `carat pull` one");
    }
    buf_deinit(&s.looked);
    return status;
}

int model_find(const char *name, struct buf *path, struct carat_error *err)
{
    struct hub_name hub;
    buf_clear(path);
    if (!name[0]) {
        err_set(err, CARAT_EUSAGE, "the name of the model is empty");
        err_hint(err, "`carat ls` lists the models");
        return CARAT_EUSAGE;
    }
    bool is_path = strchr(name, '/') && is_file(name);
    if (!is_path) TRY(hub_name_read(name, &hub, err));
    if (!is_path && hub.kind != HUB_NONE) {
        if (find_downloaded(&hub, path)) return CARAT_OK;
        struct buf shown = {0};
        hub_name_add(&hub, &shown);
        err_set(err, CARAT_EFORMAT, "%.300s: is not on this machine", buf_text(&shown));
        err_hint(err, "carat pull %.200s", buf_text(&shown));
        buf_deinit(&shown);
        return CARAT_EFORMAT;
    }
    if (!strchr(name, '/')) return find_plain(name, path, err);
    buf_add_text(path, name); /* a path: opening it shows what is wrong */
    return path->failed ? err_no_memory(err, name, strlen(name)) : CARAT_OK;
}

bool model_is_named(const char *word)
{
    static const char ending[] = ".gguf";
    struct hub_name hub;
    if (hub_name_read(word, &hub, NULL) == CARAT_OK && hub.kind != HUB_NONE) return true;
    struct buf path = {0};
    bool is_found = model_find(word, &path, NULL) == CARAT_OK;
    size_t n = path.length, length = sizeof ending - 1;
    is_found = is_found && n > length && strcmp(buf_text(&path) + n - length, ending) == 0;
    buf_deinit(&path);
    return is_found;
}
