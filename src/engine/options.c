#include "engine/options.h"

#include "base/sized.h"

int options_copy(struct carat_engine_options *out, const struct carat_engine_options *given,
                 struct carat_error *err)
{
    *out = (struct carat_engine_options){0};
    if (!given) return CARAT_OK;
    return sized_copy(out, sizeof *out, SIZED_THROUGH(struct carat_engine_options, no_prefix_cache),
                      given, "engine options", err);
}
