#include "cli/load_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/os.h"
#include "cli/terminal.h"

#define REST_SECONDS 0.05 /* the longest time without a look at what is due */

enum { TOKENS_MAX = 1 << 26 }; /* of all chats together: 256 MB, and twice that for times */

struct group_state {
    double begin;      /* when it began; < 0: it has not */
    size_t next;       /* the first request that may be waiting */
    int32_t n_started; /* requests with a first token */
    double *user_free; /* closed loop: when each user may send; INFINITY: waits for an answer */
    bool *prefix_seen; /* by an earlier request */
};

struct request_state {
    size_t chat;    /* first turns: where the chat's tokens begin */
    int32_t length; /* first turns: how many there are so far */
    int32_t user;   /* closed loop: who sent it */
    double sent;    /* when the engine took it */
    bool is_cancelled;
};

struct driver {
    const struct load_plan *plan;
    struct load_target *target;
    carat_grammar *const *grammars; /* of groups */
    struct load_run *run;
    double zero; /* of the run's clock */
    bool is_warming;
    struct group_state groups[LOAD_GROUPS_MAX];
    struct request_state *states;
    int32_t *tokens; /* of all chats */
    int32_t n_running, n_ended;
    double next_progress;
};

static double clock_now(const struct driver *d)
{
    return os_seconds() - d->zero;
}

/* ---- Memory ----------------------------------------------------------------------------- */

/* Places of chats and of times. */
static int place_requests(struct driver *d, struct carat_error *err)
{
    size_t tokens = 0, times = 0;
    for (size_t i = 0; i < d->plan->n; i++) {
        const struct load_request *r = &d->plan->requests[i];
        d->run->results[i].times = times;
        times += (size_t)r->n_out;
        if (r->turn > 0) continue;
        d->states[i].chat = tokens;
        for (const struct load_request *t = r;; t = &d->plan->requests[t->next]) {
            tokens += (size_t)t->n_prefix + (size_t)t->n_new + (size_t)t->n_out;
            if (t->next < 0) break;
        }
        if (tokens > TOKENS_MAX)
            return err_set(err, CARAT_EUSAGE, "--load: more than %d tokens in all", TOKENS_MAX);
    }
    d->tokens = mem_alloc(tokens, sizeof *d->tokens);
    d->run->times = mem_alloc(times, sizeof *d->run->times);
    if (d->tokens && d->run->times) return CARAT_OK;
    return err_no_memory(err, "tokens", tokens * sizeof *d->tokens + times * sizeof(double));
}

static bool has_text(const struct load_target *t)
{
    int32_t id = 0;
    while (id < t->n_vocab && t->is_banned[id]) id++;
    return id < t->n_vocab;
}

static int take_memory(struct driver *d, struct carat_error *err)
{
    size_t n = d->plan->n;
    bool has_all = true;
    d->states = mem_alloc(n, sizeof *d->states);
    d->run->results = mem_alloc(n, sizeof *d->run->results);
    d->run->step_seconds = mem_alloc(LOAD_STEPS_KEPT, sizeof *d->run->step_seconds);
    for (size_t i = 0; i < d->plan->n_groups; i++) {
        const struct load_group *g = &d->plan->groups[i];
        d->groups[i].user_free = mem_alloc((size_t)g->users, sizeof(double));
        d->groups[i].prefix_seen = mem_alloc((size_t)g->prefixes, sizeof(bool));
        has_all = has_all && d->groups[i].user_free && d->groups[i].prefix_seen;
    }
    if (!has_all || !d->states || !d->run->results || !d->run->step_seconds)
        return err_no_memory(err, "load", n * (sizeof *d->states + sizeof *d->run->results));
    if (!has_text(d->target))
        return err_set(err, CARAT_EFORMAT, "vocabulary: all tokens are control tokens");
    return place_requests(d, err);
}

static void give_memory(struct driver *d)
{
    for (size_t i = 0; i < d->plan->n_groups; i++) {
        mem_free(d->groups[i].user_free);
        mem_free(d->groups[i].prefix_seen);
    }
    mem_free(d->states);
    mem_free(d->tokens);
}

/* ---- Numbers ---------------------------------------------------------------------------- */

/* A number of the request that is the same however many users there are. */
static uint64_t number_of(const struct load_request *r)
{
    return ((uint64_t)r->group * LOAD_REQUESTS_MAX * 2 + (uint64_t)r->chat) * LOAD_TURNS_MAX +
           (uint64_t)r->turn + 1;
}

/* Sums of these do not depend on the order of requests. */
static uint64_t digest(const struct load_request *r, const int32_t *ids, int32_t n)
{
    struct rng h = {.state = number_of(r)};
    for (int32_t i = 0; i < n; i++) h.state = rng_next(&h) ^ (uint64_t)ids[i];
    return rng_next(&h);
}

/* ---- What is due ------------------------------------------------------------------------ */

static int32_t earliest_user(const struct driver *d, int32_t group)
{
    const struct group_state *s = &d->groups[group];
    int32_t first = 0;
    for (int32_t u = 1; u < d->plan->groups[group].users; u++)
        if (s->user_free[u] < s->user_free[first]) first = u;
    return first;
}

static size_t end_of(const struct driver *d, int32_t group)
{
    if (d->is_warming) return d->plan->first[group] + (size_t)d->plan->groups[group].warmup;
    return d->plan->first[group + 1];
}

/* The request of a group that is due first, or -1; *due: when. A later turn waits for the one
 * before it. First turns come in order, so the search ends at the first one that waits. */
static int32_t next_of_group(struct driver *d, int32_t group, double *due)
{
    const struct load_group *g = &d->plan->groups[group];
    struct group_state *s = &d->groups[group];
    bool is_closed = g->users > 0 && !d->is_warming;
    double user_free = is_closed ? s->user_free[earliest_user(d, group)] : 0;
    int32_t found = -1;
    *due = INFINITY;
    if (s->begin < 0 || isinf(user_free)) return -1;
    size_t end = end_of(d, group);
    while (s->next < end && d->run->results[s->next].outcome != LOAD_WAITING) s->next++;
    for (size_t i = s->next; i < end; i++) {
        const struct load_request *r = &d->plan->requests[i];
        if (d->run->results[i].outcome != LOAD_WAITING) continue;
        double ready = s->begin + r->at;
        if (r->turn > 0) {
            const struct load_result *before = &d->run->results[r->before];
            if (before->outcome < LOAD_COMPLETED) continue;
            ready = before->end + g->think;
        }
        if (ready < user_free) ready = user_free;
        if (ready < *due) {
            *due = ready;
            found = (int32_t)i;
        }
        if (r->turn == 0) break;
    }
    return found;
}

static bool has_ended(const struct driver *d, int32_t group)
{
    for (size_t i = d->groups[group].next; i < d->plan->first[group + 1]; i++)
        if (d->run->results[i].outcome < LOAD_COMPLETED) return false;
    return true;
}

/* Starts the clocks of groups that wait for the first tokens of others. */
static void begin_groups(struct driver *d, double now)
{
    for (size_t i = 0; i < d->plan->n_groups; i++) {
        const struct load_group *g = &d->plan->groups[i];
        if (d->groups[i].begin >= 0) continue;
        if (g->after >= 0) {
            const struct load_group *other = &d->plan->groups[g->after];
            int32_t enough = other->rate > 0 ? 1 : load_parallel(other);
            bool has_begun = d->groups[g->after].n_started >= enough;
            if (!has_begun && !has_ended(d, g->after)) continue;
        }
        d->groups[i].begin = (g->after >= 0 ? now : 0) + g->delay;
        for (int32_t u = 0; u < g->users; u++)
            d->groups[i].user_free[u] = d->groups[i].begin + g->ramp * u / g->users;
    }
}

/* The request that is due first of all, or -1. */
static int32_t next_request(struct driver *d, double *due)
{
    int32_t found = -1;
    *due = INFINITY;
    for (size_t i = 0; i < d->plan->n_groups; i++) {
        double when;
        int32_t index = next_of_group(d, (int32_t)i, &when);
        if (index < 0 || when >= *due) continue;
        found = index;
        *due = when;
    }
    return found;
}

/* ---- Sending ---------------------------------------------------------------------------- */

/* Appends the request's own tokens to its chat; first turns have theirs from the beginning. */
static const int32_t *write_prompt(struct driver *d, int32_t index, int32_t *length)
{
    const struct load_request *r = &d->plan->requests[index];
    struct request_state *root = &d->states[r->root];
    int32_t *chat = d->tokens + root->chat, own = r->n_prefix + r->n_new;
    if (r->turn > 0)
        load_plan_tokens(d->plan, r, d->target->n_vocab, d->target->is_banned, chat + root->length);
    *length = root->length + own;
    return chat;
}

static void note_reusable(struct driver *d, int32_t index)
{
    const struct load_request *r = &d->plan->requests[index];
    struct load_result *result = &d->run->results[index];
    bool *seen = &d->groups[r->group].prefix_seen[r->chat % d->plan->groups[r->group].prefixes];
    if (r->turn > 0)
        result->n_reusable = d->states[r->root].length;
    else if (*seen)
        result->n_reusable = r->n_prefix;
    *seen = true;
}

static void cancel(struct driver *d, int32_t index)
{
    struct request_state *s = &d->states[index];
    if (s->is_cancelled) return;
    s->is_cancelled = true;
    d->target->cancel(d->target->self, index);
}

/* CARAT_EBUSY: later. */
static int send(struct driver *d, int32_t index, double due, struct carat_error *err)
{
    const struct load_request *r = &d->plan->requests[index];
    const struct load_group *g = &d->plan->groups[r->group];
    struct load_result *result = &d->run->results[index];
    struct group_state *group = &d->groups[r->group];
    int32_t n_prompt;
    struct carat_request request = {
        .size = sizeof request,
        .prompt = write_prompt(d, index, &n_prompt),
        .max_tokens = r->n_out,
        .sampling = {.temperature = (float)g->temperature, .seed = number_of(r)},
        .ignore_stop = !g->schema[0],
        .grammar = d->grammars ? d->grammars[r->group] : NULL,
        .priority = g->priority,
        .fairness_key = g->keys ? (uint64_t)(r->chat % g->keys) + 1 : 0,
        .deadline_seconds = g->deadline,
        .cache_salt = g->salts ? (uint64_t)(r->chat % g->salts) + 1 : 0,
        .no_cache = !g->uses_cache,
    };
    request.n_prompt = (size_t)n_prompt;
    TRY(d->target->send(d->target->self, index, &request, err));
    d->states[index].sent = clock_now(d);
    note_reusable(d, index);
    int32_t own = r->n_prefix + r->n_new;
    if (!r->is_warmup) d->run->prompts += digest(r, request.prompt + n_prompt - own, own);
    d->states[r->root].length = n_prompt;
    result->outcome = LOAD_RUNNING;
    result->arrival = due;
    result->n_prompt = n_prompt;
    d->n_running++;
    if (g->users > 0 && !d->is_warming) {
        d->states[index].user = earliest_user(d, r->group);
        group->user_free[d->states[index].user] = INFINITY;
    }
    if (r->cancel_when >= 0 && r->cancel_when < 1) cancel(d, index);
    return CARAT_OK;
}

/* Sends what is due, until the engine takes no more. *next: when something else is due. */
static int send_due(struct driver *d, double now, double *next, struct carat_error *err)
{
    for (;;) {
        double due;
        int32_t index = next_request(d, &due);
        *next = due;
        if (index < 0 || due > now) return CARAT_OK;
        struct carat_error why = {0};
        int status = send(d, index, due, &why);
        if (status == CARAT_EBUSY && d->n_running > 0) return CARAT_OK;
        if (status != CARAT_OK && err) *err = why;
        if (status != CARAT_OK) return status;
    }
}

/* ---- Events ----------------------------------------------------------------------------- */

static void take_token(struct driver *d, int32_t index, int32_t id, double now)
{
    const struct load_request *r = &d->plan->requests[index];
    struct load_result *result = &d->run->results[index];
    struct request_state *root = &d->states[r->root];
    if (result->n_out == r->n_out) return; /* more than was asked for: there is no room */
    d->tokens[root->chat + (size_t)root->length++] = id;
    d->run->times[result->times + (size_t)result->n_out++] = now;
    if (result->n_out == 1) d->groups[r->group].n_started++;
    bool is_enough = result->n_out >= (r->cancel_when - 2) * r->n_out;
    if (r->cancel_when >= 0 && is_enough) cancel(d, index);
}

static void end_request(struct driver *d, const struct load_event *event, double now)
{
    int32_t index = event->index;
    const struct load_request *r = &d->plan->requests[index];
    const struct load_group *g = &d->plan->groups[r->group];
    struct load_result *result = &d->run->results[index];
    result->end = now;
    result->outcome = event->outcome;
    result->queue_seconds = d->states[index].sent - result->arrival + event->queue_seconds;
    result->n_cached = event->n_cached;
    result->n_preempted = event->n_preempted;
    if (result->outcome == LOAD_FAILED && !d->run->failure[0])
        snprintf(d->run->failure, sizeof d->run->failure, "%s", event->message);
    if (result->outcome == LOAD_COMPLETED && !r->is_warmup) {
        const struct request_state *root = &d->states[r->root];
        const int32_t *end = d->tokens + root->chat + (size_t)root->length;
        d->run->answers += digest(r, end - result->n_out, result->n_out);
    }
    d->n_running--;
    d->n_ended++;
    if (g->users > 0 && !d->is_warming)
        d->groups[r->group].user_free[d->states[index].user] = now + g->think;
}

static void on_event(void *user, const struct load_event *event)
{
    struct driver *d = user;
    const struct load_request *r = &d->plan->requests[event->index];
    double now = event->seconds - d->zero;
    switch (event->kind) {
    case CARAT_EVENT_PROGRESS:
        if (r->cancel_when >= 1 && event->done >= (r->cancel_when - 1) * event->total)
            cancel(d, event->index);
        break;
    case CARAT_EVENT_TOKEN: take_token(d, event->index, event->id, now); break;
    case CARAT_EVENT_DONE: end_request(d, event, now); break;
    }
}

/* ---- The loop --------------------------------------------------------------------------- */

/* Goes on until `due` at the latest. */
static int go_on(struct driver *d, double due, struct carat_error *err)
{
    struct load_run *run = d->run;
    double before = clock_now(d);
    TRY(d->target->go_on(d->target->self, fmin(fmax(due - before, 0), REST_SECONDS), err));
    double seconds = clock_now(d) - before;
    if (d->is_warming || !d->target->has_steps) return CARAT_OK;
    if (run->n_steps < LOAD_STEPS_KEPT) run->step_seconds[run->n_steps] = (float)seconds;
    run->n_steps++;
    run->all_step_seconds += seconds;
    if (seconds > run->longest_step) run->longest_step = seconds;
    return CARAT_OK;
}

static void wait_until(const struct driver *d, double due)
{
    double seconds = fmin(due - clock_now(d), REST_SECONDS);
    if (!(seconds > 0)) return;
    struct timespec rest = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&rest, NULL);
}

/* Until every request of the phase has ended. */
static int run_phase(struct driver *d, struct carat_error *err)
{
    int32_t wanted = 0;
    d->n_ended = 0;
    for (size_t i = 0; i < d->plan->n_groups; i++) {
        const struct load_group *g = &d->plan->groups[i];
        wanted += d->is_warming ? g->warmup : g->requests;
        d->groups[i].begin = d->is_warming ? 0 : -1;
        d->groups[i].n_started = 0;
    }
    d->zero = os_seconds();
    while (d->n_ended < wanted) {
        double now = clock_now(d), next;
        begin_groups(d, now);
        TRY(send_due(d, now, &next, err));
        if (now >= d->next_progress) {
            progress(d->is_warming ? "warm-up, requests" : "load, requests", d->n_ended, wanted);
            d->next_progress = now + 0.2;
        }
        if (d->n_running > 0)
            TRY(go_on(d, next, err));
        else
            wait_until(d, next);
    }
    return CARAT_OK;
}

static int run_all(struct driver *d, struct carat_error *err)
{
    for (size_t i = 0; i < d->plan->n_groups; i++) d->groups[i].next = d->plan->first[i];
    for (size_t i = 0; i < d->plan->n; i++) {
        const struct load_request *r = &d->plan->requests[i];
        if (r->turn > 0) continue;
        load_plan_tokens(d->plan, r, d->target->n_vocab, d->target->is_banned,
                         d->tokens + d->states[i].chat);
    }
    d->is_warming = true;
    TRY(run_phase(d, err));
    d->is_warming = false;
    d->next_progress = 0;
    d->target->look(d->target->self, &d->run->before);
    TRY(run_phase(d, err));
    d->target->look(d->target->self, &d->run->after);
    return CARAT_OK;
}

int load_run_do(struct load_run *run, const struct load_plan *plan, struct load_target *target,
                carat_grammar *const *grammars, struct carat_error *err)
{
    struct driver d = {.plan = plan, .target = target, .grammars = grammars, .run = run};
    target->on_event = on_event;
    target->user = &d;
    *run = (struct load_run){0};
    int status = take_memory(&d, err);
    if (status == CARAT_OK) status = run_all(&d, err);
    progress_end();
    give_memory(&d);
    return status;
}

void load_run_deinit(struct load_run *run)
{
    mem_free(run->results);
    mem_free(run->times);
    mem_free(run->step_seconds);
    *run = (struct load_run){0};
}
