/* One model on its devices: weights, caches, compiled plans and their memory. It runs steps and
 * gives the logits of their rows. It does not know what the rows are for: whoever fills in the
 * steps decides which request a sequence belongs to. Several runners may be open at the same time,
 * for a second model or for a part of one; they share nothing.
 *
 * Of carat.h only the options, the memory table and the setup of an engine are used.
 *
 * One thread at a time for a runner. runner_run allocates nothing. */
#ifndef ENGINE_RUNNER_H
#define ENGINE_RUNNER_H

#include "engine/layout.h"
#include "engine/tables.h"
#include "plan/share.h"

struct runner {
    struct layout layout; /* decisions, compiled plans, and the devices with what they hold */
    struct arena arena;   /* views of the weights, tables, `row`, `masks`, `staging`; then sealed */
    struct tables tables; /* where the pages of sequences are */
    struct step step;     /* the last one, as devices have got it */
    struct share share;   /* which of its rows share pages, if a device wants to know */
    struct share_least least;
    float *row;              /* n_vocab logits on the host */
    float *hidden;           /* DRAFT_ROWS rows of the model's width, for the drafter; or NULL */
    uint64_t n_runs;         /* steps and passes of the drafter that were started */
    uint64_t *masks;         /* layout_masks of them, for runner_best_allowed; or NULL */
    char *staging;           /* rows on their way between two devices that are not the host */
    bool are_shared;         /* host buffers are shared with devices (page-locked) */
    bool is_busy[SITES_MAX]; /* targets that have been told to do something since the last fence */
    struct carat_error loss; /* set once a device has failed: only closing is left */
};

/* Opens the devices, decides what goes where, and takes all memory that steps will need. `source`,
 * in which `arena` and `weights` need not be set, is borrowed; its config and file must outlive the
 * runner. `options` may be NULL. Errors are those of layout_init, and CARAT_EMEMORY when memory
 * that was counted on is not there. */
int runner_open(struct runner **out, const struct layout_source *source,
                const struct carat_engine_options *options, struct carat_error *err);
void runner_close(struct runner *r); /* NULL is fine */

/* Which page holds the positions of a sequence that are in a slot (plan/kv.h); 0: nobody holds
 * them. Page numbers are those of layout.caches: 1 .. n_pages[kind] - 1. May be called at any time,
 * also between runner_start and runner_wait; the next step that is started sees the change. Where
 * the layout does not share pages, each sequence has its own from the beginning. */
void runner_set_page(struct runner *r, enum kv_kind kind, int32_t sequence, int32_t slot,
                     int32_t page);
int32_t runner_page(const struct runner *r, enum kv_kind kind, int32_t sequence, int32_t slot);

/* A page's keys and values as the devices store them, in host memory, one device after the other.
 * Between steps only. CARAT_EDEVICE when a device is lost. */
size_t runner_page_bytes(const struct runner *r, enum kv_kind kind);
int runner_read_page(struct runner *r, enum kv_kind kind, int32_t page, void *out,
                     struct carat_error *err);
int runner_write_page(struct runner *r, enum kv_kind kind, int32_t page, const void *bytes,
                      struct carat_error *err);

/* Runs the rows of a step, which belongs to the caller and may be rewritten afterwards. At most
 * chunk + n_seq rows. CARAT_EDEVICE when a device is lost. */
int runner_run(struct runner *r, const struct step *step, struct carat_error *err);

/* The same in two parts, between which a device other than the host computes. The step stays as it
 * is until runner_wait, which is called after each start that succeeded. If the pass is divided,
 * only the wait for its last part is left to runner_wait. */
int runner_start(struct runner *r, const struct step *step, struct carat_error *err);
int runner_wait(struct runner *r, struct carat_error *err);

/* Row `out` of the last step's logits, on the host. Valid until the next call. CARAT_EDEVICE as
 * above: then *row is not to be read. */
int runner_logits(struct runner *r, const struct step *step, int32_t out, const float **row,
                  struct carat_error *err);

/* The largest logits of the same row as the device has found them (backend.h: best); returns their
 * number, 0 where a device does not look for them. */
int runner_best(const struct runner *r, const struct step *step, int32_t out,
                const struct logit_pair **best);

/* Searches for the best of some ids only (backend.h: best_allowed), between runner_start and
 * runner_wait: runner_masks says how many rows at once, 0 where a device cannot; the caller writes
 * mask i to runner_mask(i) first and leaves it there until runner_wait. Then runner_best gives what
 * was found, runner_n_best pairs at most. */
int32_t runner_masks(const struct runner *r, const struct step *step);
int32_t runner_n_best(const struct runner *r, const struct step *step);
uint64_t *runner_mask(struct runner *r, int32_t i);
void runner_best_allowed(struct runner *r, const struct step *step, int32_t n, const int32_t *rows);

/* Passes of the drafter (model/forward.h: gemma_draft), for a layout that has one.
 *
 * runner_take_hidden: after a step and before the next one; the rows that output rows outs[n] of
 * its logits, rising, were made from become the rows of the next pass. n is at most PASS_ROWS.
 * runner_hidden: such a row, n_embd floats on the host, which the caller may move.
 * runner_draft: a pass. All rows of `step` are decode rows whose logits are wanted, at most
 * PASS_ROWS. Afterwards the rows of runner_hidden are those for the pass after it.
 * runner_draft_best: the two largest logits of row `row` of a pass of n_rows, falling. */
int runner_take_hidden(struct runner *r, const struct step *step, const int32_t *outs, int32_t n,
                       struct carat_error *err);
float *runner_hidden(struct runner *r, int32_t row);
int runner_draft(struct runner *r, const struct step *step, struct carat_error *err);
int runner_draft_best(struct runner *r, int32_t n_rows, int32_t row, struct logit_pair out[2],
                      struct carat_error *err);

/* CARAT_EDEVICE with the reason once a device is lost. */
int runner_check(const struct runner *r, struct carat_error *err);

/* Measures what the first device can do at most, in memory that is left. CARAT_EDEVICE if its
 * backend cannot tell. */
int runner_measure_limits(struct runner *r, struct device_limits *out, struct carat_error *err);

/* Prints where the time of all steps so far went: a table for each device that keeps a profile. */
void runner_print_profile(const struct runner *r, struct buf *out);

#endif
