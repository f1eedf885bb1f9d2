/* A decode step of one row as one kernel that stays: how fast could it be?
 *
 * A model of a step, not the step itself. It has the phases of a layer with their true bytes,
 * shapes and dependencies, and arithmetic of about the true size, but no meaning. A producer warp
 * in each block streams the weights of all phases in order into a ring of shared memory and never
 * waits for results. Sixteen warps wait for the phase before, read what it gave, multiply what is
 * in the ring, add up and store.
 *
 * Varied are the phases of a layer (as launches are today, or with norms made by every block that
 * reads them and attention as one phase), how many stages of weights may run ahead of results, and
 * whether there are weights at all. */
#include "phases.cuh"
#include "probe.cuh"

#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/sm90/async.cuh"

namespace {

enum {
    WARPS = 16, /* that multiply */
    CONSUMERS = WARPS * 32,
    THREADS = CONSUMERS + 32,
    STAGE = 16384,
    STAGES = 11,
    RUNS = 7
};

struct step {
    int32_t n_layer, n_phase;
    int32_t ahead; /* stages of phases to come, at most */
    struct phase phases[PHASES_MAX], head;
    const uint8_t *weights;
    int64_t weight_bytes;
    float *values; /* two buffers of ROW_MAX */
    unsigned *arrived;
};

__device__ __forceinline__ unsigned arrivals(const unsigned *at)
{
    unsigned n;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(at) : "memory");
    return n;
}

/* A block's part of a phase's weights, in units of 512 bytes. */
__device__ __forceinline__ int64_t share(const phase &f, int block)
{
    int64_t rows = f.cols ? f.weights / f.cols : 0;
    return (rows * (block + 1) / gridDim.x - rows * block / gridDim.x) * f.cols / 512 * 512;
}

__device__ __forceinline__ int64_t offset(const phase &f, int block)
{
    int64_t rows = f.cols ? f.weights / f.cols : 0;
    return rows * block / gridDim.x * f.cols;
}

__device__ __forceinline__ const phase &phase_at(const step &s, int i)
{
    return i == s.n_layer * s.n_phase ? s.head : s.phases[i % s.n_phase];
}

/* While a phase is the one to do, at most s.ahead stages of later ones are asked for. */
__device__ void produce(const step &s, uint32_t ring, uint32_t full, uint32_t empty,
                        volatile int *phase_now)
{
    if (threadIdx.x % 32) return;
    int at = 0, early = 0,
        early_of = -1; /* stages asked for while phase early_of was the one to do */
    uint32_t parity = 1;
    int64_t from = 0;
    for (int i = 0; i <= s.n_layer * s.n_phase; i++) {
        const phase &f = phase_at(s, i);
        if (from + f.weights > s.weight_bytes) from = 0;
        int64_t left = share(f, blockIdx.x);
        const uint8_t *w = s.weights + from + offset(f, blockIdx.x) / 128 * 128;
        for (; left > 0; left -= STAGE, w += STAGE) {
            for (int now; (now = *phase_now) < i;) {
                if (now != early_of) early = 0, early_of = now;
                if (early < s.ahead) break;
            }
            early++;
            uint32_t n = left < STAGE ? (uint32_t)left : STAGE;
            barrier_wait(empty + at * 8, parity);
            barrier_expect(full + at * 8, n);
            copy_bulk(ring + at * STAGE, w, n, full + at * 8);
            if (++at == STAGES) at = 0, parity ^= 1;
        }
        from += f.weights;
    }
}

/* Reads the input, with norms over it, and leaves 8 bits in shared memory. */
__device__ __forceinline__ void prepare(const phase &f, const float *x, int8_t *row, float *room)
{
    float4 v[4] = {};
    int n = f.input / 16;
    for (int j = 0; j < 4; j++) {
        int i = j * CONSUMERS + threadIdx.x;
        if (i < n) v[j] = __ldcg(reinterpret_cast<const float4 *>(x) + i);
    }
    float scale = 1;
    for (int r = 0; r < f.reductions; r++) {
        float all = 0;
        for (int j = 0; j < 4; j++)
            all += v[j].x * v[j].x + v[j].y * v[j].y + v[j].z * v[j].z + v[j].w * v[j].w;
        scale *= rsqrtf(sum_all<WARPS>(all * scale, room + r * WARPS) + 1e-6f);
    }
    for (int j = 0; j < 4; j++) {
        int i = j * CONSUMERS + threadIdx.x;
        char4 q = make_char4((char)(v[j].x * scale), (char)(v[j].y * scale), (char)(v[j].z * scale),
                             (char)(v[j].w * scale));
        if (i < n) reinterpret_cast<char4 *>(row)[i] = q;
    }
    meet<WARPS>();
}

struct ring_state {
    int at;
    uint32_t parity;
};

/* Multiplies a block's part; a warp has pieces of 512 bytes of each stage. Rows are added up over
 * the lanes where they end, and over the warps at the end of the phase. */
__device__ __forceinline__ float multiply(const step &s, const phase &f, const uint8_t *ring,
                                          uint32_t full, uint32_t empty, const int8_t *row,
                                          ring_state &place)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t left = share(f, blockIdx.x);
    int in_row = f.cols / STAGE > 0 ? f.cols / STAGE : 1, done = 0;
    float sum = 0, sums = 0;
    for (; left > 0; left -= STAGE) {
        barrier_wait(full + place.at * 8, place.parity);
#pragma unroll
        for (int piece = 0; piece < STAGE / (WARPS * 512); piece++) {
            int at = (piece * WARPS + warp) * 512;
            if (at >= left) break;
            sum += multiply_piece(
                *reinterpret_cast<const int4 *>(ring + place.at * STAGE + at + lane * 16),
                *reinterpret_cast<const int4 *>(row +
                                                (done * 1024 + piece * 512 + lane * 16) % 2048));
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(empty + place.at * 8);
        if (++place.at == STAGES) place.at = 0, place.parity ^= 1;
        if (++done % in_row == 0) {
            for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(~0u, sum, i);
            sums += sum, sum = 0;
        }
    }
    return sums + sum;
}

__device__ void consume(const step &s, const uint8_t *ring, uint32_t full, uint32_t empty,
                        int8_t *row, float *room, volatile int *phase_now)
{
    ring_state place = {0, 0};
    for (int i = 0; i <= s.n_layer * s.n_phase; i++) {
        const phase &f = phase_at(s, i);
        const float *x = s.values + i % 2 * (ROW_MAX / 4);
        float *y = s.values + (i + 1) % 2 * (ROW_MAX / 4);
        if (threadIdx.x == 0) {
            while (arrivals(s.arrived) < (unsigned)i * gridDim.x) continue;
            *phase_now = i;
        }
        meet<WARPS>();
        if (!f.is_alone || blockIdx.x == 0) {
            prepare(f, x, row, room);
            float sum = multiply(s, f, ring, full, empty, row, place);
            room[threadIdx.x] = sum;
            meet<WARPS>();
            int outs = f.is_alone ? CONSUMERS : 32;
            if (threadIdx.x < outs) {
                float all = 0;
                for (int w = 0; w < WARPS; w++) all += room[w * 32 + threadIdx.x % 32];
                __stcg(y + (blockIdx.x * 32 + threadIdx.x) % (ROW_MAX / 4), all * 1e-3f);
            }
        }
        meet<WARPS>();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(s.arrived) : "memory");
        }
    }
}

__global__ void __launch_bounds__(THREADS, 1) stays(const __grid_constant__ step s)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ __align__(16) int8_t row[ROW_MAX / 4];
    __shared__ float room[CONSUMERS];
    __shared__ __align__(8) uint64_t barriers[2 * STAGES];
    __shared__ int phase_now;
    uint32_t full = shared_address(barriers), empty = full + STAGES * 8;
    if (threadIdx.x == 0) {
        phase_now = -1;
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, WARPS);
        }
        barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x / 32 == WARPS)
        produce(s, shared_address(shared), full, empty, &phase_now);
    else
        consume(s, shared, full, empty, row, room, &phase_now);
}

step layers_of(const shape &s, bool is_folded)
{
    step t = {};
    t.n_phase = layer_of(s, is_folded, t.phases, &t.head);
    t.n_layer = s.layers;
    return t;
}

/* The same bytes in one phase a layer: what the ring reads when nothing is waited for. */
step as_one_phase(step t)
{
    phase all = t.phases[0];
    for (int i = 1; i < t.n_phase; i++) all.weights += t.phases[i].weights / all.cols * all.cols;
    t.phases[0] = all, t.n_phase = 1;
    return t;
}

step without_weights(step t)
{
    for (int i = 0; i < t.n_phase; i++) t.phases[i].weights = 0;
    t.head.weights = 0;
    return t;
}

double gigabytes(const step &t)
{
    double all = 0;
    for (int i = 0; i < t.n_phase; i++) all += (double)t.phases[i].weights;
    return (all * t.n_layer + (double)t.head.weights) / 1e9;
}

void run(struct probe *p, const shape &s, step t, const char *name)
{
    samples ms;
    int shared_bytes = STAGES * STAGE;
    char what[96];
    must(cudaFuncSetAttribute(stays, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
         "shared memory");
    for (int i = -2; i < RUNS; i++) {
        must(cudaMemsetAsync(t.arrived, 0, 4, p->stream), "counter");
        double us = time_us(
            p, [] {},
            [&] { stays<<<(unsigned)p->n_sm, THREADS, (size_t)shared_bytes, p->stream>>>(t); });
        must(cudaGetLastError(), "step");
        if (i >= 0) ms.push_back(us / 1e3);
    }
    double m = quantile(ms, 0.5);
    printf("%-10s %-32s %3d phases %7.3f ms %7.1f t/s %6.2f us a phase %6.2f TB/s\n", s.name, name,
           t.n_phase, m, 1e3 / m, m * 1e3 / (t.n_layer * t.n_phase + 1), gigabytes(t) / m);
    snprintf(what, sizeof what, "%s: %s", s.name, name);
    tell(p, what, "ms", ms);
}

} // namespace

void probe_step(struct probe *p)
{
    int64_t bytes = (int64_t)20 << 30;
    uint8_t *weights = (uint8_t *)device_memory(bytes, 1);
    float *values = (float *)device_memory(2 * ROW_MAX, 0);
    unsigned *arrived = (unsigned *)device_memory(256, 0);
    const struct {
        const char *name;
        bool is_folded, is_one, is_empty;
        int ahead;
    } ways[] = {
        {"one phase a layer", true, true, false, STAGES},
        {"as today, weights by phase", false, false, false, 0},
        {"as today, weights ahead", false, false, false, STAGES},
        {"as today, no weights", false, false, true, 0},
        {"norms folded, weights by phase", true, false, false, 0},
        {"norms folded, 2 stages ahead", true, false, false, 2},
        {"norms folded, 4 stages ahead", true, false, false, 4},
        {"norms folded, 6 stages ahead", true, false, false, 6},
        {"norms folded, weights ahead", true, false, false, STAGES},
        {"norms folded, no weights", true, false, true, 0},
    };
    for (const shape &s : decode_shapes)
        for (const auto &way : ways) {
            step t = layers_of(s, way.is_folded);
            if (way.is_one) t = as_one_phase(t);
            if (way.is_empty) t = without_weights(t);
            t.weights = weights, t.weight_bytes = bytes, t.values = values, t.arrived = arrived;
            t.ahead = way.ahead;
            run(p, s, t, way.name);
        }
    cudaFree(weights), cudaFree(values), cudaFree(arrived);
}
