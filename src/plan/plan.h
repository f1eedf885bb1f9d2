/* A plan: the straight-line program of one forward pass, up to a fixed number of rows.
 *
 * It is recorded once by model/forward.c through emit.h, given memory by place.c, bound by a
 * backend and then only replayed.
 *
 * Guardrails, so that this never becomes a graph compiler: program order is final; no control flow,
 * no shape inference, no views, no autodiff; at most 3 inputs and 2 outputs an op; fusion only by
 * exact windows of adjacent ops; what would need analysis is decided in forward.c, where it is
 * known. This folder stays below 1,600 lines.
 *
 * Life: plan_init, emit..., [plan_divide], [plan_mark_windows], plan_close, [plan_cut], [backend
 * bind, run], plan_deinit. A failed allocation is kept in `failed` and reported once, by
 * plan_divide or plan_close. One thread at a time. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"
#include "plan/op.h"

/* Sites compute a pass together; for whoever runs it each is a device. */
enum { SITES_MAX = 8 };

struct plan_buf {
    enum row_class rows;
    int32_t cols;
    int32_t first_op, last_op; /* written by first_op, last read by last_op */
    size_t offset;             /* in the plan's memory, after plan_close */
};

/* Rows of both classes of a step that will be run often. Either all tokens are single new ones of
 * their sequences, whose logits are wanted, or none is. */
struct plan_usual {
    int32_t rows[ROW_CLASS_COUNT];
    int32_t n_decode; /* of the tokens: all or 0 */
};

enum { PLAN_USUAL_MAX = 16 };

struct plan {
    struct op *ops;
    struct plan_buf *bufs;
    int32_t n_ops, n_bufs, ops_capacity, bufs_capacity;
    const struct kv_cache *caches; /* borrowed */
    int32_t n_caches;
    int32_t rows_max[ROW_CLASS_COUNT];
    bool is_all_out; /* of steps that want every row's logits: output row r is token r */
    struct plan_usual usual[PLAN_USUAL_MAX]; /* a hint: a backend may prepare for these steps */
    int32_t n_usual;
    uint16_t layer; /* given to ops emitted from now on, */
    uint8_t site;   /* and this */
    /* Results, read by the engine after a run, never overwritten: logits, and the rows that they
     * are made from where they are wanted (BUF_NONE: they are not). */
    buf_id logits, hidden;
    bool wants_hidden;
    size_t bytes; /* memory that all buffers need together, after plan_close */
    bool failed;
};

void plan_init(struct plan *p, int32_t token_rows_max, int32_t out_rows_max,
               const struct kv_cache *caches, int32_t n_caches);

/* For steps that want every row's logits, as decode steps do. Nothing is gathered then: all buffers
 * are ROWS_TOKEN, the logits too. Call it before anything is emitted. */
void plan_want_all(struct plan *p);

/* Asks for the rows that logits are made from. */
void plan_want_hidden(struct plan *p);

/* Says that steps of this many rows, of prompts or all of single new tokens, will be run often.
 * When there are PLAN_USUAL_MAX already, the call is ignored. */
void plan_add_usual(struct plan *p, int32_t token_rows, int32_t out_rows);
void plan_add_usual_decode(struct plan *p, int32_t rows);

/* A new buffer, which the next emitted op writes. */
buf_id plan_buf_add(struct plan *p, enum row_class rows, int32_t cols);
const struct plan_buf *plan_buf_at(const struct plan *p, buf_id id);

/* Appends an op (its `layer` and `site` are filled in) and notes who reads and writes what. */
void plan_emit(struct plan *p, const struct op *op);

/* Marks runs of adjacent ops that a backend does in one go: `length` returns the number of ops of
 * the run that begins at op i, at least 1. All inputs of a run then live until its end, and buffers
 * that are written and last read within it get no memory. Call it before plan_close; without it
 * every op is a run of its own. */
typedef int32_t (*plan_window_fn)(const void *user, const struct plan *p, int32_t i);
void plan_mark_windows(struct plan *p, plan_window_fn length, const void *user);

/* The op with which the run that holds op i begins. */
int32_t plan_window_begin(const struct plan *p, int32_t i);

/* Whether a buffer is written and last read within one run of ops. */
bool plan_buf_is_internal(const struct plan *p, buf_id id);

/* Ops [first, end) of a site's plan that run without a break. */
struct plan_run {
    int32_t site, first, end;
};

/* Turns a recorded pass into a plan for each site, and lists the runs of all sites in program
 * order; the caller frees the list with mem_free. `parts` are as after plan_init. With one site
 * `whole` is moved into its plan. CARAT_EMEMORY, also when recording ran out of memory.
 * (divide.c) */
int plan_divide(struct plan *whole, struct plan *parts, int32_t n_sites, struct plan_run **runs,
                int32_t *n_runs, struct carat_error *err);

/* Ops [first, end) of a closed plan as a plan of its own. Buffers keep their numbers and offsets,
 * in memory that all cuts share, so that later cuts can read them. OUTPUT ops at the end of a cut
 * name these buffers to the backend. (cut.c) */
int plan_cut(const struct plan *p, int32_t first, int32_t end, struct plan *out,
             struct carat_error *err);

/* Ends the recording: gives all buffers offsets, so that two that live at the same time never
 * overlap, and sets p->bytes. CARAT_EMEMORY, also when recording ran out of memory. (place.c) */
int plan_close(struct plan *p, struct carat_error *err);
void plan_deinit(struct plan *p);

/* The program as text, one op a line. */
void plan_print(const struct plan *p, struct buf *out);

/* "RMSNORM" and the meaning of an op. */
const char *op_name(enum op_code code);
const char *op_meaning(enum op_code code);

/* The weight that an op multiplies rows with; the weight that it reads in any way. NULL: none. */
const struct weight *op_product(const struct op *op);
const struct weight *op_weight(const struct op *op);

/* The least that a run of these rows has to read and compute: weights once (of experts only the
 * used ones), caches once for each key head and row, two operations a product. `context` is the
 * number of positions that the last row of each sequence sees. Rows count as single new tokens when
 * n_token == n_out, else as one chunk. */
struct plan_work {
    double weight_bytes, cache_bytes, operations;
};
struct plan_work plan_step_work(const struct plan *p, int32_t n_token, int32_t n_out,
                                int32_t context);

/* Bytes of a buffer with the plan's most rows. */
size_t plan_buf_bytes(const struct plan *p, buf_id id);

#endif
