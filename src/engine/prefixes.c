/* Saved prefixes of carat.h: lists of the prefix cache and pages of the runner, to a file and back.
 * Pages that come from a file are taken before they are read and become part of the cache after the
 * last byte was checked; before that no request can find them. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/origin.h"
#include "engine/prefix_reader.h"
#include "engine/prefix_writer.h"

static int check_engine(const carat_engine *e, struct carat_error *err)
{
    TRY(runner_check(e->runner, err));
    if (e->has_cache) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "saved prefixes: this engine has no prefix cache");
}

/* Room for a page of either kind. */
static int take_buffer(const carat_engine *e, void **out, struct carat_error *err)
{
    const size_t local = runner_page_bytes(e->runner, KV_LOCAL);
    const size_t global = runner_page_bytes(e->runner, KV_GLOBAL);
    const size_t bytes = local > global ? local : global;
    *out = mem_alloc(bytes, 1);
    return *out ? CARAT_OK : err_no_memory(err, "saved prefixes", bytes);
}

static void tell(struct carat_prefixes *out, struct saved_part part, uint64_t bytes)
{
    if (!out) return;
    *out = (struct carat_prefixes){
        .tokens = (int64_t)part.n_blocks * KV_PAGE, .anchors = part.n_anchors, .bytes = bytes};
}

/* ---- Saving ----------------------------------------------------------------------------- */

static int write_pages(carat_engine *e, struct prefix_writer *w, enum kv_kind kind,
                       const int32_t *pages, int32_t n, void *buffer, struct carat_error *err)
{
    const size_t bytes = runner_page_bytes(e->runner, kind);
    for (int32_t i = 0; i < n; i++) {
        TRY(runner_read_page(e->runner, kind, pages[i], buffer, err));
        TRY(prefix_writer_page(w, buffer, bytes, err));
    }
    return CARAT_OK;
}

static int write_file(carat_engine *e, const char *path, const struct prefix_header *header,
                      const struct saved *lists, struct carat_error *err)
{
    struct prefix_writer w;
    void *buffer;
    TRY(take_buffer(e, &buffer, err));
    int status = prefix_writer_open(&w, path, header, lists, err);
    if (!status) status = write_pages(e, &w, KV_GLOBAL, lists->pages, lists->n_blocks, buffer, err);
    if (!status)
        status = write_pages(e, &w, KV_LOCAL, lists->local_pages, lists->n_locals, buffer, err);
    status = prefix_writer_close(&w, status, err);
    mem_free(buffer);
    return status;
}

int carat_prefixes_save(carat_engine *e, const char *path, uint64_t bytes_max, const uint8_t *note,
                        struct carat_prefixes *out, struct carat_error *err)
{
    struct prefix_header header = {0};
    struct saved lists;
    tell(out, (struct saved_part){0}, 0);
    TRY(check_engine(e, err));
    origin_find(&header.origin, e);
    if (note) memcpy(header.note, note, sizeof header.note);
    const uint64_t *page_bytes = header.origin.page_bytes, rest = sizeof header + sizeof header.sum;
    const struct saved_costs costs = {
        .block = page_bytes[KV_GLOBAL] + sizeof *lists.blocks + KV_PAGE * sizeof *lists.ids,
        .local = page_bytes[KV_LOCAL],
        .anchor =
            sizeof *lists.anchors + (uint64_t)saved_refs(e->paging.cache) * sizeof *lists.refs,
        .most = bytes_max ? bytes_left(bytes_max, rest) : BYTES_MAX};
    TRY(saved_list(&lists, e->paging.cache, &costs, err));
    const struct saved_part all = {lists.n_anchors, lists.n_blocks, lists.n_locals};
    int status = write_file(e, path, &header, &lists, err);
    if (!status)
        tell(out, all,
             rest + (uint64_t)all.n_blocks * costs.block + (uint64_t)all.n_locals * costs.local +
                 (uint64_t)all.n_anchors * costs.anchor);
    saved_close(&lists);
    return status;
}

/* ---- Loading ---------------------------------------------------------------------------- */

/* Reads all pages of a kind in the file; the engine has room for the first n of them. */
static int read_pages(carat_engine *e, struct prefix_reader *r, enum kv_kind kind,
                      const int32_t *pages, int32_t n, int32_t n_all, void *buffer,
                      struct carat_error *err)
{
    const size_t bytes = runner_page_bytes(e->runner, kind);
    for (int32_t i = 0; i < n_all; i++) {
        TRY(prefix_reader_page(r, buffer, bytes, err));
        if (i < n) TRY(runner_write_page(e->runner, kind, pages[i], buffer, err));
    }
    return CARAT_OK;
}

static int read_all_pages(carat_engine *e, struct prefix_reader *r, const struct saved *lists,
                          struct saved_part part, struct carat_error *err)
{
    void *buffer;
    TRY(take_buffer(e, &buffer, err));
    int status =
        read_pages(e, r, KV_GLOBAL, lists->pages, part.n_blocks, lists->n_blocks, buffer, err);
    if (!status)
        status = read_pages(e, r, KV_LOCAL, lists->local_pages, part.n_locals, lists->n_locals,
                            buffer, err);
    if (!status) status = prefix_reader_end(r, err);
    mem_free(buffer);
    return status;
}

static int take_in(carat_engine *e, struct prefix_reader *r, struct carat_prefixes *out,
                   struct carat_error *err)
{
    struct prefix_cache *cache = e->paging.cache;
    struct prefix_origin origin;
    struct saved lists;
    origin_find(&origin, e);
    TRY(prefix_reader_match(r, &origin, err));
    TRY(prefix_reader_lists(r, cache, e->model->config.n_vocab, &lists, err));
    struct saved_part part = saved_fitting(&lists, cache);
    saved_take_pages(&lists, cache, part);
    int status = read_all_pages(e, r, &lists, part, err);
    if (status) {
        saved_leave_pages(&lists, cache, part);
    } else {
        saved_restore(&lists, cache, part);
        tell(out, part, r->header.file_bytes);
    }
    saved_close(&lists);
    return status;
}

int carat_prefixes_load(carat_engine *e, const char *path, struct carat_prefixes *out,
                        struct carat_error *err)
{
    struct prefix_reader r;
    tell(out, (struct saved_part){0}, 0);
    TRY(check_engine(e, err));
    int status = prefix_reader_open(&r, path, err);
    if (!status && r.fd >= 0) status = take_in(e, &r, out, err);
    prefix_reader_close(&r);
    return status;
}

int carat_prefixes_note(const char *path, uint8_t *note, struct carat_error *err)
{
    struct prefix_reader r;
    memset(note, 0, CARAT_NOTE_BYTES);
    int status = prefix_reader_open(&r, path, err);
    if (!status && r.fd >= 0) memcpy(note, r.header.note, CARAT_NOTE_BYTES);
    prefix_reader_close(&r);
    return status;
}
