/* For probes of the second-level cache: emptying it, prefetching into it, waiting, and finding out
 * by the latency of single loads what is in it. */
#ifndef BENCH_HOPPER_L2_CUH
#define BENCH_HOPPER_L2_CUH

#include "probe.cuh"

namespace {

enum { LINE = 128, SAMPLES = 24, OTHER_THREADS = 512, OTHER_IN_FLIGHT = 8, SM_MAX = 256 };
enum : size_t { OTHER_BYTES = (size_t)512 << 20, PAGE_BYTES = (size_t)2 << 20 };
/* What is prefetched lies somewhere else each time: prefetched lines may outlive a flush. */
enum : size_t { REGION_BYTES = (size_t)64 << 20, REGIONS = 64, REGIONS_READ = 4 };
/* So much shared memory that a multiprocessor holds one block. */
enum { ALONE_BYTES = 160 << 10 };

/* Which multiprocessors take part: rank 0 .. n - 1, or -1. */
struct chosen {
    int n;
    int16_t rank[SM_MAX];
};

enum prefetch_kind { BULK, BULK_LAST, LINES, LINES_LAST, PREFETCH_KINDS };
static const char *const prefetch_names[PREFETCH_KINDS] = {"bulk", "bulk, evict last", "lines",
                                                           "lines, evict last"};

__device__ __forceinline__ uint64_t policy_evict_last()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t policy_evict_first()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void prefetch_bulk(const char *at, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
}

__device__ __forceinline__ void prefetch_bulk_as(const char *at, uint32_t bytes, uint64_t policy)
{
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(at),
                 "r"(bytes), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void prefetch_line(const char *at, bool is_last)
{
    if (is_last)
        asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(at));
    else
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* The chosen multiprocessors prefetch `bytes` in pieces, in turns: a thread a piece, or all threads
 * of a block the lines of a piece. */
__global__ void prefetch(const char *from, size_t bytes, uint32_t piece, prefetch_kind kind,
                         chosen who)
{
    int rank = who.rank[sm_id()];
    if (rank < 0) return;
    uint64_t policy = policy_evict_last();
    for (size_t at = (size_t)rank * piece; at < bytes; at += (size_t)who.n * piece) {
        uint32_t n = bytes - at < piece ? (uint32_t)(bytes - at) : piece;
        if (kind == LINES || kind == LINES_LAST)
            for (uint32_t i = threadIdx.x * LINE; i < n; i += blockDim.x * LINE)
                prefetch_line(from + at + i, kind == LINES_LAST);
        else if (threadIdx.x > 0)
            return;
        else if (kind == BULK_LAST)
            prefetch_bulk_as(from + at, n, policy);
        else
            prefetch_bulk(from + at, n);
    }
}

enum stream_kind { NORMAL, EVICT_FIRST, STREAM_KINDS };
static const char *const stream_names[STREAM_KINDS] = {"plain loads", "evict first"};

__device__ __forceinline__ uint4 load_as(const uint4 *at, stream_kind kind, uint64_t policy)
{
    uint4 v;
    if (kind == EVICT_FIRST)
        asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], "
                     "%5;"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(at), "l"(policy));
    else
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(at));
    return v;
}

/* Reads all once, as products read weights. */
__global__ void __launch_bounds__(OTHER_THREADS, 2)
    read_once(const uint4 *from, int64_t n, stream_kind kind, uint32_t *out)
{
    uint64_t policy = policy_evict_first();
    uint32_t sum = 0;
    int64_t step = (int64_t)gridDim.x * OTHER_THREADS;
    int64_t at = (int64_t)blockIdx.x * OTHER_THREADS + threadIdx.x;
    for (; at < n; at += OTHER_IN_FLIGHT * step) {
        uint4 v[OTHER_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < OTHER_IN_FLIGHT; i++)
            v[i] = at + i * step < n ? load_as(from + at + i * step, kind, policy) : uint4();
#pragma unroll
        for (int i = 0; i < OTHER_IN_FLIGHT; i++) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    if (sum == 0x12345678) *out = sum;
}

__global__ void wait_ns(uint64_t ns)
{
    uint64_t begin = device_ns();
    while (device_ns() - begin < ns) continue;
}

/* Cycles of one load past L1. The clock is read again when the value has been stored. */
__device__ __forceinline__ int load_cycles(const char *at, uint32_t *shared)
{
    uint32_t begin, end, v, to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("mov.u32 %0, %%clock;" : "=r"(begin)::"memory");
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
    asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
    return (int)(end - begin);
}

/* One load at a time from each chosen multiprocessor, of lines spread over all of [from, from +
 * bytes), none of them twice. Cycles to out[sm][SAMPLES]; -1 for the others. */
__global__ void sample(const char *from, size_t bytes, chosen who, int *out)
{
    __shared__ uint32_t sink;
    int sm = sm_id(), rank = who.rank[sm], cycles[SAMPLES];
    if (threadIdx.x > 0) return;
    size_t lines = bytes / LINE, cell = lines / ((size_t)SAMPLES * (size_t)who.n);
    if (rank >=
        0) /* the address translation of each page, by a line that is hardly ever a sample */
        for (size_t at = 5 * LINE; at < bytes; at += PAGE_BYTES) load_cycles(from + at, &sink);
    for (int i = 0; i < SAMPLES; i++) {
        size_t place = (size_t)i * (size_t)who.n + (size_t)rank;
        size_t line = place * cell + place * 2654435761u % cell;
        cycles[i] = rank < 0 ? -1 : load_cycles(from + line * LINE, &sink);
    }
    for (int i = 0; i < SAMPLES; i++) out[sm * SAMPLES + i] = cycles[i];
}

/* ---- The host's side ------------------------------------------------------------------------ */

struct l2 {
    struct probe *probe;
    char *base, *memory; /* REGIONS and some more; the region of this time */
    char *other;         /* OTHER_BYTES */
    size_t turn;
    int *cycles, *host; /* [SM_MAX][SAMPLES] */
    uint32_t *out;
    chosen all;
    int threshold; /* cycles: fewer are a hit */
};

void read_all(struct l2 *c, const char *from, size_t bytes, stream_kind kind)
{
    read_once<<<c->probe->n_sm * 2, OTHER_THREADS, 0, c->probe->stream>>>(
        (const uint4 *)from, (int64_t)(bytes / 16), kind, c->out);
}

/* Other memory is in the cache now, as far as lines that were to stay let go. Nothing of the new
 * region is there. */
void flush(struct l2 *c)
{
    must(cudaStreamSynchronize(c->probe->stream), "flush");
    must(cudaCtxResetPersistingL2Cache(), "flush");
    read_all(c, c->other, OTHER_BYTES, NORMAL);
    c->memory = c->base + c->turn++ % REGIONS * REGION_BYTES;
}

void start_prefetch(struct l2 *c, size_t bytes, uint32_t piece, prefetch_kind kind,
                    const chosen &who)
{
    prefetch<<<c->probe->n_sm, 128, ALONE_BYTES, c->probe->stream>>>(c->memory, bytes, piece, kind,
                                                                     who);
}

void start_wait(struct l2 *c, double us)
{
    wait_ns<<<1, 1, 0, c->probe->stream>>>((uint64_t)(us * 1e3));
}

/* Latencies in cycles of lines in c->memory, seen by the chosen ones. */
samples look(struct l2 *c, size_t bytes, const chosen &who)
{
    samples s;
    sample<<<c->probe->n_sm, 32, ALONE_BYTES, c->probe->stream>>>(c->memory, bytes, who, c->cycles);
    must(cudaMemcpyAsync(c->host, c->cycles, sizeof(int) * SM_MAX * SAMPLES, cudaMemcpyDeviceToHost,
                         c->probe->stream),
         "samples");
    must(cudaStreamSynchronize(c->probe->stream), "samples");
    for (int sm = 0; sm < c->probe->n_sm; sm++)
        for (int i = 0; i < SAMPLES && who.rank[sm] >= 0; i++)
            s.push_back(c->host[sm * SAMPLES + i]);
    return s;
}

double share_of_hits(const struct l2 *c, const samples &s)
{
    size_t hits = 0;
    for (size_t i = 0; i < s.size(); i++) hits += s[i] < c->threshold;
    return 100 * (double)hits / (double)s.size();
}

chosen choose_all(int n_sm)
{
    chosen who;
    who.n = n_sm;
    for (int i = 0; i < SM_MAX; i++) who.rank[i] = (int16_t)(i < n_sm ? i : -1);
    return who;
}

/* Between what loads take that hit for certain and those that miss. */
void find_threshold(struct l2 *c)
{
    enum { HOT_BYTES = 4 << 20, COLD_BYTES = 32 << 20 };
    samples hot, cold;
    flush(c);
    cold = look(c, COLD_BYTES, c->all);
    for (int i = 0; i < 4; i++) read_all(c, c->memory, HOT_BYTES, NORMAL);
    hot = look(c, HOT_BYTES, c->all);
    c->threshold = (int)((quantile(hot, 0.95) + quantile(cold, 0.05)) / 2);
    printf(
        "cycles of a load: in L2 %.0f (5 to 95 %%: %.0f to %.0f), in memory %.0f (%.0f to %.0f); "
        "a hit takes less than %d\n",
        quantile(hot, 0.5), quantile(hot, 0.05), quantile(hot, 0.95), quantile(cold, 0.5),
        quantile(cold, 0.05), quantile(cold, 0.95), c->threshold);
    tell(c->probe, "load that hits", "cycles", hot);
    tell(c->probe, "load that misses", "cycles", cold);
}

struct l2 l2_open(struct probe *p)
{
    struct l2 c = {};
    c.probe = p;
    c.base = c.memory = device_memory((REGIONS + REGIONS_READ) * REGION_BYTES, 1);
    c.other = device_memory(OTHER_BYTES, 1);
    c.cycles = (int *)device_memory(sizeof(int) * SM_MAX * SAMPLES, 0xff);
    c.out = (uint32_t *)device_memory(256, 0);
    must(cudaMallocHost((void **)&c.host, sizeof(int) * SM_MAX * SAMPLES), "host memory");
    must(cudaFuncSetAttribute(prefetch, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_BYTES),
         "prefetch");
    must(cudaFuncSetAttribute(sample, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_BYTES),
         "sample");
    c.all = choose_all(p->n_sm);
    find_threshold(&c);
    return c;
}

void l2_close(struct l2 *c)
{
    cudaFree(c->base);
    cudaFree(c->other);
    cudaFree(c->cycles);
    cudaFree(c->out);
    cudaFreeHost(c->host);
}

} // namespace

#endif
