/* Whether a product has the same bits by wgmma of any width, with A in shared memory or in
 * registers, and by mma.sync, if K is added up in the same order. */
#include "probe.cuh"
#include "wgmma.cuh"

#include <cuda_fp16.h>
#include <string.h>

#include "backend/cuda/kernels/instructions.cuh"

namespace {

enum { M = 64, N = 256, K = 128, STEPS = K / STEP_K, DRAWS = 2048, THREADS = 128 };

enum kind { NORMAL, ANY_BITS, SUBNORMAL, CANCELLING, WIDE, KINDS };
static const char *const kind_names[KINDS] = {"normal", "any finite bits", "subnormal",
                                              "cancelling pairs", "sizes 2^-12 to 2^12"};

/* ---- Operands ------------------------------------------------------------------------------- */

__device__ uint32_t hash(uint32_t x)
{
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ float unit(uint32_t x)
{
    return (float)((hash(x) >> 8) + 1) / 16777217.0f;
}

__device__ float normal(uint32_t x)
{
    return sqrtf(-2 * logf(unit(x))) * cospif(2 * unit(x ^ 0x5bd1e995u));
}

/* Value k of a row; `is_b`: of B. With cancelling pairs, what k and k + 1 add up to nearly 0. */
__device__ __half draw(kind what, uint32_t seed, uint32_t row, uint32_t k, bool is_b)
{
    uint32_t x = hash(seed * 2 + is_b) ^ (row * K + k) * 0x9e3779b1u, bits = hash(x ^ 77);
    switch (what) {
    case NORMAL: return __float2half_rn(normal(x));
    case ANY_BITS:
        if ((bits & 0x7c00) == 0x7c00) bits ^= 0x4000;
        return __ushort_as_half((unsigned short)bits);
    case SUBNORMAL: /* one operand; the other one is large */
        return is_b ? __float2half_rn(normal(x) * 4096)
                    : __ushort_as_half((unsigned short)(bits & 0x83ff));
    case CANCELLING: {
        uint32_t first = hash(seed * 2 + is_b) ^ (row * K + k / 2 * 2) * 0x9e3779b1u;
        float v = normal(first) * 64;
        if (k % 16 == 15) return __float2half_rn(normal(x) * 0.01f);
        return __float2half_rn(!is_b && k % 2 ? -v : v);
    }
    default: return __float2half_rn(ldexpf(normal(x), (int)(bits % 25) - 12));
    }
}

/* a [draw][M][K], b [draw][N][K]: B's columns are rows here. */
__global__ void draw_all(kind what, __half *a, __half *b)
{
    uint32_t at = blockIdx.x;
    for (uint32_t i = threadIdx.x; i < M * K; i += blockDim.x)
        a[at * M * K + i] = draw(what, at, i / K, i % K, false);
    for (uint32_t i = threadIdx.x; i < N * K; i += blockDim.x)
        b[(size_t)at * N * K + i] = draw(what, at, i / K, i % K, true);
}

/* ---- Products: d [draw][N][M] --------------------------------------------------------------- */

__device__ __forceinline__ void to_cores(char *shared, const __half *from, uint32_t rows)
{
    for (uint32_t i = threadIdx.x; i < rows * K; i += THREADS) {
        uint32_t row = i / K, k = i % K;
        uint32_t place = k / STEP_K * rows * 32 + core_place(row, k % STEP_K);
        *(__half *)(shared + place) = from[i];
    }
}

/* Row g of the warp's 16 and row g + 8; the fragment of mma.sync and of wgmma is the same. */
__device__ __forceinline__ void read_fragment(uint32_t (&a)[4], const __half *from)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = threadIdx.x / 32 * 16 + g;
    memcpy(&a[0], from + row * K + 2 * t, 4);
    memcpy(&a[1], from + (row + 8) * K + 2 * t, 4);
    memcpy(&a[2], from + row * K + 2 * t + 8, 4);
    memcpy(&a[3], from + (row + 8) * K + 2 * t + 8, 4);
}

template <int COLUMNS, bool IS_IN_REGISTERS>
__global__ void __launch_bounds__(THREADS)
    multiply_wgmma(const __half *all_a, const __half *all_b, float *all_d)
{
    extern __shared__ __align__(128) char shared[];
    const __half *a = all_a + (size_t)blockIdx.x * M * K, *b = all_b + (size_t)blockIdx.x * N * K;
    float *out = all_d + (size_t)blockIdx.x * N * M;
    char *shared_b = shared + M * K * 2;
    to_cores(shared, a, M);
    for (uint32_t first = 0; first < N; first += COLUMNS) {
        float d[wgmma<COLUMNS>::SUMS] = {};
        __syncthreads();
        to_cores(shared_b, b + first * K, COLUMNS);
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        for (uint32_t step = 0; step < STEPS; step++) {
            uint32_t from_b = shared_address(shared_b + step * COLUMNS * 32);
            uint32_t from_a = shared_address(shared + step * M * 32), fragment[4];
            if (IS_IN_REGISTERS) read_fragment(fragment, a + step * STEP_K);
            wgmma_fence();
            if (IS_IN_REGISTERS)
                wgmma<COLUMNS>::add(d, fragment, core_descriptor(from_b));
            else
                wgmma<COLUMNS>::add(d, core_descriptor(from_a), core_descriptor(from_b));
            wgmma_finish();
        }
        uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = threadIdx.x / 32 * 16 + g;
        for (uint32_t i = 0; i < wgmma<COLUMNS>::SUMS; i++) {
            uint32_t column = first + i / 4 * 8 + 2 * t + i % 2;
            out[column * M + row + i % 4 / 2 * 8] = d[i];
        }
    }
}

__global__ void __launch_bounds__(THREADS)
    multiply_mma(const __half *all_a, const __half *all_b, float *all_d)
{
    const __half *a = all_a + (size_t)blockIdx.x * M * K, *b = all_b + (size_t)blockIdx.x * N * K;
    float *out = all_d + (size_t)blockIdx.x * N * M;
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = threadIdx.x / 32 * 16 + g;
    for (uint32_t first = 0; first < N; first += 8) {
        float d[4] = {};
        for (uint32_t step = 0; step < STEPS; step++) {
            uint32_t fragment[4], b0, b1;
            const __half *from = b + (first + g) * K + step * STEP_K + 2 * t;
            read_fragment(fragment, a + step * STEP_K);
            memcpy(&b0, from, 4);
            memcpy(&b1, from + 8, 4);
            mma_f16(d, fragment, b0, b1);
        }
        for (uint32_t i = 0; i < 4; i++) out[(first + 2 * t + i % 2) * M + row + i / 2 * 8] = d[i];
    }
}

/* What it should be: fp64, and the sum of the sizes, against which errors are set. */
__global__ void __launch_bounds__(THREADS)
    multiply_exactly(const __half *all_a, const __half *all_b, double *all_d, double *all_size)
{
    const __half *a = all_a + (size_t)blockIdx.x * M * K, *b = all_b + (size_t)blockIdx.x * N * K;
    for (uint32_t i = threadIdx.x; i < M * N; i += THREADS) {
        double sum = 0, size = 0;
        for (uint32_t k = 0; k < K; k++) {
            double v = (double)__half2float(a[i % M * K + k]) * __half2float(b[i / M * K + k]);
            sum += v, size += fabs(v);
        }
        all_d[(size_t)blockIdx.x * M * N + i] = sum;
        all_size[(size_t)blockIdx.x * M * N + i] = size;
    }
}

/* ---- Comparing ------------------------------------------------------------------------------ */

struct difference {
    unsigned long long n_unequal, n_nan;
    unsigned int steps; /* most, in representable numbers */
    float error;        /* most |d - exact| / size */
};

/* Numbers in their order. */
__device__ int64_t order(float x)
{
    int32_t bits = __float_as_int(x);
    return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
}

__global__ void compare(const float *x, const float *y, const double *exact, const double *size,
                        size_t n, difference *out)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        if (isnan(x[i]) || isnan(y[i])) {
            atomicAdd(&out->n_nan, 1);
            continue;
        }
        if (__float_as_int(x[i]) != __float_as_int(y[i])) {
            int64_t far = order(x[i]) - order(y[i]);
            far = far < 0 ? -far : far;
            atomicAdd(&out->n_unequal, 1);
            atomicMax(&out->steps, far > 0xffffffffll ? ~0u : (unsigned)far);
        }
        if (size[i] > 0) /* floats that are not negative are ordered as their bits */
            atomicMax((int *)&out->error,
                      __float_as_int((float)(fabs((double)y[i] - exact[i]) / size[i])));
    }
}

struct operands {
    __half *a, *b;
    float *first, *d; /* by the first way, and by another one */
    double *exact, *size;
    difference *out;
};

typedef void (*product)(const __half *, const __half *, float *);

void run(struct probe *p, product kernel, const operands &o, float *d)
{
    size_t bytes = (size_t)(M + N) * K * 2;
    must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
         "shared memory");
    must(cudaMemsetAsync(d, 0xff, (size_t)DRAWS * M * N * 4, p->stream), "results");
    kernel<<<DRAWS, THREADS, bytes, p->stream>>>(o.a, o.b, d);
    must(cudaGetLastError(), "product");
}

void compare_all(struct probe *p, kind what, const operands &o)
{
    static const struct {
        const char *name;
        product kernel;
    } ways[] = {{"wgmma n64, A in shared memory", multiply_wgmma<64, false>},
                {"wgmma n8", multiply_wgmma<8, false>},
                {"wgmma n16", multiply_wgmma<16, false>},
                {"wgmma n32", multiply_wgmma<32, false>},
                {"wgmma n128", multiply_wgmma<128, false>},
                {"wgmma n256", multiply_wgmma<256, false>},
                {"wgmma n8, A in registers", multiply_wgmma<8, true>},
                {"wgmma n16, A in registers", multiply_wgmma<16, true>},
                {"wgmma n32, A in registers", multiply_wgmma<32, true>},
                {"wgmma n64, A in registers", multiply_wgmma<64, true>},
                {"wgmma n128, A in registers", multiply_wgmma<128, true>},
                {"wgmma n256, A in registers", multiply_wgmma<256, true>},
                {"mma.sync m16n8k16", multiply_mma}};
    draw_all<<<DRAWS, THREADS, 0, p->stream>>>(what, o.a, o.b);
    multiply_exactly<<<DRAWS, THREADS, 0, p->stream>>>(o.a, o.b, o.exact, o.size);
    run(p, ways[0].kernel, o, o.first);
    size_t n = (size_t)DRAWS * M * N;
    for (auto &way : ways) {
        difference found = {};
        char name[120];
        run(p, way.kernel, o, o.d);
        must(cudaMemsetAsync(o.out, 0, sizeof *o.out, p->stream), "difference");
        compare<<<p->n_sm * 4, 256, 0, p->stream>>>(o.first, o.d, o.exact, o.size, n, o.out);
        must(cudaMemcpyAsync(&found, o.out, sizeof found, cudaMemcpyDeviceToHost, p->stream),
             "out");
        must(cudaStreamSynchronize(p->stream), "difference");
        printf("%-20s %-30s %11llu %8llu %12u %12.2e\n", kind_names[what], way.name,
               found.n_unequal, found.n_nan, found.steps, found.error);
        snprintf(name, sizeof name, "%s: %s", kind_names[what], way.name);
        tell_one(p, name, "unequal", (double)found.n_unequal);
        tell_one(p, name, "steps apart", found.steps);
        tell_one(p, name, "error of the sum of sizes", found.error);
    }
}

} // namespace

void probe_wgmma_bits(struct probe *p)
{
    size_t n = (size_t)DRAWS * M * N;
    operands o = {(__half *)device_memory((size_t)DRAWS * M * K * 2, 0),
                  (__half *)device_memory((size_t)DRAWS * N * K * 2, 0),
                  (float *)device_memory(n * 4, 0),
                  (float *)device_memory(n * 4, 0),
                  (double *)device_memory(n * 8, 0),
                  (double *)device_memory(n * 8, 0),
                  (difference *)device_memory(256, 0)};
    printf("%d products of %d x %d x %d, %zu results; against the first way\n", DRAWS, M, N, K, n);
    printf("%-20s %-30s %11s %8s %12s %12s\n", "values", "way", "unequal", "NaN", "steps apart",
           "error");
    for (int what = 0; what < KINDS; what++) compare_all(p, (kind)what, o);
    cudaFree(o.a), cudaFree(o.b), cudaFree(o.first), cudaFree(o.d);
    cudaFree(o.exact), cudaFree(o.size), cudaFree(o.out);
}
