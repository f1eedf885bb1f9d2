#include "engine/drafter_file.h"

#include "base/mem.h"

static int read_drafter(struct carat_drafter *d, struct carat_error *err)
{
    const carat_model *m = d->model;
    const struct weights_file owner = {&m->config, m->gguf, &m->weights};
    struct buf note = {0};
    TRY(config_read_drafter(&d->config, d->gguf, &m->config, err));
    int status =
        weights_bind_drafter(&d->weights, &d->config, d->gguf, &owner, &d->arena, &note, err);
    const char *kept =
        note.failed ? NULL : arena_copy_text(&d->arena, buf_text(&note), note.length);
    buf_deinit(&note);
    TRY(status);
    if (!kept) return err_no_memory(err, "drafter", sizeof *d);
    d->parts = (struct weights_file){&d->config, d->gguf, &d->weights};
    d->info = (struct carat_drafter_info){
        .n_params = d->weights.n_params, .file_bytes = gguf_file_bytes(d->gguf), .note = kept};
    gguf_quantisation(d->gguf, d->info.quantisation, sizeof d->info.quantisation);
    return CARAT_OK;
}

int carat_drafter_open(carat_drafter **out, const char *path, const carat_model *model,
                       struct carat_error *err)
{
    *out = NULL;
    struct carat_drafter *d = mem_alloc(1, sizeof *d);
    if (!d) return err_no_memory(err, "drafter", sizeof *d);
    d->model = model;
    int status = gguf_open(&d->gguf, path, err);
    if (!status) status = read_drafter(d, err);
    if (status)
        carat_drafter_close(d);
    else
        *out = d;
    return status;
}

void carat_drafter_close(carat_drafter *d)
{
    if (!d) return;
    gguf_close(d->gguf);
    arena_deinit(&d->arena);
    mem_free(d);
}

const struct carat_drafter_info *carat_drafter_info(const carat_drafter *d)
{
    return &d->info;
}
