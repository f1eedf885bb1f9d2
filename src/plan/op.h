/* The op record and the step: what a plan is made of and what changes from step to step.
 *
 * Shared by C11 and CUDA C++: no designated initialisers, compound literals, `restrict` or
 * flexible arrays here.
 *
 * Rules
 * 1. A record holds no per-step value: ids, positions and row counts live in struct step.
 * 2. Buffers are rows x columns of 4-byte values, rows contiguous, never strided or broadcast.
 * 3. A buffer is written by exactly one op of its plan. */
#ifndef PLAN_OP_H
#define PLAN_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/kv.h"
#include "plan/op_list.h"
#include "plan/weight.h"

enum op_code {
#define X(NAME, params, meaning, budget) OP_##NAME,
    OP_LIST(X)
#undef X
        OP_COUNT
};

/* Where the rows of an INPUT come from that no site has computed. */
enum { SITE_OUTSIDE = -1 };

/* Rows of a buffer: one for each token of the step, or one for each wanted output. */
enum row_class { ROWS_TOKEN, ROWS_OUT, ROW_CLASS_COUNT };

typedef uint16_t buf_id;
#define BUF_NONE ((buf_id)0xFFFF)
#define LAYER_NONE ((uint16_t)0xFFFF)

union op_params {
    struct {
        const struct weight *table;
        float scale;
        int32_t first_col;
    } embed;
    struct {
        const struct weight *w; /* [group], NULL: all ones */
        float eps;
        int32_t group; /* values normed together; divides the columns */
    } norm;
    struct {
        const struct weight *w;
        bool is_fine; /* small errors of y matter: x deserves more than 8 bits */
    } matmul;
    struct {
        const struct weight *inv_freq; /* F32 [head_dim / 2], radians per position; 0: not turned */
        int32_t head_dim;
        int32_t ahead; /* added to every position */
    } rope;
    struct {
        int32_t cache; /* index into the plan's caches */
    } kv;
    struct {
        int32_t cache, n_heads;
        int32_t window; /* keys visible, the query's own included; 0: all up to it */
    } attention;
    struct {
        float value;
    } scale;
    struct {
        int32_t second_col;
    } gelu_mul;
    struct {
        const struct weight *scale; /* F32 [n_expert], NULL: all ones */
        int32_t n_used;
    } route;
    struct {
        const struct weight *w; /* n_expert matrices */
        int32_t n_used;
    } expert;
    struct {
        float cap;
    } softcap;
    struct {
        int32_t site, from; /* another site, and a buffer of its plan; SITE_OUTSIDE: the rows come
                               from whoever runs the step */
    } input;
    uint8_t bytes[44];
};

struct op {
    uint8_t code;   /* enum op_code */
    uint8_t site;   /* who computes it */
    uint16_t layer; /* for messages and profiles; LAYER_NONE outside the layers */
    buf_id in[3], out[2];
    uint16_t window; /* ops from here on that are done in one go; 0 within such a run */
    union op_params p;
};

/* The rows of one forward pass. Rows [0, n_decode) are single new tokens of their sequences, the
 * rest belong to prefill chunks with rising positions. The arrays belong to whoever fills them
 * in. */
struct step {
    int32_t n_token, n_decode, n_out;
    /* Rows [n_decode, n_short) are of prompts that are short as a whole; 0: there are none. A
     * device may compute them as it computes decode rows. */
    int32_t n_short;
    int32_t *id, *position, *sequence; /* [n_token] */
    int32_t *out_row;                  /* [n_out], rising, each below n_token */
    /* Which decode rows begin with the same pages in layers without a window (plan/share.h):
     * leader[r] is the first row of the group of row r, or r; shared[r] the positions that its rows
     * share, a multiple of KV_PAGE, or 0. NULL: nothing is known. Results never depend on it. */
    const int32_t *leader, *shared; /* [n_decode] */
    /* A hint: ids of the next step's prefill chunk, as far as they are known. The host can read
     * their rows of tables while a device is busy with this step. Results never depend on it. */
    const int32_t *next_id; /* [n_next] */
    int32_t n_next;
};

/* A token and its logit in one output row. */
struct logit_pair {
    int32_t id;
    float logit;
};

#endif
