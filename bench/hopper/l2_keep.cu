/* How much of what was prefetched into L2 is still there when others read it, also if products have
 * read other weights meanwhile. */
#include "l2.cuh"

namespace {

enum { RUNS = 5, MOST_MB = 60 };
enum : uint32_t { PIECE = 8 << 10 };

/* Long enough for `bytes` to come from memory, and 10 us more. */
double wait_for(size_t bytes)
{
    return (double)bytes / 3.5e6 + 10;
}

/* Microseconds that all multiprocessors take to read the set, less those of a launch. */
double read_us(struct l2 *c, size_t bytes, double launch_us)
{
    return time_us(
               c->probe, [] {}, [&] { read_all(c, c->memory, bytes, NORMAL); }) -
           launch_us;
}

double launch_alone_us(struct l2 *c)
{
    samples s;
    for (int i = 0; i < 9; i++) s.push_back(read_us(c, 0, 0));
    return quantile(s, 0.5);
}

void keep(struct l2 *c, double mb, prefetch_kind kind, double launch_us)
{
    size_t bytes = (size_t)(mb * 1e6) / LINE * LINE;
    samples hits, us;
    char what[80];
    for (int i = 0; i < RUNS; i++) {
        flush(c);
        start_prefetch(c, bytes, PIECE, kind, c->all);
        start_wait(c, wait_for(bytes));
        hits.push_back(share_of_hits(c, look(c, bytes, c->all)));
        flush(c);
        start_prefetch(c, bytes, PIECE, kind, c->all);
        start_wait(c, wait_for(bytes));
        us.push_back(read_us(c, bytes, launch_us));
    }
    printf(" %5.1f%% %6.1f", quantile(hits, 0.5), quantile(us, 0.5));
    snprintf(what, sizeof what, "%s %.0f MB: hits", prefetch_names[kind], mb);
    tell(c->probe, what, "%", hits);
    snprintf(what, sizeof what, "%s %.0f MB: read", prefetch_names[kind], mb);
    tell(c->probe, what, "us", us);
}

/* Reading the same without a prefetch, and again after it was read. */
void read_cold_and_hot(struct l2 *c, double mb, double launch_us)
{
    size_t bytes = (size_t)(mb * 1e6) / LINE * LINE;
    samples cold, hot;
    char what[80];
    for (int i = 0; i < RUNS; i++) {
        flush(c);
        start_wait(c, wait_for(bytes));
        cold.push_back(read_us(c, bytes, launch_us));
        for (int j = 0; j < 3; j++) read_all(c, c->memory, bytes, NORMAL);
        hot.push_back(read_us(c, bytes, launch_us));
    }
    printf("%6.0f %7.1f %7.1f ", mb, quantile(cold, 0.5), quantile(hot, 0.5));
    snprintf(what, sizeof what, "not prefetched %.0f MB: read", mb);
    tell(c->probe, what, "us", cold);
    snprintf(what, sizeof what, "read before %.0f MB: read", mb);
    tell(c->probe, what, "us", hot);
}

/* `mb` are prefetched, then `other_mb` read as weights are. */
void keep_under(struct l2 *c, double mb, double other_mb, prefetch_kind kind, stream_kind stream)
{
    size_t bytes = (size_t)(mb * 1e6) / LINE * LINE, other = (size_t)(other_mb * 1e6) / LINE * LINE;
    samples hits;
    char what[120];
    for (int i = 0; i < RUNS; i++) {
        flush(c);
        start_prefetch(c, bytes, PIECE, kind, c->all);
        start_wait(c, wait_for(bytes));
        read_all(c, c->other, other, stream);
        hits.push_back(share_of_hits(c, look(c, bytes, c->all)));
    }
    printf(" %6.1f%%", quantile(hits, 0.5));
    snprintf(what, sizeof what, "%s %.0f MB under %.0f MB of %s: hits", prefetch_names[kind], mb,
             other_mb, stream_names[stream]);
    tell(c->probe, what, "%", hits);
}

/* What was prefetched, and what was read, is looked at again after the flush. */
void outlive(struct l2 *c, double mb)
{
    size_t bytes = (size_t)(mb * 1e6) / LINE * LINE;
    printf("%6.0f MB after 512 MB of plain loads, hits:", mb);
    for (int k = -1; k < PREFETCH_KINDS; k++) {
        samples hits;
        char what[80];
        for (int i = 0; i < RUNS; i++) {
            flush(c);
            if (k < 0)
                read_all(c, c->memory, bytes, NORMAL);
            else
                start_prefetch(c, bytes, PIECE, (prefetch_kind)k, c->all);
            start_wait(c, wait_for(bytes));
            read_all(c, c->other, OTHER_BYTES, NORMAL);
            hits.push_back(share_of_hits(c, look(c, bytes, c->all)));
        }
        printf(" %s %.1f%%%s", k < 0 ? "read" : prefetch_names[k], quantile(hits, 0.5),
               k + 1 < PREFETCH_KINDS ? "," : "\n");
        snprintf(what, sizeof what, "%s %.0f MB after a flush: hits",
                 k < 0 ? "read" : prefetch_names[k], mb);
        tell(c->probe, what, "%", hits);
    }
}

} // namespace

void probe_l2_keep(struct probe *p)
{
    static const double others[] = {5, 10, 20, 40, 80, 160};
    struct l2 c = l2_open(p);
    double launch_us = launch_alone_us(&c);
    printf("read by all after a flush, when it is hot, and 10 us after a prefetch by all, us\n");
    printf("%6s %7s %7s", "MB", "cold", "hot");
    for (int k = 0; k < PREFETCH_KINDS; k++) printf(" %18s", prefetch_names[k]);
    printf("\n");
    for (int mb = 5; mb <= MOST_MB; mb += 5) {
        read_cold_and_hot(&c, mb, launch_us);
        for (int k = 0; k < PREFETCH_KINDS; k++) keep(&c, mb, (prefetch_kind)k, launch_us);
        printf("\n");
    }
    for (int stream = 0; stream < STREAM_KINDS; stream++)
        for (int k = 0; k < 2; k++) {
            printf("hits of what was prefetched (%s) when other memory was read since (%s), MB\n",
                   prefetch_names[k], stream_names[stream]);
            printf("%6s", "MB");
            for (double other : others) printf(" %7.0f", other);
            printf("\n");
            for (int mb = 10; mb <= 40; mb += 10) {
                printf("%6d", mb);
                for (double other : others)
                    keep_under(&c, mb, other, (prefetch_kind)k, (stream_kind)stream);
                printf("\n");
            }
        }
    for (double mb : {5, 20, 40}) outlive(&c, mb);
    l2_close(&c);
}
