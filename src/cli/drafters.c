#include "cli/drafters.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/offer.h"
#include "cli/terminal.h"
#include "hub/choose.h"
#include "hub/name.h"

static bool read_repository(const char *name, struct hub_name *out)
{
    return hub_name_read(name, out, NULL) == CARAT_OK && out->kind == HUB_HF;
}

void drafter_add_name(struct buf *out, const struct hub_name *hub, const char *quantisation)
{
    buf_printf(out, "hf:%s/%s:%s%s%s", hub->owner, hub->repository, HUB_TAG_DRAFTER,
               quantisation[0] ? "-" : "", quantisation);
}

/* ---- By its name ------------------------------------------------------------------------ */

static int get_of_repository(const struct options *o, struct buf *path, struct carat_error *err)
{
    const char *given = opt_text(o, OPT_HF_DRAFT);
    struct buf text = {0}, name = {0};
    struct hub_name hub;
    buf_printf(&text, "hf:%s", given);
    bool is_right = read_repository(buf_text(&text), &hub);
    if (is_right) drafter_add_name(&name, &hub, hub.tag);
    int status = is_right
                     ? model_get(o, buf_text(&name), path, err)
                     : err_set(err, CARAT_EUSAGE,
                               "--hf-repo-draft: USER/REPO[:QUANT] expected, %.200s found", given);
    buf_deinit(&text);
    buf_deinit(&name);
    return status;
}

int drafter_get(const struct options *o, struct buf *path, bool *is_auto, struct carat_error *err)
{
    const char *given = opt_text(o, OPT_MODEL_DRAFT);
    *is_auto = strcmp(given, "auto") == 0;
    if (opt_is_set(o, OPT_MODEL_DRAFT) && !*is_auto) return model_get(o, given, path, err);
    if (!opt_is_set(o, OPT_HF_DRAFT)) return CARAT_OK;
    *is_auto = false;
    return get_of_repository(o, path, err);
}

/* ---- Beside the model ------------------------------------------------------------------- */

/* Adds the files of `below`, a path from `folder`, whose names are those of drafters. */
static int add_drafters(struct hub_files *files, const char *folder, const char *below,
                        struct carat_error *err)
{
    static const char ending[] = ".gguf";
    struct buf at = {0}, path = {0};
    struct stat facts;
    int status = CARAT_OK;
    buf_printf(&at, "%s%s", folder, below);
    DIR *d = at.failed ? NULL : opendir(buf_text(&at));
    for (struct dirent *entry; d && (entry = readdir(d)) && status == CARAT_OK;) {
        size_t n = strlen(entry->d_name), length = sizeof ending - 1;
        if (n <= length || strcmp(entry->d_name + n - length, ending) != 0) continue;
        buf_clear(&at);
        buf_clear(&path);
        buf_printf(&path, "%s%s", below, entry->d_name);
        buf_printf(&at, "%s%s", folder, buf_text(&path));
        bool is_file = !at.failed && !path.failed && stat(buf_text(&at), &facts) == 0 &&
                       S_ISREG(facts.st_mode);
        if (is_file && hub_is_drafter(buf_text(&path)))
            status = hub_files_add(files, buf_text(&path), path.length, (uint64_t)facts.st_size,
                                   NULL, err);
    }
    if (d) closedir(d);
    buf_deinit(&at);
    buf_deinit(&path);
    return status;
}

/* Those of other models do not open. */
static int open_beside(const char *model_path, const carat_model *model, carat_drafter **out,
                       struct buf *path, struct carat_error *err)
{
    static const char *const places[] = {"", "MTP/", "../MTP/"};
    const char *slash = strrchr(model_path, '/');
    struct buf folder = {0};
    struct hub_files files = {0};
    int status = CARAT_OK;
    if (slash)
        buf_add(&folder, model_path, (size_t)(slash - model_path) + 1);
    else
        buf_add_text(&folder, "./");
    for (size_t i = 0; i < sizeof places / sizeof *places && status == CARAT_OK; i++)
        status = add_drafters(&files, buf_text(&folder), places[i], err);
    if (files.n) qsort(files.at, files.n, sizeof *files.at, hub_compare_drafters);
    for (size_t i = 0; i < files.n && status == CARAT_OK && !*out; i++) {
        buf_clear(path);
        buf_printf(path, "%s%s", buf_text(&folder), files.at[i].path);
        if (!path->failed) carat_drafter_open(out, buf_text(path), model, NULL);
    }
    hub_files_free(&files);
    buf_deinit(&folder);
    return status;
}

/* ---- Found ---------------------------------------------------------------------------- */

/* Whatever is wrong, the model answers without it. */
static void open_of_repository(const struct options *o, const char *name, const carat_model *model,
                               carat_drafter **out, struct buf *path)
{
    struct carat_error why = {0};
    int status = model_get(o, name, path, &why);
    if (status == CARAT_OK) status = carat_drafter_open(out, buf_text(path), model, &why);
    if (status == CARAT_OK) return;
    note("no drafter: %s%s%s", why.message, why.hint[0] ? "; " : "", why.hint);
}

int drafter_find(const struct options *o, const char *path, const char *name,
                 const carat_model *model, carat_drafter **out, struct carat_error *err)
{
    struct buf found = {0}, repository = {0};
    struct hub_name hub;
    *out = NULL;
    int status = open_beside(path, model, out, &found, err);
    if (status == CARAT_OK && !*out && read_repository(name, &hub)) {
        drafter_add_name(&repository, &hub, "");
        open_of_repository(o, buf_text(&repository), model, out, &found);
    } else if (status == CARAT_OK && !*out) {
        note("no drafter: none of this model lies beside %s", path);
    }
    if (*out) note("drafter: %s", buf_text(&found));
    buf_deinit(&found);
    buf_deinit(&repository);
    return status;
}
