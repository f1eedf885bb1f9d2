/* Single ops on a backend: cases are drawn from a seed, run between guards, and compared.
 *
 * A case is a shape (parity_shapes lists them all) and the data drawn for it: inputs, weights,
 * caches, a step. parity_run makes the smallest plan that contains the op, runs it on any backend
 * and gives back what the op wrote. Data reach a device as those of a model do: floats by EMBED
 * from F32 tables, expert ids by ROUTE, keys and values by KV_WRITE. Only upload and download touch
 * the memory of a device. Before the run everything around the buffers, unused cells of the caches
 * and the scratch memory hold NaN: what is read by mistake shows in the result, what is written by
 * mistake in `problem`.
 *
 * Keys and values lie in shuffled pages, with NaN for other layers around them in each page. Slots
 * whose positions no row sees have page 0, which is zeros, or a page of their own that holds NaN.
 * So no cell before a window and none after a sequence's last position may have a part in the
 * result.
 *
 * Calling order: parity_case_init, parity_run (any number of times), parity_case_deinit. */
#ifndef PARITY_PARITY_H
#define PARITY_PARITY_H

#include "backend/backend.h"
#include "base/arena.h"

struct parity_shape {
    enum op_code code;
    enum row_class rows_class; /* of the output */
    int32_t rows;              /* rows of the op */
    int32_t cols;              /* columns of the output; EXPERT_IN: of one expert's */
    int32_t inner;             /* columns of the input of MATMUL, EXPERT_*; of table, b, z */
    enum format format;        /* of the weight, table or cache */
    int32_t first;             /* EMBED: first_col; GELU_MUL: second_col */
    int32_t group;             /* RMSNORM; ROPE: head_dim */
    int32_t ahead;             /* ROPE */
    int32_t n_expert, n_used;
    int32_t n_heads, n_kv_heads, head_dim, window; /* ATTENTION, KV_WRITE */
    int32_t capacity;        /* the same: positions of a sequence that rows of the step see */
    int32_t n_decode, depth; /* the same: single rows; position of the first row */
    int32_t turned;          /* the same: keys are values but for so many columns; 0: apart */
    bool has_weight;         /* RMSNORM, ROUTE: not all ones */
    bool has_ties;           /* ROUTE: equal logits */
    bool is_fine;            /* MATMUL */
    bool is_odd;             /* a row length that no model has: a backend may refuse it */
};

enum { PARITY_SHAPES_MAX = 1024 };
size_t parity_shapes(struct parity_shape *out); /* PARITY_SHAPES_MAX of them at most */
void parity_label(const struct parity_shape *shape, char out[160]);

struct parity_case {
    struct parity_shape shape;
    struct step step;
    struct weight weight;       /* the op's, or a table; data NULL: none */
    float *weight_values;       /* the same, decoded */
    struct weight input[2];     /* floats, a row for each token of the step; data NULL: none */
    int32_t *routed;            /* EXPERT_*: n_used expert ids of each token, as ROUTE gives them */
    float value;                /* EMBED, SCALE: factor; RMSNORM: eps; SOFTCAP: cap */
    struct kv_cache cache;      /* without memory; parity_run lends it some */
    int32_t *table;             /* what its table holds */
    int32_t n_pages;            /* of its pool */
    size_t k_at, v_at;          /* in a page */
    int32_t n_seq, n_position;  /* sequences; rows of each in `keys` */
    struct weight keys, values; /* row s * n_position + p */
    int32_t *first_visible;     /* of each sequence: cells before it hold NaN */
    struct arena arena;
};

/* False when memory is out. The same seed gives the same case everywhere. */
bool parity_case_init(struct parity_case *c, const struct parity_shape *shape, uint64_t seed);
void parity_case_deinit(struct parity_case *c);

/* Bytes from the start of the pool to the keys of a position. Its values lie v_at - k_at after. */
size_t parity_offset(const struct parity_case *c, int32_t sequence, int32_t position);

/* The token of row r of the op, and that row of input k. */
int32_t parity_token(const struct parity_case *c, int32_t r);
const float *parity_input(const struct parity_case *c, int k, int32_t r);

struct parity_result {
    float *y[2]; /* outputs: the rows of the step, contiguous */
    size_t n_y[2];
    char *pool; /* KV_WRITE: all pages */
    size_t pool_bytes;
    char problem[256]; /* "": guards and inputs are as they were */
};

/* Runs the case. `open` is a device of `backend`. */
int parity_run(const struct backend *backend, struct device *open, struct parity_case *c,
               struct parity_result *out, struct carat_error *err);
void parity_result_deinit(struct parity_result *r);

/* sum (y - expected)^2 / sum expected^2; infinite when a value is not finite. */
double parity_nmse(const float *y, const float *expected, size_t n);

/* The largest NMSE that a fast backend may show against the reference. */
double parity_budget(const struct parity_shape *shape);

#endif
