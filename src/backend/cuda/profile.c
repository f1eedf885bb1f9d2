/* Events are recorded after every launch and read after the step: steps are slower while they are
 * taken, mostly decoding ones, since launches then cannot overlap. */
#include "backend/cuda/profile.h"

#include "base/mem.h"

enum { MARKS_MAX = 4096 };

struct profile {
    cudaEvent_t events[MARKS_MAX + 1]; /* events[i + 1] comes after what works[i] tells of */
    struct time_work works[MARKS_MAX];
    int n_marks, n_events;
    struct time_tables tables;
};

int profile_open(struct profile **out, struct carat_error *err)
{
    struct profile *p = *out = mem_alloc(1, sizeof *p);
    if (!p) return err_no_memory(err, "profile", sizeof *p);
    for (; p->n_events <= MARKS_MAX; p->n_events++)
        if (cudaEventCreate(&p->events[p->n_events]) != cudaSuccess) {
            profile_close(p);
            *out = NULL;
            return err_set(err, CARAT_EDEVICE, "profile: no events left");
        }
    return CARAT_OK;
}

void profile_close(struct profile *p)
{
    if (!p) return;
    for (int i = 0; i < p->n_events; i++) cudaEventDestroy(p->events[i]);
    mem_free(p);
}

void profile_begin(struct profile *p, cudaStream_t stream)
{
    p->n_marks = 0;
    cudaEventRecord(p->events[0], stream);
}

void profile_mark(struct profile *p, cudaStream_t stream, struct time_work work)
{
    if (p->n_marks == MARKS_MAX) return;
    p->works[p->n_marks++] = work;
    cudaEventRecord(p->events[p->n_marks], stream);
}

void profile_end(struct profile *p, bool is_decode, double seconds)
{
    struct time_table *t = is_decode ? &p->tables.decode : &p->tables.prefill;
    for (int i = 0; i < p->n_marks; i++) {
        float ms = 0;
        cudaEventElapsedTime(&ms, p->events[i], p->events[i + 1]);
        time_table_add(t, &p->works[i], (double)ms / 1e3);
    }
    time_table_end_step(t, seconds);
}

void profile_print(const struct profile *p, const struct device_limits *limits, struct buf *out)
{
    time_tables_print(&p->tables, limits, out);
}
