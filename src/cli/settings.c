#include "cli/settings.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/samplers.h"
#include "cli/options.h"
#include "cli/terminal.h"

enum setting_kind { REAL, WHOLE, SEED, ORDER };

static const struct setting {
    enum option_id id;
    enum setting_kind kind;
    size_t offset; /* in struct generation */
} settings[] = {
    {OPT_TEMPERATURE, REAL, offsetof(struct generation, sampling.temperature)},
    {OPT_TOP_K, WHOLE, offsetof(struct generation, sampling.top_k)},
    {OPT_TOP_P, REAL, offsetof(struct generation, sampling.top_p)},
    {OPT_MIN_P, REAL, offsetof(struct generation, sampling.min_p)},
    {OPT_SEED, SEED, offsetof(struct generation, sampling.seed)},
    {OPT_MAX_TOKENS, WHOLE, offsetof(struct generation, max_tokens)},
    {OPT_REPEAT_PENALTY, REAL, offsetof(struct generation, sampling.repeat_penalty)},
    {OPT_REPEAT_LAST_N, WHOLE, offsetof(struct generation, sampling.repeat_last_n)},
    {OPT_PRESENCE_PENALTY, REAL, offsetof(struct generation, sampling.presence_penalty)},
    {OPT_FREQUENCY_PENALTY, REAL, offsetof(struct generation, sampling.frequency_penalty)},
    {OPT_TYPICAL_P, REAL, offsetof(struct generation, sampling.typical_p)},
    {OPT_TOP_N_SIGMA, REAL, offsetof(struct generation, sampling.top_n_sigma)},
    {OPT_XTC_PROBABILITY, REAL, offsetof(struct generation, sampling.xtc_probability)},
    {OPT_XTC_THRESHOLD, REAL, offsetof(struct generation, sampling.xtc_threshold)},
    {OPT_DYNATEMP_RANGE, REAL, offsetof(struct generation, sampling.dynatemp_range)},
    {OPT_DYNATEMP_EXP, REAL, offsetof(struct generation, sampling.dynatemp_exponent)},
    {OPT_DRY_MULTIPLIER, REAL, offsetof(struct generation, sampling.dry_multiplier)},
    {OPT_DRY_BASE, REAL, offsetof(struct generation, sampling.dry_base)},
    {OPT_DRY_ALLOWED_LENGTH, WHOLE, offsetof(struct generation, sampling.dry_allowed_length)},
    {OPT_DRY_LAST_N, WHOLE, offsetof(struct generation, sampling.dry_penalty_last_n)},
    {OPT_MIROSTAT, WHOLE, offsetof(struct generation, sampling.mirostat)},
    {OPT_MIROSTAT_TAU, REAL, offsetof(struct generation, sampling.mirostat_tau)},
    {OPT_MIROSTAT_ETA, REAL, offsetof(struct generation, sampling.mirostat_eta)},
    {OPT_SAMPLERS, ORDER, offsetof(struct generation, sampling.samplers)},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static const size_t kind_size[] = {[REAL] = sizeof(float),
                                   [WHOLE] = sizeof(int32_t),
                                   [SEED] = sizeof(uint64_t),
                                   [ORDER] = SAMPLERS_SIZE};

const char *settings_name(size_t n)
{
    if (n < SETTINGS) return option_specs[settings[n].id].name;
    return n == SETTINGS ? option_specs[OPT_STOP].name : NULL;
}

/* ---- Stop strings ----------------------------------------------------------------------- */

static int add_stop(struct stop_list *stops, const char *text, struct carat_error *err)
{
    size_t length = strlen(text);
    if (length > CARAT_STOP_BYTES_MAX)
        return err_set(err, CARAT_EUSAGE, "stop: at most %d bytes expected, %zu given",
                       CARAT_STOP_BYTES_MAX, length);
    if (stops->n == CARAT_STOPS_MAX)
        return err_set(err, CARAT_EUSAGE, "stop: there are %d of them, no more fit",
                       CARAT_STOPS_MAX);
    char *copy = mem_copy_text(text, length);
    if (!copy) return err_no_memory(err, "stop", length);
    stops->texts[stops->n++] = copy;
    return CARAT_OK;
}

static void clear_stops(struct stop_list *stops)
{
    while (stops->n > 0) mem_free(stops->texts[--stops->n]);
}

int settings_open(struct stop_list *stops, struct generation *g, struct carat_error *err)
{
    stops->n = 0;
    for (size_t i = 0; i < g->n_stops; i++) TRY(add_stop(stops, g->stops[i], err));
    g->stops = (const char *const *)stops->texts;
    return CARAT_OK;
}

void settings_close(struct stop_list *stops)
{
    clear_stops(stops);
}

/* ---- Setting and printing --------------------------------------------------------------- */

static const struct setting *find(const char *spelling)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (option_is_spelled(settings[i].id, spelling)) return &settings[i];
    return NULL;
}

static int set_number(struct generation *g, const char *text, const carat_model *model,
                      struct carat_error *err)
{
    char name[64] = "--", value[128] = "", rest[2];
    int n = sscanf(text, "%61s %127s %1s", name + 2, value, rest);
    const struct setting *setting = find(name);
    if (!setting) {
        err_set(err, CARAT_EUSAGE, "/set: there is no %s to set", name + 2);
        err_hint(err, "/set alone shows what there is");
        return CARAT_EUSAGE;
    }
    if (n != 2) return err_set(err, CARAT_EUSAGE, "/set %s: one value is expected", name + 2);
    char *words[] = {name, value};
    struct options o;
    struct generation *fresh = mem_alloc(1, sizeof *fresh);
    int status = options_parse(&o, COMMAND_CHAT, 2, words, err);
    if (!fresh) status = err_no_memory(err, "options", sizeof *fresh);
    if (status == CARAT_OK) status = generation_read(fresh, &o, model, err);
    if (status == CARAT_OK)
        memcpy((char *)g + setting->offset, (const char *)fresh + setting->offset,
               kind_size[setting->kind]);
    mem_free(fresh);
    options_deinit(&o);
    return status;
}

int settings_set(struct generation *g, struct stop_list *stops, const char *text,
                 const carat_model *model, struct carat_error *err)
{
    size_t n = strcspn(text, " \t");
    if (n != 4 || strncmp(text, "stop", 4) != 0) return set_number(g, text, model, err);
    const char *stop = text + n + (text[n] != '\0');
    if (stop[0])
        TRY(add_stop(stops, stop, err));
    else
        clear_stops(stops);
    g->n_stops = stops->n;
    return CARAT_OK;
}

void add_samplers(struct buf *out, const char *letters)
{
    for (const char *c = letters; sampler_name(*c); c++)
        buf_printf(out, "%s%s", c == letters ? "" : ";", sampler_name(*c));
    if (!sampler_name(letters[0])) buf_add_text(out, "none");
}

static void add_value(struct buf *out, const struct generation *g, const struct setting *setting)
{
    const char *at = (const char *)g + setting->offset;
    float real;
    int32_t whole;
    uint64_t seed;
    switch (setting->kind) {
    case REAL:
        memcpy(&real, at, sizeof real);
        buf_printf(out, "%g", (double)real);
        break;
    case WHOLE:
        memcpy(&whole, at, sizeof whole);
        buf_printf(out, "%d", whole);
        break;
    case SEED:
        memcpy(&seed, at, sizeof seed);
        buf_printf(out, "%llu", (unsigned long long)seed);
        break;
    case ORDER: add_samplers(out, at); break;
    }
}

/* Whether the settings from this one on stand on a line of their own. */
static bool begins_line(enum option_id id)
{
    return id == OPT_REPEAT_PENALTY || id == OPT_TYPICAL_P || id == OPT_DRY_MULTIPLIER ||
           id == OPT_MIROSTAT || id == OPT_SAMPLERS;
}

void settings_print(const struct generation *g)
{
    struct buf b = {0};
    for (size_t i = 0; i < SETTINGS; i++) {
        buf_printf(&b, "%s%s ",
                   i == 0                        ? ""
                   : begins_line(settings[i].id) ? "\n"
                                                 : "  ",
                   settings_name(i));
        add_value(&b, g, &settings[i]);
    }
    buf_add_text(&b, g->n_stops ? "\nstop" : "\nstop none");
    for (size_t i = 0; i < g->n_stops; i++) {
        buf_add_text(&b, i ? ", \"" : " \"");
        add_escaped(&b, g->stops[i], strlen(g->stops[i]), false);
        buf_add_char(&b, '"');
    }
    err_printf("%s\n", buf_text(&b));
    buf_deinit(&b);
}
