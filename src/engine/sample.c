/* A row is scanned once, in blocks (candidates.h). Biased, suppressed and penalised ids are changed
 * in a copy of the row. Invariant: unless all of the vocabulary is in play, candidates end up in
 * order. */
#include "engine/sample.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/status.h"
#include "engine/candidates.h"
#include "engine/dry.h"
#include "engine/order.h"
#include "engine/shape.h"
#include "text/sampling_defaults.h"

enum {
    ASKED_MAX = 128, /* candidates that are tried before the row: by a grammar, with penalties */
};

struct cuts { /* what a tail is cut by */
    double top_p, min_p;
};

struct sampler {
    int32_t n_vocab, k; /* candidates wanted: 1 .. n_vocab */
    int32_t room;       /* candidates that fit: k, or more for grammars and penalties */
    struct carat_sampling sampling;
    struct rng rng;
    struct candidate *candidates; /* [room] */
    float *row;                   /* the changed copy, or NULL when nothing is ever changed */
    struct carat_logit_bias *bias;
    size_t n_bias;
    int32_t *suppressed;
    size_t n_suppressed;
    bool changes_row;
    struct order order;
    struct cuts cuts;
    float floor;         /* of top-n-sigma in the current row; -INFINITY: none */
    double surprise_max; /* Mirostat's bits */
    bool has_penalties;  /* that change the row */
    bool only_lowers;    /* they raise no logit */
    struct dry *dry;     /* NULL: off */
    /* How often each id was among the last ones, and which ids those are; NULL: no matter. */
    int32_t *counts; /* n_vocab */
    int32_t *place;  /* n_vocab: where in `seen` */
    int32_t *seen;   /* ids with a count above 0 */
    int32_t n_seen;
    int32_t *ring; /* the last tokens, NULL when all count */
    int32_t ring_size;
    int64_t n_accepted;
};

/* ---- Parameters ------------------------------------------------------------------------- */

static int check_range(const char *name, float value, float low, float high,
                       struct carat_error *err)
{
    if (value >= low && value <= high) return CARAT_OK; /* false for NaN */
    return err_set(err, CARAT_EUSAGE, "%s: %g to %g expected, %g found", name, (double)low,
                   (double)high, (double)value);
}

static int check_ranges(const struct carat_sampling *s, struct carat_error *err)
{
    const struct {
        const char *name;
        float value, low, high;
        bool has_default; /* 0 stands for it, though it may be out of range */
    } all[] = {
        {"temperature", s->temperature, 0.0f, 100.0f, false},
        {"top_p", s->top_p, 0.0f, 1.0f, false},
        {"min_p", s->min_p, 0.0f, 1.0f, false},
        {"repeat_penalty", s->repeat_penalty, 0.01f, 100.0f, true},
        {"presence_penalty", s->presence_penalty, -100.0f, 100.0f, false},
        {"frequency_penalty", s->frequency_penalty, -100.0f, 100.0f, false},
        {"typical_p", s->typical_p, 0.0f, 1.0f, false},
        {"top_n_sigma", s->top_n_sigma, -1.0f, 100.0f, false},
        {"xtc_probability", s->xtc_probability, 0.0f, 1.0f, false},
        {"xtc_threshold", s->xtc_threshold, 0.0f, 1.0f, false},
        {"dynatemp_range", s->dynatemp_range, 0.0f, 100.0f, false},
        {"dynatemp_exponent", s->dynatemp_exponent, 0.0f, 100.0f, false},
        {"dry_multiplier", s->dry_multiplier, 0.0f, 100.0f, false},
        {"dry_base", s->dry_base, 1.0f, 100.0f, true},
        {"mirostat_tau", s->mirostat_tau, 0.0f, 100.0f, false},
        {"mirostat_eta", s->mirostat_eta, 0.0f, 100.0f, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i].has_default || all[i].value != 0.0f)
            TRY(check_range(all[i].name, all[i].value, all[i].low, all[i].high, err));
    return CARAT_OK;
}

int sample_check(const struct carat_sampling *s, struct carat_error *err)
{
    TRY(check_ranges(s, err));
    TRY(samplers_check(s->samplers, "samplers", err));
    TRY(mirostat_check(s->mirostat, "mirostat", err));
    if (s->dry_allowed_length < 0 || s->dry_allowed_length > CARAT_DRY_TOKENS_MAX)
        return err_set(err, CARAT_EUSAGE,
                       "dry_allowed_length: 0 (2) or up to %d expected, %d found",
                       CARAT_DRY_TOKENS_MAX, s->dry_allowed_length);
    if (s->dry_penalty_last_n < -1 || s->dry_penalty_last_n > CARAT_DRY_TOKENS_MAX)
        return err_set(err, CARAT_EUSAGE,
                       "dry_penalty_last_n: -1 (all) or up to %d expected, %d found",
                       CARAT_DRY_TOKENS_MAX, s->dry_penalty_last_n);
    TRY(dry_check_breakers(s, err));
    if (s->top_k < 0)
        return err_set(err, CARAT_EUSAGE, "top_k: 0 (all) or more expected, %d found", s->top_k);
    if (s->repeat_last_n < -1 || s->repeat_last_n > SAMPLE_LAST_N_MAX)
        return err_set(err, CARAT_EUSAGE,
                       "repeat_last_n: -1 (all), 0 (the last 64) or up to %d expected, %d found",
                       SAMPLE_LAST_N_MAX, s->repeat_last_n);
    return CARAT_OK;
}

static int check_ids(const struct sampler_options *o, struct carat_error *err)
{
    if (o->n_bias > CARAT_BIAS_MAX)
        return err_set(err, CARAT_EUSAGE, "logit_bias: at most %d entries expected, %zu found",
                       CARAT_BIAS_MAX, o->n_bias);
    for (size_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].id < 0 || o->bias[i].id >= o->n_vocab)
            return err_set(err, CARAT_EUSAGE, "logit_bias: ids 0 to %d expected, %d found",
                           o->n_vocab - 1, o->bias[i].id);
        if (!(o->bias[i].bias <= CARAT_BIAS_LIMIT))
            return err_set(err, CARAT_EUSAGE, "logit_bias: at most %d expected, %g found",
                           CARAT_BIAS_LIMIT, (double)o->bias[i].bias);
    }
    for (size_t i = 0; i < o->n_suppressed; i++)
        if (o->suppressed[i] < 0 || o->suppressed[i] >= o->n_vocab)
            return err_set(err, CARAT_EUSAGE, "suppressed ids: 0 to %d expected, %d found",
                           o->n_vocab - 1, o->suppressed[i]);
    return CARAT_OK;
}

/* ---- Opening ---------------------------------------------------------------------------- */

static bool allocate(struct sampler *s, const struct sampler_options *o)
{
    size_t n = (size_t)s->n_vocab;
    s->candidates = mem_alloc((size_t)s->room, sizeof *s->candidates);
    if (!s->candidates) return false;
    if (has_plain_penalties(&s->sampling)) {
        s->counts = mem_alloc(n, sizeof *s->counts);
        s->place = mem_alloc(n, sizeof *s->place);
        s->seen = mem_alloc(n, sizeof *s->seen);
        if (!s->counts || !s->place || !s->seen) return false;
        if (s->ring_size > 0) {
            s->ring = mem_alloc((size_t)s->ring_size, sizeof *s->ring);
            if (!s->ring) return false;
        }
    }
    bool needs_row = o->changes_row || o->is_bound || strchr(s->order.rest, 's');
    if (!s->has_penalties && o->n_bias == 0 && o->n_suppressed == 0 && !needs_row) return true;
    s->row = mem_alloc(n, sizeof *s->row);
    s->bias = mem_alloc(o->n_bias, sizeof *s->bias);
    s->suppressed = mem_alloc(o->n_suppressed, sizeof *s->suppressed);
    return s->row && s->bias && s->suppressed;
}

static void fill_in(float *member, float value)
{
    if (*member == 0.0f) *member = value;
}

/* Replaces zeros by the defaults that they stand for. */
static struct carat_sampling complete(struct carat_sampling p)
{
    const struct carat_sampling *d = &sampling_of_zeros;
    fill_in(&p.top_p, d->top_p);
    fill_in(&p.repeat_penalty, d->repeat_penalty);
    fill_in(&p.typical_p, d->typical_p);
    fill_in(&p.xtc_threshold, d->xtc_threshold);
    fill_in(&p.dynatemp_exponent, d->dynatemp_exponent);
    fill_in(&p.dry_base, d->dry_base);
    fill_in(&p.mirostat_tau, d->mirostat_tau);
    fill_in(&p.mirostat_eta, d->mirostat_eta);
    if (p.repeat_last_n == 0) p.repeat_last_n = d->repeat_last_n;
    if (p.dry_allowed_length == 0) p.dry_allowed_length = d->dry_allowed_length;
    return p;
}

static int open_dry(struct sampler *s, const struct sampler_options *o, struct carat_error *err)
{
    const struct dry_options options = {.sampling = &s->sampling,
                                        .n_vocab = o->n_vocab,
                                        .vocab = o->vocab,
                                        .n_tokens = o->n_tokens};
    return dry_is_on(&s->sampling) ? dry_open(&s->dry, &options, err) : CARAT_OK;
}

static void set_up(struct sampler *s, const struct sampler_options *o)
{
    struct carat_sampling *p = &s->sampling;
    *p = complete(o->sampling);
    order_make(&s->order, p);
    s->n_vocab = o->n_vocab;
    s->changes_row = o->changes_row;
    s->rng.state = p->seed;
    s->floor = -INFINITY;
    s->surprise_max = 2.0 * (double)p->mirostat_tau;
    s->k = s->order.has_top_k && p->top_k < o->n_vocab ? p->top_k : o->n_vocab;
    s->cuts = (struct cuts){.top_p = (double)p->top_p, .min_p = (double)p->min_p};
    s->room = s->k;
    s->has_penalties = s->order.row[0] != '\0';
    s->only_lowers =
        p->repeat_penalty >= 1.0f && p->presence_penalty >= 0.0f && p->frequency_penalty >= 0.0f;
    int32_t least = o->is_bound ? SAMPLE_LISTED_MAX : s->has_penalties ? ASKED_MAX : 0;
    if (s->room < least) s->room = o->n_vocab < least ? o->n_vocab : least;
    s->ring_size = p->repeat_last_n;
}

int sample_open(struct sampler **out, const struct sampler_options *o, struct carat_error *err)
{
    *out = NULL;
    TRY(sample_check(&o->sampling, err));
    if (o->n_vocab < 1) return err_set(err, CARAT_EUSAGE, "sampler: the vocabulary is empty");
    TRY(check_ids(o, err));
    struct sampler *s = mem_alloc(1, sizeof *s);
    if (!s) return err_no_memory(err, "sampler", sizeof *s);
    set_up(s, o);
    int status = open_dry(s, o, err);
    if (status == CARAT_OK && !allocate(s, o))
        status = err_no_memory(err, "sampler", (size_t)o->n_vocab * sizeof(float));
    if (status != CARAT_OK) {
        sample_close(s);
        return status;
    }
    s->sampling.dry_breakers = NULL; /* borrowed until here */
    s->n_bias = o->n_bias;
    s->n_suppressed = o->n_suppressed;
    for (size_t i = 0; i < o->n_bias; i++) {
        s->bias[i] = o->bias[i];
        if (s->bias[i].bias < -CARAT_BIAS_LIMIT) s->bias[i].bias = -INFINITY;
    }
    if (o->n_suppressed)
        memcpy(s->suppressed, o->suppressed, o->n_suppressed * sizeof *o->suppressed);
    *out = s;
    return CARAT_OK;
}

void sample_close(struct sampler *s)
{
    if (!s) return;
    dry_close(s->dry);
    mem_free(s->candidates);
    mem_free(s->row);
    mem_free(s->bias);
    mem_free(s->suppressed);
    mem_free(s->counts);
    mem_free(s->place);
    mem_free(s->seen);
    mem_free(s->ring);
    mem_free(s);
}

/* ---- Penalties -------------------------------------------------------------------------- */

static void forget(struct sampler *s, int32_t id)
{
    if (--s->counts[id] > 0) return;
    int32_t last = s->seen[--s->n_seen];
    s->seen[s->place[id]] = last;
    s->place[last] = s->place[id];
}

void sample_accept(struct sampler *s, int32_t id)
{
    if (id < 0 || id >= s->n_vocab) return;
    if (s->dry) dry_accept(s->dry, id);
    if (!s->counts) return;
    if (s->ring) {
        int32_t *slot = &s->ring[s->n_accepted % s->ring_size];
        if (s->n_accepted >= s->ring_size) forget(s, *slot);
        *slot = id;
    }
    s->n_accepted++;
    if (s->counts[id] == INT32_MAX) return;
    if (s->counts[id]++ > 0) return;
    s->place[id] = s->n_seen;
    s->seen[s->n_seen++] = id;
}

float *sample_copy(struct sampler *s, const float *logits)
{
    memcpy(s->row, logits, (size_t)s->n_vocab * sizeof *logits);
    return s->row;
}

/* Finds what DRY lowers in the next row. */
static void prepare(struct sampler *s)
{
    if (s->dry) dry_find(s->dry);
}

/* The logit of an id that has come, with its penalties. */
static float penalise(const struct sampler *s, int32_t id, float x, float temperature)
{
    const struct carat_sampling *p = &s->sampling;
    x = x > 0.0f ? x / p->repeat_penalty : x * p->repeat_penalty;
    return x - ((float)s->counts[id] * p->frequency_penalty + p->presence_penalty) * temperature;
}

/* The logit of any id after one of the samplers that lower it. Logits have not been divided by the
 * temperature, so what is subtracted is multiplied by it. */
static float lower_by(const struct sampler *s, char sampler, int32_t id, float x, float temperature)
{
    if (sampler == 'd') return x - dry_penalty(s->dry, id) * temperature;
    return s->counts[id] > 0 ? penalise(s, id, x, temperature) : x;
}

/* The logit of any id in the changed row. */
static float lower(const struct sampler *s, int32_t id, float x)
{
    for (const char *c = s->order.row; *c; c++) x = lower_by(s, *c, id, x, 1.0f);
    return x;
}

/* The ids that a sampler may lower. */
static const int32_t *lowered_ids(const struct sampler *s, char sampler, int32_t *n)
{
    if (sampler == 'd') return dry_ids(s->dry, n);
    *n = s->n_seen;
    return s->seen;
}

/* The row with bias, penalties and bans applied. */
static const float *change_row(struct sampler *s, const float *logits)
{
    prepare(s);
    if (!s->row) return logits;
    if (logits != s->row) sample_copy(s, logits);
    for (size_t i = 0; i < s->n_bias; i++) s->row[s->bias[i].id] += s->bias[i].bias;
    for (const char *c = s->order.row; *c; c++) {
        int32_t n;
        const int32_t *ids = lowered_ids(s, *c, &n);
        for (int32_t i = 0; i < n; i++)
            s->row[ids[i]] = lower_by(s, *c, ids[i], s->row[ids[i]], 1.0f);
    }
    for (size_t i = 0; i < s->n_suppressed; i++) s->row[s->suppressed[i]] = -INFINITY;
    return s->row;
}

/* ---- Drawing ---------------------------------------------------------------------------- */

/* Drops what surely lies outside top-p (candidates whose weights together cannot reach 1 - top_p)
 * or below min-p, so that only a few are left to sort. The best one has weight 1. */
static int32_t drop_tail(struct candidate *all, int32_t count, double sum, struct cuts cuts)
{
    double limit = (1.0 - cuts.top_p) * sum / (double)count;
    if (limit < cuts.min_p) limit = cuts.min_p;
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++)
        if (all[i].weight >= limit) all[kept++] = all[i];
    return kept;
}

/* The shortest beginning of the sorted candidates that holds top_p of the sum, without those
 * below min_p of the best. */
static int32_t cut_tail(const struct candidate *all, int32_t count, double sum, struct cuts cuts)
{
    double enough = cuts.top_p * sum, held = 0.0;
    double least = cuts.min_p * all[0].weight;
    int32_t kept = 0;
    while (kept < count && (kept == 0 || all[kept].weight >= least)) {
        held += all[kept++].weight;
        if (cuts.top_p < 1.0 && held >= enough) break;
    }
    return kept;
}

/* Both, for candidates in any order. */
static int32_t cut_unsorted(struct candidate *all, int32_t count, double sum, struct cuts cuts)
{
    count = drop_tail(all, count, sum, cuts);
    if (cuts.top_p >= 1.0) return count;
    candidates_sort(all, count, false);
    return cut_tail(all, count, sum, cuts);
}

static int32_t draw(struct sampler *s, int32_t count)
{
    double point = rng_unit(&s->rng) * candidates_sum(s->candidates, count);
    int32_t id = -1; /* rounding may let the loop reach its end: then the last possible one */
    for (int32_t i = 0; i < count; i++) {
        if (s->candidates[i].weight > 0.0) id = s->candidates[i].id;
        point -= s->candidates[i].weight;
        if (point < 0.0) break;
    }
    return id;
}

/* ---- All candidates together ------------------------------------------------------------ */

/* Candidates on their way through the samplers. */
struct passage {
    int32_t count;
    double temperature; /* so far; 0: the best one is taken */
    bool is_weighed;    /* the weights are those of the logits at this temperature */
};

static void find_floor(struct sampler *s, const float *row)
{
    if (s->order.has_floor) s->floor = shape_sigma_floor(row, s->n_vocab, s->sampling.top_n_sigma);
}

/* The same, if these candidates are all there is. */
static float floor_among(const struct sampler *s, int32_t count)
{
    for (int32_t i = 0; i < count; i++) s->row[i] = s->candidates[i].logit;
    return shape_sigma_floor(s->row, count, s->sampling.top_n_sigma);
}

/* Returns the sum. */
static double weigh(struct sampler *s, struct passage *c)
{
    if (c->is_weighed) return candidates_sum(s->candidates, c->count);
    c->is_weighed = true;
    return candidates_weigh(s->candidates, c->count, c->temperature);
}

static void lower_candidates(struct sampler *s, struct passage *c, char sampler)
{
    prepare(s);
    for (int32_t i = 0; i < c->count; i++) {
        struct candidate *one = &s->candidates[i];
        float x = lower_by(s, sampler, one->id, one->logit, (float)c->temperature);
        one->logit = x > -FLT_MAX ? x : -FLT_MAX;
    }
    c->is_weighed = false;
}

/* One sampler. */
static void pass(struct sampler *s, struct passage *c, const char *step)
{
    const struct carat_sampling *p = &s->sampling;
    struct candidate *all = s->candidates;
    switch (*step) {
    case 's': c->count = shape_keep_from(all, c->count, floor_among(s, c->count)); break;
    case 'k': c->count = candidates_best(all, c->count, p->top_k); break;
    case 'y':
        c->count = shape_typical(all, c->count, p->typical_p, c->temperature);
        c->is_weighed = false;
        break;
    case 't':
        c->temperature = (double)p->temperature;
        if (p->dynatemp_range > 0.0f)
            c->temperature = shape_temperature(all, c->count, p->temperature, p->dynatemp_range,
                                               p->dynatemp_exponent);
        c->is_weighed = false;
        break;
    case 'p': { /* with a min-p that follows there is less to sort */
        struct cuts cuts = {.top_p = s->cuts.top_p, .min_p = step[1] == 'm' ? s->cuts.min_p : 0.0};
        double sum = weigh(s, c);
        c->count = cut_unsorted(all, c->count, sum, cuts);
        break;
    }
    case 'm': {
        struct cuts cuts = {.top_p = 1.0, .min_p = s->cuts.min_p};
        double sum = weigh(s, c);
        c->count = cut_unsorted(all, c->count, sum, cuts);
        break;
    }
    case 'x':
        if (c->count < 2 || rng_unit(&s->rng) >= (double)p->xtc_probability) break;
        weigh(s, c);
        c->count = shape_drop_choices(all, c->count, (double)p->xtc_threshold);
        if (step[1]) c->is_weighed = false; /* what follows expects a best weight of 1 */
        break;
    default: lower_candidates(s, c, *step);
    }
}

/* Mirostat 2. */
static int32_t pick_unsurprising(struct sampler *s, int32_t count, double sum)
{
    count = shape_keep_unsurprising(s->candidates, count, sum, s->surprise_max);
    double kept = candidates_sum(s->candidates, count), weight = 0.0;
    int32_t id = draw(s, count);
    for (int32_t i = 0; i < count; i++)
        if (s->candidates[i].id == id) weight = s->candidates[i].weight;
    double surprise = log2(kept / weight);
    s->surprise_max -=
        (double)s->sampling.mirostat_eta * (surprise - (double)s->sampling.mirostat_tau);
    return id;
}

/* The draw among candidates in any order; it must be the same wherever they come from. */
static int32_t pick_shaped(struct sampler *s, int32_t count)
{
    struct passage c = {.count = shape_keep_from(s->candidates, count, s->floor),
                        .temperature = 1.0};
    for (const char *step = s->order.rest; *step && c.temperature > 0.0; step++) pass(s, &c, step);
    if (!(c.temperature > 0.0)) {
        candidates_best(s->candidates, c.count, 1);
        return s->candidates[0].id;
    }
    if (s->sampling.mirostat) {
        double sum = weigh(s, &c);
        return pick_unsurprising(s, c.count, sum);
    }
    if (!c.is_weighed) weigh(s, &c);
    return draw(s, c.count);
}

/* ---- Picking ---------------------------------------------------------------------------- */

bool sample_takes_best(const struct sampler *s, int n)
{
    bool is_unchanged = s->n_bias == 0 && !s->changes_row && !s->order.has_floor;
    if (s->has_penalties && (!s->only_lowers || n > s->room)) return false;
    return is_unchanged && s->k < s->n_vocab && (size_t)s->k + s->n_suppressed <= (size_t)n;
}

static bool is_suppressed(const struct sampler *s, int32_t id)
{
    for (size_t i = 0; i < s->n_suppressed; i++)
        if (s->suppressed[i] == id) return true;
    return false;
}

/* The draw among `count` candidates in order. */
static int32_t pick_sorted(struct sampler *s, int32_t count)
{
    if (s->k == 1) return s->candidates[0].id;
    if (!s->order.is_plain) return pick_shaped(s, count);
    double sum = candidates_weigh(s->candidates, count, (double)s->sampling.temperature);
    return draw(s, cut_tail(s->candidates, count, sum, s->cuts));
}

/* The same where the whole vocabulary is in play, in no order. */
static int32_t pick_from_all(struct sampler *s, int32_t count)
{
    if (!s->order.is_plain) return pick_shaped(s, count);
    double sum = candidates_weigh(s->candidates, count, (double)s->sampling.temperature);
    return draw(s, cut_unsorted(s->candidates, count, sum, s->cuts));
}

/* At most `limit` candidates from the best pairs; their number, or -1. */
static int32_t take_pairs(struct sampler *s, const struct logit_pair *best, int n, int32_t limit)
{
    int32_t count = 0;
    if (n < 1 || !(best[0].logit <= FLT_MAX)) return -1;
    for (int i = 0; i < n && count < limit; i++) {
        if (best[i].logit == -INFINITY || is_suppressed(s, best[i].id)) continue;
        s->candidates[count++] = (struct candidate){.logit = best[i].logit, .id = best[i].id};
    }
    return count ? count : -1;
}

/* Penalties only lower logits. So an id that is not among the pairs is no better than the last of
 * them, and the first k are known if they are better than that. */
static int32_t pick_best_penalised(struct sampler *s, const struct logit_pair *best, int n)
{
    prepare(s);
    int32_t count = take_pairs(s, best, n, n);
    for (int32_t i = 0; i < count; i++) {
        struct candidate *c = &s->candidates[i];
        c->logit = lower(s, c->id, c->logit);
    }
    if (count < s->k) return SAMPLE_UNDECIDED;
    candidates_sort(s->candidates, count, false);
    if (!(s->candidates[s->k - 1].logit > best[n - 1].logit)) return SAMPLE_UNDECIDED;
    return pick_sorted(s, s->k);
}

int32_t sample_pick_best(struct sampler *s, const struct logit_pair *best, int n)
{
    if (s->has_penalties) return pick_best_penalised(s, best, n);
    int32_t count = take_pairs(s, best, n, s->k);
    return count > 0 ? pick_sorted(s, count) : -1;
}

static bool takes_all(const struct sampler *s)
{
    return s->k == s->n_vocab && s->k > 1;
}

int32_t sample_pick(struct sampler *s, const float *logits)
{
    const float *row = change_row(s, logits);
    int32_t count = candidates_take(s->candidates, s->k, row, s->n_vocab);
    if (count <= 0) return -1;
    find_floor(s, row);
    bool is_all = takes_all(s);
    if (!is_all) candidates_sort(s->candidates, count, true);
    return is_all ? pick_from_all(s, count) : pick_sorted(s, count);
}

/* ---- Allowed ids ------------------------------------------------------------------------ */

/* The first `n` candidates, which are known to be allowed. What top-k keeps of all allowed ids
 * weighs between `held` and `held + rest`; no other one weighs more than `next`. */
struct allowed {
    int32_t n;
    double held, rest, next;
};

/* How many of them stay after top-p and min-p, if what is not known makes no difference; else 0. */
static int32_t certain_count(const struct sampler *s, const struct allowed *a)
{
    const struct candidate *all = s->candidates;
    double top_p = s->cuts.top_p, most = a->held + a->rest, kept = 0.0;
    double least = s->cuts.min_p * all[0].weight;
    int32_t low = cut_tail(all, a->n, a->held, s->cuts), high = cut_tail(all, a->n, most, s->cuts);
    for (int32_t i = 0; i < high; i++) kept += all[i].weight;
    bool is_closed = high < a->n || a->next < least || (top_p < 1.0 && kept >= top_p * most);
    return low == high && is_closed ? low : 0;
}

/* Sets weights relative to candidate i, the best one that is allowed; their sum after it. */
static double weigh_after(struct sampler *s, int32_t i, int32_t count)
{
    double sum = 0.0;
    for (int32_t j = i; j < count; j++) {
        struct candidate *c = &s->candidates[j];
        c->weight = exp(((double)c->logit - (double)s->candidates[i].logit) /
                        (double)s->sampling.temperature);
        if (j > i) sum += c->weight;
    }
    return sum;
}

/* The draw among the allowed ones of `count` candidates in order. With `has_more` they are not all:
 * other ids, each as likely as the last candidate at most, may be among the top k. */
static int32_t pick_sorted_allowed(struct sampler *s, int32_t count, bool has_more,
                                   sample_allows_fn allows, void *user)
{
    struct allowed a = {.n = 0};
    double rest = 0.0, last = 0.0;
    int32_t kept = 0;
    for (int32_t i = 0; i < count && !kept; i++) {
        bool is_first = a.n == 0, is_allowed = allows(user, s->candidates[i].id);
        if (is_allowed && s->k == 1) return s->candidates[i].id;
        if (is_first && !is_allowed) continue;
        if (is_first) {
            rest = weigh_after(s, i, count);
            last = has_more ? s->candidates[count - 1].weight : 0.0;
        } else {
            rest -= s->candidates[i].weight;
        }
        if (is_allowed) {
            a.held += s->candidates[i].weight;
            s->candidates[a.n++] = s->candidates[i];
        }
        int32_t left = count - i - 1, missing = s->k - a.n - left;
        a.next = left ? s->candidates[i + 1].weight : last;
        a.rest = (rest > 0.0 ? rest : 0.0) + (missing > 0 ? missing * last : 0.0);
        if (a.n == s->k || (left == 0 && !has_more))
            kept = cut_tail(s->candidates, a.n, a.held, s->cuts);
        else
            kept = certain_count(s, &a);
    }
    return kept ? draw(s, kept) : SAMPLE_UNDECIDED;
}

static int32_t asked_most(const struct sampler *s)
{
    if (s->k >= ASKED_MAX) return s->k;
    return s->n_vocab < ASKED_MAX ? s->n_vocab : ASKED_MAX;
}

int32_t sample_pick_best_allowed(struct sampler *s, const struct logit_pair *best, int n,
                                 sample_allows_fn allows, void *user)
{
    if (s->has_penalties || !s->order.is_plain) return SAMPLE_UNDECIDED;
    int32_t count = take_pairs(s, best, n, asked_most(s));
    return count > 0 ? pick_sorted_allowed(s, count, true, allows, user) : -1;
}

/* Without truncation, a draw that is replaced by one from the masked row if it is refused has the
 * distribution of the masked row. With truncation, all of the vocabulary would have to be asked
 * about. */
bool sample_draws_first(const struct sampler *s)
{
    return takes_all(s) && s->order.is_plain && s->cuts.top_p >= 1.0 && !(s->cuts.min_p > 0.0);
}

int32_t sample_pick_allowed(struct sampler *s, const float *logits, sample_allows_fn allows,
                            void *user)
{
    if (!s->order.is_plain) return SAMPLE_UNDECIDED;
    const float *row = change_row(s, logits);
    bool is_all = takes_all(s);
    int32_t wanted = is_all ? s->k : asked_most(s);
    int32_t count = candidates_take(s->candidates, wanted, row, s->n_vocab);
    if (count <= 0) return -1;
    if (!is_all) {
        candidates_sort(s->candidates, count, true);
        return pick_sorted_allowed(s, count, count == wanted, allows, user);
    }
    if (!sample_draws_first(s)) return SAMPLE_UNDECIDED;
    int32_t id = pick_from_all(s, count);
    return id < 0 || allows(user, id) ? id : SAMPLE_UNDECIDED;
}

/* One logit with its bias and penalties, as change_row has it. */
static float change_one(const struct sampler *s, int32_t id, float x)
{
    for (size_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id == id) x += s->bias[i].bias;
    x = lower(s, id, x);
    return is_suppressed(s, id) ? -INFINITY : x;
}

/* The draw among `count` candidates by rising id: all that can be picked. */
static int32_t pick_from_few(struct sampler *s, int32_t count)
{
    if (count == 0) return -1;
    if (s->order.has_floor) s->floor = floor_among(s, count);
    if (takes_all(s)) return pick_from_all(s, count);
    return pick_sorted(s, candidates_best(s->candidates, count, s->k));
}

int32_t sample_pick_listed(struct sampler *s, const float *logits, const int32_t *ids, int32_t n)
{
    int32_t count = 0;
    prepare(s);
    for (int32_t i = 0; i < n; i++) {
        float x = change_one(s, ids[i], logits[ids[i]]);
        if (!(x <= FLT_MAX)) return -1;
        if (x == -INFINITY) continue;
        s->candidates[count++] = (struct candidate){.logit = x, .id = ids[i]};
    }
    return pick_from_few(s, count);
}

int32_t sample_pick_known(struct sampler *s, const struct logit_pair *pairs, int32_t n)
{
    int32_t count = 0;
    prepare(s);
    for (int32_t i = 0; i < n; i++) {
        if (pairs[i].logit == -INFINITY) continue;
        float x = change_one(s, pairs[i].id, pairs[i].logit);
        if (!(pairs[i].logit <= FLT_MAX) || !(x <= FLT_MAX)) return -1;
        if (x == -INFINITY) continue;
        s->candidates[count++] = (struct candidate){.logit = x, .id = pairs[i].id};
    }
    candidates_sort_by_id(s->candidates, count);
    return pick_from_few(s, count);
}
