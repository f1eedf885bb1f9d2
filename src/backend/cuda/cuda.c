#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/beside.h"
#include "backend/cuda/choose.h"
#include "backend/cuda/crowd.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/kernels/sm90/half_inputs.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/mirrors.h"
#include "backend/cuda/placement.h"
#include "backend/cuda/profile.h"
#include "backend/cuda/program.h"
#include "backend/cuda/row_table.h"
#include "backend/cuda/step_arrays.h"
#include "backend/cuda/step_size.h"
#include "backend/cuda/weights.h"
#include "backend/cuda/windows.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- Devices ---------------------------------------------------------------------------- */

/* How many devices there are; 0 if all are too old, so that the CPU is the default. */
static int cuda_count(void)
{
    int n = 0, major = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    for (int i = 0; i < n; i++)
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) == cudaSuccess &&
            major >= 8)
            return n;
    return 0;
}

/* A runtime works with drivers of its own major version and later ones. */
static int driver_missing(struct carat_error *err)
{
    int found = 0, needed = CUDART_VERSION / 1000;
    if (cudaDriverGetVersion(&found)) found = 0;
    if (found)
        err_set(err, CARAT_EDEVICE, "cuda: driver %d.%d is too old: %d.0 needed", found / 1000,
                found % 1000 / 10, needed);
    else
        err_set(err, CARAT_EDEVICE, "cuda: no driver");
    err_hint(err, "install a driver of NVIDIA's for CUDA %d.0 or later, or take --backend cpu",
             needed);
    return CARAT_EDEVICE;
}

static int cuda_probe(struct carat_error *err)
{
    int n = 0;
    if (cuda_count() > 0) return CARAT_OK;
    cudaError_t status = cudaGetDeviceCount(&n);
    cudaGetLastError();
    if (status == cudaErrorInsufficientDriver) return driver_missing(err);
    if (status == cudaErrorNoDevice || (!status && n == 0))
        err_set(err, CARAT_EDEVICE, "cuda: the driver finds no device");
    else if (status)
        err_set(err, CARAT_EDEVICE, "cuda: %s", cudaGetErrorString(status));
    else
        err_set(err, CARAT_EDEVICE, "cuda: only devices before compute capability 8.0");
    err_hint(err, "take --backend cpu");
    return CARAT_EDEVICE;
}

static void cuda_close(struct device *d)
{
    cudaSetDevice(d->index);
    slabs_free(d);
    if (d->cublas) cublas_close(d->cublas);
    profile_close(d->profile);
    if (d->step_host) cudaFreeHost(d->step_host);
    if (d->best_host) cudaFreeHost(d->best_host);
    if (d->queue.stream) cudaStreamDestroy(d->queue.stream);
    cudaGetLastError(); /* of a lost device: there is nobody left to tell */
    mem_free(d);
}

static int take_device(struct device *d, struct carat_error *err)
{
    struct cudaDeviceProp facts;
    cudaError_t status = cudaSetDevice(d->index);
    if (!status) status = cudaGetDeviceProperties(&facts, d->index);
    if (status) return cuda_fail(err, status, "cuda");
    if (facts.major < 8) {
        err_set(err, CARAT_EDEVICE,
                "cuda: %s: compute capability 8.0 or later expected, %d.%d found", facts.name,
                facts.major, facts.minor);
        err_hint(err, "take --backend cpu");
        return CARAT_EDEVICE;
    }
    snprintf(d->name, sizeof d->name, "%.80s", facts.name);
    d->queue.residences = d->residences;
    d->queue.n_sm = facts.multiProcessorCount;
    d->queue.capability = facts.major * 10 + facts.minor;
    d->queue.has_dependent_launch = facts.major >= 9;
    status = cudaStreamCreateWithFlags(&d->queue.stream, cudaStreamNonBlocking);
    if (!status) status = cudaMallocHost((void **)&d->step_host, step_bytes(STEP_ROWS_MAX));
    if (!status) status = cudaMallocHost((void **)&d->best_host, BEST_BYTES);
    if (status) return cuda_fail(err, status, "cuda");
    memset(d->step_host, 0, step_bytes(STEP_ROWS_MAX));
    status = (cudaError_t)kernels_status();
    if (status) return cuda_fail(err, status, "cuda: kernels");
    d->many = cuda_choose_many(d);
    cuda_choose_few(d);
    return CARAT_OK;
}

/* On Hopper our own kernels are as fast, and have the same bits for any number of rows. */
static bool wants_cublas(const struct device *d)
{
    const struct device_options *o = &d->options;
    return !o->is_exact && !o->has_no_cublas && (d->queue.capability != 90 || o->wants_cublas);
}

static int cuda_open(struct device **out, int index, const struct device_options *options,
                     struct carat_error *err)
{
    *out = NULL;
    int n = 0;
    if (cudaGetDeviceCount(&n) || n == 0) return cuda_probe(err);
    if (index < 0 || index >= n)
        return err_set(err, CARAT_EDEVICE, "cuda: device 0 to %d expected, %d asked", n - 1, index);
    struct device *d = mem_alloc(1, sizeof *d);
    if (!d) return err_no_memory(err, "device", sizeof *d);
    d->index = index;
    d->options = *options;
    int status = take_device(d, err);
    if (!status && wants_cublas(d)) cublas_open(&d->cublas, NULL); /* else NULL */
    if (!status && d->options.is_profiled) status = profile_open(&d->profile, err);
    if (status)
        cuda_close(d);
    else
        *out = d;
    return status;
}

/* The driver does not tell what it takes for itself. When a device is opened, that is all memory in
 * use if there is no other process, and at most a context with the kernels of cuBLAS and ours.
 * Later it takes memory for kernels that are loaded when they are first needed, for recorded steps,
 * and to round each piece of memory up to 2 MB. */
enum { CONTEXT_BYTES_MAX = 768 << 20, RESERVE_BYTES = 64 << 20 };

static void cuda_describe(const struct device *device, struct device_facts *out)
{
    *out = (struct device_facts){.fp16_rate = device->half_rate, .int8_rate = device->int8_rate};
    snprintf(out->name, sizeof out->name, "%s", device->name);
    out->is_apart = device->has_alike_prompts;
    out->alike_rows = step_size_rows(device, STEP_FEWEST);
    if (!device->options.is_exact) {
        out->matmul = device->many == ACT_HALF ? MATMUL_FP16 : MATMUL_INT8;
        out->decode_matmul = device->half_least == 0  ? MATMUL_INT8
                             : device->half_least > 1 ? MATMUL_AUTO
                                                      : MATMUL_FP16;
    }
    cudaSetDevice(device->index);
    if (cudaMemGetInfo(&out->memory_available, &out->memory_total) != cudaSuccess)
        out->memory_available = out->memory_total = 0;
    size_t used = out->memory_total - out->memory_available;
    out->memory_context = used < CONTEXT_BYTES_MAX ? used : CONTEXT_BYTES_MAX;
    out->memory_reserve = RESERVE_BYTES;
}

static bool cuda_supports(enum op_code op, enum format format)
{
    if (op == OP_ATTENTION || op == OP_KV_WRITE)
        return format == FORMAT_F16 || format == FORMAT_BF16 || format == FORMAT_F32 ||
               format == FORMAT_Q8_0;
    return op < OP_COUNT && format < FORMAT_COUNT;
}

/* ---- Memory ----------------------------------------------------------------------------- */

static int cuda_alloc(struct device *device, size_t bytes, void **out, struct carat_error *err)
{
    *out = NULL;
    cudaSetDevice(device->index);
    cudaError_t status = cudaMalloc(out, bytes ? bytes : 1);
    if (!status) status = cudaMemset(*out, 0, bytes);
    if (!status) status = cudaDeviceSynchronize();
    if (!status) return CARAT_OK;
    cudaFree(*out); /* NULL is fine */
    *out = NULL;
    char what[64];
    snprintf(what, sizeof what, "cuda: %.1f MB", (double)bytes / 1e6);
    return cuda_fail(err, status, what);
}

static void cuda_free(struct device *device, void *memory)
{
    cudaSetDevice(device->index);
    cudaFree(memory);
}

/* On the stream of the kernels, which waits for no other. */
static void copy(struct device *device, void *to, const void *from, size_t bytes,
                 enum cudaMemcpyKind kind)
{
    cudaSetDevice(device->index);
    cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, device->queue.stream);
    if (status) device->failure = status;
}

static void cuda_upload(struct device *device, void *memory, const void *host, size_t bytes)
{
    copy(device, memory, host, bytes, cudaMemcpyHostToDevice);
}

static void cuda_download(struct device *device, void *host, const void *memory, size_t bytes)
{
    copy(device, host, memory, bytes, cudaMemcpyDeviceToHost);
}

/* Pins pages: the driver copies others through pinned pages of its own, call by call. */
static void cuda_share(struct device *device, void *host, size_t bytes)
{
    cudaSetDevice(device->index);
    if (cudaHostRegister(host, bytes, cudaHostRegisterDefault)) cudaGetLastError();
}

static void cuda_unshare(struct device *device, void *host)
{
    cudaSetDevice(device->index);
    if (cudaHostUnregister(host)) cudaGetLastError();
}

/* ---- Weights and plans ------------------------------------------------------------------ */

static int32_t cuda_window(const struct device *device, const struct plan *plan, int32_t i)
{
    return cuda_fuses(device) ? window_at(plan, i).n : 1;
}

static int cuda_fence(struct device *device, struct carat_error *err)
{
    cudaSetDevice(device->index);
    cudaError_t status = cudaStreamSynchronize(device->queue.stream);
    if (!status) status = cudaGetLastError();
    if (!status) status = device->failure;
    if (!status && device->profile && device->is_running)
        profile_end(device->profile, device->is_decode, os_seconds() - device->run_begin);
    device->is_running = false;
    if (!status) return CARAT_OK;
    err_set(err, CARAT_EDEVICE, "cuda: %s failed: %s", device->name, cudaGetErrorString(status));
    err_hint(err, "the requests under way are lost; the system's log (dmesg) may tell the cause");
    return CARAT_EDEVICE;
}

static void print_arithmetic(const struct device *d, struct buf *out)
{
    buf_printf(out, "products of many rows: %s", d->many == ACT_HALF ? "fp16" : "8 bits");
    int most = crowds_read_mirrors(d) ? MATVEC_ROWS_MAX : CROWD_ROWS_MAX;
    if (d->half_least > 0)
        buf_printf(out, ", of %d to %d that decode on tiles", d->half_least, most);
    buf_printf(out, "\n");
}

static void cuda_print_profile(struct device *device, struct buf *out)
{
    struct device_limits limits;
    if (!device->profile) return;
    if (!device->options.is_exact) print_arithmetic(device, out);
    if (device->rows) row_table_print(device->rows, out);
    size_t room = 0, total;
    cudaMemGetInfo(&room, &total);
    cuda_measure_limits(device, room, &limits);
    profile_print(device->profile, &limits, out);
}

const struct backend cuda_backend = {
    .name = "cuda",
    .kv_format = FORMAT_F16,
    .chunk = 2048,
    .replays = true,
    .count = cuda_count,
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .supports = cuda_supports,
    .window = cuda_window,
    .place_weights = cuda_place_weights,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .weight_load = cuda_weight_load,
    .weight_unload = cuda_weight_unload,
    .scratch_bytes = cuda_scratch_bytes,
    .bind = cuda_bind,
    .unbind = cuda_unbind,
    .run = cuda_run,
    .fence = cuda_fence,
    .upload = cuda_upload,
    .download = cuda_download,
    .share = cuda_share,
    .unshare = cuda_unshare,
    .best = cuda_best,
    .n_best = TOP_K,
    .best_allowed = cuda_best_allowed,
    .print_profile = cuda_print_profile,
    .measure_limits = cuda_measure_limits,
};
