/* How fast all multiprocessors together read a working set again and again, past L1. */
#include "probe.cuh"

namespace {

enum { THREADS = 512, BLOCKS_PER_SM = 2, IN_FLIGHT = 8, RUNS = 7 };
enum : int64_t { TOTAL = (int64_t)2 << 30 }; /* bytes read in a run */

/* Reads `total` vectors, a set of n again and again. Where n is no multiple of the grid's threads,
 * another thread reads a vector in each pass. */
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    read_set(const uint4 *from, int64_t n, int64_t total, uint32_t *out)
{
    int64_t all = (int64_t)gridDim.x * THREADS, step = all % n;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) % n;
    uint32_t sum = 0;
    for (int64_t done = 0; done < total; done += all * IN_FLIGHT) {
        uint4 v[IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            v[i] = __ldcg(from + at);
            at += step;
            if (at >= n) at -= n;
        }
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    if (sum == 0x12345678) *out = sum;
}

/* `shift`: blocks by which the set is shorter than a multiple of what the grid reads at a time. */
samples rates(struct probe *p, const char *memory, int64_t n, uint32_t *out)
{
    unsigned blocks = (unsigned)(p->n_sm * BLOCKS_PER_SM);
    int64_t round = (int64_t)blocks * THREADS * IN_FLIGHT, total = TOTAL / 16 / round * round;
    if (total < 3 * n) total = 3 * n / round * round;
    auto launch = [&] {
        read_set<<<blocks, THREADS, 0, p->stream>>>((const uint4 *)memory, n, total, out);
    };
    samples s;
    launch();
    for (int i = 0; i < RUNS; i++)
        s.push_back((double)total * 16 / 1e3 /
                    time_us(
                        p, [] {}, launch));
    return s;
}

} // namespace

void probe_l2_read(struct probe *p)
{
    int64_t step = (int64_t)p->n_sm * BLOCKS_PER_SM * THREADS; /* vectors: 2.2 MB on an H200 */
    char *memory = device_memory((size_t)1 << 30, 1);
    uint32_t *out = (uint32_t *)device_memory(256, 0);
    printf("%10s %26s %26s\n", "MB", "each SM its own, GB/s", "another SM each pass");
    static const int sizes[] = {2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 64, 450};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[64];
        double mb = (double)(sizes[i] * step * 16) / 1e6;
        samples own = rates(p, memory, sizes[i] * step, out);
        samples other = rates(p, memory, sizes[i] * step - 37 * THREADS, out);
        printf("%10.1f %10.0f (%5.0f to %5.0f) %10.0f (%5.0f to %5.0f)\n", mb, quantile(own, 0.5),
               quantile(own, 0), quantile(own, 1), quantile(other, 0.5), quantile(other, 0),
               quantile(other, 1));
        snprintf(what, sizeof what, "own %.1f MB", mb);
        tell(p, what, "GB/s", own);
        snprintf(what, sizeof what, "other %.1f MB", mb);
        tell(p, what, "GB/s", other);
    }
    cudaFree(memory);
    cudaFree(out);
}
