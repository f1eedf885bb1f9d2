/* What a backend is: memory on a device, weights made ready for it, and plans run on it. A
 * backend knows ops and formats; it knows nothing of Gemma, requests or batching.
 *
 * Rules
 * 1. Calls in order: open; alloc, weight_load; bind; run, fence, download; unbind; free; close.
 *    One thread at a time for a device.
 * 2. open, alloc, weight_load and bind may fail, with a message. run does not fail: what can go
 *    wrong is found by bind, or it is a lost device, which fence reports.
 * 3. Everything that a run needs is taken by bind: nothing allocates afterwards.
 * 4. A row's result depends on nothing but that row's inputs and its sequence's cache: not on
 *    other rows, their number, or the chunking. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "plan/plan.h"

struct device;  /* a backend's own */
struct program; /* a plan bound to a device */

struct device_facts {
    char name[96];
    size_t memory_total, memory_available; /* bytes */
};

/* What a device can do at most: bytes read, 8-bit operations (a product and its sum are two). */
struct device_limits {
    double read_bytes, int8_operations; /* a second */
};

/* How a user wants a device to work. Zero: the defaults. */
struct device_options {
    int n_threads;   /* 0: one for each physical core, fewer where a step is too small */
    bool is_pinned;  /* threads stay on their cores */
    bool is_exact;   /* activations stay fp32 where they would be rounded to 8 bits */
};

struct backend {
    const char *name;
    enum format kv_format; /* of caches unless the user says otherwise */

    int (*count)(void); /* devices of this kind that this machine has */
    int (*open)(struct device **out, int index, const struct device_options *options,
                struct carat_error *err);
    void (*close)(struct device *device);
    void (*describe)(const struct device *device, struct device_facts *out);

    /* Whether `op` runs on weights of `format` here. */
    bool (*supports)(enum op_code op, enum format format);

    /* Zeroed memory, aligned for any value. CARAT_EMEMORY says how much was needed. */
    int (*alloc)(struct device *device, size_t bytes, void **out, struct carat_error *err);
    void (*free)(struct device *device, void *memory);

    /* Fills in weight->device_data; the source stays mapped until the device is closed. */
    int (*weight_load)(struct device *device, struct weight *weight, struct carat_error *err);
    void (*weight_unload)(struct device *device, struct weight *weight);

    /* Working memory that the kernels of a plan need beside its buffers. */
    size_t (*scratch_bytes)(const struct device *device, const struct plan *plan);

    /* Chooses kernels. `memory` has plan->bytes and `scratch` scratch_bytes(plan) bytes from
     * alloc; they, the plan and its caches must outlive the program. */
    int (*bind)(struct device *device, const struct plan *plan, void *memory, void *scratch,
                struct program **out, struct carat_error *err);
    void (*unbind)(struct program *program);

    /* Starts the program on the step's rows; the step may be rewritten after fence. */
    void (*run)(struct program *program, const struct step *step);
    int (*fence)(struct device *device, struct carat_error *err); /* CARAT_EDEVICE: lost */

    /* Measures what the device can do at most, in some tenths of a second; NULL where there is
     * no such measure. */
    void (*measure_limits)(struct device *device, struct device_limits *out);
    void (*download)(struct device *device, void *host, const void *memory, size_t bytes);
};

/* All backends of this build, in order of preference, ended by NULL. */
extern const struct backend *const backend_list[];

/* By name. CARAT_EDEVICE names the ones there are. */
int backend_find(const struct backend **out, const char *name, struct carat_error *err);

#endif
