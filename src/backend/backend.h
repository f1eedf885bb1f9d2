/* What a backend is: memory on a device, weights prepared for it, and plans run on it. A
 * backend knows ops and formats; it knows nothing of Gemma, requests or batching.
 *
 * Rules
 * 1. Calls in order: open; alloc, weight_load; bind; run, fence; unbind; free; close; upload,
 *    download and fence while there is memory. One thread at a time for a device.
 * 2. open, alloc, weight_load and bind may fail, with a message. run does not fail: bind finds what
 *    can go wrong, and fence reports a lost device.
 * 3. Everything that a run needs is taken by bind: nothing allocates afterwards.
 * 4. A row's result depends on nothing but that row's inputs and its sequence's cache: not on
 *    other rows, their number, or the chunking. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "plan/plan.h"
#include "plan/share.h"

struct device;  /* a backend's own */
struct program; /* a plan bound to a device */

/* How products of many rows are computed on a device that has several ways. */
enum matmul_kind { MATMUL_AUTO, MATMUL_INT8, MATMUL_FP16 };

struct device_facts {
    char name[96];
    size_t memory_total, memory_available; /* bytes */
    size_t memory_context;   /* at most this much, not available, is held by the driver for us */
    size_t memory_reserve;   /* available, but the driver will still take about this much */
    enum matmul_kind matmul; /* the way chosen; MATMUL_AUTO: there is only one */
    enum matmul_kind decode_matmul; /* the same for decode steps; MATMUL_AUTO: by number of rows */
    /* Where rule 4 holds if is_steady was asked for. true: for prompt rows and for decode rows in
     * steps of their own, of any size; false: in steps of up to 64 rows, which may have both. */
    bool is_apart;
    int32_t alike_rows; /* decode steps of up to this many rows compute alike, and those of more, up
                           to 64, do: rule 4 holds within both, whatever was asked for; 0: all of up
                           to 64 are alike */
    double fp16_rate, int8_rate; /* operations a second, as measured when it was chosen; or 0 */
};

/* What a device can do at most: bytes read, operations on 8-bit numbers and on 16-bit ones with
 * fp32 sums (a product and its sum are two; fp16 on GPUs, bf16 on CPUs). 0: not measured, or the
 * device has none. code_operations: on 8-bit numbers by codes of up to 6 bits, where these are
 * faster. */
struct device_limits {
    double read_bytes, int8_operations, fp16_operations, code_operations; /* a second */
};

/* Where a device other than the CPU reads tables that are only looked up. */
enum table_place {
    TABLE_AUTO, /* the first of these where there is room */
    TABLE_DEVICE,
    TABLE_PINNED, /* a copy in host memory that the device reads by itself */
    TABLE_HOST    /* in the mapped file: rows are copied to the device, some are kept there */
};

/* Memory that may be taken for the weights of a plan. */
struct room {
    size_t bytes;        /* limit for what the plan cannot do without */
    size_t extra_bytes;  /* limit for that and what only makes it faster; not above `bytes` */
    size_t pinned_bytes; /* host memory, for what the device reads there */
};

/* Where the weights of a plan go and what that takes: decided once for all plans of a device, from
 * the one that has all its work, and given to bind. */
struct placement {
    size_t device_bytes;     /* device memory; weights are in the form that products read */
    size_t mirror_bytes;     /* of these, fp16 copies, which only make it faster */
    size_t pinned_bytes;     /* host memory, pinned by open and bind until close */
    enum table_place tables; /* of what is only looked up; not AUTO once it is decided */
    int32_t cached_rows;     /* rows of a table in the file that the device has room for */
    size_t cached_bytes;     /* of device_bytes, for these rows */
};

/* What a product is about to read: n_rows rows of weight->cols values. With experts, n_used ids for
 * each row. */
struct product_rows {
    const struct weight *weight;
    const float *rows;
    int32_t n_rows;
    const int32_t *experts; /* NULL: there is one matrix */
    int32_t n_used;
};
typedef void product_observer(void *user, const struct product_rows *rows);

/* How a user wants a device to work. Zero: the defaults. */
struct device_options {
    int n_threads;      /* 0: one for each physical core, fewer where a step is too small */
    bool is_pinned;     /* threads stay on their cores */
    bool takes_turns;   /* its runs alternate with another device's, which may be short */
    bool is_steady;     /* rule 4 comes before speed, as is_apart says */
    bool is_exact;      /* activations stay fp32 where they would be rounded to 8 bits */
    bool has_no_graphs; /* steps are launched anew each time, never replayed */
    bool has_no_cublas; /* products use our own kernels */
    bool wants_cublas;  /* also where our own kernel would be taken */
    bool is_unfused;    /* every op is a launch of its own */
    bool is_profiled;   /* times are taken after every piece of work */
    const char *isa;    /* instruction set to compute with; NULL or "auto": the best one */
    enum matmul_kind matmul;
    enum matmul_kind decode_matmul; /* of products in decode steps */
    int32_t n_seq; /* most sequences that decode in a step; may decide decode_matmul; 0: unknown */
    bool has_layer_inputs; /* the model has per-layer inputs; may decide decode_matmul too */
    bool has_drafter;      /* decode steps also have rows of guesses; may decide it too */
    enum table_place table_place;
    enum share_kind cascade; /* whether pages that decode rows share are read once for all */
    int64_t mirror_budget;   /* bytes for fp16 copies of weights; 0: all that fit; < 0: none */
    int64_t cache_budget; /* the same for rows of a table in the file; a step's rows always fit */
    /* Called while weights are put on the device; may be NULL. */
    void (*progress)(void *user, size_t done, size_t total);
    void *progress_user;
    product_observer *observe; /* called before each product by one thread; NULL: not */
    void *observe_user;
};

/* Rows of a call of best_allowed. */
enum { MASKS_MAX = 64 };

struct backend {
    const char *name;
    enum format kv_format; /* of caches unless the user says otherwise */
    int32_t chunk;         /* rows of a prefill step, likewise */
    bool replays;          /* steps are recorded: usual sizes of prompts get plans of their own */
    bool is_host;          /* computes with the host's processor, in its memory */
    bool observes;         /* calls `observe` of its options; others ignore it */

    int (*count)(void); /* devices of this kind that this machine has */
    /* Why there are none: CARAT_EDEVICE with the reason, or CARAT_OK. NULL: there always is one. */
    int (*probe)(struct carat_error *err);
    /* Instruction sets to choose from: by index from 0, best first, NULL after the last one; and
     * why this machine cannot run one: CARAT_EUSAGE with the reason, or CARAT_OK. NULL: no
     * choice. */
    const char *(*isa_name)(int index);
    int (*isa_probe)(const char *name, struct carat_error *err);
    int (*open)(struct device **out, int index, const struct device_options *options,
                struct carat_error *err);
    void (*close)(struct device *device);
    void (*describe)(const struct device *device, struct device_facts *out);

    /* Whether `op` runs on weights of `format` here. */
    bool (*supports)(enum op_code op, enum format format);

    /* How many ops from op i on are run together, for plan_mark_windows. NULL: each on its own. */
    int32_t (*window)(const struct device *device, const struct plan *plan, int32_t i);

    /* Decides where the plan's weights go, before any is on the device; changes nothing. The answer
     * may not fit into the room. NULL: weights are read from the file. */
    void (*place_weights)(const struct device *device, const struct plan *plan,
                          const struct room *room, struct placement *out);

    /* Zeroed memory, aligned for any value. CARAT_EMEMORY says how much was needed. */
    int (*alloc)(struct device *device, size_t bytes, void **out, struct carat_error *err);
    void (*free)(struct device *device, void *memory);

    /* Fills in weight->device_data; the source stays mapped until the device is closed. */
    int (*weight_load)(struct device *device, struct weight *weight, struct carat_error *err);
    void (*weight_unload)(struct device *device, struct weight *weight);

    /* Working memory that the kernels of a plan need besides its buffers. */
    size_t (*scratch_bytes)(const struct device *device, const struct plan *plan);

    /* Chooses kernels, and loads the plan's weights that are not on the device yet. The plan that
     * was placed is bound first. `placement`: as decided; NULL: no room for extras. `memory` has
     * plan->bytes and `scratch` scratch_bytes(plan) bytes from alloc; they, the plan and its caches
     * must outlive the program. */
    int (*bind)(struct device *device, const struct plan *plan, const struct placement *placement,
                void *memory, void *scratch, struct program **out, struct carat_error *err);
    void (*unbind)(struct program *program);

    /* Starts the program on the step's rows; the step may be rewritten after fence. Before this
     * returns, the host does what it can for the next step (step->next_id), while the device
     * computes. */
    void (*run)(struct program *program, const struct step *step);
    int (*fence)(struct device *device, struct carat_error *err); /* CARAT_EDEVICE: lost */

    /* After fence: the largest logits of output row `row`, falling; the first is NaN if any logit
     * is. Returns their number: n_best, or as many as there are. NULL: the backend does not look
     * for them. */
    int (*best)(struct program *program, int32_t row, const struct logit_pair **out);
    int32_t n_best;

    /* After run, before fence: for n output rows, at most MASKS_MAX, `best` gives only ids that are
     * in the row's mask, and NaN and +infinity wherever they are. A mask has (n_vocab + 63) / 64
     * words, one mask follows the other, and bit id % 64 of word id / 64 stands for id. If a mask
     * has fewer ids than n_best, the list ends with pairs of -infinity. The caller leaves `masks`
     * alone until fence. NULL: the backend has no such search. */
    void (*best_allowed)(struct program *program, int32_t n, const int32_t *rows,
                         const uint64_t *masks);

    /* Prints where the time of the runs went, for a device opened with is_profiled. NULL: the
     * backend keeps no profile. */
    void (*print_profile)(struct device *device, struct buf *out);

    /* Measures what the device can do at most. The first call takes a few tenths of a second and at
     * most `room` bytes; 0 for what needs more of them. NULL: the backend cannot measure. */
    void (*measure_limits)(struct device *device, size_t room, struct device_limits *out);

    /* Copies to and from memory of alloc, in order with run. They are complete after fence; until
     * then the caller leaves the host's bytes alone. The host reads and writes device memory by
     * these calls only, unless the backend is_host. */
    void (*upload)(struct device *device, void *memory, const void *host, size_t bytes);
    void (*download)(struct device *device, void *host, const void *memory, size_t bytes);

    /* Pins host memory, so that copies to and from it are faster, and unpins it before it is freed.
     * Both are NULL if pinning does not help. */
    void (*share)(struct device *device, void *host, size_t bytes);
    void (*unshare)(struct device *device, void *host);
};

/* All backends of this build, in order of preference, ended by NULL. */
extern const struct backend *const backend_list[];

/* The first that has a device. */
const struct backend *backend_default(void);

/* By name. CARAT_EDEVICE names the ones there are. */
int backend_find(const struct backend **out, const char *name, struct carat_error *err);

#endif
