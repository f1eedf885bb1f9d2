/* A runtime that only counts, in front of that of NVIDIA: device memory is host memory, kernels do
 * nothing. So tests without a GPU see to the byte what is taken and when. Copies on streams other
 * than the first can be held back until the host has to wait for them.
 *
 * One file of a program includes it. The link options of that program name what is defined here
 * (tests/CMakeLists.txt). */
#ifndef SUPPORT_FAKE_CUDA_H
#define SUPPORT_FAKE_CUDA_H

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cublas.h"
#include "backend/cuda/device.h"
#include "base/mem.h"
#include "carat.h"

#define GIGABYTE ((size_t)1 << 30)

/* What was started on the device: how often, and a hash of what it was, in order. */
struct launched {
    size_t n;
    uint64_t hash;
};

enum { CAPTURES_MAX = 256 };

static struct {
    size_t total; /* of device memory */
    size_t device, device_most, pinned, pinned_most;
    size_t others;       /* that other programs have */
    size_t pinned_total; /* that may be pinned */
    bool has_cublas;
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } * late; /* copies of streams other than the first, made when the host has to wait for them */
    size_t n_late, n_late_done, n_late_most;
    size_t n_late_awaited; /* by the first stream */
    uintptr_t n_streams;
    float ms[2]; /* that measured launches take, in turn */
    int n_measured;
    int n_asked;                            /* questions about the device and its kernels */
    struct launched launched;               /* since the last reset of it */
    struct launched captures[CAPTURES_MAX]; /* of each recorded step */
    int n_captures;
    cudaError_t found;  /* of looking for devices */
    cudaError_t loaded; /* of loading a kernel */
    int devices, major, driver;
} fake;

enum { HEADER = 256 }; /* in front of a piece: its size */

static void reset(size_t total)
{
    memset(&fake, 0, sizeof fake);
    fake.total = total;
    fake.pinned_total = 8 * GIGABYTE;
    fake.has_cublas = true;
    fake.devices = 1;
    fake.major = 9;
    fake.driver = CUDART_VERSION;
    fake.ms[0] = fake.ms[1] = 1;
}

static void *take(size_t bytes)
{
    char *piece = mem_alloc(HEADER + bytes, 1);
    assert_non_null(piece);
    memcpy(piece, &bytes, sizeof bytes);
    return piece + HEADER;
}

static size_t give(void *memory)
{
    size_t bytes;
    char *piece = (char *)memory - HEADER;
    memcpy(&bytes, piece, sizeof bytes);
    mem_free(piece);
    return bytes;
}

#define FAKE_OF(type, name, ...)                                                                   \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)
#define FAKE(name, ...) FAKE_OF(cudaError_t, name, __VA_ARGS__)

FAKE(cudaMalloc, void **out, size_t bytes)
{
    if (bytes > fake.total - fake.others - fake.device) return cudaErrorMemoryAllocation;
    *out = take(bytes);
    fake.device += bytes;
    if (fake.device > fake.device_most) fake.device_most = fake.device;
    return cudaSuccess;
}
FAKE(cudaFree, void *memory)
{
    if (memory) fake.device -= give(memory);
    return cudaSuccess;
}
FAKE(cudaMallocHost, void **out, size_t bytes)
{
    if (bytes > fake.pinned_total - fake.pinned) return cudaErrorMemoryAllocation;
    *out = take(bytes);
    fake.pinned += bytes;
    if (fake.pinned > fake.pinned_most) fake.pinned_most = fake.pinned;
    return cudaSuccess;
}
FAKE(cudaFreeHost, void *memory)
{
    if (memory) fake.pinned -= give(memory);
    return cudaSuccess;
}
FAKE(cudaMemGetInfo, size_t *available, size_t *total)
{
    *available = fake.total - fake.others - fake.device;
    *total = fake.total;
    return cudaSuccess;
}
FAKE(cudaMemset, void *to, int byte, size_t bytes)
{
    memset(to, byte, bytes);
    return cudaSuccess;
}
FAKE(cudaMemsetAsync, void *to, int byte, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(to, byte, bytes);
    return cudaSuccess;
}
FAKE(cudaMemcpy, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}
FAKE(cudaMemcpyAsync, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
     cudaStream_t stream)
{
    (void)kind;
    if (!fake.late || (uintptr_t)stream < 2) {
        memcpy(to, from, bytes);
        return cudaSuccess;
    }
    assert_true(fake.n_late < fake.n_late_most);
    fake.late[fake.n_late].to = to;
    fake.late[fake.n_late].from = from;
    fake.late[fake.n_late++].bytes = bytes;
    return cudaSuccess;
}
/* Makes the copies up to the n-th, in the order in which they were asked for. */
static void end_late(size_t n)
{
    for (; fake.n_late_done < n; fake.n_late_done++)
        memcpy(fake.late[fake.n_late_done].to, fake.late[fake.n_late_done].from,
               fake.late[fake.n_late_done].bytes);
}
FAKE(cudaStreamCreateWithFlags, cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = (cudaStream_t)++fake.n_streams;
    return cudaSuccess;
}
FAKE(cudaStreamSynchronize, cudaStream_t stream)
{
    end_late((uintptr_t)stream >= 2 ? fake.n_late : fake.n_late_awaited);
    return cudaSuccess;
}
/* An event remembers the late copies before it. */
FAKE(cudaEventCreateWithFlags, cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = mem_alloc(1, sizeof(size_t));
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
FAKE(cudaEventDestroy, cudaEvent_t event)
{
    mem_free(event);
    return cudaSuccess;
}
FAKE(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
{
    if (event && (uintptr_t)stream >= 2) memcpy(event, &fake.n_late, sizeof fake.n_late);
    return cudaSuccess;
}
FAKE(cudaEventSynchronize, cudaEvent_t event)
{
    size_t n = 0;
    if (event) memcpy(&n, event, sizeof n);
    end_late(n);
    return cudaSuccess;
}
FAKE(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)flags;
    memcpy(&fake.n_late_awaited, event, sizeof fake.n_late_awaited);
    return cudaSuccess;
}
FAKE(cudaGetDeviceCount, int *n)
{
    *n = fake.found ? 0 : fake.devices;
    return fake.found;
}
FAKE(cudaDriverGetVersion, int *version)
{
    *version = fake.driver;
    return cudaSuccess;
}
FAKE(cudaGetDevice, int *device)
{
    *device = 0;
    return cudaSuccess;
}
FAKE(cudaDeviceGetAttribute, int *value, enum cudaDeviceAttr what, int device)
{
    (void)device;
    fake.n_asked++;
    *value = what == cudaDevAttrComputeCapabilityMajor ? fake.major : 227 << 10; /* shared memory */
    return cudaSuccess;
}
static cudaError_t describe(struct cudaDeviceProp *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "books");
    out->major = fake.major;
    out->multiProcessorCount = 132;
    return cudaSuccess;
}
/* The headers of version 12 define the first name as the second. */
FAKE(cudaGetDeviceProperties, struct cudaDeviceProp *out, int device)
{
    (void)device;
    return describe(out);
}
FAKE(cudaGetDeviceProperties_v2, struct cudaDeviceProp *out, int device)
{
    (void)device;
    return describe(out);
}
FAKE(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *n, const void *kernel,
     int threads, size_t shared, unsigned flags)
{
    (void)kernel;
    (void)threads;
    (void)shared;
    (void)flags;
    fake.n_asked++;
    *n = 2;
    return cudaSuccess;
}
FAKE(cudaEventElapsedTime, float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    (void)begin;
    (void)end;
    *ms = fake.ms[fake.n_measured++ % 2];
    return cudaSuccess;
}
/* FNV-1a. */
static void note_launch(const void *what, size_t bytes)
{
    const unsigned char *at = what;
    for (size_t i = 0; i < bytes; i++)
        fake.launched.hash = (fake.launched.hash ^ at[i]) * 0x100000001b3;
    fake.launched.n++;
}
FAKE(cudaLaunchKernelExC, const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    (void)args;
    uint64_t what[] = {(uintptr_t)kernel,  config->gridDim.x,       config->gridDim.y,
                       config->gridDim.z,  config->blockDim.x,      config->blockDim.y,
                       config->blockDim.z, config->dynamicSmemBytes};
    note_launch(what, sizeof what);
    return cudaSuccess;
}
FAKE(cudaStreamBeginCapture, cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream;
    (void)mode;
    memset(&fake.launched, 0, sizeof fake.launched);
    return cudaSuccess;
}
FAKE(cudaStreamEndCapture, cudaStream_t stream, cudaGraph_t *out)
{
    (void)stream;
    (void)out;
    assert_true(fake.n_captures < CAPTURES_MAX);
    fake.captures[fake.n_captures++] = fake.launched;
    return cudaSuccess;
}
FAKE(cudaFuncGetAttributes, struct cudaFuncAttributes *out, const void *kernel)
{
    (void)kernel;
    *out = (struct cudaFuncAttributes){0};
    return fake.loaded;
}
FAKE_OF(const char *, cudaGetErrorString, cudaError_t error)
{
    return error ? "a failure" : "no failure";
}

/* Of the driver's functions only the one that makes maps for TMA is asked for. */
static int encode_nothing(void)
{
    return 0;
}
FAKE(cudaGetDriverEntryPointByVersion, const char *symbol, void **out, unsigned version,
     unsigned long long flags, enum cudaDriverEntryPointQueryResult *found)
{
    int (*entry)(void) = encode_nothing;
    (void)version;
    (void)flags;
    assert_string_equal(symbol, "cuTensorMapEncodeTiled");
    memcpy(out, &entry, sizeof entry);
    *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

/* Calls without effect. Nobody looks at what some of them would make. */
#define NOTHING(name, ...)                                                                         \
    FAKE(name, __VA_ARGS__)                                                                        \
    {                                                                                              \
        return cudaSuccess;                                                                        \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOTHING(cudaSetDevice, int device)
NOTHING(cudaDeviceSynchronize, void)
NOTHING(cudaGetLastError, void)
NOTHING(cudaPeekAtLastError, void)
NOTHING(cudaEventCreate, cudaEvent_t *out)
NOTHING(cudaHostRegister, void *memory, size_t bytes, unsigned flags)
NOTHING(cudaHostUnregister, void *memory)
NOTHING(cudaFuncSetAttribute, const void *kernel, enum cudaFuncAttribute what, int value)
NOTHING(cudaGraphDestroy, cudaGraph_t graph)
NOTHING(cudaGraphExecDestroy, cudaGraphExec_t graph)
NOTHING(cudaGraphInstantiate, cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
NOTHING(cudaGraphLaunch, cudaGraphExec_t graph, cudaStream_t stream)
NOTHING(cudaGraphUpload, cudaGraphExec_t graph, cudaStream_t stream)
NOTHING(cudaStreamDestroy, cudaStream_t stream)

FAKE_OF(int, cublas_open, struct cublas **out, const char *path)
{
    static char handle;
    *out = fake.has_cublas ? (struct cublas *)(void *)&handle : NULL;
    return fake.has_cublas ? 0 : -1;
}
FAKE_OF(void, cublas_close, struct cublas *c) {}
/* The whole workspace has to be memory of the device: it is written. */
FAKE_OF(int, cublas_set_stream, struct cublas *c, const struct queue *q, void *workspace,
        size_t bytes)
{
    memset(workspace, 0xff, bytes);
    return 0;
}
FAKE_OF(void, cublas_multiply, struct cublas *c, const struct queue *q,
        const struct gemm_args *args)
{
    int32_t what[] = {args->n_rows, args->n_w, args->w[0].rows, args->x.stride, args->half != NULL};
    note_launch(what, sizeof what);
}

/* What the memory table of an engine says about the device. */
static uint64_t told(const struct carat_memory *m)
{
    return m->weights + m->kv_local + m->kv_global + m->buffers;
}

#endif
