#include "cli/load_spec.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

enum key_kind { KEY_COUNT, KEY_REAL, KEY_NAME, KEY_SWITCH, KEY_FILE, KEY_GOALS };

struct key {
    const char *name;
    enum key_kind kind;
    size_t place; /* of the member */
    double low, high;
};

static const struct key keys[] = {
#define X(name, kind, member, low, high, help)                                                     \
    {name, KEY_##kind, offsetof(struct load_group, member), low, high},
    LOAD_KEY_LIST(X)
#undef X
};
enum { KEYS = sizeof keys / sizeof *keys };

/* A piece of the text: not terminated. */
struct piece {
    const char *at;
    size_t length;
};

static bool is_word(struct piece p, const char *word)
{
    return strlen(word) == p.length && memcmp(word, p.at, p.length) == 0;
}

static const struct key *find_key(struct piece name)
{
    for (size_t i = 0; i < KEYS; i++)
        if (is_word(name, keys[i].name)) return &keys[i];
    return NULL;
}

static int unknown_key(struct piece name, struct carat_error *err)
{
    char all[sizeof err->hint];
    size_t n = 0;
    err_set(err, CARAT_EUSAGE, "--load: \"%.*s\" is no key", (int)name.length, name.at);
    for (size_t i = 0; i < KEYS && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", keys[i].name);
    err_hint(err, "keys: %s", all);
    return CARAT_EUSAGE;
}

/* A number that takes the whole piece; NaN: it does not. */
static double number_in(struct piece p, bool is_whole)
{
    char text[32], *end;
    if (p.length == 0 || p.length >= sizeof text) return NAN;
    memcpy(text, p.at, p.length);
    text[p.length] = '\0';
    if (!strchr("0123456789.", text[0])) return NAN; /* no blanks, signs, names or nan */
    errno = 0;
    double number;
    if (is_whole) {
        int64_t whole = strtoll(text, &end, 10);
        const char *rest = read_suffix(end, &whole);
        number = *rest == '\0' && end != text ? (double)whole : NAN;
    } else {
        number = strtod(text, &end);
        if (*end != '\0') number = NAN;
    }
    return errno == 0 && isfinite(number) ? number : NAN;
}

static int set_number(struct load_group *g, const struct key *key, struct piece value,
                      struct carat_error *err)
{
    bool is_whole = key->kind == KEY_COUNT;
    double number = number_in(value, is_whole);
    char *member = (char *)g + key->place;
    if (!(number >= key->low && number <= key->high))
        return err_set(err, CARAT_EUSAGE,
                       "--load: %s=%.*s: a %snumber from %.10g to %.10g expected", key->name,
                       (int)value.length, value.at, is_whole ? "whole " : "", key->low, key->high);
    if (is_whole)
        *(int32_t *)(void *)member = (int32_t)number;
    else
        *(double *)(void *)member = number;
    return CARAT_OK;
}

static int set_name(struct load_group *g, const struct key *key, struct piece value,
                    struct carat_error *err)
{
    char *member = (char *)g + key->place;
    bool is_good = value.length > 0 && value.length < LOAD_NAME_MAX;
    for (size_t i = 0; i < value.length && is_good; i++) {
        char c = value.at[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
    }
    if (!is_good)
        return err_set(err, CARAT_EUSAGE,
                       "--load: %s=%.*s: 1 to %d letters, digits, dots, - and _ expected",
                       key->name, (int)value.length, value.at, LOAD_NAME_MAX - 1);
    snprintf(member, LOAD_NAME_MAX, "%.*s", (int)value.length, value.at);
    return CARAT_OK;
}

static int set_file(struct load_group *g, const struct key *key, struct piece value,
                    struct carat_error *err)
{
    char *member = (char *)g + key->place;
    if (value.length == 0 || value.length >= LOAD_FILE_MAX)
        return err_set(err, CARAT_EUSAGE, "--load: %s: a path of 1 to %d bytes expected, %zu found",
                       key->name, LOAD_FILE_MAX - 1, value.length);
    snprintf(member, LOAD_FILE_MAX, "%.*s", (int)value.length, value.at);
    return CARAT_OK;
}

static int set_switch(struct load_group *g, const struct key *key, struct piece value,
                      struct carat_error *err)
{
    bool *member = (bool *)((char *)g + key->place);
    *member = is_word(value, "on");
    if (*member || is_word(value, "off")) return CARAT_OK;
    return err_set(err, CARAT_EUSAGE, "--load: %s=%.*s: on or off expected", key->name,
                   (int)value.length, value.at);
}

/* "ttft:150": one goal. Further ones follow after a comma. */
static int set_goal(struct load_group *g, struct piece value, struct carat_error *err)
{
    const char *colon = memchr(value.at, ':', value.length);
    struct piece name = {value.at, colon ? (size_t)(colon - value.at) : 0};
    struct piece after = {colon ? colon + 1 : value.at,
                          value.length - name.length - (colon != NULL)};
    double ms = number_in(after, false);
    double *goal = is_word(name, "ttft")   ? &g->ttft_goal
                   : is_word(name, "tpot") ? &g->tpot_goal
                   : is_word(name, "e2el") ? &g->e2el_goal
                                           : NULL;
    if (!goal || !(ms > 0))
        return err_set(err, CARAT_EUSAGE,
                       "--load: goodput: \"%.*s\": ttft:MS, tpot:MS or e2el:MS expected",
                       (int)value.length, value.at);
    *goal = ms;
    return CARAT_OK;
}

/* One piece between commas; *last is the key before it. */
static int set_pair(struct load_group *g, struct piece pair, const struct key **last,
                    struct carat_error *err)
{
    const char *equals = memchr(pair.at, '=', pair.length);
    if (!equals && *last && (*last)->kind == KEY_GOALS) return set_goal(g, pair, err);
    struct piece name = {pair.at, equals ? (size_t)(equals - pair.at) : pair.length};
    const struct key *key = find_key(name);
    if (!key) return unknown_key(name, err);
    if (!equals) return err_set(err, CARAT_EUSAGE, "--load: %s: a value is missing", key->name);
    struct piece value = {equals + 1, pair.length - name.length - 1};
    *last = key;
    switch (key->kind) {
    case KEY_NAME: return set_name(g, key, value, err);
    case KEY_FILE: return set_file(g, key, value, err);
    case KEY_SWITCH: return set_switch(g, key, value, err);
    case KEY_GOALS: return set_goal(g, value, err);
    default: return set_number(g, key, value, err);
    }
}

static int check_group(const struct load_group *g, struct carat_error *err)
{
    if (g->users && g->rate > 0)
        return err_set(err, CARAT_EUSAGE,
                       "--load %s: users is a closed loop and rate an open one: give one", g->name);
    if (load_positions(g) > LOAD_POSITIONS_MAX)
        return err_set(err, CARAT_EUSAGE, "--load %s: a chat of %lld tokens, at most %d expected",
                       g->name, (long long)load_positions(g), LOAD_POSITIONS_MAX);
    return CARAT_OK;
}

static int read_group(struct load_group *g, const char *text, size_t index, struct carat_error *err)
{
    *g = (struct load_group){.text = text,
                             .burstiness = 1,
                             .turns = 1,
                             .prefixes = 1,
                             .uses_cache = true,
                             .in = 512,
                             .out = 128,
                             .after = -1,
                             .during = -1};
    snprintf(g->name, sizeof g->name, "load%zu", index + 1);
    const struct key *last = NULL;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        TRY(set_pair(g, (struct piece){at, n}, &last, err));
        at += n + (at[n] == ',');
    }
    if (!g->in_next) g->in_next = g->in;
    if (!g->chats) g->chats = g->users;
    if (!g->requests) {
        int64_t chats = g->users ? 4 * (int64_t)g->users : g->rate > 0 ? 64 : 1;
        int64_t wanted = chats * g->turns;
        g->requests = (int32_t)(wanted < LOAD_REQUESTS_MAX ? wanted : LOAD_REQUESTS_MAX);
    }
    return check_group(g, err);
}

/* The index of the group of that name among the first n, or -1. */
static int32_t find_group(const struct load_group *groups, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(groups[i].name, name) == 0) return (int32_t)i;
    return -1;
}

int load_spec_read(const char *const *texts, size_t n, struct load_group groups[LOAD_GROUPS_MAX],
                   struct carat_error *err)
{
    if (n > LOAD_GROUPS_MAX)
        return err_set(err, CARAT_EUSAGE, "--load: at most %d groups expected, %zu found",
                       LOAD_GROUPS_MAX, n);
    for (size_t i = 0; i < n; i++) {
        struct load_group *g = &groups[i];
        TRY(read_group(g, texts[i], i, err));
        if (find_group(groups, i, g->name) >= 0)
            return err_set(err, CARAT_EUSAGE, "--load: two groups have the name %s", g->name);
        g->after = find_group(groups, i, g->after_name); /* no circle: only those before */
        if (g->after_name[0] && g->after < 0)
            return err_set(err, CARAT_EUSAGE, "--load %s: after=%s: no group before has this name",
                           g->name, g->after_name);
    }
    for (size_t i = 0; i < n; i++) {
        struct load_group *g = &groups[i];
        g->during = find_group(groups, n, g->during_name);
        if (g->during_name[0] && g->during < 0)
            return err_set(err, CARAT_EUSAGE, "--load %s: during=%s: no group has this name",
                           g->name, g->during_name);
    }
    return CARAT_OK;
}

static int64_t longest(int32_t n, double spread)
{
    return (int64_t)floor(n * (1 + spread));
}

int64_t load_positions(const struct load_group *g)
{
    return g->prefix + longest(g->in, g->in_spread) +
           (g->turns - 1) * longest(g->in_next, g->in_spread) +
           g->turns * longest(g->out, g->out_spread);
}

int32_t load_parallel(const struct load_group *g)
{
    int32_t chats = (g->requests + g->turns - 1) / g->turns;
    int32_t most = g->users ? g->users : chats;
    return most < g->requests ? most : g->requests;
}
