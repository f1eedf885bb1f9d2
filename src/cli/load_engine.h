/* An engine as the target of a load: all in this thread, without a network. */
#ifndef CLI_LOAD_ENGINE_H
#define CLI_LOAD_ENGINE_H

#include "cli/load_target.h"

struct load_engine {
    struct load_target target; /* self is this struct, which must stay where it is */
    carat_engine *engine;
    carat_request_id *requests; /* by index */
    size_t n;
    bool *is_banned;
};

/* For `n` requests. Owned: load_engine_deinit, after a failure too; the engine is borrowed. */
int load_engine_init(struct load_engine *e, const carat_model *model, carat_engine *engine,
                     size_t n, struct carat_error *err);
void load_engine_deinit(struct load_engine *e);

#endif
