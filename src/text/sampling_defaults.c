#include "text/sampling_defaults.h"

#include <inttypes.h>
#include <string.h>

#include "base/samplers.h"

/* Texts that end a repetition for DRY. */
static const char *const breakers[] = {"\n", ":", "\"", "*"};

const struct carat_sampling sampling_of_zeros = {.top_p = 1.0f,
                                                 .repeat_penalty = 1.0f,
                                                 .repeat_last_n = 64,
                                                 .typical_p = 1.0f,
                                                 .xtc_threshold = 0.1f,
                                                 .dynatemp_exponent = 1.0f,
                                                 .dry_base = 1.75f,
                                                 .dry_allowed_length = 2,
                                                 .dry_breakers = breakers,
                                                 .n_dry_breakers =
                                                     sizeof breakers / sizeof *breakers,
                                                 .mirostat_tau = 5.0f,
                                                 .mirostat_eta = 0.1f,
                                                 .samplers = CARAT_SAMPLERS};

enum { LAST_N_MAX = 1 << 20, ORDER_BYTES_MAX = 1024 };

static int read_reals(const struct gguf *g, struct carat_sampling *s, struct carat_error *err)
{
    const struct {
        const char *key;
        float *out, low, high;
    } reals[] = {{"general.sampling.temp", &s->temperature, 0.0f, 100.0f},
                 {"general.sampling.top_p", &s->top_p, 0.0f, 1.0f},
                 {"general.sampling.min_p", &s->min_p, 0.0f, 1.0f},
                 {"general.sampling.xtc_probability", &s->xtc_probability, 0.0f, 1.0f},
                 {"general.sampling.xtc_threshold", &s->xtc_threshold, 0.0f, 1.0f},
                 {"general.sampling.penalty_repeat", &s->repeat_penalty, 0.01f, 100.0f},
                 {"general.sampling.mirostat_tau", &s->mirostat_tau, 0.0f, 100.0f},
                 {"general.sampling.mirostat_eta", &s->mirostat_eta, 0.0f, 100.0f}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        float value = *reals[i].out;
        TRY(gguf_get_f32(g, reals[i].key, &value, err));
        if (value < reals[i].low || value > reals[i].high)
            return err_set(err, CARAT_EFORMAT, "%s: %g to %g expected, %g found", reals[i].key,
                           (double)reals[i].low, (double)reals[i].high, (double)value);
        *reals[i].out = value;
    }
    return CARAT_OK;
}

static int read_whole(const struct gguf *g, const char *key, int32_t low, int32_t high,
                      int32_t *out, struct carat_error *err)
{
    int64_t value = *out;
    TRY(gguf_get_i64(g, key, &value, err));
    if (value < low || value > high)
        return err_set(err, CARAT_EFORMAT, "%s: %d to %d expected, %" PRId64 " found", key, low,
                       high, value);
    *out = (int32_t)value;
    return CARAT_OK;
}

static void add_note(struct buf *note, const char *text)
{
    buf_printf(note, "%s%s", note->length ? "; " : "", text);
}

/* In llama.cpp 0 tokens mean no penalties, and all below 1 all of the vocabulary. */
static int read_wholes(const struct gguf *g, struct carat_sampling *s, struct buf *note,
                       struct carat_error *err)
{
    int32_t last_n = s->repeat_last_n;
    TRY(read_whole(g, "general.sampling.top_k", INT32_MIN, INT32_MAX, &s->top_k, err));
    TRY(read_whole(g, "general.sampling.penalty_last_n", -1, LAST_N_MAX, &last_n, err));
    TRY(read_whole(g, "general.sampling.mirostat", 0, 2, &s->mirostat, err));
    if (s->top_k < 0) s->top_k = 0;
    if (last_n == 0)
        s->repeat_penalty = 1.0f;
    else
        s->repeat_last_n = last_n;
    if (s->mirostat != 1) return CARAT_OK;
    s->mirostat = 2;
    add_note(note, "the file recommends Mirostat 1, and gets Mirostat 2");
    return CARAT_OK;
}

/* A file may be for newer programs with other samplers, so what is unknown is left out. */
static int read_order(const struct gguf *g, struct carat_sampling *s, struct buf *note,
                      struct carat_error *err)
{
    static const char key[] = "general.sampling.sequence";
    struct gguf_string list = {0};
    TRY(gguf_get_string(g, key, &list, err));
    if (!list.data) return CARAT_OK;
    if (list.length > ORDER_BYTES_MAX)
        return err_set(err, CARAT_EFORMAT, "%s: at most %d bytes expected, %zu found", key,
                       ORDER_BYTES_MAX, list.length);
    char letters[SAMPLERS_SIZE] = "-";
    struct carat_error why = {0};
    for (size_t begin = 0; begin < list.length;) {
        const char *end = memchr(list.data + begin, ';', list.length - begin);
        size_t n = end ? (size_t)(end - list.data) - begin : list.length - begin;
        struct carat_error *into = why.message[0] ? NULL : &why; /* the first one is told */
        if (n) samplers_add(letters, list.data + begin, n, key, into);
        begin += n + 1;
    }
    if (why.message[0]) add_note(note, why.message);
    if (list.length) memcpy(s->samplers, letters, sizeof letters);
    return CARAT_OK;
}

int sampling_defaults_read(const struct gguf *g, struct carat_sampling *out, struct buf *note,
                           struct carat_error *err)
{
    struct carat_sampling s = sampling_of_zeros;
    s.temperature = 1.0f;
    s.top_k = 64;
    s.top_p = 0.95f;
    s.top_n_sigma = -1.0f;
    s.dry_penalty_last_n = -1;
    TRY(read_reals(g, &s, err));
    TRY(read_wholes(g, &s, note, err));
    TRY(read_order(g, &s, note, err));
    *out = s;
    return CARAT_OK;
}
