#include "cli/borrowed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/words.h"

const struct borrowed_spec borrowed_specs[BORROWED_COUNT] = {
#define Y(spellings, value_name, commands, accepted, target, value, why)                           \
    {spellings, value_name, commands, accepted, OPT_##target, value, why},
    BORROWED_LIST(Y)
#undef Y
};

enum borrowed_kind borrowed_spec_kind(const struct borrowed_spec *row)
{
    if (row->target < OPT_COUNT) return BORROWED_BECOMES;
    bool is_taken = row->accepted[0] && !row->why[0];
    return is_taken ? BORROWED_IGNORED : BORROWED_REFUSED;
}

const char *borrowed_spelling(const struct borrowed_spec *row, int n, char *out, size_t size)
{
    return word_at(row->spellings, n, out, size);
}

static bool is_spelled(const struct borrowed_spec *row, enum command_id command,
                       const char *spelling)
{
    char known[64];
    if (!(row->commands >> command & 1u)) return false;
    for (int n = 0; borrowed_spelling(row, n, known, sizeof known); n++)
        if (strcmp(known, spelling) == 0) return true;
    return false;
}

const struct borrowed_spec *borrowed_find(enum command_id command, const char *spelling)
{
    for (int i = 0; i < BORROWED_COUNT; i++)
        if (is_spelled(&borrowed_specs[i], command, spelling)) return &borrowed_specs[i];
    return NULL;
}

/* Compares numbers by value, other words by their characters without blanks. */
static bool is_same_value(const char *given, const char *known, size_t length)
{
    char word[160], *end_given, *end_known;
    snprintf(word, sizeof word, "%.*s", (int)length, known);
    double a = strtod(given, &end_given), b = strtod(word, &end_known);
    if (end_given != given && *end_given == '\0' && end_known != word && *end_known == '\0')
        return a == b;
    const char *w = word;
    for (; *given; given++) {
        if (*given == ' ') continue;
        if (*given != *w++) return false;
    }
    return *w == '\0';
}

static bool accepts(const struct borrowed_spec *row, const char *value)
{
    if (strcmp(row->accepted, "*") == 0) return true;
    for (const char *at = row->accepted; value && *at;) {
        size_t n = strcspn(at, "|");
        if (is_same_value(value, at, n)) return true;
        at += n + (at[n] == '|');
    }
    return false;
}

const struct borrowed_spec *borrowed_match(enum command_id command, const char *spelling,
                                           const char *value)
{
    for (int i = 0; i < BORROWED_COUNT; i++) {
        const struct borrowed_spec *row = &borrowed_specs[i];
        if (is_spelled(row, command, spelling) && accepts(row, value)) return row;
    }
    return NULL;
}

int borrowed_refuse(enum command_id command, const char *name, const char *spelling,
                    const char *value, struct carat_error *err)
{
    const char *why = "";
    bool has_accepted = false;
    for (int i = 0; i < BORROWED_COUNT; i++) {
        const struct borrowed_spec *row = &borrowed_specs[i];
        if (!is_spelled(row, command, spelling)) continue;
        if (row->why[0]) why = row->why;
        if (row->accepted[0]) has_accepted = true;
    }
    bool names_value = value && has_accepted;
    err_set(err, CARAT_EUSAGE, "%s: %s%s%.100s is not supported", name, spelling,
            names_value ? " " : "", names_value ? value : "");
    if (why[0]) err_hint(err, "%s", why);
    return CARAT_EUSAGE;
}
