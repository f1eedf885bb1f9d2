/* The models that bench measures, one after the other. */
#ifndef CLI_BENCH_MODELS_H
#define CLI_BENCH_MODELS_H

#include "cli/session.h"

/* Each model of --model, else of the arguments, else CARAT_MODEL. Wrong names are reported before
 * anything is measured. `begin` is called once all have been found, then `measure` with each open
 * model; a failure ends it. */
struct bench_visitor {
    void (*begin)(void *user);
    int (*measure)(void *user, struct session *s, struct carat_error *err);
    void *user;
};
int bench_each_model(const struct options *o, const struct bench_visitor *visitor,
                     struct carat_error *err);

#endif
