/* What an engine will need, decided before anything is allocated: the effective options, the
 * shape of every cache, the compiled plans. The memory table that a user sees and the
 * allocations both come from here, so they cannot differ. */
#ifndef ENGINE_LAYOUT_H
#define ENGINE_LAYOUT_H

#include "engine/model_file.h"
#include "engine/plans.h"

struct layout {
    const struct backend *backend;
    struct device *device;
    int32_t n_ctx, n_seq, chunk, score_rows;
    enum format kv_format, kv_format_global; /* of local layers; of global ones */
    struct kv_cache caches[LAYERS_MAX]; /* of the layers that own one; memory not yet there */
    size_t k_bytes[LAYERS_MAX];         /* of one cache's keys, and again of its values */
    struct plans plans;
    struct carat_memory memory;
};

/* Opens the device, chooses sizes and compiles. `w` are the weights that the plans refer to;
 * `options` may be NULL.
 * CARAT_EUSAGE names an option out of range, CARAT_EMEMORY says need and have. On failure
 * nothing is left to deinit. */
int layout_init(struct layout *y, const carat_model *model, const struct weights *w,
                const struct carat_engine_options *options, struct carat_error *err);
void layout_deinit(struct layout *y);

#endif
