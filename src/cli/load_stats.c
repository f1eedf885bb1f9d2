#include "cli/load_stats.h"

#include <math.h>

#include "base/mem.h"

/* ---- While others are under way ---------------------------------------------------------- */

/* Stretches of time, ascending and apart. */
struct stretches {
    double *from, *to;
    size_t n;
};

/* When at least one request of a group was under way. `from` and `to` have room for all. */
static void take_stretches(struct stretches *s, const struct load_plan *plan,
                           const struct load_run *run, int32_t group)
{
    size_t n = 0, kept = 0;
    for (size_t i = plan->first[group]; i < plan->first[group + 1]; i++) {
        if (plan->requests[i].is_warmup) continue;
        s->from[n] = run->results[i].arrival;
        s->to[n++] = run->results[i].end;
    }
    /* With both sorted, the k-th stretch ends before the next arrival exactly where k ends come
     * before k + 1 arrivals. */
    sort_numbers(s->from, n);
    sort_numbers(s->to, n);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || s->to[i - 1] < s->from[i]) s->from[kept++] = s->from[i];
        s->to[kept - 1] = s->to[i];
    }
    s->n = kept;
}

static bool overlaps(const struct stretches *s, double from, double to)
{
    size_t low = 0, high = s->n; /* the first stretch that ends at `from` or later */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->to[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n && s->from[low] <= to;
}

/* ---- Samples ---------------------------------------------------------------------------- */

/* Values of all requests, gathered before they are sorted. */
struct samples {
    double *ttft, *next, *tpot, *itl, *queue, *e2el, *from, *to;
    size_t n, n_next, n_tpot, n_itl, n_time;
    struct stretches others;
    double *memory;
};

static int take_samples(struct samples *s, size_t requests, size_t tokens, struct carat_error *err)
{
    size_t n = 9 * requests + tokens;
    *s = (struct samples){.memory = mem_alloc(n, sizeof *s->memory)};
    if (!s->memory) return err_no_memory(err, "statistics", n * sizeof *s->memory);
    double *at = s->memory;
    double **parts[] = {&s->ttft, &s->next, &s->tpot,        &s->queue,    &s->e2el,
                        &s->from, &s->to,   &s->others.from, &s->others.to};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++, at += requests) *parts[i] = at;
    s->itl = at;
    return CARAT_OK;
}

static bool is_within(double ms, double goal)
{
    return goal <= 0 || ms <= goal;
}

double load_first_seconds(const struct load_run *run, const struct load_result *result)
{
    return (result->n_out > 0 ? run->times[result->times] : result->end) - result->arrival;
}

static void add_completed(struct load_stats *out, struct samples *s, const struct load_group *g,
                          const struct load_request *request, const struct load_result *r,
                          const struct load_run *run)
{
    const double *times = run->times + r->times;
    double e2el = (r->end - r->arrival) * 1e3, ttft = load_first_seconds(run, r) * 1e3, tpot = 0;
    if (r->n_out > 1) tpot = (times[r->n_out - 1] - times[0]) * 1e3 / (r->n_out - 1);
    if (r->n_out > 1) s->tpot[s->n_tpot++] = tpot;
    s->ttft[s->n] = ttft;
    s->queue[s->n] = r->queue_seconds * 1e3;
    s->e2el[s->n++] = e2el;
    if (request->turn > 0) s->next[s->n_next++] = ttft;
    for (int32_t i = 1; i < r->n_out; i++)
        if (g->during < 0 || overlaps(&s->others, times[i - 1], times[i]))
            s->itl[s->n_itl++] = (times[i] - times[i - 1]) * 1e3;
    out->completed++;
    out->input_tokens += r->n_prompt;
    out->output_tokens += r->n_out;
    out->cached_tokens += r->n_cached;
    out->reusable_tokens += r->n_reusable;
    out->good += is_within(ttft, g->ttft_goal) && is_within(tpot, g->tpot_goal) &&
                 is_within(e2el, g->e2el_goal);
}

static void add_group(struct load_stats *out, struct samples *s, const struct load_plan *plan,
                      const struct load_run *run, int32_t group)
{
    const struct load_group *g = &plan->groups[group];
    if (g->during >= 0) take_stretches(&s->others, plan, run, g->during);
    for (size_t i = plan->first[group]; i < plan->first[group + 1]; i++) {
        const struct load_result *r = &run->results[i];
        if (plan->requests[i].is_warmup) continue;
        out->requests++;
        out->preempted += r->n_preempted;
        s->from[s->n_time] = r->arrival;
        s->to[s->n_time++] = r->end;
        if (r->outcome == LOAD_COMPLETED) {
            add_completed(out, s, g, &plan->requests[i], r, run);
        } else {
            out->cancelled += r->outcome == LOAD_CANCELLED;
            out->expired += r->outcome == LOAD_EXPIRED;
            out->failed += r->outcome == LOAD_FAILED;
            out->cancelled_tokens += r->n_out;
        }
    }
}

/* ---- What needs all requests ------------------------------------------------------------- */

/* A request that ends when another arrives is not at once with it. */
static int32_t count_at_once(const double *from, const double *to, size_t n)
{
    int32_t now = 0, most = 0;
    for (size_t i = 0, k = 0; i < n; i++) {
        for (; k < n && to[k] <= from[i]; k++) now--;
        if (++now > most) most = now;
    }
    return most;
}

static int count_best_second(struct load_stats *out, const struct load_plan *plan,
                             const struct load_run *run, size_t first, size_t end, double begin,
                             struct carat_error *err)
{
    size_t n = (size_t)out->duration + 2;
    int32_t *seconds = mem_alloc(n, sizeof *seconds);
    if (!seconds) return err_no_memory(err, "statistics", n * sizeof *seconds);
    for (size_t i = first; i < end; i++) {
        const struct load_result *r = &run->results[i];
        if (plan->requests[i].is_warmup || r->outcome != LOAD_COMPLETED) continue;
        for (int32_t k = 0; k < r->n_out; k++) {
            double at = fmax(run->times[r->times + (size_t)k] - begin, 0);
            int32_t *second = &seconds[at < (double)(n - 1) ? (size_t)at : n - 1];
            if (++*second > out->most_tokens) out->most_tokens = *second;
        }
    }
    mem_free(seconds);
    return CARAT_OK;
}

static int take_steps(struct distribution *out, const struct load_run *run, struct carat_error *err)
{
    size_t n = (size_t)(run->n_steps < LOAD_STEPS_KEPT ? run->n_steps : LOAD_STEPS_KEPT);
    double *ms = mem_alloc(n, sizeof *ms);
    if (!ms) return err_no_memory(err, "statistics", n * sizeof *ms);
    for (size_t i = 0; i < n; i++) ms[i] = (double)run->step_seconds[i] * 1e3;
    *out = distribution_of(ms, n);
    mem_free(ms);
    if (run->n_steps > 0) out->mean = run->all_step_seconds * 1e3 / (double)run->n_steps;
    out->most = run->longest_step * 1e3;
    out->n = (size_t)run->n_steps;
    return CARAT_OK;
}

int load_stats_take(struct load_stats *out, const struct load_plan *plan,
                    const struct load_run *run, int32_t group, struct carat_error *err)
{
    int32_t first = group < 0 ? 0 : group;
    int32_t last = group < 0 ? (int32_t)plan->n_groups - 1 : group;
    size_t begin = plan->first[first], end = plan->first[last + 1], tokens = 0;
    struct samples s;
    *out = (struct load_stats){0};
    for (size_t i = begin; i < end; i++) tokens += (size_t)run->results[i].n_out;
    TRY(take_samples(&s, plan->n, tokens, err)); /* for stretches of any group too */
    for (int32_t g = first; g <= last; g++) add_group(out, &s, plan, run, g);
    sort_numbers(s.from, s.n_time);
    sort_numbers(s.to, s.n_time);
    if (s.n_time > 0) out->duration = s.to[s.n_time - 1] - s.from[0];
    out->most_at_once = count_at_once(s.from, s.to, s.n_time);
    out->ttft = distribution_of(s.ttft, s.n);
    out->ttft_next = distribution_of(s.next, s.n_next);
    out->tpot = distribution_of(s.tpot, s.n_tpot);
    out->itl = distribution_of(s.itl, s.n_itl);
    out->queue = distribution_of(s.queue, s.n);
    out->e2el = distribution_of(s.e2el, s.n);
    double start = s.n_time > 0 ? s.from[0] : 0;
    mem_free(s.memory);
    TRY(count_best_second(out, plan, run, begin, end, start, err));
    return take_steps(&out->step, run, err);
}
