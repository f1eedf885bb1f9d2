#include "support/samplers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"

struct sampler *open_bound_sampler(struct carat_sampling sampling, int32_t n_vocab)
{
    struct sampler *s;
    struct carat_error err;
    struct sampler_options options = {
        .n_vocab = n_vocab, .sampling = sampling, .is_bound = true, .n_tokens = 1000};
    if (sample_open(&s, &options, &err)) fail_msg("%s", err.message);
    return s;
}

void fill_logits(float *logits, int32_t n, uint64_t seed)
{
    struct rng r = {seed};
    for (int32_t i = 0; i < n; i++) logits[i] = 3.0f * rng_normal(&r);
}
