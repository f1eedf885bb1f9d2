/* carat: model files in other number formats. The rules are those of carat.h. */
#ifndef CARAT_QUANTIZE_H
#define CARAT_QUANTIZE_H

#include "carat.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* What becomes of a tensor. Names are borrowed for the call. */
struct carat_quantized {
    const char *name;
    const char *from, *to; /* "BF16", "Q4_K" */
    uint64_t n_values;
    uint64_t from_bytes, to_bytes;
    double error; /* relative L2 error of the new values; 0: the same values, or a dry run */
    /* Whether the importance matrix was used for it. Then the error with the squares of each column
     * times its importance; else 0. */
    bool is_weighted;
    double weighted_error;
};

/* Tensors whose name contains `pattern`, or begins with what follows its "^", get this type, which
 * is a tensor's: "Q6_K", "F16". */
struct carat_type_rule {
    const char *pattern, *type;
};

struct carat_quantize_options {
    size_t size;      /* sizeof(struct carat_quantize_options) */
    const char *type; /* of the file, in any case: a name of carat_quantize_type */
    const struct carat_type_rule *rules; /* the first that fits counts, before the file's type */
    int32_t n_rules;
    int32_t n_threads;   /* 0: as many as the process may use */
    bool is_pure;        /* one type, except where it does not fit */
    bool may_requantize; /* weights that are quantised already, too: their errors add up */
    /* Takes the new file, from its beginning to its end, in pieces. CARAT_OK or the status to end
     * with, with its message. NULL: a dry run, which computes nothing. */
    int (*write)(void *user, const void *bytes, size_t n, struct carat_error *err);
    /* Called for each tensor after it was written. May be NULL. */
    void (*tensor)(void *user, const struct carat_quantized *tensor, int32_t index, int32_t count);
    void *user;
    /* end of version 0.1 */
    /* File of an importance matrix, as `llama-imatrix` writes it (GGUF, or .dat of its earlier
     * versions): which columns of weights matter more than others. NULL: none. */
    const char *imatrix;
    /* With a matrix: entries are used whose name contains one of `include`, or begins with what
     * follows its "^"; without it, all. Those of `exclude` are not used. */
    const char *const *include, *const *exclude;
    int32_t n_include, n_exclude;
};

/* Makes a model file with weights in another type from the one at `path`, or from all its parts.
 * Keys stay as they are, except those about the type, about parts and about importance matrices:
 * quantize.imatrix.* name the matrix that was used, if there is one.
 * Vectors, routers and the projection of per-layer inputs keep their type. A type whose blocks do
 * not fit a row gives way to the nearest one that does. Tensors that the matrix lacks are made
 * without it. CARAT_EUSAGE: no such type, tensor or entry of the matrix, weights are quantised
 * already, or the file's type gives one type to layers that is bad without importance, and there is
 * none for them (IQ2 and IQ1); CARAT_EFORMAT: the file is malformed, of another model family, or
 * has a weight that is no finite number or too large for its new type; the matrix is malformed or
 * of another model; what `write` returns. */
int carat_quantize(const char *path, const struct carat_quantize_options *options,
                   struct carat_error *err);

/* Types of files by index from 0: "Q4_K_M"; NULL after the last one. */
const char *carat_quantize_type(int32_t index);

/* ---- Importance matrices ---- */

/* Sums of squares of what the products of a model's layers read, for each column, and for each
 * expert apart. An engine that was opened with it (`importance` of its options) adds every row of
 * its steps: carat_score over a text with logits of all positions, so that all layers see all
 * rows. */
int carat_importance_open(carat_importance **out, const carat_model *model,
                          struct carat_error *err);
void carat_importance_close(carat_importance *importance); /* NULL is fine */

struct carat_importance_facts {
    const char *dataset; /* name of the text, for the file */
    int32_t n_chunks, chunk_tokens;
};

/* Hands over the importance matrix as a GGUF file, from its beginning to its end; `write` as in
 * carat_quantize_options. Weights that read nothing are left out. Its engine is idle or closed.
 * CARAT_EUSAGE: there are no others. */
int carat_importance_write(const carat_importance *importance,
                           const struct carat_importance_facts *facts,
                           int (*write)(void *user, const void *bytes, size_t n,
                                        struct carat_error *err),
                           void *user, struct carat_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
