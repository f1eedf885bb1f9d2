/* carat verify: compares models with their checksums, one or all that `ls` lists. */
#include <string.h>

#include "base/json_writer.h"
#include "cli/command.h"
#include "cli/inventory.h"
#include "cli/models.h"
#include "cli/pulling.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "hub/check.h"
#include "hub/choose.h"

struct verification {
    struct pulling shown;
    bool is_json;
    struct buf text; /* JSON */
    struct json json;
    int n_files, n_read, n_wrong, n_lost; /* lost: cannot be read, or missing */
    struct buf first_wrong, first_lost;   /* paths */
};

static void put_text(struct json *j, const char *key, const char *text)
{
    json_key_string(j, key, text[0] ? text : NULL);
}

/* One line, or one object, for a file. `sum` is "" for one that was not read. */
static void tell(struct verification *v, const char *result, const char *name, const char *path,
                 const char *expected, const char *sum)
{
    struct buf line = {0};
    v->n_files++;
    if (v->is_json) {
        json_begin_object(&v->json);
        put_text(&v->json, "name", name);
        put_text(&v->json, "path", path);
        put_text(&v->json, "result", result);
        put_text(&v->json, "sha256", sum);
        put_text(&v->json, "expected", expected);
        json_end_object(&v->json);
    } else {
        buf_printf(&line, "%-10s %-64s  ", result, sum[0] ? sum : "-");
        add_escaped(&line, path, strlen(path), false);
        out_printf("%s\n", buf_text(&line));
    }
    buf_deinit(&line);
}

static void tell_lost(struct verification *v, const char *result, const char *name,
                      const char *path, const char *expected)
{
    tell(v, result, name, path, expected, "");
    if (v->n_lost++ == 0) buf_add_text(&v->first_lost, path);
}

/* A file whose checksum nobody knows is only read if it was asked for. A file that cannot be read
 * does not keep others from being read. CARAT_EBUSY: stopped. */
static int verify_file(struct verification *v, const char *name, const char *path, bool is_named,
                       struct carat_error *err)
{
    char expected[HUB_SHA256_HEX + 1], sum[HUB_SHA256_HEX + 1] = "";
    struct carat_error why = {0};
    check_expected(path, expected);
    if (!expected[0] && !is_named) {
        tell(v, "unknown", name, path, "", "");
        return CARAT_OK;
    }
    int status = check_sum(path, &v->shown.watch, sum, &why);
    progress_end();
    if (status == CARAT_EIO) {
        if (!is_named) note("%s", why.message);
        tell_lost(v, "unreadable", name, path, expected);
        return CARAT_OK;
    }
    if (status != CARAT_OK) {
        if (err) *err = why;
        return status;
    }
    v->n_read++;
    bool is_wrong = expected[0] && strcmp(sum, expected) != 0;
    tell(v, is_wrong ? "WRONG" : expected[0] ? "ok" : "unknown", name, path, expected, sum);
    if (is_wrong && v->n_wrong++ == 0) buf_add_text(&v->first_wrong, path);
    return CARAT_OK;
}

/* All parts of the model whose first file is `path`. */
static int verify_model(struct verification *v, const char *name, const char *path, bool is_named,
                        struct carat_error *err)
{
    struct buf part = {0};
    struct stat facts;
    int status = CARAT_OK, n = hub_parts(path);
    for (int i = 0; i < n && status == CARAT_OK; i++) {
        buf_clear(&part);
        hub_add_part(path, i, &part);
        if (part.failed) {
            status = err_no_memory(err, path, strlen(path));
        } else if (i > 0 && stat(buf_text(&part), &facts) != 0) {
            tell_lost(v, "missing", name, buf_text(&part), "");
            break;
        } else {
            status = verify_file(v, name, buf_text(&part), is_named, err);
        }
    }
    buf_deinit(&part);
    return status;
}

static int verify_all(struct verification *v, const char *only, struct carat_error *err)
{
    struct inventory list = {0};
    int status = inventory_take(&list, only, err);
    for (size_t i = 0; i < list.n && status == CARAT_OK; i++) {
        const struct found *f = &list.at[i];
        if (f->is_part)
            tell(v, "unfinished", f->name, f->path, "", "");
        else
            status = verify_model(v, f->name, f->path, false, err);
    }
    inventory_free(&list);
    return status;
}

struct look_up {
    struct hub_name name;
    struct buf *path;
};

static bool look_in(void *user, const struct store *store)
{
    struct look_up *l = user;
    return store_find(store, &l->name, false, l->path);
}

static int verify_named(struct verification *v, const char *name, const char *only,
                        struct carat_error *err)
{
    struct buf path = {0};
    struct look_up l = {.path = &path};
    int status = CARAT_OK;
    if (only[0]) {
        status = model_hub_name(name, &l.name, err);
        if (status == CARAT_OK && !models_each_store(only, look_in, &l))
            status = err_set(err, CARAT_EFORMAT, "%.200s: is not in %.200s", name, only);
    } else {
        status = model_find(name, &path, err);
    }
    if (status == CARAT_OK) status = verify_model(v, name, buf_text(&path), true, err);
    buf_deinit(&path);
    return status;
}

static int sum_up(const struct verification *v, struct carat_error *err)
{
    if (v->n_wrong) {
        err_set(err, CARAT_ECHECKSUM, "%d of %d files differ from their checksum, first %.300s",
                v->n_wrong, v->n_read, buf_text(&v->first_wrong));
        err_hint(err, "`carat pull --verify NAME` loads it again and keeps this one as .bad");
        return CARAT_ECHECKSUM;
    }
    if (v->n_lost) {
        err_set(err, CARAT_EIO, "%d of %d files cannot be read or are missing, first %.300s",
                v->n_lost, v->n_files, buf_text(&v->first_lost));
        err_hint(err, "`carat pull NAME` loads parts that are missing");
        return CARAT_EIO;
    }
    if (v->n_read == 0) note("no model with a checksum was found");
    return CARAT_OK;
}

int command_verify(const struct options *o)
{
    struct carat_error err = {0};
    struct verification v = {.is_json = opt_is_set(o, OPT_JSON)};
    const char *only = opt_text(o, OPT_DIR);
    int exit_status = 0, status = no_more_arguments(o, 1, &err);
    v.json.out = &v.text;
    watching_begin(&v.shown);
    if (v.is_json) json_begin_array(&v.json);
    if (status == CARAT_OK)
        status = o->n_arguments ? verify_named(&v, o->arguments[0], only, &err)
                                : verify_all(&v, only, &err);
    if (v.is_json) json_end_array(&v.json);
    if (status == CARAT_OK && v.is_json) out_printf("%s\n", buf_text(&v.text));
    if (status == CARAT_OK) status = sum_up(&v, &err);
    if (status != CARAT_OK) exit_status = pulling_report(&v.shown, &err);
    pulling_close(&v.shown);
    buf_deinit(&v.first_wrong);
    buf_deinit(&v.first_lost);
    buf_deinit(&v.text);
    return exit_status;
}
