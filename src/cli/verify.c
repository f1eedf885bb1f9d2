/* carat verify: reads models and compares them with their checksums. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "cli/command.h"
#include "cli/models.h"
#include "cli/pulling.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "hub/check.h"
#include "hub/choose.h"
#include "hub/walk.h"

struct verification {
    struct pulling shown;
    bool is_json;
    struct buf text; /* JSON */
    struct json json;
    struct carat_error *err;
    int status, n_files, n_wrong;
    struct hub_files names; /* the first wrong file */
    struct hub_files seen;  /* a folder may come under two names */
};

static void tell(struct verification *v, const char *name, const char *path, const char *expected,
                 const char *sum)
{
    bool is_right = strcmp(sum, expected) == 0;
    const char *result = !expected[0] ? "unknown" : is_right ? "ok" : "WRONG";
    struct buf line = {0};
    if (v->is_json) {
        json_begin_object(&v->json);
        const char *const rows[][2] = {
            {"name", name}, {"path", path}, {"result", result}, {"sha256", sum}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            json_key(&v->json, rows[i][0]);
            json_put_string(&v->json, rows[i][1]);
        }
        json_key(&v->json, "expected");
        if (expected[0])
            json_put_string(&v->json, expected);
        else
            json_put_null(&v->json);
        json_end_object(&v->json);
    } else {
        buf_printf(&line, "%-8s %s  ", result, sum);
        add_escaped(&line, path, strlen(path), false);
        out_printf("%s\n", buf_text(&line));
    }
    buf_deinit(&line);
    if (expected[0] && !is_right && v->n_wrong++ == 0)
        v->status = hub_files_add(&v->names, path, strlen(path), 0, NULL, v->err);
}

static bool is_seen(struct verification *v, const char *path)
{
    char real[PATH_MAX];
    if (!realpath(path, real)) return false;
    for (size_t i = 0; i < v->seen.n; i++)
        if (strcmp(v->seen.at[i].path, real) == 0) return true;
    v->status = hub_files_add(&v->seen, real, strlen(real), 0, NULL, v->err);
    return false;
}

static void verify_file(struct verification *v, const char *name, const char *path)
{
    char expected[HUB_SHA256_HEX + 1], sum[HUB_SHA256_HEX + 1];
    if (v->status != CARAT_OK || is_seen(v, path) || v->status != CARAT_OK) return;
    check_expected(path, expected);
    v->status = check_sum(path, &v->shown.watch, sum, v->err);
    progress_end();
    v->n_files++;
    if (v->status == CARAT_OK) tell(v, name, path, expected, sum);
}

/* All parts of the model whose first file is `path`. */
static void verify_model(struct verification *v, const char *name, const char *path)
{
    struct hub_files files = {0};
    struct buf folder = {0}, whole = {0};
    const char *slash = strrchr(path, '/');
    bool is_split = slash && strstr(slash, "-00001-of-");
    if (is_split) {
        buf_add(&folder, path, (size_t)(slash - path));
        v->status = walk_files(buf_text(&folder), ".gguf", &files, v->err);
        if (v->status == CARAT_OK) v->status = hub_choose(&files, "", slash + 1, v->err);
        for (size_t i = 0; i < files.n && v->status == CARAT_OK; i++) {
            buf_clear(&whole);
            buf_printf(&whole, "%s/%s", buf_text(&folder), files.at[i].path);
            verify_file(v, name, buf_text(&whole));
        }
    } else {
        verify_file(v, name, path);
    }
    hub_files_free(&files);
    buf_deinit(&folder);
    buf_deinit(&whole);
}

static void verify_known(void *user, const char *name, const char *path, enum store_kind kind)
{
    struct verification *v = user;
    char expected[HUB_SHA256_HEX + 1];
    check_expected(path, expected);
    if (kind == STORE_OWN && expected[0]) verify_model(v, name, path);
}

static bool verify_store(void *user, const struct store *store)
{
    struct verification *v = user;
    if (v->status == CARAT_OK && store->kind == STORE_OWN)
        store_each(store, verify_known, v, v->err);
    return v->status != CARAT_OK;
}

static bool look_in(void *user, const struct store *store)
{
    struct hub_name *name = ((void **)user)[0];
    struct buf *path = ((void **)user)[1];
    return store_find(store, name, false, path);
}

static int verify_named(struct verification *v, const struct options *o, struct carat_error *err)
{
    struct buf path = {0};
    struct hub_name name;
    int status = CARAT_OK;
    if (opt_is_set(o, OPT_DIR)) {
        void *user[] = {&name, &path};
        status = model_hub_name(o->arguments[0], &name, err);
        if (status == CARAT_OK && !models_each_store(opt_text(o, OPT_DIR), look_in, user))
            status = err_set(err, CARAT_EFORMAT, "%.200s: is not in %.200s", o->arguments[0],
                             opt_text(o, OPT_DIR));
    } else {
        status = model_find(o->arguments[0], &path, err);
    }
    if (status == CARAT_OK) {
        verify_model(v, o->arguments[0], buf_text(&path));
        status = v->status;
    }
    buf_deinit(&path);
    return status;
}

static int sum_up(const struct verification *v, struct carat_error *err)
{
    if (v->n_wrong == 0) {
        if (v->n_files == 0) note("no model with a checksum was found");
        return CARAT_OK;
    }
    err_set(err, CARAT_ECHECKSUM, "%d of %d files differ from their checksum, first %.300s",
            v->n_wrong, v->n_files, v->names.at[0].path);
    err_hint(err, "`carat pull --verify NAME` loads it again and keeps this one as .bad");
    return CARAT_ECHECKSUM;
}

int command_verify(const struct options *o)
{
    struct carat_error err = {0};
    struct verification v = {.is_json = opt_is_set(o, OPT_JSON), .err = &err};
    int exit_status = 0, status = no_more_arguments(o, 1, &err);
    v.json.out = &v.text;
    watching_begin(&v.shown);
    if (v.is_json) json_begin_array(&v.json);
    if (status == CARAT_OK && o->n_arguments == 1) status = verify_named(&v, o, &err);
    if (status == CARAT_OK && o->n_arguments == 0) {
        models_each_store(opt_text(o, OPT_DIR), verify_store, &v);
        status = v.status;
    }
    if (v.is_json) json_end_array(&v.json);
    if (status == CARAT_OK && v.is_json) out_printf("%s\n", buf_text(&v.text));
    if (status == CARAT_OK) status = sum_up(&v, &err);
    if (status != CARAT_OK) exit_status = pulling_report(&v.shown, &err);
    pulling_close(&v.shown);
    hub_files_free(&v.names);
    hub_files_free(&v.seen);
    buf_deinit(&v.text);
    return exit_status;
}
