/* What an engine will need, decided before anything is allocated: the effective options, the
 * shape of every cache, the compiled plans. The memory table that a user sees and the
 * allocations both come from here, so they cannot differ. */
#ifndef ENGINE_LAYOUT_H
#define ENGINE_LAYOUT_H

#include "base/arena.h"
#include "base/bytes.h"
#include "carat.h"
#include "engine/plans.h"

/* What one site takes of its device. */
struct site_memory {
    size_t total, available; /* of the device, before anything is allocated: may be taken */
    size_t driver;           /* what of it is left to the driver */
    bool is_limited;         /* a user said how much may be taken */
    uint64_t kv_local, kv_global, buffers;
};

struct layout {
    const struct gemma_config *config;
    char device_names[SITE_COUNT][96];
    struct target targets[SITE_COUNT]; /* the far one is only there where something runs on it */
    struct site_memory sites[SITE_COUNT];
    struct split split;
    int32_t n_far_experts; /* layers, the first ones, whose experts are far */
    int32_t n_ctx, n_seq, chunk, score_rows;
    enum format kv_format, kv_format_global; /* of local layers; of global ones */
    struct kv_cache caches[LAYERS_MAX];      /* of the layers that own one; memory not yet there */
    size_t k_bytes[LAYERS_MAX]; /* of one cache's keys, and again of its values: all of a
                                           site lie in one piece, in the order of layers */
    const struct weights *weights[SITE_COUNT];
    struct plans plans;
    struct placement placements[SITE_COUNT]; /* of what the plans read */
    uint64_t whole_bytes; /* that all layers would take of the near device; 0: they fit */
    struct carat_memory memory;
    struct carat_setup setup;
};

/* A model: its facts, and the file that holds its weights. */
struct layout_model {
    const struct gemma_config *config;
    const struct gguf *gguf;
};

/* The model as the plans see it. */
struct layout_source {
    struct layout_model model;
    const struct weights *near; /* that the near site's plans refer to */
    struct weights *far; /* bound into `arena` when something is far; NULL: only looked at, */
    struct arena *arena; /* and `near` serves for both */
};

static inline uint64_t layout_kv_bytes(const struct site_memory *m)
{
    return bytes_add(m->kv_local, m->kv_global);
}

/* Opens the devices, chooses sizes and compiles. `options` may be NULL.
 * CARAT_EUSAGE names an option out of range, CARAT_EMEMORY says need and have. On failure
 * nothing is left to deinit. */
int layout_init(struct layout *y, const struct layout_source *from,
                const struct carat_engine_options *options, struct carat_error *err);
void layout_deinit(struct layout *y);

/* Shapes of the caches for a context, and what they take on each site; sums that memory could
 * never hold stop at BYTES_MAX. Reads the sequences, the chunk, the formats and the split. */
void layout_shape_caches(struct layout *y, const struct gemma_config *c, int32_t n_ctx);

/* What was decided, and why, as the public header has it; at the end of layout_init. Borrows from
 * `y`. */
void layout_describe(const struct layout *y, const struct gemma_config *c,
                     const struct carat_engine_options *o, struct carat_setup *out);

#endif
