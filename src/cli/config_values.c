#include "cli/config_values.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/config_file.h"
#include "cli/files.h"
#include "cli/models.h"
#include "cli/terminal.h"

/* ---- The file --------------------------------------------------------------------------- */

/* Reads a regular file. `may_be_absent`: one that is not there, or not for this user, leaves
 * *is_there false. */
static int read_bytes(const char *path, bool may_be_absent, struct buf *out, bool *is_there,
                      struct carat_error *err)
{
    struct stat facts;
    *is_there = stat(path, &facts) == 0 && access(path, R_OK) == 0;
    if (!*is_there && may_be_absent) return CARAT_OK;
    if (*is_there && !S_ISREG(facts.st_mode)) { /* reading a FIFO would wait */
        err_set(err, CARAT_EUSAGE, "%s: no regular file", path);
        err_hint(err, "--config FILE; --config none reads no file");
        return CARAT_EUSAGE;
    }
    return file_read_some(path, CONFIG_BYTES_MAX, out, err);
}

/* Leaves *bytes empty when there is no file. `path` says which was read. */
static int find_file(const char *asked, struct buf *path, struct buf *bytes,
                     struct carat_error *err)
{
    bool is_there;
    if (strcmp(asked, "none") == 0) return CARAT_OK;
    if (asked[0]) {
        buf_add_text(path, asked);
        return read_bytes(asked, false, bytes, &is_there, err);
    }
    home_folder("XDG_CONFIG_HOME", ".config", path);
    if (path->length) {
        buf_add_text(path, "/carat/config");
        TRY(read_bytes(buf_text(path), true, bytes, &is_there, err));
        if (is_there) return CARAT_OK;
    }
    buf_clear(path);
    buf_add_text(path, "/etc/carat/config");
    TRY(read_bytes(buf_text(path), true, bytes, &is_there, err));
    if (!is_there) buf_clear(path);
    return CARAT_OK;
}

/* ---- Sections --------------------------------------------------------------------------- */

/* A section names a model as it was typed, as its file without folder and .gguf, or by alias. */
static bool is_section_of(const char *section, const char *model)
{
    static const char ending[] = ".gguf";
    if (!model[0]) return false;
    if (strcmp(section, model) == 0) return true;
    const char *slash = strrchr(model, '/'), *name = slash ? slash + 1 : model;
    size_t n = strlen(name), length = sizeof ending - 1;
    if (strcmp(section, name) == 0) return true;
    return n > length && strcmp(name + n - length, ending) == 0 && strlen(section) == n - length &&
           strncmp(section, name, n - length) == 0;
}

/* The one model that the command is about, as typed; "" when there is none or several. `preset` is
 * the one that the [default] section names. */
static const char *model_of(const struct options *o, const char *preset)
{
    enum option_id id = option_find(o->command, "--model");
    if (id == OPT_COUNT) return "";
    const struct option_value *named = &o->values[id];
    const char *text = named->is_set && named->text ? named->text : preset;
    bool is_several = option_specs[id].kind == KIND_LIST && o->n_arguments + named->n_list > 1;
    if (is_several) return "";
    if (named->is_flag || o->n_arguments == 0) return text;
    bool is_first = !text[0] || !command_takes_text(o->command) || model_is_named(o->arguments[0]);
    return is_first ? o->arguments[0] : text;
}

/* ---- Values ----------------------------------------------------------------------------- */

struct layers { /* values of the section of the model, and of [default] */
    struct options of_model, of_default;
};

static bool is_for_files(enum option_id id)
{
    return id != OPT_HELP && id != OPT_CONFIG;
}

/* The option of a command that a key of the file sets, or OPT_COUNT. */
static enum option_id find_key(const char *key, enum command_id command)
{
    char spelling[64];
    int n = snprintf(spelling, sizeof spelling, "--%s", key);
    if (n >= (int)sizeof spelling || command == COMMAND_COUNT) return OPT_COUNT;
    enum option_id id = option_find(command, spelling);
    return id != OPT_COUNT && is_for_files(id) ? id : OPT_COUNT;
}

/* Whether any command has an option of that name that takes the value. */
static int check_entry(const struct config_entry *entry, const char *place, struct carat_error *err)
{
    int status = CARAT_OK;
    bool is_known = false, is_good = false;
    for (int c = 0; c < COMMAND_COUNT && !is_good; c++) {
        struct options other = {.command = (enum command_id)c};
        enum option_id id = find_key(entry->key, other.command);
        if (id == OPT_COUNT) continue;
        is_known = true;
        status = option_set(&other, id, entry->value, entry->key, ORIGIN_DEFAULT, 0, err);
        is_good = status == CARAT_OK;
        for (int i = 0; i < OPT_COUNT; i++) mem_free(other.values[i].list);
    }
    if (!is_known) return unknown_config_key(entry->key, place, err);
    return is_good ? CARAT_OK : status;
}

/* Sets a value, if the layer's command has such an option; else only checks it. */
static int set_entry(struct options *layer, const struct config_entry *entry,
                     enum option_origin origin, const char *place, struct carat_error *err)
{
    enum option_id id = find_key(entry->key, layer->command);
    if (id == OPT_COUNT || id == OPT_FORMAT) return check_entry(entry, place, err);
    const struct option_value *v = &layer->values[id];
    if (v->line && option_specs[id].kind != KIND_LIST)
        return err_set(err, CARAT_EUSAGE, "%s is given on line %d already", entry->key,
                       (int)v->line);
    return option_set(layer, id, entry->value, entry->key, origin, entry->line, err);
}

static const char *alias_of(const struct options *o)
{
    enum option_id id = option_find(o->command, "--alias");
    bool is_set = id != OPT_COUNT && o->values[id].is_set && o->values[id].text;
    return is_set ? o->values[id].text : "";
}

static const char *model_of_default(const struct config_file *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->entries[i].section, "default") == 0 &&
            strcmp(f->entries[i].key, "model") == 0)
            return f->entries[i].value;
    return "";
}

/* Entries of other models' sections are checked too, so that a file is right or wrong for all. */
static int set_entries(struct layers *l, const struct options *o, const struct config_file *f,
                       const char *path, struct carat_error *err)
{
    const char *model = model_of(o, model_of_default(f)), *alias = alias_of(o);
    for (size_t i = 0; i < f->n; i++) {
        const struct config_entry *entry = &f->entries[i];
        const char *section = entry->section;
        struct buf place = {0};
        buf_printf(&place, "%s:%d", path, (int)entry->line);
        int status;
        if (strcmp(section, "default") == 0)
            status = set_entry(&l->of_default, entry, ORIGIN_DEFAULT, buf_text(&place), err);
        else if (is_section_of(section, model) || strcmp(section, alias) == 0)
            status = set_entry(&l->of_model, entry, ORIGIN_MODEL, buf_text(&place), err);
        else
            status = check_entry(entry, buf_text(&place), err);
        bool names_place = strncmp(err->message, buf_text(&place), place.length) == 0;
        if (status != CARAT_OK && !names_place) err_within(err, "%s", buf_text(&place));
        buf_deinit(&place);
        TRY(status);
    }
    return CARAT_OK;
}

static void take_layer(struct options *o, struct options *layer)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        struct option_value *mine = &o->values[i], *other = &layer->values[i];
        if (other->origin != ORIGIN_BUILT_IN && mine->origin == ORIGIN_BUILT_IN)
            *mine = *other;
        else
            mem_free(other->list);
    }
}

int config_values_read(struct options *o, struct carat_error *err)
{
    if (!option_applies(OPT_CONFIG, o->command)) return CARAT_OK;
    struct buf path = {0}, bytes = {0};
    struct config_file file = {0};
    struct layers *layers = mem_alloc(1, sizeof *layers);
    int status = layers ? find_file(opt_text(o, OPT_CONFIG), &path, &bytes, err)
                        : err_no_memory(err, "config file", sizeof *layers);
    if (status == CARAT_OK)
        status = config_file_read(&file, buf_text(&path), buf_text(&bytes), bytes.length, err);
    if (status == CARAT_OK) {
        layers->of_model.command = layers->of_default.command = o->command;
        status = set_entries(layers, o, &file, buf_text(&path), err);
        take_layer(o, &layers->of_model);
        take_layer(o, &layers->of_default);
        o->config_text = file.text; /* values point to it */
        file.text = NULL;
        if (path.length > 0) o->config_path = mem_copy_text(buf_text(&path), path.length);
    }
    config_file_deinit(&file);
    buf_deinit(&path);
    buf_deinit(&bytes);
    mem_free(layers);
    return status;
}

void note_unknown_variables(void)
{
    char name[80];
    size_t at = 0;
    while (unknown_variable(&at, name, sizeof name)) {
        struct buf shown = {0};
        add_escaped(&shown, name, strlen(name), false);
        note("%s: no option of that name; ignored", buf_text(&shown));
        buf_deinit(&shown);
    }
}
