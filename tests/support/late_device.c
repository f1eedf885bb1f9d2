#include "support/late_device.h"

#include <string.h>

#include "backend/ref/ref.h"
#include "base/assert.h"

enum { PENDING_MAX = 24, DEVICES_MAX = 4 };

struct late_counts late_counts;
size_t late_memory;
static struct {
    struct device *device;
    struct {
        struct program *program; /* NULL: a copy */
        const struct step *step;
        void *to;
        const void *from;
        size_t bytes;
    } pending[PENDING_MAX];
    int n_pending;
} queues[DEVICES_MAX];

static int queue_of(const struct device *device)
{
    int i = 0;
    while (queues[i].device != device) carat_assert(++i < DEVICES_MAX);
    return i;
}

static int open_late(struct device **out, int index, const struct device_options *options,
                     struct carat_error *err)
{
    int i = queue_of(NULL); /* a free one */
    int status = ref_backend.open(out, 0, options, err);
    carat_assert(index >= 0);
    if (!status) queues[i].device = *out;
    return status;
}

static void close_late(struct device *device)
{
    int i = queue_of(device);
    carat_assert(queues[i].n_pending == 0);
    queues[i].device = NULL;
    ref_backend.close(device);
}

/* The device of a program, as bind saw it. */
static struct {
    struct program *program;
    struct device *device;
} bound[512];
static int n_bound;

static int bind_late(struct device *device, const struct plan *plan,
                     const struct placement *placement, void *memory, void *work,
                     struct program **out, struct carat_error *err)
{
    int status = ref_backend.bind(device, plan, placement, memory, work, out, err);
    carat_assert(n_bound < (int)(sizeof bound / sizeof *bound));
    if (!status) {
        bound[n_bound].program = *out;
        bound[n_bound++].device = device;
    }
    return status;
}

static void run_late(struct program *program, const struct step *step)
{
    int b = n_bound - 1; /* the newest: memory of an earlier one may be used again */
    while (bound[b].program != program) carat_assert(--b >= 0);
    int i = queue_of(bound[b].device), n = queues[i].n_pending++;
    carat_assert(n < PENDING_MAX);
    queues[i].pending[n].program = program;
    queues[i].pending[n].step = step;
}

static void copy_late(struct device *device, void *to, const void *from, size_t bytes)
{
    int i = queue_of(device), n = queues[i].n_pending++;
    carat_assert(n < PENDING_MAX);
    queues[i].pending[n].program = NULL;
    queues[i].pending[n].to = to;
    queues[i].pending[n].from = from;
    queues[i].pending[n].bytes = bytes;
}

static void upload_late(struct device *device, void *memory, const void *host, size_t bytes)
{
    late_counts.uploads++;
    copy_late(device, memory, host, bytes);
}

/* Rows that are read too early are NaN. */
static void download_late(struct device *device, void *host, const void *memory, size_t bytes)
{
    memset(host, 0xFF, bytes);
    copy_late(device, host, memory, bytes);
}

static int fence_late(struct device *device, struct carat_error *err)
{
    (void)err;
    int i = queue_of(device);
    for (int k = 0; k < queues[i].n_pending; k++)
        if (queues[i].pending[k].program)
            ref_backend.run(queues[i].pending[k].program, queues[i].pending[k].step);
        else
            memcpy(queues[i].pending[k].to, queues[i].pending[k].from, queues[i].pending[k].bytes);
    queues[i].n_pending = 0;
    return CARAT_OK;
}

static int alloc_late(struct device *device, size_t bytes, void **out, struct carat_error *err)
{
    int status = ref_backend.alloc(device, bytes, out, err);
    if (!status) late_counts.bytes_taken += bytes;
    return status;
}

static void describe_late(const struct device *device, struct device_facts *out)
{
    ref_backend.describe(device, out);
    if (late_memory) out->memory_available = late_memory;
}

void late_reset(void)
{
    n_bound = 0;
    late_memory = 0;
    late_counts = (struct late_counts){0};
}

const struct backend *late_backend(void)
{
    static struct backend late;
    late = ref_backend;
    late.name = "late";
    late.is_host = false;
    late.open = open_late;
    late.close = close_late;
    late.describe = describe_late;
    late.alloc = alloc_late;
    late.bind = bind_late;
    late.run = run_late;
    late.fence = fence_late;
    late.upload = upload_late;
    late.download = download_late;
    return &late;
}
