/* A device that a runner computes on: what may be taken of it, what has been decided for it, and
 * what has been taken. */
#ifndef ENGINE_TARGET_H
#define ENGINE_TARGET_H

#include "backend/backend.h"
#include "base/bytes.h"
#include "carat.h"
#include "model/weights.h"

struct target {
    const struct backend *backend;
    struct device *device; /* NULL: not opened */
    char name[96];
    enum matmul_kind decode_matmul; /* as the device has chosen */
    bool is_apart;                  /* backend.h: struct device_facts, */
    int32_t alike_rows;             /* and this */

    /* Bytes, before anything is taken. */
    size_t total, available; /* of the device; what may be taken of it */
    size_t driver;           /* what of it is left to the driver */
    bool is_limited;         /* a user said how much may be taken */

    /* Decided before anything is taken: what its caches and buffers need, in bytes, and where its
     * weights go. */
    uint64_t kv_local, kv_global, buffers;
    uint64_t drafter; /* the weights of a drafter */
    struct placement placement;
    /* What its plans read: `own` and `draft`, or views that nobody runs. */
    const struct weights *weights, *draft_weights;

    struct weights own;               /* device_data is of this device */
    struct weights draft;             /* a drafter's; n_all 0: there is none */
    int32_t n_loaded, n_draft_loaded; /* how many of these the device has */
    void *kv, *memory, *scratch;
};

/* Which device, and how it may be used. */
struct target_choice {
    const char *backend;
    int32_t device;        /* which of the backend's */
    bool is_first;         /* the one whose limits are measured; others take turns with it */
    bool has_layer_inputs; /* as its model */
    bool has_drafter;      /* one of a dense model: experts are slower in fp16 */
};

static inline uint64_t target_kv_bytes(const struct target *t)
{
    return bytes_add(t->kv_local, t->kv_global);
}

/* All bytes that the device holds while it is open. */
static inline uint64_t target_bytes(const struct target *t)
{
    return bytes_add(target_kv_bytes(t), t->buffers + t->drafter + t->placement.device_bytes);
}

/* Whether rows between two devices go through a staging buffer: if neither is the host. */
static inline bool target_needs_staging(const struct target *from, const struct target *to)
{
    return !from->backend->is_host && !to->backend->is_host;
}

/* Opens the device and notes what may be taken of it. CARAT_EDEVICE: there is no such device. */
int target_open(struct target *t, const struct target_choice *choice,
                const struct carat_engine_options *o, struct carat_error *err);
void target_close(struct target *t);

/* Takes memory for caches, plan buffers and scratch, and loads the weights, if the device has
 * anything to do. What was taken before an error is given back by target_give. */
int target_take(struct target *t, size_t buffer_bytes, size_t scratch_bytes,
                struct carat_error *err);
void target_give(struct target *t);

#endif
