/* Tiny models and engines on them, for programs of cmocka cases. */
#ifndef SUPPORT_ENGINES_H
#define SUPPORT_ENGINES_H

#include "carat.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { TINY_SEED = 11, TINY_VOCABULARY = 768 };

/* One model of each size in Q8_0, and a folder for files. They exist between setup and teardown. */
extern carat_model *models[GEMMA_SIZES];
extern struct scratch scratch;

/* Setup and teardown of a group of cases. The teardown fails when memory is left. */
int open_models(void **state);
int close_models(void **state);

/* A failure ends the running case with its message. */
carat_engine *open_engine(const carat_model *model, const struct carat_engine_options *options);

/* Random ids of the tiny vocabulary; the first is the begin-of-text token. */
void draw_ids(uint64_t seed, int32_t *ids, size_t n);

/* A carat_score callback that looks at nothing. */
int ignore_row(void *user, int32_t position, const float *logits, int32_t n_vocab);

#endif
