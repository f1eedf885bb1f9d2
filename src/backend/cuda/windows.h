/* Which runs of ops of a plan the GPU does together: exact patterns of adjacent ops. Needs neither
 * GPU nor toolkit. */
#ifndef CUDA_WINDOWS_H
#define CUDA_WINDOWS_H

#include "plan/plan.h"

/* Runs of ops that are done together. */
enum window_kind {
    WINDOW_SINGLE,
    WINDOW_PROJECT, /* q, k, v: products, norms of heads, rotation, cache */
    WINDOW_ATTEND,  /* attention and the product after it */
    WINDOW_NORMS,   /* norms around a residual sum */
    WINDOW_FFN,     /* gate, up, gelu, down */
    WINDOW_GATED,   /* a product, gelu times rows that are there, a product: per-layer inputs */
    WINDOW_INPUTS,  /* GATED with the norms before and after it */
    WINDOW_PLE,     /* projection, norm and sum of per-layer embeddings */
    WINDOW_ROUTE,   /* the router and the choice of experts */
    WINDOW_EXPERTS, /* the same as FFN, routed */
    WINDOW_MIXED,   /* FFN, ROUTE and EXPERTS: a dense branch and a routed one */
    WINDOW_LOGITS   /* head and softcap */
};

/* Where the parts of WINDOW_MIXED begin, and its length. */
enum { MIXED_ROUTE = 4, MIXED_EXPERTS = 6, MIXED_OPS = 10 };

/* The ops of WINDOW_GATED. */
enum { GATED_OPS = 3 };

struct window {
    enum window_kind kind;
    int32_t first, n; /* ops */
};

/* The longest window that begins at op i. */
struct window window_at(const struct plan *plan, int32_t i);

#endif
