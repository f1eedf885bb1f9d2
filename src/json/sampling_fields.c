#include "json/sampling_fields.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/samplers.h"
#include "base/status.h"
#include "json/json_fields.h"

static int read_reals(struct carat_sampling *p, const struct carat_value *root,
                      struct carat_error *err)
{
    const struct {
        const char *key;
        float *out;
        double low, high;
    } reals[] = {{"temperature", &p->temperature, 0, 100},
                 {"top_p", &p->top_p, 0, 1},
                 {"min_p", &p->min_p, 0, 1},
                 {"repeat_penalty", &p->repeat_penalty, 0.01, 100},
                 {"repetition_penalty", &p->repeat_penalty, 0.01, 100},
                 {"presence_penalty", &p->presence_penalty, -2, 2},
                 {"frequency_penalty", &p->frequency_penalty, -2, 2},
                 {"typical_p", &p->typical_p, 0, 1},
                 {"top_n_sigma", &p->top_n_sigma, -1, 100},
                 {"xtc_probability", &p->xtc_probability, 0, 1},
                 {"xtc_threshold", &p->xtc_threshold, 0, 1},
                 {"dynatemp_range", &p->dynatemp_range, 0, 100},
                 {"dynatemp_exponent", &p->dynatemp_exponent, 0, 100},
                 {"dry_multiplier", &p->dry_multiplier, 0, 100},
                 {"dry_base", &p->dry_base, 1, 100},
                 {"mirostat_tau", &p->mirostat_tau, 0, 100},
                 {"mirostat_eta", &p->mirostat_eta, 0, 100}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const struct carat_value *value = json_member(root, reals[i].key);
        if (value->kind == CARAT_NULL) continue;
        if (!json_is_number(value)) return json_wrong_kind(reals[i].key, "a number", value, err);
        double found = json_number(value);
        if (!(found >= reals[i].low && found <= reals[i].high))
            return err_set(err, CARAT_EUSAGE, "%s: %g to %g expected, %g found", reals[i].key,
                           reals[i].low, reals[i].high, found);
        *reals[i].out = (float)found;
    }
    return CARAT_OK;
}

static int read_mirostat(struct carat_sampling *p, const struct carat_value *root,
                         struct carat_error *err)
{
    TRY(json_read_whole(root, "mirostat", INT32_MIN, INT32_MAX, &p->mirostat, err));
    return mirostat_check(p->mirostat, "mirostat", err);
}

static int take_breaker(const struct carat_value *value, size_t i, struct arena *arena,
                        const char **out, struct carat_error *err)
{
    char where[48];
    snprintf(where, sizeof where, "dry_sequence_breakers[%zu]", i);
    if (value->kind != CARAT_STRING) return json_wrong_kind(where, "a string", value, err);
    size_t length = value->as.string.length;
    if (length == 0 || length > CARAT_DRY_BREAKER_BYTES_MAX)
        return err_set(err, CARAT_EUSAGE, "%s: 1 to %d bytes expected, %zu found", where,
                       CARAT_DRY_BREAKER_BYTES_MAX, length);
    if (memchr(value->as.string.data, '\0', length))
        return err_set(err, CARAT_EUSAGE, "%s: a text without NUL characters expected", where);
    *out = arena_copy_text(arena, value->as.string.data, length);
    return *out ? CARAT_OK : err_no_memory(err, "dry_sequence_breakers", length);
}

static int read_breakers(struct carat_sampling *p, const struct carat_value *root,
                         struct arena *arena, struct carat_error *err)
{
    static const char *const none[] = {NULL};
    const struct carat_value *list = json_member(root, "dry_sequence_breakers");
    if (list->kind == CARAT_NULL) return CARAT_OK;
    if (list->kind != CARAT_ARRAY)
        return json_wrong_kind("dry_sequence_breakers", "an array", list, err);
    size_t n = list->as.array.count;
    if (n > CARAT_DRY_BREAKERS_MAX)
        return err_set(err, CARAT_EUSAGE,
                       "dry_sequence_breakers: at most %d strings expected, %zu found",
                       CARAT_DRY_BREAKERS_MAX, n);
    const char **texts = arena_take(arena, n, sizeof *texts);
    if (!texts && n) return err_no_memory(err, "dry_sequence_breakers", n * sizeof *texts);
    for (size_t i = 0; i < n; i++)
        TRY(take_breaker(&list->as.array.items[i], i, arena, &texts[i], err));
    p->dry_breakers = n ? texts : none;
    p->n_dry_breakers = n;
    return CARAT_OK;
}

/* An array of names, or a string of letters. */
static int read_samplers(struct carat_sampling *p, const struct carat_value *root,
                         struct carat_error *err)
{
    static const char where[] = "samplers";
    const struct carat_value *list = json_member(root, where);
    if (list->kind == CARAT_NULL) return CARAT_OK;
    if (list->kind == CARAT_STRING)
        return samplers_read_letters(p->samplers, list->as.string.data, list->as.string.length,
                                     where, err);
    if (list->kind != CARAT_ARRAY)
        return json_wrong_kind(where, "an array of names or a string of letters", list, err);
    memcpy(p->samplers, "-", sizeof "-");
    for (size_t i = 0; i < list->as.array.count; i++) {
        const struct carat_value *name = &list->as.array.items[i];
        char place[48];
        snprintf(place, sizeof place, "samplers[%zu]", i);
        if (name->kind != CARAT_STRING) return json_wrong_kind(place, "a string", name, err);
        TRY(samplers_add(p->samplers, name->as.string.data, name->as.string.length, place, err));
    }
    return CARAT_OK;
}

int sampling_fields_read(struct carat_sampling *p, const struct carat_value *root,
                         struct arena *arena, struct carat_error *err)
{
    TRY(read_reals(p, root, err));
    TRY(json_read_whole(root, "top_k", -1, INT32_MAX, &p->top_k, err));
    if (p->top_k < 0) p->top_k = 0; /* vLLM writes "all" so */
    TRY(json_read_whole(root, "repeat_last_n", -1, INT32_MAX, &p->repeat_last_n, err));
    TRY(json_read_whole(root, "dry_allowed_length", 1, CARAT_DRY_TOKENS_MAX, &p->dry_allowed_length,
                        err));
    TRY(json_read_whole(root, "dry_penalty_last_n", -1, CARAT_DRY_TOKENS_MAX,
                        &p->dry_penalty_last_n, err));
    TRY(read_mirostat(p, root, err));
    TRY(read_samplers(p, root, err));
    return read_breakers(p, root, arena, err);
}

struct carat_sampling sampling_literal(struct carat_sampling p)
{
    float *const members[] = {&p.top_p,        &p.typical_p,    &p.xtc_threshold,
                              &p.mirostat_tau, &p.mirostat_eta, &p.dynatemp_exponent};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (*members[i] == 0) *members[i] = FLT_MIN;
    if (p.dry_penalty_last_n == 0) p.dry_multiplier = 0; /* looks at none */
    if (p.repeat_last_n == 0)                            /* penalties look at none */
        p.repeat_penalty = p.presence_penalty = p.frequency_penalty = 0;
    return p;
}
