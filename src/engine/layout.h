/* What a runner is going to be, decided before anything is taken: its devices, what each of them
 * computes, the shapes of the caches, the compiled plans. The memory table that a user sees and the
 * allocations both come from here, so they cannot differ. fit.h makes one. */
#ifndef ENGINE_LAYOUT_H
#define ENGINE_LAYOUT_H

#include "base/arena.h"
#include "base/mask.h"
#include "engine/caches.h"
#include "engine/draft.h"
#include "engine/plans.h"
#include "engine/pools.h"
#include "gguf/gguf.h"

/* Sites of a pass that is divided by options, not by parts: the device asked for, and the CPU,
 * which takes the rest. */
enum { FIRST_TARGET, REST_TARGET };

/* A device, and the layers that it computes. */
struct layout_part {
    const char *backend;
    int32_t device;   /* which of the backend's */
    int32_t n_layers; /* this many, from where the part before ends; the last takes the rest */
};

/* What a layout is made from. Borrowed. */
struct layout_source {
    const struct gemma_config *config;
    const struct gguf *gguf;
    /* Holds each target's own views of the weights. NULL: nothing will be run, and all targets use
     * `weights`. */
    struct arena *arena;
    const struct weights *weights;
    const struct weights_file *drafter; /* NULL: there is none; `weights` is as above */
    int32_t outs_max;                   /* rows of logits that a step may want */
    uint64_t host_bytes;                /* host memory that the runner's user needs */
    uint32_t host_page_bytes;           /* more of it, for each page of a pool */
    /* The runner's user gives out the pages of the pools (runner_set_page). Otherwise every
     * sequence has its own pages for all its positions from the beginning. */
    bool shares_pages;
    const struct layout_part *parts; /* NULL: divided as the options say */
    int32_t n_parts;
};

struct layout {
    const struct gemma_config *config, *drafter; /* of a drafter, if there is one */
    struct target targets[SITES_MAX];            /* by site */
    int32_t n_targets;
    struct split split;
    int32_t n_far_experts; /* the experts of this many first layers are on REST_TARGET */
    int32_t n_ctx, n_seq, chunk;
    int32_t step_rows;        /* the most that a step has */
    int32_t decode_rows;      /* the most of one without rows of prompts */
    int32_t draft_rows;       /* the most of one with guesses, */
    int32_t alike_rows;       /* which has more than this only if it has so without them; 0: any */
    bool is_apart;            /* rows of prompts and decode rows are not to share steps */
    int32_t outs_max;         /* rows of logits that a step may want; at most `chunk` */
    uint64_t host_bytes;      /* as in layout_source, */
    uint32_t host_page_bytes; /* and this */
    enum format kv_format, kv_format_global; /* of local layers; of global ones */
    struct caches caches;
    struct pools pools;                      /* the sizes of the caches' */
    bool shares_pages;                       /* as in layout_source */
    bool has_no_anchors;                     /* no_prefix_cache */
    int32_t cache_split;                     /* positions */
    uint64_t cache_bytes, cache_bytes_least; /* as asked for (0: what fits); for one sequence */
    struct plans plans;
    uint64_t whole_bytes; /* what all layers would take of the first device; 0: they fit */
    struct carat_memory memory;
    struct carat_setup setup; /* borrows from this */
};

/* Masks that are in host memory at once, for devices that search within them. */
static inline int32_t layout_masks(const struct layout *y)
{
    int32_t most = y->n_seq < MASKS_MAX ? y->n_seq : MASKS_MAX;
    for (int32_t i = 0; i < y->n_targets; i++)
        if (y->targets[i].backend->best_allowed) return most;
    return 0;
}

/* Rows that go from the model to its drafter and from pass to pass. */
static inline size_t layout_hidden_bytes(const struct layout *y)
{
    return y->drafter ? (size_t)DRAFT_ROWS * (size_t)y->config->n_embd * sizeof(float) : 0;
}

static inline size_t layout_mask_bytes(const struct layout *y)
{
    return (size_t)layout_masks(y) * mask_words(y->config->n_vocab) * sizeof(uint64_t);
}

#endif
