#include "cli/load_plan.h"

#include <math.h>

#include "base/mem.h"

/* ---- Random numbers --------------------------------------------------------------------- */

/* What is drawn: each has numbers of its own, so that one does not shift the others. */
enum draw { DRAW_SHAPE, DRAW_GAPS, DRAW_PREFIX, DRAW_TOKENS };

static struct rng rng_for(const struct load_plan *plan, enum draw what, int64_t a, int64_t b,
                          int64_t c)
{
    const int64_t parts[] = {(int64_t)what, a, b, c};
    struct rng rng = {.state = plan->seed};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        rng.state ^= (uint64_t)parts[i];
        rng.state = rng_next(&rng);
    }
    return rng;
}

/* Evenly from n * (1 - spread) to n * (1 + spread), at least 1. */
static int32_t draw_length(struct rng *rng, int32_t n, double spread)
{
    int32_t low = (int32_t)ceil(n * (1 - spread)), high = (int32_t)floor(n * (1 + spread));
    if (low < 1) low = 1;
    return low + (int32_t)rng_below(rng, (uint32_t)(high - low + 1));
}

/* Gamma of mean 1 and shape k (Marsaglia and Tsang, A simple method for generating gamma
 * variables, 2000). Shape 1 is the exponential distribution: a Poisson process. */
static double draw_gamma(struct rng *rng, double k)
{
    if (k == 1) return -log(1 - rng_unit(rng));
    double raised = k < 1 ? k + 1 : k;
    double d = raised - 1.0 / 3, c = 1 / sqrt(9 * d), v, x;
    do {
        do {
            x = (double)rng_normal(rng);
            v = 1 + c * x;
        } while (v <= 0);
        v = v * v * v;
    } while (log(1 - rng_unit(rng)) > 0.5 * x * x + d - d * v + d * log(v));
    double sample = d * v;
    if (k < 1) sample *= pow(1 - rng_unit(rng), 1 / k);
    return sample / k;
}

/* ---- Requests --------------------------------------------------------------------------- */

static struct load_request draw_request(const struct load_plan *plan, int32_t group, int32_t chat,
                                        int32_t turn)
{
    const struct load_group *g = &plan->groups[group];
    struct rng rng = rng_for(plan, DRAW_SHAPE, group, chat, turn);
    struct load_request r = {.group = group, .chat = chat, .turn = turn, .before = -1, .next = -1};
    r.n_prefix = turn == 0 ? g->prefix : 0;
    r.n_new = draw_length(&rng, turn == 0 ? g->in : g->in_next, g->in_spread);
    r.n_out = draw_length(&rng, g->out, g->out_spread);
    bool is_cancelled = rng_unit(&rng) < g->cancel;
    double when = rng_unit(&rng) * 3;
    r.cancel_when = is_cancelled ? when : -1;
    return r;
}

static struct load_request *add(struct load_plan *plan, struct load_request r)
{
    r.root = (int32_t)plan->n;
    plan->requests[plan->n] = r;
    return &plan->requests[plan->n++];
}

/* Requests before the clock starts: chats of one turn, numbered after those that count. */
static void add_warmup(struct load_plan *plan, int32_t group)
{
    for (int32_t i = 0; i < plan->groups[group].warmup; i++) {
        struct load_request *r = add(plan, draw_request(plan, group, LOAD_REQUESTS_MAX + i, 0));
        r->is_warmup = true;
        r->cancel_when = -1;
    }
}

/* A closed loop opens `chats` chats at a time and takes them by turns: the first turns of all of
 * them, then the second turns, and so on. Elsewhere a chat's turns follow each other. */
static void add_chats(struct load_plan *plan, int32_t group)
{
    const struct load_group *g = &plan->groups[group];
    int32_t all = (g->requests + g->turns - 1) / g->turns;
    int32_t open = g->users ? g->chats : 1;
    int32_t left = g->requests;
    struct rng gaps = rng_for(plan, DRAW_GAPS, group, 0, 0);
    double at = 0;
    for (int32_t first = 0; first < all; first += open) {
        int32_t n = all - first < open ? all - first : open;
        for (int32_t turn = 0; turn < g->turns; turn++)
            for (int32_t chat = 0; chat < n && left > 0; chat++, left--) {
                struct load_request *r = add(plan, draw_request(plan, group, first + chat, turn));
                int32_t index = (int32_t)plan->n - 1;
                if (turn > 0) {
                    r->before = index - n;
                    r->root = plan->requests[r->before].root;
                    plan->requests[r->before].next = index;
                } else if (g->rate > 0) {
                    r->at = at += draw_gamma(&gaps, g->burstiness) / g->rate;
                }
            }
    }
}

int load_plan_init(struct load_plan *plan, const struct load_group *groups, size_t n_groups,
                   uint64_t seed, struct carat_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < n_groups; i++)
        n += (size_t)groups[i].requests + (size_t)groups[i].warmup;
    *plan = (struct load_plan){.groups = groups, .n_groups = n_groups, .seed = seed};
    plan->requests = mem_alloc(n, sizeof *plan->requests);
    if (!plan->requests) return err_no_memory(err, "requests", n * sizeof *plan->requests);
    for (size_t i = 0; i < n_groups; i++) {
        plan->first[i] = plan->n;
        add_warmup(plan, (int32_t)i);
        add_chats(plan, (int32_t)i);
    }
    plan->first[n_groups] = plan->n;
    return CARAT_OK;
}

void load_plan_deinit(struct load_plan *plan)
{
    mem_free(plan->requests);
    *plan = (struct load_plan){0};
}

/* ---- Tokens ----------------------------------------------------------------------------- */

static void draw_tokens(struct rng rng, int32_t n_vocab, const bool *is_banned, int32_t *out,
                        int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        do out[i] = (int32_t)rng_below(&rng, (uint32_t)n_vocab);
        while (is_banned && is_banned[out[i]]);
    }
}

void load_plan_tokens(const struct load_plan *plan, const struct load_request *r, int32_t n_vocab,
                      const bool *is_banned, int32_t *out)
{
    int64_t place = (int64_t)plan->repetition * LOAD_GROUPS_MAX + r->group;
    int32_t prefix = r->chat % plan->groups[r->group].prefixes;
    draw_tokens(rng_for(plan, DRAW_PREFIX, place, prefix, 0), n_vocab, is_banned, out, r->n_prefix);
    draw_tokens(rng_for(plan, DRAW_TOKENS, place, r->chat, r->turn), n_vocab, is_banned,
                out + r->n_prefix, r->n_new);
}
