/* A plan lowered: each of its windows as records of launches, and where the step's arrays lie. */
#ifndef CUDA_LOWER_H
#define CUDA_LOWER_H

#include "backend/cuda/device.h"
#include "backend/cuda/packs.h"
#include "backend/cuda/record.h"
#include "backend/cuda/step_arrays.h"

/* The search for the best logits within masks, whose scratch is used after all records have run. */
struct masked_search {
    const float *logits; /* NULL: the plan gives none */
    int32_t n_vocab, rows_max;
    uint64_t *masks; /* [rows_max][mask_words(n_vocab)] */
    void *scratch;   /* of launch_topk_masked */
};

struct lowered {
    struct records records;
    struct step_arrays step; /* on the device */
    struct pack_rule packs;
    struct masked_search masked;
    void *workspace; /* of cuBLAS; NULL: no product goes there */
    size_t workspace_bytes;
};

/* Scratch memory that the plan's records use. Weights need not be there: it is enough whichever of
 * them get mirrors. */
size_t lower_scratch_bytes(const struct device *d, const struct plan *plan);

/* `memory`: plan->bytes; `scratch`: as above; both of the device, and borrowed by the records, as
 * are the plan and its weights, which are there. */
int lower_plan(struct lowered *out, const struct device *d, const struct plan *plan, void *memory,
               void *scratch, struct carat_error *err);

#endif
