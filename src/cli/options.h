/* Flags, their values and where they came from.
 *
 * Rules
 * 1. The tables are constant. A `struct options` belongs to main and is read-only afterwards.
 * 2. Precedence: flag, then CARAT_<NAME>, then the config file (config_values.h), then the default
 *    of the table.
 * 3. Texts are borrowed from argv, the environment and the text of the config file. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/command_list.h"
#include "cli/option_list.h"

enum option_kind {
    KIND_FLAG,
    KIND_INT,
    KIND_COUNT,
    KIND_REAL,
    KIND_MEMORY,
    KIND_TEXT,
    KIND_CHOICE,
    KIND_LIST
};

struct option_spec {
    enum option_kind kind;
    const char *name, *aliases, *preset;
    double low, high;
    uint32_t commands;
    const char *value, *help;
};

struct command_spec {
    const char *name, *arguments, *summary;
};

extern const struct option_spec option_specs[OPT_COUNT];
extern const struct command_spec command_specs[COMMAND_COUNT];

enum { OPTION_LIST_MAX = 1024 }; /* values of one repeatable option */
enum { IGNORED_MAX = 32 };       /* ignored options that are remembered */

enum option_origin { /* where a value is from; later ones take precedence over earlier ones */
                     ORIGIN_BUILT_IN,
                     ORIGIN_DEFAULT, /* the section [default] of the config file */
                     ORIGIN_MODEL,   /* the section of the model */
                     ORIGIN_ENVIRONMENT,
                     ORIGIN_FLAG
};

struct option_value {
    bool is_set;  /* not built in; of a KIND_FLAG: whether it is on */
    bool is_flag; /* by a flag */
    enum option_origin origin;
    int32_t line; /* of the config file; else 0 */
    int64_t integer;
    int32_t percent; /* KIND_MEMORY: of the whole; 0: `integer` has bytes */
    double real;
    const char *text;
    const char **list; /* NULL until the first value; owned */
    size_t n_list;
};

struct options {
    enum command_id command;
    struct option_value values[OPT_COUNT];
    const char **arguments; /* words that are not flags; owned array */
    size_t n_arguments;
    struct ignored { /* options that change nothing here, as they were spelled */
        const char *word;
        size_t length;
    } ignored[IGNORED_MAX];
    size_t n_ignored;
    char *config_path, *config_text; /* of the config file that was read, or NULL; owned */
};

/* The command of that name, or COMMAND_COUNT. */
enum command_id command_find(const char *name);

/* The command name that is nearest to `name`, or NULL when none is near. */
const char *command_nearest(const char *name);

/* Whether any number of words, a text, may follow its MODEL. */
bool command_takes_text(enum command_id command);

/* Reads environment and flags of `command`. CARAT_EUSAGE names the flag and what is near. */
int options_parse(struct options *o, enum command_id command, int argc, char *const *argv,
                  struct carat_error *err);
void options_deinit(struct options *o);

/* Does this command take this option? Does this option have that spelling (with its dashes)? */
bool option_applies(enum option_id id, enum command_id command);
bool option_is_spelled(enum option_id id, const char *spelling);

/* The option of a command that has this spelling, or OPT_COUNT. */
enum option_id option_find(enum command_id command, const char *spelling);

/* CARAT_EUSAGE: no such option. The hint names the nearest one. */
int unknown_option(enum command_id command, const char *spelling, struct carat_error *err);

/* The same for a key of the config file; `place` is file and line. */
int unknown_config_key(const char *key, const char *place, struct carat_error *err);

/* Stores a value that is no flag's. `where` is how the user spelled its place ("CARAT_TEMP"). */
int option_set(struct options *o, enum option_id id, const char *text, const char *where,
               enum option_origin origin, int32_t line, struct carat_error *err);

/* What the environment says of an option, and in which variable. Each long spelling has one; the
 * first that is set counts, the option's own name before its others. NULL: none is set. */
const char *option_variable(enum option_id id, char *name, size_t size);

/* Which variable CARAT_... of the environment is no option of any command? Begin with *at = 0 and
 * call until NULL; `name` gets what stands before the equals sign. */
const char *unknown_variable(size_t *at, char *name, size_t size);

/* Multiplies by 2^10, 2^20 or 2^30 where `end` begins with k, m or g, in either case, and the
 * result is in range; returns the place after it. */
const char *read_suffix(const char *end, int64_t *number);

/* The n-th spelling of an option, the long one first, with dashes; NULL at the end. */
const char *option_spelling(enum option_id id, int n, char *out, size_t size);

/* The first of these options that the command line has, as spelled in `out`; NULL: none. */
const char *option_flag(const struct options *o, const enum option_id *ids, size_t n, char *out,
                        size_t size);

static inline bool opt_is_set(const struct options *o, enum option_id id)
{
    return o->values[id].is_set;
}
static inline int64_t opt_int(const struct options *o, enum option_id id)
{
    return o->values[id].integer;
}
static inline double opt_real(const struct options *o, enum option_id id)
{
    return o->values[id].real;
}
static inline const char *opt_text(const struct options *o, enum option_id id)
{
    return o->values[id].text;
}

/* Whole numbers of a text: separated by commas or blanks, brackets allowed. *out: mem_free. */
int parse_ids(const char *text, size_t length, const char *what, int32_t **out, size_t *count,
              struct carat_error *err);

#endif
