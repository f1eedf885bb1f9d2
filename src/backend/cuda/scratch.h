/* Scratch memory of a program, in parts. It is cut twice by the same code: first without memory, to
 * learn how much each part takes, then with memory of that size. So no size is written twice. */
#ifndef CUDA_SCRATCH_H
#define CUDA_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* Activations that may be there at the same time, each in a slot of its own. */
enum { ACT_SLOTS = 4 };

/* Bytes of each part. They lie in this order. */
struct scratch_parts {
    size_t step;      /* the step's arrays */
    size_t slot;      /* of one of ACT_SLOTS slots, which are kept from window to window */
    size_t window;    /* for what is written and read within one window, or by its launches only */
    size_t workspace; /* of cuBLAS */
};

struct scratch {
    char *memory;              /* NULL: only counted */
    struct scratch_parts have; /* what the memory was taken for; not read without memory */
    struct scratch_parts used; /* what was asked for so far */
    size_t at;                 /* bytes of `window` that this window has taken */
};

/* Each part as large as in either. */
struct scratch_parts scratch_most(const struct scratch_parts *a, const struct scratch_parts *b);
size_t scratch_total(const struct scratch_parts *parts);

/* Each returns NULL while bytes are only counted. */
void *scratch_step(struct scratch *s, size_t bytes);
void *scratch_slot(struct scratch *s, int32_t slot, size_t bytes);
void *scratch_workspace(struct scratch *s, size_t bytes);

/* Memory until the next window begins. */
void *scratch_take(struct scratch *s, size_t bytes);
void scratch_begin_window(struct scratch *s);

#endif
