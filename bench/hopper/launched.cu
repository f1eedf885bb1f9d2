/* A decode step of one row as launches of a graph: what could they reach?
 *
 * The same model as step.cu, with a dependent launch in place of each barrier of all blocks. A
 * producer warp asks for weights as soon as its block has started, up to a ring full; sixteen or
 * eight warps read what the launch before gave when it is over, multiply, add up and store. What
 * decides is room: blocks of the next launch can ask for weights early only if there are registers
 * and shared memory for them while the blocks of this one still multiply. */
#include "phases.cuh"
#include "probe.cuh"

#include "backend/cuda/kernels/instructions.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/sm90/async.cuh"

namespace {

enum { STAGE = 8192, RUNS = 5 };

struct launched {
    phase f;
    const uint8_t *weights;
    const float *x, *norms;
    float *y;
    bool is_released_first; /* the next launch may start before this one has waited */
};

template <int STAGES>
__device__ void produce(const launched &a, int64_t first, int64_t left, uint32_t ring,
                        uint32_t full, uint32_t empty)
{
    if (threadIdx.x % 32) return;
    const uint8_t *w = a.weights + first / 128 * 128;
    ring_place<STAGES> place = {0, 1};
    for (; left > 0; left -= STAGE, w += STAGE, place.next()) {
        uint32_t n = left < STAGE ? (uint32_t)left : STAGE;
        barrier_wait(empty + place.at * 8, place.parity);
        barrier_expect(full + place.at * 8, n);
        copy_bulk(ring + place.at * STAGE, w, n, full + place.at * 8);
    }
}

/* Waits for the launch before, reads what it gave, with norms over it, and leaves 8 bits in shared
 * memory. Vectors of norms are read before the wait. */
template <int WARPS>
__device__ __forceinline__ void prepare(const launched &a, int8_t *row, float *room)
{
    constexpr int THREADS = WARPS * 32, QUADS = 2048 / THREADS;
    float4 v[QUADS], w[2][QUADS / 2];
    int n = a.f.input / 16;
    for (int k = 0; k < 2; k++)
        for (int j = 0; j < QUADS / 2; j++) {
            int i = j * THREADS + threadIdx.x;
            w[k][j] = a.f.reductions && i * 2 < n
                          ? __ldg(reinterpret_cast<const float4 *>(a.norms) + k * 2048 + i)
                          : make_float4(1, 1, 1, 1);
        }
    grid_wait();
    if (!a.is_released_first) grid_release();
    for (int j = 0; j < QUADS; j++) {
        int i = j * THREADS + threadIdx.x;
        v[j] = i < n ? __ldcg(reinterpret_cast<const float4 *>(a.x) + i) : make_float4(0, 0, 0, 0);
    }
    float scale = 1;
    for (int r = 0; r < a.f.reductions; r++) {
        float all = 0;
        for (int j = 0; j < QUADS; j++)
            all += v[j].x * v[j].x + v[j].y * v[j].y + v[j].z * v[j].z + v[j].w * v[j].w;
        scale *= rsqrtf(sum_all<WARPS>(all * scale, room + r * WARPS) + 1e-6f);
    }
    for (int j = 0; j < QUADS; j++) {
        float4 b = w[0][j % (QUADS / 2)], c = w[1][j % (QUADS / 2)];
        char4 q =
            make_char4((char)(v[j].x * scale * b.x * c.x), (char)(v[j].y * scale * b.y * c.y),
                       (char)(v[j].z * scale * b.z * c.z), (char)(v[j].w * scale * b.w * c.w));
        int i = j * THREADS + threadIdx.x;
        if (i < n) reinterpret_cast<char4 *>(row)[i] = q;
    }
    meet<WARPS>();
}

template <int WARPS, int STAGES>
__device__ __forceinline__ float multiply(const launched &a, int64_t left, const uint8_t *ring,
                                          uint32_t full, uint32_t empty, const int8_t *row)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, done = 0;
    int in_row = a.f.cols > STAGE ? a.f.cols / STAGE : 1;
    ring_place<STAGES> place = {0, 0};
    float sum = 0, sums = 0;
    for (; left > 0; left -= STAGE) {
        barrier_wait(full + place.at * 8, place.parity);
        for (int at = warp * 512; at < STAGE && at < left; at += WARPS * 512)
            sum += multiply_piece(
                *reinterpret_cast<const int4 *>(ring + place.at * STAGE + at + lane * 16),
                *reinterpret_cast<const int4 *>(row + (done * 1024 + lane * 16) % 2048));
        __syncwarp();
        if (lane == 0) barrier_arrive(empty + place.at * 8);
        place.next();
        if (++done % in_row == 0) {
            for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(~0u, sum, i);
            sums += sum, sum = 0;
        }
    }
    return sums + sum;
}

template <int WARPS, int STAGES>
__global__ void __launch_bounds__(WARPS * 32 + 32, 2) one_phase(const __grid_constant__ launched a)
{
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ __align__(16) int8_t row[ROW_MAX / 4];
    __shared__ float room[WARPS * 32];
    __shared__ __align__(8) uint64_t barriers[2 * STAGES];
    uint32_t full = shared_address(barriers), empty = full + STAGES * 8;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, WARPS);
        }
        barriers_ready();
    }
    __syncthreads();
    if (a.is_released_first) grid_release();
    int64_t rows = a.f.cols ? a.f.weights / a.f.cols : 0, b = blockIdx.x, n = gridDim.x;
    int64_t first = rows * b / n * a.f.cols;
    int64_t left = (rows * (b + 1) / n - rows * b / n) * a.f.cols / 512 * 512;
    if (threadIdx.x / 32 == WARPS) {
        produce<STAGES>(a, first, left, shared_address(ring), full, empty);
        grid_wait();
        if (!a.is_released_first) grid_release();
        return;
    }
    prepare<WARPS>(a, row, room);
    room[threadIdx.x] = multiply<WARPS, STAGES>(a, left, ring, full, empty, row);
    meet<WARPS>();
    if (threadIdx.x >= (a.f.is_alone ? WARPS * 32 : 32)) return;
    float all = 0;
    for (int w = 0; w < WARPS; w++) all += room[w * 32 + threadIdx.x % 32];
    __stcg(a.y + (b * 32 + threadIdx.x) % (ROW_MAX / 4), all * 1e-3f);
}

struct memory {
    uint8_t *weights;
    int64_t weight_bytes;
    float *values, *norms;
};

template <int WARPS, int STAGES>
void record(struct probe *p, const shape &s, const memory &m, bool is_folded, int blocks_each,
            bool is_released_first)
{
    phase f[PHASES_MAX], head;
    int n = layer_of(s, is_folded, f, &head);
    int64_t from = 0;
    for (int i = 0; i <= s.layers * n; i++) {
        const phase &now = i == s.layers * n ? head : f[i % n];
        if (from + now.weights > m.weight_bytes) from = 0;
        launched a = {now,
                      m.weights + from,
                      m.values + i % 2 * (ROW_MAX / 4),
                      m.norms,
                      m.values + (i + 1) % 2 * (ROW_MAX / 4),
                      is_released_first};
        struct queue q = {};
        q.stream = p->stream, q.has_dependent_launch = true;
        launch(&q, one_phase<WARPS, STAGES>, dim3(now.is_alone ? 1 : p->n_sm * blocks_each),
               WARPS * 32 + 32, STAGES * STAGE, a);
        from += now.weights;
    }
}

template <int WARPS, int STAGES>
void run(struct probe *p, const shape &s, const memory &m, bool is_folded, int blocks_each,
         bool is_released_first)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    samples ms;
    char what[128];
    must(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal), "capture");
    record<WARPS, STAGES>(p, s, m, is_folded, blocks_each, is_released_first);
    must(cudaStreamEndCapture(p->stream, &graph), "capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    for (int i = -2; i < RUNS; i++) {
        double us = time_us(
            p, [] {}, [&] { cudaGraphLaunch(exec, p->stream); });
        if (i >= 0) ms.push_back(us / 1e3);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    double median = quantile(ms, 0.5);
    snprintf(what, sizeof what, "%s: %s, %d blocks of %d warps and %d KB%s", s.name,
             is_folded ? "norms folded" : "as today", blocks_each, WARPS, STAGES * STAGE >> 10,
             is_released_first ? ", released first" : "");
    printf("%-70s %7.3f ms %7.1f t/s\n", what, median, 1e3 / median);
    tell(p, what, "ms", ms);
}

} // namespace

void probe_launched(struct probe *p)
{
    memory m = {nullptr, (int64_t)20 << 30, nullptr, nullptr};
    m.weights = (uint8_t *)device_memory(m.weight_bytes, 1);
    m.values = (float *)device_memory(2 * ROW_MAX, 0);
    m.norms = (float *)device_memory(2 * ROW_MAX, 0);
    for (const shape &s : decode_shapes)
        for (bool is_folded : {false, true}) {
            run<16, 12>(p, s, m, is_folded, 1, false);
            run<16, 6>(p, s, m, is_folded, 1, false);
            run<16, 6>(p, s, m, is_folded, 1, true);
            run<8, 12>(p, s, m, is_folded, 1, false);
            run<8, 6>(p, s, m, is_folded, 2, false);
            run<8, 6>(p, s, m, is_folded, 2, true);
            run<8, 4>(p, s, m, is_folded, 3, false);
        }
    cudaFree(m.weights), cudaFree(m.values), cudaFree(m.norms);
}
