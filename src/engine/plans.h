/* The table of compiled plans, one bucket for each shape of step: decode steps of 1, 2, 4, 8, 16,
 * 24 ... rows, prompts of a few rows and the step that also carries a prefill chunk. All are made
 * at start and share one stretch of memory on each device, as only one runs at a time.
 *
 * A bucket has a plan for each site of the pass and runs as a list of segments, each on one device.
 * Usually that is one segment, which is the plan. With several devices the plans are cut where rows
 * go from one to another. */
#ifndef ENGINE_PLANS_H
#define ENGINE_PLANS_H

#include "engine/target.h"
#include "model/forward.h"

enum { BUCKETS_MAX = 16, DRAFT_BUCKETS_MAX = 6 };

struct segment {
    int32_t site;
    const struct plan *plan; /* `cut`, or the bucket's whole plan if it is one segment */
    struct plan cut;
    struct program *program; /* NULL until bound */
};

struct bucket {
    struct plan plans[SITES_MAX]; /* all that a site does in the step; empty: nothing */
    int32_t rows_max[ROW_CLASS_COUNT];
    bool is_all_out;          /* for steps that want every row's logits */
    struct segment *segments; /* in the order in which they run */
    int32_t n_segments;
};

struct plans {
    struct bucket buckets[BUCKETS_MAX]; /* rising in rows */
    int32_t n_buckets, n_sites;
    struct bucket drafts[DRAFT_BUCKETS_MAX]; /* passes of a drafter, rising in rows */
    int32_t n_drafts;
    bool are_recorded; /* a device replays steps, with all rows of their bucket */
    /* The largest need of any bucket: on each device, and on the host for rows that go between two
     * devices that are not the host. */
    size_t bytes[SITES_MAX], scratch_bytes[SITES_MAX], staging_bytes;
    size_t draft_bytes[SITES_MAX]; /* for the weights of the drafter */
};

/* What plans are made from. */
struct plan_source {
    const struct target *targets; /* by site */
    int32_t n_targets;
    const struct gemma_config *config, *drafter; /* NULL: there is no drafter */
    const struct kv_cache *caches;
    const struct split *split;
    int32_t step_rows;   /* the most that a step has */
    int32_t decode_rows; /* of one that has only decode rows */
};

/* Compiles plans for n_seq sequences that decode, chunks of `chunk` rows and at least `outs` rows
 * of logits in a step. Nothing is allocated on a device. CARAT_EMEMORY. */
int plans_compile(struct plans *p, const struct plan_source *from, int32_t n_seq, int32_t chunk,
                  int32_t outs, struct carat_error *err);

/* Binds all plans in the targets' memory, with weights placed as the targets say. */
int plans_bind(struct plans *p, const struct target *targets, struct carat_error *err);

/* Decides where the weights of a site's plans go, for plans_bind. Asks for the largest plan, which
 * has all the site's work. Places nothing where nothing runs. */
void plans_place(const struct plans *p, const struct target *target, int32_t site,
                 const struct room *room, struct placement *out);
void plans_deinit(struct plans *p, const struct target *targets);

/* The smallest bucket that holds a step; those that want all rows are for steps that only decode.
 * Never NULL for steps that plans_compile was told of. */
const struct bucket *plans_get(const struct plans *p, int32_t n_token, int32_t n_decode,
                               int32_t n_out);

/* The smallest bucket of the drafter for this many rows, at most PASS_ROWS. */
const struct bucket *plans_get_draft(const struct plans *p, int32_t rows);

/* The segment that gives the logits. */
static inline const struct segment *bucket_last(const struct bucket *b)
{
    return &b->segments[b->n_segments - 1];
}

/* Rows that a segment reads from another device: one of its INPUT ops. */
struct crossing {
    int32_t from_site;   /* SITE_OUTSIDE: the rows come from the runner's user */
    buf_id from, to;     /* the buffer in that site's plan; the buffer here */
    enum row_class rows; /* each of `row_bytes` */
    size_t row_bytes;
};

/* The i-th crossing of a segment. False: there are fewer. */
bool segment_crossing(const struct segment *s, int32_t i, struct crossing *out);

/* Whether it goes through the runner's staging on its way into a segment. */
bool crossing_needs_staging(const struct crossing *c, const struct segment *s,
                            const struct target *targets);

/* What a step has to read and to compute at least, on all devices. */
struct plan_work plans_count_work(const struct plans *p, int32_t n_token, int32_t n_out,
                                  int32_t context);

/* Prints the plan of a step, segment by segment. CARAT_EUSAGE: there is no such step. */
int plans_print(const struct plans *p, const struct target *targets, int32_t rows, int32_t outs,
                struct buf *out, struct carat_error *err);

#endif
