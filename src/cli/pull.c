/* carat pull: loads a model, or goes on with what was begun, and prints its path. */
#include <string.h>

#include "cli/command.h"
#include "cli/drafters.h"
#include "cli/models.h"
#include "cli/pulling.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "hub/check.h"

static int read_name(const struct options *o, struct hub_name *name, struct carat_error *err)
{
    if (o->n_arguments == 0) {
        err_set(err, CARAT_EUSAGE, "pull: NAME is missing");
        err_hint(err, "carat pull hf:USER/REPO:QUANT, or carat pull ollama:NAME:TAG");
        return CARAT_EUSAGE;
    }
    TRY(no_more_arguments(o, 1, err));
    TRY(model_hub_name(o->arguments[0], name, err));
    if (opt_is_set(o, OPT_QUANT)) {
        struct buf text = {0};
        struct hub_name other;
        if (name->kind != HUB_HF || name->tag[0] || name->file[0])
            return err_set(err, CARAT_EUSAGE,
                           "--quant: goes with hf:USER/REPO, where nothing else says which");
        buf_printf(&text, "hf:%s/%s:%s", name->owner, name->repository, opt_text(o, OPT_QUANT));
        int status = hub_name_read(buf_text(&text), &other, err);
        buf_deinit(&text);
        TRY(status);
        memcpy(name->tag, other.tag, sizeof name->tag);
    }
    if (!opt_is_set(o, OPT_REVISION)) return CARAT_OK;
    if (name->kind != HUB_HF)
        return err_set(err, CARAT_EUSAGE, "--revision: only Hugging Face has revisions");
    return hub_name_set_revision(name, opt_text(o, OPT_REVISION), err);
}

struct look_up {
    const struct pulling *pulling;
    struct buf *path;
};

/* Whether a store has exactly what is wanted, other than the one that is to be filled. */
static bool has_it(void *user, const struct store *store)
{
    struct look_up *l = user;
    const struct pull *pull = &l->pulling->pull;
    char sum[HUB_SHA256_HEX + 1];
    if (strcmp(store->folder, buf_text(&l->pulling->folder)) == 0) return false;
    if (!store_find(store, &pull->name, false, l->path)) return false;
    check_expected(buf_text(l->path), sum);
    bool is_it = sum[0] && strcmp(sum, pull->files.at[0].sha256) == 0;
    if (!is_it) buf_clear(l->path);
    return is_it;
}

/* A model that another program has loaded, or that is in another folder of models, is not loaded
 * again, unless a folder is named. */
static int load(const struct options *o, struct pulling *p, struct buf *path,
                struct carat_error *err)
{
    struct look_up l = {p, path};
    bool takes_any = !opt_is_set(o, OPT_DIR) && !opt_is_set(o, OPT_VERIFY);
    if (takes_any && models_each_store("", has_it, &l)) {
        note("it is here already; --dir makes a copy");
        return CARAT_OK;
    }
    return pulling_run(p, opt_is_set(o, OPT_VERIFY), path, err);
}

static void tell_drafter(const struct pull *p)
{
    struct buf name = {0};
    if (!p->has_drafter) return;
    drafter_add_name(&name, &p->name, "");
    note("there is a drafter too: `carat pull %s`; --model-draft auto takes it", buf_text(&name));
    buf_deinit(&name);
}

int command_pull(const struct options *o)
{
    struct carat_error err = {0};
    struct hub_name name;
    struct buf path = {0};
    struct pulling p = {0};
    int status = read_name(o, &name, &err), exit_status = 0;
    if (status != CARAT_OK) return report(&err);
    bool is_here = is_offline(o) && model_find(o->arguments[0], &path, NULL) == CARAT_OK;
    if (!is_here) status = pulling_open(&p, o, &name, &err);
    if (status == CARAT_OK && !is_here) status = load(o, &p, &path, &err);
    if (status == CARAT_OK) {
        tell_drafter(&p.pull);
        out_printf("%s\n", buf_text(&path));
    } else {
        exit_status = pulling_report(&p, &err);
    }
    pulling_close(&p);
    buf_deinit(&path);
    return exit_status;
}
