#include "backend/ref/ref.h"

#include <stdlib.h>
#include <string.h>

#include "backend/host.h"
#include "backend/ref/ops.h"
#include "base/mem.h"
#include "base/os.h"

typedef void (*ref_kernel)(const struct ref_call *call);

static const ref_kernel kernels[OP_COUNT] = {
#define X(NAME, params, meaning, budget) ref_##NAME,
    OP_LIST(X)
#undef X
};

struct device {
    char name[96];
    product_observer *observe;
    void *observe_user;
};

struct program {
    const struct device *device;
    const struct plan *plan;
    char *memory;
    float *scratch;
    int32_t *scatter; /* row * n_used + slot, of EXPERT_* */
};

static int ref_count(void)
{
    return 1;
}

static int ref_open(struct device **out, int index, const struct device_options *options,
                    struct carat_error *err)
{
    /* One thread, always exact. */
    if (index != 0) return err_set(err, CARAT_EDEVICE, "ref: device 0 expected, %d asked", index);
    struct device *d = *out = mem_alloc(1, sizeof *d);
    if (!d) return err_no_memory(err, "device", sizeof *d);
    os_cpu_name(d->name, sizeof d->name);
    d->observe = options->observe;
    d->observe_user = options->observe_user;
    return CARAT_OK;
}

static void ref_close(struct device *device)
{
    mem_free(device);
}

static void ref_describe(const struct device *device, struct device_facts *out)
{
    host_describe(device->name, out);
}

static bool ref_supports(enum op_code op, enum format format)
{
    return op < OP_COUNT && format < FORMAT_COUNT;
}

static int ref_alloc(struct device *device, size_t bytes, void **out, struct carat_error *err)
{
    (void)device;
    *out = mem_alloc(bytes, 1);
    return *out ? CARAT_OK : err_no_memory(err, "ref", bytes);
}

static void ref_free(struct device *device, void *memory)
{
    (void)device;
    mem_free(memory);
}

/* Weights are read where they lie in the mapped file. */
static int ref_weight_load(struct device *device, struct weight *weight, struct carat_error *err)
{
    (void)device, (void)err;
    weight->device_data = (void *)(uintptr_t)weight->data;
    return CARAT_OK;
}

static void ref_weight_unload(struct device *device, struct weight *weight)
{
    (void)device;
    weight->device_data = NULL;
}

/* Floats first, then the integers of EXPERT_*: rows times experts used. */
static void count_scratch(const struct plan *plan, size_t *floats, size_t *integers)
{
    size_t rows = (size_t)plan->rows_max[ROWS_TOKEN];
    if ((size_t)plan->rows_max[ROWS_OUT] > rows) rows = (size_t)plan->rows_max[ROWS_OUT];
    *floats = *integers = 0;
    for (int32_t i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        size_t needed = ref_scratch_floats(plan, op);
        if (needed > *floats) *floats = needed;
        bool is_routed = op->code == OP_EXPERT_IN || op->code == OP_EXPERT_OUT;
        if (is_routed && rows * (size_t)op->p.expert.n_used > *integers)
            *integers = rows * (size_t)op->p.expert.n_used;
    }
}

static size_t ref_scratch_bytes(const struct device *device, const struct plan *plan)
{
    (void)device;
    size_t floats, integers;
    count_scratch(plan, &floats, &integers);
    return floats * sizeof(float) + integers * sizeof(int32_t);
}

static int ref_bind(struct device *device, const struct plan *plan,
                    const struct placement *placement, void *memory, void *scratch,
                    struct program **out, struct carat_error *err)
{
    (void)placement;
    struct program *p = *out = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "program", sizeof *p);
    size_t floats, integers;
    count_scratch(plan, &floats, &integers);
    *p = (struct program){.device = device,
                          .plan = plan,
                          .memory = memory,
                          .scratch = scratch,
                          .scatter = (int32_t *)(void *)((float *)scratch + floats)};
    return CARAT_OK;
}

static void ref_unbind(struct program *program)
{
    mem_free(program);
}

static float *rows_at(const struct program *p, buf_id id)
{
    return id == BUF_NONE ? NULL : (float *)(void *)(p->memory + plan_buf_at(p->plan, id)->offset);
}

static int32_t cols_at(const struct program *p, buf_id id)
{
    return id == BUF_NONE ? 0 : plan_buf_at(p->plan, id)->cols;
}

static void observe(const struct device *d, const struct ref_call *call)
{
    struct product_rows rows = host_product_rows(call->op, call->x0, call->x1, call->rows);
    d->observe(d->observe_user, &rows);
}

static void ref_run(struct program *p, const struct step *step)
{
    for (int32_t i = 0; i < p->plan->n_ops; i++) {
        const struct op *op = &p->plan->ops[i];
        /* KV_WRITE has no output: its rows are those of its input. */
        buf_id shaped = op->out[0] != BUF_NONE ? op->out[0] : op->in[0];
        enum row_class rows_class = plan_buf_at(p->plan, shaped)->rows;
        struct ref_call call = {
            .op = op,
            .plan = p->plan,
            .step = step,
            .rows = rows_class == ROWS_TOKEN ? step->n_token : step->n_out,
            .rows_class = rows_class,
            .x_cols = cols_at(p, op->in[0]),
            .x1_cols = cols_at(p, op->in[1]),
            .y_cols = cols_at(p, op->out[0]),
            .x0 = rows_at(p, op->in[0]),
            .x1 = rows_at(p, op->in[1]),
            .x2 = rows_at(p, op->in[2]),
            .y0 = rows_at(p, op->out[0]),
            .y1 = rows_at(p, op->out[1]),
            .scratch = p->scratch,
            .scatter = p->scatter,
        };
        if (call.rows <= 0) continue;
        if (p->device->observe && op_product(op)) observe(p->device, &call);
        kernels[op->code](&call);
    }
}

static int ref_fence(struct device *device, struct carat_error *err)
{
    (void)device, (void)err;
    return CARAT_OK;
}

static void ref_upload(struct device *device, void *memory, const void *host, size_t bytes)
{
    (void)device;
    memcpy(memory, host, bytes);
}

static void ref_download(struct device *device, void *host, const void *memory, size_t bytes)
{
    (void)device;
    memcpy(host, memory, bytes);
}

const struct backend ref_backend = {
    .name = "ref",
    .kv_format = FORMAT_F32,
    .chunk = 512,
    .is_host = true,
    .observes = true,
    .count = ref_count,
    .open = ref_open,
    .close = ref_close,
    .describe = ref_describe,
    .supports = ref_supports,
    .alloc = ref_alloc,
    .free = ref_free,
    .weight_load = ref_weight_load,
    .weight_unload = ref_weight_unload,
    .scratch_bytes = ref_scratch_bytes,
    .bind = ref_bind,
    .unbind = ref_unbind,
    .run = ref_run,
    .fence = ref_fence,
    .upload = ref_upload,
    .download = ref_download,
};
