/* The table of compiled plans, one bucket for each shape of step: decode steps of 1, 2, 4, 8, 16,
 * 24 ... rows and the step that also carries a prefill chunk. All are made at start and share one
 * stretch of memory on each device, as only one runs at a time.
 *
 * A bucket has a plan for each site of the pass and runs as a list of segments, each on one device.
 * Usually that is one segment, which is the plan; when layers or experts are on a second device,
 * the plans are cut where rows go from one to the other. */
#ifndef ENGINE_PLANS_H
#define ENGINE_PLANS_H

#include "backend/backend.h"
#include "model/forward.h"

enum { BUCKETS_MAX = 16 };

/* The first device, and the host where it computes the rest. */
enum site { SITE_NEAR, SITE_FAR, SITE_COUNT };

/* What a site of the pass runs on. */
struct target {
    const struct backend *backend;
    struct device *device; /* NULL: the site is not used */
};

struct segment {
    int32_t site;
    const struct plan *plan; /* `cut`, or the bucket's when that is one segment */
    struct plan cut;
    struct program *program; /* NULL until bound */
};

struct bucket {
    struct plan plans[SITE_COUNT]; /* all that a site does in the step; empty: nothing */
    int32_t rows_max[ROW_CLASS_COUNT];
    struct segment *segments; /* in the order in which they run */
    int32_t n_segments;
};

struct plans {
    struct bucket buckets[BUCKETS_MAX]; /* rising in rows */
    int32_t n_buckets;
    size_t bytes[SITE_COUNT], scratch_bytes[SITE_COUNT]; /* the most that one of them needs */
};

/* What plans are made from. */
struct plan_source {
    const struct target *targets; /* [SITE_COUNT] */
    const struct gemma_config *config;
    const struct weights *weights[SITE_COUNT];
    const struct kv_cache *caches;
    struct split split;
};

/* Compiles plans for n_seq decoding sequences, chunks of `chunk` rows and at least `outs` rows
 * of logits in a step. Nothing is allocated on a device. */
int plans_compile(struct plans *p, const struct plan_source *from, int32_t n_seq, int32_t chunk,
                  int32_t outs, struct carat_error *err);

/* `placements`, `memory` and `scratch` are of each site's device. */
int plans_bind(struct plans *p, const struct target *targets, const struct placement *placements,
               void *const *memory, void *const *scratch, struct carat_error *err);

/* Where the weights of a site's plans go, for plans_bind: of all plans the largest has all that
 * the site does. Nothing where nothing runs. */
void plans_place(const struct plans *p, const struct target *target, enum site site,
                 const struct room *room, struct placement *out);
void plans_deinit(struct plans *p, const struct target *targets);

/* The smallest that holds a step; never NULL for what plans_compile was told of. */
const struct bucket *plans_get(const struct plans *p, int32_t n_token, int32_t n_out);

/* The segment that gives the logits. */
static inline const struct segment *bucket_last(const struct bucket *b)
{
    return &b->segments[b->n_segments - 1];
}

#endif
