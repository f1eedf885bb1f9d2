/* carat config: the value that each option of a command has, and where it came from. */
#include <string.h>

#include "base/json_writer.h"
#include "cli/command.h"
#include "cli/config_values.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "cli/words.h"

/* Options whose values are not for screens and bug reports. */
static bool is_secret(enum option_id id)
{
    return word_is_in(option_specs[id].name, "api-key|token|hf-token");
}

/* The value of an option: as it was given, else the built-in one. */
static void put_value(enum option_id id, const struct option_value *v, struct buf *out)
{
    if (is_secret(id) && v->is_set) {
        buf_add_text(out, "(hidden)");
    } else if (option_specs[id].kind == KIND_FLAG) {
        buf_add_text(out, v->is_set ? "on" : "off");
    } else if (option_specs[id].kind == KIND_LIST && v->n_list > 0) {
        for (size_t i = 0; i < v->n_list; i++) buf_printf(out, "%s%s", i ? ", " : "", v->list[i]);
    } else {
        buf_add_text(out, v->text ? v->text : "");
    }
}

static void put_origin(enum option_id id, const struct option_value *v, struct buf *out)
{
    char name[80];
    switch (v->origin) {
    case ORIGIN_BUILT_IN: buf_add_text(out, "built in"); break;
    case ORIGIN_DEFAULT: buf_printf(out, "[default], line %d", (int)v->line); break;
    case ORIGIN_MODEL: buf_printf(out, "section of the model, line %d", (int)v->line); break;
    case ORIGIN_ENVIRONMENT:
        if (option_variable(id, name, sizeof name)) buf_add_text(out, name);
        break;
    case ORIGIN_FLAG: buf_printf(out, "--%s", option_specs[id].name); break;
    }
}

static bool is_shown(enum option_id id, const struct options *o)
{
    return option_applies(id, o->command) && id != OPT_HELP && id != OPT_CONFIG;
}

static void print_lines(const struct options *o)
{
    struct buf text = {0}, value = {0}, shown = {0}, origin = {0};
    buf_printf(&text, "# carat %s%s%s\n", command_specs[o->command].name, o->n_arguments ? " " : "",
               o->n_arguments ? o->arguments[0] : "");
    buf_printf(&text, "# config file: %s\n", o->config_path ? o->config_path : "none");
    for (int i = 0; i < OPT_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        if (!is_shown(id, o)) continue;
        buf_clear(&value);
        buf_clear(&shown);
        buf_clear(&origin);
        put_value(id, &o->values[i], &value);
        add_escaped(&shown, buf_text(&value), value.length, false);
        put_origin(id, &o->values[i], &origin);
        buf_printf(&text, "%-22s %-22s %s\n", option_specs[i].name, buf_text(&shown),
                   buf_text(&origin));
    }
    out_text(buf_text(&text));
    buf_deinit(&text);
    buf_deinit(&value);
    buf_deinit(&shown);
    buf_deinit(&origin);
}

static void print_json(const struct options *o)
{
    static const char *const origins[] = {"built-in", "default", "model", "environment", "flag"};
    struct buf b = {0}, value = {0};
    struct json j = {.out = &b};
    json_begin_object(&j);
    json_key_string(&j, "command", command_specs[o->command].name);
    json_key_string(&j, "model", o->n_arguments ? o->arguments[0] : NULL);
    json_key_string(&j, "file", o->config_path);
    json_key_array(&j, "options");
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_value *v = &o->values[i];
        if (!is_shown((enum option_id)i, o)) continue;
        buf_clear(&value);
        put_value((enum option_id)i, v, &value);
        json_begin_object(&j);
        json_key_string(&j, "name", option_specs[i].name);
        json_key_string(&j, "value", buf_text(&value));
        json_key_string(&j, "origin", origins[v->origin]);
        json_key(&j, "line");
        if (v->line)
            json_int(&j, v->line);
        else
            json_put_null(&j);
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
    out_printf("%s\n", buf_text(&b));
    buf_deinit(&b);
    buf_deinit(&value);
}

/* The command that is asked about. */
static int find_command(const struct options *o, enum command_id *out, struct carat_error *err)
{
    const char *usual = command_find("serve") == COMMAND_COUNT ? "run" : "serve";
    const char *name = o->n_arguments > 0 ? o->arguments[0] : usual;
    *out = command_find(name);
    if (*out != COMMAND_COUNT) return no_more_arguments(o, 2, err);
    err_set(err, CARAT_EUSAGE, "config: unknown command %s", name);
    err_hint(err, "carat config [COMMAND [MODEL]], such as `carat config run e4b`");
    return CARAT_EUSAGE;
}

int command_config(const struct options *o)
{
    struct carat_error err = {0};
    struct options other = {0};
    enum command_id command;
    note_unknown_variables();
    int status = find_command(o, &command, &err);
    char *words[4] = {"--config", (char *)opt_text(o, OPT_CONFIG)};
    int skipped = opt_is_set(o, OPT_CONFIG) ? 0 : 2, n = 2;
    if (o->n_arguments > 1) {
        words[n++] = "--";
        words[n++] = (char *)o->arguments[1];
    }
    if (status == CARAT_OK)
        status = options_parse(&other, command, n - skipped, words + skipped, &err);
    if (status == CARAT_OK) status = config_values_read(&other, &err);
    if (status == CARAT_OK && opt_is_set(o, OPT_JSON))
        print_json(&other);
    else if (status == CARAT_OK)
        print_lines(&other);
    options_deinit(&other);
    return status == CARAT_OK ? 0 : report(&err);
}
