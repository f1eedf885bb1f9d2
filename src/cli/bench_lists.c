#include "cli/bench_lists.h"

#include <stdlib.h>
#include <string.h>

static int bad_list(const char *name, const char *text, struct carat_error *err)
{
    err_set(err, CARAT_EUSAGE, "--%s: \"%s\" is no list of whole numbers", name, text);
    err_hint(err, "forms: 128 or 128,256 or 128-512+128 or 1k-8k*2; at most %d values",
             BENCH_VALUES_MAX);
    return CARAT_EUSAGE;
}

bool bench_read_count(const char **at, int64_t *out)
{
    if (**at < '0' || **at > '9') return false;
    char *end;
    *out = strtoll(*at, &end, 10);
    *at = read_suffix(end, out);
    return *out <= COUNT_MAX;
}

/* "auto", "-1" or "all", as a number of layers. */
static bool read_word(const char **at, struct bench_numbers *out)
{
    static const struct {
        const char *word;
        int32_t value;
    } words[] = {
        {"auto", -1},
        {"-1", -1},
        {"all", COUNT_MAX},
    };
    size_t n = strcspn(*at, ",");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i].word) != n || strncmp(*at, words[i].word, n) != 0) continue;
        if (out->n == BENCH_VALUES_MAX) return false;
        out->at[out->n++] = words[i].value;
        *at += n;
        return true;
    }
    return false;
}

/* "a", "a-b", "a-b+step" or "a-b*factor", up to a comma or the end. */
static bool read_range(const char **at, struct bench_numbers *out)
{
    int64_t first, last, step = 1;
    bool multiplies = false;
    if (!bench_read_count(at, &first)) return false;
    last = first;
    if (**at == '-') {
        ++*at;
        if (!bench_read_count(at, &last)) return false;
        if (**at == '+' || **at == '*') {
            multiplies = *(*at)++ == '*';
            if (!bench_read_count(at, &step) || step < (multiplies ? 2 : 1)) return false;
            if (multiplies && first == 0) return false;
        }
    }
    for (int64_t v = first; v <= last; v = multiplies ? v * step : v + step) {
        if (out->n == BENCH_VALUES_MAX) return false;
        out->at[out->n++] = (int32_t)v;
    }
    return **at == ',' || **at == '\0';
}

int bench_read_numbers(const struct options *o, enum option_id id, struct bench_numbers *out,
                       struct carat_error *err)
{
    const struct option_value *v = &o->values[id];
    const char *preset = option_specs[id].preset;
    size_t n = v->n_list ? v->n_list : preset[0] != '\0';
    bool has_words = id == OPT_BENCH_GPU_LAYERS;
    *out = (struct bench_numbers){.n = 0};
    for (size_t i = 0; i < n; i++) {
        const char *text = v->n_list ? v->list[i] : preset;
        for (const char *at = text;;) {
            if (!(has_words && read_word(&at, out)) && !read_range(&at, out))
                return bad_list(option_specs[id].name, text, err);
            if (*at == '\0') break;
            at++;
        }
    }
    return CARAT_OK;
}

/* ---- Types of the cache ----------------------------------------------------------------- */

static int read_types(const struct options *o, enum option_id id, struct bench_types *out,
                      struct carat_error *err)
{
    static const char *const known[] = {"auto", "f16", "bf16", "f32", "q8_0"};
    const struct option_value *v = &o->values[id];
    *out = (struct bench_types){.n = 0};
    for (size_t k = 0; k < (v->n_list ? v->n_list : 1); k++) {
        const char *at = v->n_list ? v->list[k] : option_specs[id].preset;
        for (bool is_end = !at[0]; !is_end;) {
            size_t n = strcspn(at, ","), t = 0, n_known = sizeof known / sizeof *known;
            while (t < n_known && (strlen(known[t]) != n || strncmp(at, known[t], n) != 0)) t++;
            if (t == n_known)
                return err_set(err, CARAT_EUSAGE, "--%s: \"%.*s\" is not one of %s",
                               option_specs[id].name, (int)n, at, option_specs[OPT_KV_TYPE].value);
            if (out->n == BENCH_VALUES_MAX)
                return err_set(err, CARAT_EUSAGE, "--%s: at most %d values", option_specs[id].name,
                               BENCH_VALUES_MAX);
            out->at[out->n++] = known[t];
            is_end = at[n] == '\0';
            at += n + !is_end;
        }
    }
    return CARAT_OK;
}

/* Every pair of these would be measured, and both types of a pair must be equal; so all of them
 * must be one type. */
int bench_read_types(const struct options *o, struct bench_types *out, struct carat_error *err)
{
    struct bench_types keys, values;
    TRY(read_types(o, OPT_BENCH_KV, out, err));
    TRY(read_types(o, OPT_BENCH_KEYS, &keys, err));
    TRY(read_types(o, OPT_BENCH_VALUES, &values, err));
    if (keys.n == 0 && values.n == 0) return CARAT_OK;
    static const struct bench_types usual = {.at = {"f16"}, .n = 1};
    if (keys.n == 0) keys = usual;
    if (values.n == 0) values = usual;
    for (size_t k = 0; k < keys.n; k++)
        for (size_t v = 0; v < values.n; v++) {
            if (strcmp(keys.at[k], values.at[v]) == 0) continue;
            err_set(err, CARAT_EUSAGE, "bench: keys in %s with values in %s are not supported",
                    keys.at[k], values.at[v]);
            err_hint(err, "--kv-type f16,q8_0 measures both in one type, then in the other");
            return CARAT_EUSAGE;
        }
    *out = (struct bench_types){.at = {keys.at[0]}, .n = 1};
    return CARAT_OK;
}
