/* Who should prefetch: how fast n multiprocessors bring memory into L2 by pieces of several sizes,
 * and whether those of the other half of the chip find it. */
#include "l2.cuh"

namespace {

enum { RUNS = 5, LINES_SEEN = 64, TRIES = 8 };
enum : size_t { MUCH = (size_t)256 << 20 };

/* The least latency of each line from each multiprocessor: [sm][LINES_SEEN]. */
__global__ void see_lines(const char *from, int *out)
{
    __shared__ uint32_t sink;
    if (threadIdx.x > 0) return;
    for (int line = 0; line < LINES_SEEN; line++) {
        int least = 1 << 30;
        for (int i = 0; i < TRIES; i++)
            least = min(least, load_cycles(from + line * 5 * LINE, &sink));
        out[sm_id() * LINES_SEEN + line] = least;
    }
}

/* A line is near to one half of the chip and far from the other one: latencies of two
 * multiprocessors rise and fall together if they are in the same half. */
samples correlations(struct l2 *c)
{
    int n = c->probe->n_sm;
    int *device = (int *)device_memory(sizeof(int) * SM_MAX * LINES_SEEN, 0xff);
    std::vector<int> seen((size_t)n * LINES_SEEN);
    std::vector<double> x(seen.size()), line_mean(LINES_SEEN, 0);
    samples with_first;
    see_lines<<<n, 32, ALONE_BYTES, c->probe->stream>>>(c->memory, device);
    must(cudaMemcpyAsync(seen.data(), device, seen.size() * sizeof(int), cudaMemcpyDeviceToHost,
                         c->probe->stream),
         "latencies");
    must(cudaStreamSynchronize(c->probe->stream), "latencies");
    cudaFree(device);
    for (size_t i = 0; i < seen.size(); i++) line_mean[i % LINES_SEEN] += seen[i] / (double)n;
    for (int sm = 0; sm < n; sm++) {
        double mean = 0;
        for (int i = 0; i < LINES_SEEN; i++) mean += (seen[sm * LINES_SEEN + i] - line_mean[i]);
        for (int i = 0; i < LINES_SEEN; i++)
            x[sm * LINES_SEEN + i] = seen[sm * LINES_SEEN + i] - line_mean[i] - mean / LINES_SEEN;
    }
    for (int sm = 0; sm < n; sm++) {
        double both = 0, a = 0, b = 0;
        for (int i = 0; i < LINES_SEEN; i++) {
            double u = x[i], v = x[sm * LINES_SEEN + i];
            both += u * v, a += u * u, b += v * v;
        }
        with_first.push_back(a > 0 && b > 0 ? both / sqrt(a * b) : 0);
    }
    return with_first;
}

/* The first `most` multiprocessors of half `half`; half 2: of both. */
chosen choose(const samples &with_first, int half, int most)
{
    chosen who = {};
    for (int i = 0; i < SM_MAX; i++) {
        bool is_there = i < (int)with_first.size() && who.n < most;
        bool is_right = is_there && (half == 2 || (with_first[i] > 0) == (half == 0));
        who.rank[i] = (int16_t)(is_right ? who.n++ : -1);
    }
    return who;
}

void print_halves(struct probe *p, const samples &with_first)
{
    samples same, other;
    for (double r : with_first) (r > 0 ? same : other).push_back(r);
    printf(
        "halves of the chip: %zu and %zu multiprocessors; correlation of latencies with the first "
        "%.2f and %.2f\n",
        same.size(), other.size(), quantile(same, 0.5), quantile(other, 0.5));
    tell(p, "correlation in the same half", "", same);
    tell(p, "correlation in the other half", "", other);
}

/* Prefetched by some, read by each half. */
void who_finds_it(struct l2 *c, const samples &with_first)
{
    static const char *const names[] = {"first half", "second half", "both"};
    size_t bytes = 16000000 / LINE * LINE;
    printf("16 MB prefetched by one half, hits and cycles seen from each half\n");
    printf("%12s %22s %22s\n", "by", names[0], names[1]);
    for (int by = 0; by < 3; by++) {
        printf("%12s", names[by]);
        for (int reader = 0; reader < 2; reader++) {
            chosen who = choose(with_first, by, SM_MAX), looks = choose(with_first, reader, SM_MAX);
            samples hits, cycles;
            char what[80];
            for (int i = 0; i < RUNS && looks.n > 0 && who.n > 0; i++) {
                flush(c);
                start_prefetch(c, bytes, 8 << 10, BULK, who);
                start_wait(c, 60);
                samples s = look(c, bytes, looks);
                hits.push_back(share_of_hits(c, s));
                cycles.push_back(quantile(s, 0.5));
            }
            printf("      %6.1f%% %7.0f", quantile(hits, 0.5), quantile(cycles, 0.5));
            snprintf(what, sizeof what, "by %s seen from %s: hits", names[by], names[reader]);
            tell(c->probe, what, "%", hits);
            snprintf(what, sizeof what, "by %s seen from %s: median", names[by], names[reader]);
            tell(c->probe, what, "cycles", cycles);
        }
        printf("\n");
    }
}

/* What is prefetched is far more than is in flight, so the launch takes as long as the memory. */
void how_fast(struct l2 *c, const samples &with_first)
{
    static const int sms[] = {1, 2, 4, 8, 16, 32, 64, 116, 132};
    static const struct {
        prefetch_kind kind;
        uint32_t piece;
    } ways[] = {{BULK, 512}, {BULK, 2 << 10}, {BULK, 8 << 10}, {BULK, 32 << 10}, {LINES, 16 << 10}};
    printf("256 MB prefetched, GB/s, by multiprocessors and pieces\n%16s", "");
    for (int n : sms) printf(" %6d", n);
    printf("\n");
    for (auto &way : ways) {
        printf("%6s of %6u", prefetch_names[way.kind], way.piece);
        for (int n : sms) {
            chosen who = choose(with_first, 2, n);
            size_t bytes = n < 8 ? MUCH / 16 : MUCH;
            samples rate;
            char what[80];
            for (int i = 0; i < RUNS; i++)
                rate.push_back((double)bytes / 1e3 /
                               time_us(
                                   c->probe, [&] { flush(c); },
                                   [&] { start_prefetch(c, bytes, way.piece, way.kind, who); }));
            printf(" %6.0f", quantile(rate, 0.5));
            snprintf(what, sizeof what, "%s of %u by %d", prefetch_names[way.kind], way.piece, n);
            tell(c->probe, what, "GB/s", rate);
        }
        printf("\n");
    }
}

} // namespace

void probe_l2_issue(struct probe *p)
{
    struct l2 c = l2_open(p);
    must(cudaFuncSetAttribute(see_lines, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE_BYTES),
         "see_lines");
    samples with_first = correlations(&c);
    print_halves(p, with_first);
    who_finds_it(&c, with_first);
    how_fast(&c, with_first);
    l2_close(&c);
}
