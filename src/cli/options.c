/* The option table and its reader. One walk over argv; every value is checked against the
 * table's range where it is read, so that commands take values as they are. */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/borrowed.h"
#include "cli/memory_text.h"
#include "cli/words.h"

const struct option_spec option_specs[OPT_COUNT] = {
#define X(id, kind, name, aliases, preset, low, high, commands, value, help)                       \
    [OPT_##id] = {KIND_##kind, name, aliases, preset, low, high, commands, value, help},
    OPTION_LIST(X)
#undef X
};

const struct command_spec command_specs[COMMAND_COUNT] = {
#define X(id, name, arguments, summary) [COMMAND_##id] = {#name, arguments, summary},
    COMMAND_LIST(X)
#undef X
};

/* ---- Names ------------------------------------------------------------------------------ */

/* Edits (insert, delete, replace, swap neighbours) from a to b; 99 for long words. */
static int edit_distance(const char *a, const char *b)
{
    enum { WORD_MAX = 40 };
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX) return 99;
    int d[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t i = 0; i <= n; i++) d[i][0] = (int)i;
    for (size_t j = 0; j <= m; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (is_swap && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

/* How far a typing slip may be from what was meant. */
static int distance_limit(const char *word)
{
    int third = (int)strlen(word) / 3;
    return third < 1 ? 1 : third;
}

enum command_id command_find(const char *name)
{
    int i = 0;
    while (i < COMMAND_COUNT && strcmp(command_specs[i].name, name) != 0) i++;
    return (enum command_id)i;
}

const char *command_nearest(const char *name)
{
    const char *nearest = NULL;
    int best = distance_limit(name) + 1;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        int distance = edit_distance(name, command_specs[i].name);
        if (distance >= best) continue;
        best = distance;
        nearest = command_specs[i].name;
    }
    return nearest;
}

bool command_takes_text(enum command_id command)
{
    return strstr(command_specs[command].arguments, "...]") != NULL;
}

bool option_applies(enum option_id id, enum command_id command)
{
    return option_specs[id].commands >> command & 1u;
}

const char *option_flag(const struct options *o, const enum option_id *ids, size_t n, char *out,
                        size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (o->values[ids[i]].is_flag && o->values[ids[i]].is_set)
            return option_spelling(ids[i], 0, out, size);
    return NULL;
}

const char *option_spelling(enum option_id id, int n, char *out, size_t size)
{
    if (n > 0) return word_at(option_specs[id].aliases, n - 1, out, size);
    snprintf(out, size, "--%s", option_specs[id].name);
    return out;
}

bool option_is_spelled(enum option_id id, const char *spelling)
{
    char known[64];
    for (int n = 0; option_spelling(id, n, known, sizeof known); n++)
        if (strcmp(known, spelling) == 0) return true;
    return false;
}

enum option_id option_find(enum command_id command, const char *spelling)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        if (option_applies(id, command) && option_is_spelled(id, spelling)) return id;
    }
    return OPT_COUNT;
}

/* The spelling nearest to a word, among the options of `command` or of all; "" if none is near. */
static void nearest_option(enum command_id command, const char *spelling, bool takes_all,
                           char *nearest, size_t size)
{
    char known[64];
    int best = distance_limit(spelling) + 1;
    nearest[0] = '\0';
    for (int i = 0; i < OPT_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        if (!takes_all && !option_applies(id, command)) continue;
        for (int n = 0; option_spelling(id, n, known, sizeof known); n++) {
            int distance = edit_distance(spelling, known);
            if (distance >= best) continue;
            best = distance;
            snprintf(nearest, size, "%s", known);
        }
    }
}

/* The first command that takes an option of that spelling, or COMMAND_COUNT. */
static enum command_id option_owner(const char *spelling)
{
    for (int c = 0; c < COMMAND_COUNT; c++)
        if (option_find((enum command_id)c, spelling) != OPT_COUNT) return (enum command_id)c;
    return COMMAND_COUNT;
}

int unknown_option(enum command_id command, const char *spelling, struct carat_error *err)
{
    const char *name = command_specs[command].name;
    char nearest[64];
    enum command_id owner = option_owner(spelling);
    nearest_option(command, spelling, false, nearest, sizeof nearest);
    err_set(err, CARAT_EUSAGE, "%s: unknown option %s", name, spelling);
    if (strpbrk(spelling, " \n") && command_takes_text(command)) {
        err_hint(err, "-- before a text that begins with -: carat %s MODEL -- TEXT", name);
        return CARAT_EUSAGE;
    }
    if (owner != COMMAND_COUNT) {
        const char *own = command_specs[owner].name;
        err_hint(err, "%s belongs to `carat %s`; see `carat help %s`", spelling, own, own);
        return CARAT_EUSAGE;
    }
    if (nearest[0]) {
        err_hint(err, "did you mean %s? `carat help %s` lists the options", nearest, name);
        return CARAT_EUSAGE;
    }
    nearest_option(command, spelling, true, nearest, sizeof nearest);
    if (nearest[0])
        err_hint(err, "did you mean %s of `carat %s`? `carat help %s` explains it", nearest,
                 command_specs[option_owner(nearest)].name, nearest);
    else
        err_hint(err, "`carat help %s` lists the options", name);
    return CARAT_EUSAGE;
}

int unknown_config_key(const char *key, const char *place, struct carat_error *err)
{
    char spelling[64], nearest[64];
    snprintf(spelling, sizeof spelling, "--%s", key);
    nearest_option(COMMAND_COUNT, spelling, true, nearest, sizeof nearest);
    if (strcmp(nearest, spelling) == 0)
        return err_set(err, CARAT_EUSAGE, "%s: %s is not for config files", place, key);
    err_set(err, CARAT_EUSAGE, "%s: unknown key %.64s", place, key);
    if (nearest[0]) {
        const char *name = option_specs[option_find(option_owner(nearest), nearest)].name;
        err_hint(err, "did you mean %s? keys are names of options; `carat help --%s` explains it",
                 name, name);
    } else {
        err_hint(err, "keys are long names of options; `carat help COMMAND` lists a command's");
    }
    return CARAT_EUSAGE;
}

/* ---- Values ----------------------------------------------------------------------------- */

const char *read_suffix(const char *end, int64_t *number)
{
    static const struct {
        char letter;
        int64_t factor;
    } suffixes[] = {
        {'k', 1 << 10},
        {'m', 1 << 20},
        {'g', 1 << 30},
    };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (tolower((unsigned char)*end) != suffixes[i].letter) continue;
        if (*number > INT64_MAX / suffixes[i].factor || *number < 0) return end;
        *number *= suffixes[i].factor;
        return end + 1;
    }
    return end;
}

static bool is_whole(enum option_kind kind)
{
    return kind == KIND_INT || kind == KIND_COUNT;
}

static int set_number(struct option_value *v, const struct option_spec *spec, const char *text)
{
    char *end = NULL;
    errno = 0;
    double number;
    if (is_whole(spec->kind)) {
        int64_t whole = strtoll(text, &end, 10);
        if (spec->kind == KIND_COUNT && end != text) end = (char *)read_suffix(end, &whole);
        number = (double)whole;
        v->integer = whole;
    } else {
        number = strtod(text, &end);
        v->real = number;
    }
    bool is_number = end != text && *end == '\0' && errno == 0 && isfinite(number);
    return is_number && number >= spec->low && number <= spec->high ? CARAT_OK : CARAT_EUSAGE;
}

static int add_to_list(struct option_value *v, const char *text, const char *where,
                       struct carat_error *err)
{
    if (!v->list) {
        v->list = mem_alloc(OPTION_LIST_MAX, sizeof *v->list);
        if (!v->list) return err_no_memory(err, where, OPTION_LIST_MAX * sizeof *v->list);
    }
    if (v->n_list == OPTION_LIST_MAX)
        return err_set(err, CARAT_EUSAGE, "%s: given more than %d times", where, OPTION_LIST_MAX);
    v->list[v->n_list++] = text;
    return CARAT_OK;
}

/* Stores one value; `where` is how the user spelled its place ("--temp", "CARAT_TEMP"). */
static int set_value(struct options *o, enum option_id id, const char *text, const char *where,
                     struct carat_error *err)
{
    const struct option_spec *spec = &option_specs[id];
    struct option_value *v = &o->values[id];
    switch (spec->kind) {
    case KIND_FLAG:
        v->is_set = word_is_in(text, "1|on|true|yes");
        if (!v->is_set && !word_is_in(text, "0|off|false|no"))
            return err_set(err, CARAT_EUSAGE, "%s: \"%s\" is neither on nor off", where, text);
        return CARAT_OK;
    case KIND_CHOICE:
        if (!word_is_in(text, spec->value)) {
            int n = (int)strlen(spec->value), edge = spec->value[0] == '['; /* brackets */
            err_set(err, CARAT_EUSAGE, "%s: \"%s\" is not one of %.*s", where, text, n - 2 * edge,
                    spec->value + edge);
            err_hint(err, "%s: %s", where, spec->help);
            return CARAT_EUSAGE;
        }
        break;
    case KIND_INT:
    case KIND_COUNT:
    case KIND_REAL:
        if (set_number(v, spec, text) == CARAT_OK) break;
        err_set(err, CARAT_EUSAGE, "%s: \"%s\" is not a %snumber from %.16g to %.16g", where, text,
                is_whole(spec->kind) ? "whole " : "", spec->low, spec->high);
        err_hint(err, "%s %s: %s", where, spec->value, spec->help);
        return CARAT_EUSAGE;
    case KIND_MEMORY:
        if (!memory_read_limit(text, &v->integer, &v->percent) ||
            (v->percent && !strchr(spec->value, '%')))
            return err_set(err, CARAT_EUSAGE, "%s: \"%s\" is not a size, such as 11G%s", where,
                           text, strchr(spec->value, '%') ? ", 11.5GB or 90%" : " or 11.5GB");
        break;
    case KIND_LIST: TRY(add_to_list(v, text, where, err)); break;
    case KIND_TEXT: break;
    }
    v->text = text;
    v->is_set = true;
    return CARAT_OK;
}

static void set_defaults(struct options *o)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_spec *spec = &option_specs[i];
        struct option_value *v = &o->values[i];
        v->text = spec->preset;
        if (is_whole(spec->kind)) v->integer = strtoll(spec->preset, NULL, 10);
        if (spec->kind == KIND_REAL) v->real = strtod(spec->preset, NULL);
        if (spec->kind == KIND_MEMORY) memory_read_limit(spec->preset, &v->integer, &v->percent);
    }
}

const char *option_variable(enum option_id id, char *name, size_t size)
{
    char spelling[64];
    for (int n = 0; option_spelling(id, n, spelling, sizeof spelling); n++) {
        if (strncmp(spelling, "--", 2) != 0) continue;
        snprintf(name, size, "CARAT_%s", spelling + 2);
        for (char *c = name; *c; c++) *c = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
        const char *text = getenv(name);
        if (text && text[0]) return text;
    }
    return NULL;
}

static bool is_variable(const char *name)
{
    char spelling[64];
    snprintf(spelling, sizeof spelling, "--%s", name + strlen("CARAT_"));
    for (char *c = spelling; *c; c++) *c = (char)(*c == '_' ? '-' : tolower((unsigned char)*c));
    bool is_known = strcmp(name, "CARAT_MODELS") == 0 || strcmp(name, "CARAT_LIBRARY") == 0;
    for (int i = 0; i < OPT_COUNT && !is_known; i++)
        is_known = option_is_spelled((enum option_id)i, spelling);
    return is_known;
}

const char *unknown_variable(size_t *at, char *name, size_t size)
{
    for (const char *text; (text = environ[*at]); ++*at) {
        if (strncmp(text, "CARAT_", strlen("CARAT_")) != 0) continue;
        snprintf(name, size, "%.*s", (int)strcspn(text, "="), text);
        if (is_variable(name)) continue;
        ++*at;
        return name;
    }
    return NULL;
}

int option_set(struct options *o, enum option_id id, const char *text, const char *where,
               enum option_origin origin, int32_t line, struct carat_error *err)
{
    char spelling[64];
    option_spelling(id, 0, spelling, sizeof spelling);
    const struct borrowed_spec *row = borrowed_match(o->command, spelling, text);
    if (row && row->target < OPT_COUNT) {
        id = row->target;
        text = row->value;
    }
    TRY(set_value(o, id, text, where, err));
    o->values[id].origin = origin;
    o->values[id].line = line;
    return CARAT_OK;
}

static int read_environment(struct options *o, struct carat_error *err)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        if (!option_applies(id, o->command) || id == OPT_HELP) continue;
        if (id == OPT_FORMAT) continue; /* CARAT_FORMAT is the form of a report */
        char name[80];
        const char *text = option_variable(id, name, sizeof name);
        if (!text) continue;
        int status = option_set(o, id, text, name, ORIGIN_ENVIRONMENT, 0, err);
        if (status != CARAT_OK) {
            err_hint(err, "unset the environment variable, or correct it");
            return status;
        }
    }
    return CARAT_OK;
}

/* ---- Command line ----------------------------------------------------------------------- */

static int set_flag(struct options *o, enum option_id id, const char *text, const char *where,
                    struct carat_error *err)
{
    TRY(set_value(o, id, text, where, err));
    o->values[id].is_flag = true;
    o->values[id].origin = ORIGIN_FLAG;
    return CARAT_OK;
}

/* What follows a flag: "" nothing, "[a|b]" possibly one of these words, else a value. */
static const char *value_form(enum option_id id, const struct borrowed_spec *row)
{
    if (id == OPT_COUNT) return row->value_name;
    return option_specs[id].kind == KIND_FLAG ? "" : option_specs[id].value;
}

/* The value of argv[*i], after its "=" or in the next word; NULL when there is none. `is_switch`: a
 * flag of carat's own, which =off takes back from the environment. */
static int take_value(const char *form, bool is_switch, int argc, char *const *argv, int *i,
                      const char **value, struct carat_error *err)
{
    const char *word = argv[*i], *equals = strchr(word, '=');
    int length = equals ? (int)(equals - word) : (int)strlen(word);
    *value = equals ? equals + 1 : NULL;
    if (!form[0] && equals && !is_switch)
        return err_set(err, CARAT_EUSAGE, "%.*s: takes no value", length, word);
    if (!form[0] || equals) return CARAT_OK;
    bool is_last = *i + 1 >= argc;
    if (form[0] == '[') {
        if (!is_last && word_is_in(argv[*i + 1], form)) *value = argv[++*i];
        return CARAT_OK;
    }
    if (is_last) return err_set(err, CARAT_EUSAGE, "%s: a value is missing", word);
    *value = argv[++*i];
    return CARAT_OK;
}

/* Notes equal words once. */
static void note_ignored(struct options *o, const char *word, size_t length)
{
    for (size_t i = 0; i < o->n_ignored; i++)
        if (o->ignored[i].length == length && memcmp(o->ignored[i].word, word, length) == 0) return;
    if (o->n_ignored == IGNORED_MAX) return;
    o->ignored[o->n_ignored++] = (struct ignored){word, length};
}

/* Reads argv[*i], a flag with or without its value, and leaves *i at the last word used. */
static int read_flag(struct options *o, int argc, char *const *argv, int *i,
                     struct carat_error *err)
{
    const char *word = argv[*i], *value;
    char spelling[64];
    size_t n = strcspn(word, "=");
    snprintf(spelling, sizeof spelling, "%.*s", (int)(n < 63 ? n : 63), word);
    enum option_id id = option_find(o->command, spelling);
    const struct borrowed_spec *row = borrowed_find(o->command, spelling);
    if (id == OPT_COUNT && !row) return unknown_option(o->command, spelling, err);
    bool is_switch = id != OPT_COUNT && option_specs[id].kind == KIND_FLAG;
    if (take_value(value_form(id, row), is_switch, argc, argv, i, &value, err) != CARAT_OK) {
        if (id != OPT_COUNT && !is_switch)
            err_hint(err, "%s %s: %s", spelling, option_specs[id].value, option_specs[id].help);
        return CARAT_EUSAGE;
    }
    if (row) row = borrowed_match(o->command, spelling, value);
    if (row && row->target == OPT_NONE) {
        note_ignored(o, word, n);
        return CARAT_OK;
    }
    /* --spec-type draft-mtp says that there is a drafter, but not which. */
    bool is_named = row && row->target == OPT_MODEL_DRAFT && o->values[OPT_MODEL_DRAFT].is_flag;
    if (is_named) return CARAT_OK;
    if (row) return set_flag(o, row->target, row->value, spelling, err);
    if (id == OPT_COUNT)
        return borrowed_refuse(o->command, command_specs[o->command].name, spelling, value, err);
    if (!value) value = "on"; /* a flag, or a choice that begins with it */
    return set_flag(o, id, value, spelling, err);
}

/* `carat help --temp` asks about an option instead of setting it. */
static bool is_asked_about(const struct options *o, const char *word)
{
    return o->command == COMMAND_HELP && option_find(COMMAND_HELP, word) == OPT_COUNT;
}

int options_parse(struct options *o, enum command_id command, int argc, char *const *argv,
                  struct carat_error *err)
{
    *o = (struct options){.command = command};
    set_defaults(o);
    o->arguments = mem_alloc((size_t)argc + 1, sizeof *o->arguments);
    if (!o->arguments) return err_no_memory(err, "arguments", (size_t)argc * sizeof(char *));
    bool only_arguments = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!only_arguments && strcmp(word, "--") == 0)
            only_arguments = true;
        else if (!only_arguments && word[0] == '-' && word[1] && !is_asked_about(o, word))
            TRY(read_flag(o, argc, argv, &i, err));
        else
            o->arguments[o->n_arguments++] = word;
    }
    if (opt_is_set(o, OPT_HELP)) return CARAT_OK;

    /* The environment gives what no flag gave: read it separately, then take what is missing. */
    struct options from_environment = {.command = command};
    int status = read_environment(&from_environment, err);
    for (int i = 0; i < OPT_COUNT; i++) {
        struct option_value *mine = &o->values[i], *other = &from_environment.values[i];
        if (status == CARAT_OK && !mine->is_flag && other->origin != ORIGIN_BUILT_IN)
            *mine = *other;
        else
            mem_free(other->list);
    }
    return status;
}

void options_deinit(struct options *o)
{
    for (int i = 0; i < OPT_COUNT; i++) mem_free(o->values[i].list);
    mem_free(o->arguments);
    mem_free(o->config_path);
    mem_free(o->config_text);
    *o = (struct options){0};
}

static bool is_separator(char c)
{
    return c && strchr(" \t\r\n,[]", c);
}

int parse_ids(const char *text, size_t length, const char *what, int32_t **out, size_t *count,
              struct carat_error *err)
{
    size_t room = length / 2 + 1; /* an id and its separator are two bytes at least */
    int32_t *ids = mem_alloc(room, sizeof *ids);
    if (!ids) return err_no_memory(err, what, room * sizeof *ids);
    size_t n = 0;
    for (size_t i = 0; i < length;) {
        if (is_separator(text[i])) {
            i++;
            continue;
        }
        size_t start = i;
        int64_t id = 0;
        while (i < length && isdigit((unsigned char)text[i]) && id <= INT32_MAX)
            id = id * 10 + (text[i++] - '0');
        if (i == start || id > INT32_MAX || (i < length && !is_separator(text[i]))) {
            mem_free(ids);
            return err_set(err, CARAT_EUSAGE,
                           "%s: whole numbers expected, something else found at byte %zu", what,
                           start);
        }
        ids[n++] = (int32_t)id;
    }
    *out = ids;
    *count = n;
    return CARAT_OK;
}
