/* What the files that lower windows share: where things lie, in which form rows are there, and how
 * records are emitted.
 *
 * Lowering turns the windows of a plan into records. It runs twice: first without memory, when
 * pointers are NULL and records and scratch are only counted, then with memory of that size. So no
 * code here may look at a pointer to decide anything.
 *
 * Each window is lowered for each size of steps; `size` and `rows` say which. Memory is for the
 * most rows that such a step has, whatever is there later. */
#ifndef CUDA_LOWERING_H
#define CUDA_LOWERING_H

#include "backend/cuda/device.h"
#include "backend/cuda/loaded.h"
#include "backend/cuda/lower.h"
#include "backend/cuda/packs.h"
#include "backend/cuda/record.h"
#include "backend/cuda/scratch.h"
#include "backend/cuda/step_arrays.h"
#include "backend/cuda/windows.h"

/* Forms of buffers that exist besides their fp32 rows, while windows are lowered in order. */
struct forms {
    struct {
        buf_id id;
        struct act act;
    } slots[ACT_SLOTS];
    int32_t next_slot;
    buf_id half_id; /* the buffer whose rows are fp16 at the moment, times half_scale */
    const float *half_scale;
};

/* Products that were asked for last: a window asks for the same few again and again, and to foresee
 * one takes a walk through the plan. */
enum { PRODUCTS_SEEN = 8 };

struct lowering {
    const struct device *device;
    const struct plan *plan;
    char *memory; /* of the plan's buffers; NULL: only counted */
    struct scratch scratch;
    struct records records;
    struct step_arrays step;
    struct pack_rule packs;
    struct masked_search masked;
    struct forms forms[STEP_SIZES];
    struct cuda_loaded seen[PRODUCTS_SEEN];
    int32_t next_seen;
    bool is_mirrored; /* counted as if each weight that may get a mirror had one */
    bool has_large;   /* mirrors_are_large */

    struct window window; /* being lowered */
    struct {
        buf_id id;
        float *rows;
    } kept[2]; /* buffers that only this window sees, in its scratch */
    int32_t n_kept;
    enum row_class rows_class;
    enum step_size size;
    bool is_many; /* it is STEP_MANY */
    int32_t rows; /* most rows of its launches */
};

/* ---- Where things are ---- */

/* Rows of a buffer; NULL for BUF_NONE. */
float *lower_floats(const struct lowering *l, buf_id id);
int32_t lower_cols(const struct lowering *l, buf_id id);

/* Gives rows to a buffer that lies within the window, and so has none in the plan. */
void lower_keep(struct lowering *l, buf_id id);

/* The same in memory that is there; NULL while memory is only counted. */
void lower_keep_at(struct lowering *l, buf_id id, float *rows);

struct rows lower_rows(const struct lowering *l);
struct step_view lower_step(const struct lowering *l);

/* The window's ops. */
const struct op *lower_ops(const struct lowering *l);

/* A weight that products multiply with. */
struct cuda_weight lower_matrix(struct lowering *l, const struct weight *w);

/* A vector; NULL for NULL. */
const float *lower_vector(const struct weight *w);

/* A table and the step to look it up with: for one in the mapped file, slots of its cache stand for
 * ids. */
struct cuda_weight lower_table(const struct lowering *l, const struct weight *w,
                               struct step_view *step);

/* ---- Forms of rows ---- */

/* What a product with w reads: ACT_NONE means fp32 rows. */
enum act_kind lower_kind(struct lowering *l, const struct weight *w);

/* A slot for the activations of a buffer, to be written by the caller's launch. */
struct act lower_act_slot(struct lowering *l, buf_id id, enum act_kind kind);

/* Activations of a buffer for products with w: those that are there, else made from its floats. */
struct act lower_act(struct lowering *l, buf_id id, const struct weight *w);

/* Rows to multiply: fp32 and, where lower_kind says so, activations; of a second kind too where the
 * weights are mixed. */
struct input {
    float *floats;
    struct act act, other;
};

/* What products with all these weights read of a buffer. */
struct input lower_input(struct lowering *l, buf_id id, int32_t n_w, const struct weight *const *w);

/* Rows of the window's scratch, in the form that a product with `next` reads. */
struct input lower_hidden(struct lowering *l, int32_t rows, const struct weight *next);

/* ---- Records ---- */

void lower_emit(struct lowering *l, start_fn *start, const void *args, size_t args_bytes);

/* For the profile: what was emitted since the last mark; of products what they read. */
void lower_mark(struct lowering *l, const char *kind);
void lower_mark_product(struct lowering *l, const char *kind, int32_t n_w,
                        const struct weight *const *w, int32_t n_used, enum act_kind operands);

#endif
