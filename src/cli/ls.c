/* carat ls: the models that can be called by name. A broken file is listed as broken. */
#include <string.h>

#include "base/calendar.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "carat.h"
#include "cli/command.h"
#include "cli/inventory.h"
#include "cli/session.h"
#include "cli/size_text.h"
#include "cli/terminal.h"

/* A line of the list. */
struct row {
    const struct found *file;
    bool is_readable; /* `facts` hold; else `error` says why not */
    struct carat_file_facts facts;
    struct carat_error error;
};

static void look_at(struct row *row)
{
    const struct found *f = row->file;
    char have[SIZE_TEXT_MAX], size[SIZE_TEXT_MAX];
    if (f->is_part)
        err_set(&row->error, CARAT_EFORMAT, "unfinished: %s of %s; `carat pull %.300s` goes on",
                size_text(f->have, have), f->expected ? size_text(f->expected, size) : "a file",
                f->name);
    else
        row->is_readable = carat_file_facts(f->path, true, &row->facts, &row->error) == CARAT_OK;
}

static const char *file_problem(const struct row *row)
{
    return row->is_readable ? row->facts.problem : row->error.message;
}

static void print_line(const struct row *row)
{
    const struct found *f = row->file;
    struct buf line = {0}, name = {0};
    add_escaped(&name, f->name, strlen(f->name), false);
    buf_printf(&line, "%-36s ", buf_text(&name));
    if (row->is_readable) {
        char size[SIZE_TEXT_MAX];
        buf_printf(&line, "%-14s %11s %8d  ", row->facts.quantisation,
                   size_text(row->facts.file_bytes, size), row->facts.n_ctx_train);
    } else {
        buf_printf(&line, "%-14s %11s %8s  ", f->is_part ? "unfinished" : "broken", "", "");
    }
    char day[CALENDAR_TEXT];
    calendar_day(f->used, day);
    buf_printf(&line, "%-12.12s  %s  ", f->sha256[0] ? f->sha256 : "-", day);
    add_escaped(&line, f->path, strlen(f->path), false);
    out_printf("%s\n", buf_text(&line));
    if (file_problem(row)[0]) {
        buf_clear(&line);
        add_escaped(&line, file_problem(row), strlen(file_problem(row)), false);
        const char *what = f->is_part ? "" : row->is_readable ? "cannot run: " : "broken: ";
        out_printf("    %s%s\n", what, buf_text(&line));
    }
    buf_deinit(&line);
    buf_deinit(&name);
}

static void add_json(struct json *j, const struct row *row)
{
    const struct found *f = row->file;
    json_begin_object(j);
    json_key_string(j, "name", f->name);
    json_key_string(j, "path", f->path);
    if (row->is_readable) {
        json_key_string(j, "title", row->facts.name);
        json_key_string(j, "quantisation", row->facts.quantisation);
        json_key_int(j, "bytes", (int64_t)row->facts.file_bytes);
        json_key_int(j, "n_params", row->facts.n_params);
        json_key_int(j, "n_ctx_train", row->facts.n_ctx_train);
    }
    json_key_string(j, "sha256", f->sha256[0] ? f->sha256 : NULL);
    char used[CALENDAR_TEXT];
    calendar_utc(f->used, used);
    json_key_string(j, "used", used);
    json_key_bool(j, "broken", !row->is_readable);
    json_key_string(j, "problem", file_problem(row)[0] ? file_problem(row) : NULL);
    json_end_object(j);
}

static void print_models(const struct row *rows, size_t n)
{
    if (n == 0) {
        note("no model was found; `carat pull` downloads one, or put NAME.gguf into ./models, "
             "$CARAT_MODELS or ~/.local/share/carat/models");
        return;
    }
    out_printf("%-36s %-14s %11s %8s  %-12s  %-10s  %s\n", "NAME", "QUANTISATION", "SIZE",
               "CONTEXT", "SHA256", "USED", "PATH");
    for (size_t i = 0; i < n; i++) print_line(&rows[i]);
}

static void print_models_json(const struct row *rows, size_t n)
{
    struct buf b = {0};
    struct json j = {.out = &b};
    json_begin_array(&j);
    for (size_t i = 0; i < n; i++) add_json(&j, &rows[i]);
    json_end_array(&j);
    out_printf("%s\n", buf_text(&b));
    buf_deinit(&b);
}

static int list_all(const struct inventory *list, bool is_json, struct carat_error *err)
{
    struct row *rows = list->n ? mem_alloc(list->n, sizeof *rows) : NULL;
    if (list->n && !rows) return err_no_memory(err, "list", list->n * sizeof *rows);
    for (size_t i = 0; i < list->n; i++) {
        progress("looking at models", (int)i + 1, (int)list->n);
        rows[i].file = &list->at[i];
        look_at(&rows[i]);
    }
    progress_end();
    if (is_json)
        print_models_json(rows, list->n);
    else
        print_models(rows, list->n);
    mem_free(rows);
    return CARAT_OK;
}

int command_ls(const struct options *o)
{
    struct carat_error err = {0};
    struct inventory list = {0};
    int status = no_more_arguments(o, 0, &err);
    if (status == CARAT_OK) status = inventory_take(&list, opt_text(o, OPT_DIR), &err);
    if (status == CARAT_OK) status = list_all(&list, opt_is_set(o, OPT_JSON), &err);
    inventory_free(&list);
    return status == CARAT_OK ? 0 : report(&err);
}
