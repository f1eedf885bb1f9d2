#include "text/sampling_defaults.h"

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

static int read_share(const struct gguf *g, const char *key, float low, float high, float *out,
                      struct carat_error *err)
{
    TRY(gguf_get_f32(g, key, out, err));
    if (*out >= low && *out <= high) return CARAT_OK; /* false for NaN */
    return err_set(err, CARAT_EFORMAT, "%s: %g to %g expected, %g found", key, (double)low,
                   (double)high, (double)*out);
}

int sampling_defaults_read(const struct gguf *g, struct carat_sampling *out,
                           struct carat_error *err)
{
    struct carat_sampling s = sampling_of_zeros;
    s.temperature = 1.0f;
    s.top_k = 64;
    s.top_p = 0.95f;
    s.top_n_sigma = -1.0f;
    s.dry_penalty_last_n = -1;
    TRY(read_share(g, "general.sampling.temp", 0.0f, 100.0f, &s.temperature, err));
    TRY(read_share(g, "general.sampling.top_p", 0.0f, 1.0f, &s.top_p, err));
    TRY(read_share(g, "general.sampling.min_p", 0.0f, 1.0f, &s.min_p, err));
    TRY(read_share(g, "general.sampling.xtc_probability", 0.0f, 1.0f, &s.xtc_probability, err));
    TRY(read_share(g, "general.sampling.xtc_threshold", 0.0f, 1.0f, &s.xtc_threshold, err));
    uint32_t top_k = (uint32_t)s.top_k;
    TRY(gguf_get_u32(g, "general.sampling.top_k", &top_k, err));
    if (top_k > INT32_MAX)
        return err_set(err, CARAT_EFORMAT, "general.sampling.top_k: at most %d expected, %u found",
                       INT32_MAX, top_k);
    s.top_k = (int32_t)top_k;
    *out = s;
    return CARAT_OK;
}
