/* Sampling parameters that a model file recommends. */
#ifndef TEXT_SAMPLING_DEFAULTS_H
#define TEXT_SAMPLING_DEFAULTS_H

#include "base/buf.h"
#include "carat.h"
#include "gguf/gguf.h"

/* What zeros in carat_sampling stand for, where they do not mean off. */
extern const struct carat_sampling sampling_of_zeros;

/* Google's values (temperature 1, top-k 64, top-p 0.95, the rest off), overridden by the file's
 * general.sampling.*, all keys that llama.cpp has. Adds what is not done as the file says to the
 * note. A value of a wrong type or out of range is CARAT_EFORMAT. */
int sampling_defaults_read(const struct gguf *g, struct carat_sampling *out, struct buf *note,
                           struct carat_error *err);

#endif
