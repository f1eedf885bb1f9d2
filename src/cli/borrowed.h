/* Options of llama.cpp and ollama that carat does not have but that a pasted line may contain
 * (BORROWED_LIST). */
#ifndef CLI_BORROWED_H
#define CLI_BORROWED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/command_list.h"
#include "cli/option_list.h"

struct borrowed_spec {
    const char *spellings, *value_name;
    uint32_t commands;
    const char *accepted;
    enum option_id target; /* or OPT_NONE */
    const char *value, *why;
};

enum {
    BORROWED_COUNT = 0
#define Y(spellings, value_name, commands, accepted, target, value, why) +1
    BORROWED_LIST(Y)
#undef Y
};

extern const struct borrowed_spec borrowed_specs[BORROWED_COUNT];

enum borrowed_kind { BORROWED_BECOMES, BORROWED_IGNORED, BORROWED_REFUSED, BORROWED_KINDS };
enum borrowed_kind borrowed_spec_kind(const struct borrowed_spec *row);

/* The n-th spelling of a row; NULL at the end. */
const char *borrowed_spelling(const struct borrowed_spec *row, int n, char *out, size_t size);

/* The first row of a command with that spelling, or NULL. */
const struct borrowed_spec *borrowed_find(enum command_id command, const char *spelling);

/* The row that accepts this value (NULL: none was given), or NULL. */
const struct borrowed_spec *borrowed_match(enum command_id command, const char *spelling,
                                           const char *value);

/* CARAT_EUSAGE: says what is refused and why. `name` is the name of the command. */
int borrowed_refuse(enum command_id command, const char *name, const char *spelling,
                    const char *value, struct carat_error *err);

#endif
