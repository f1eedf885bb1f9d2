#include "server/prepare.h"

#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/status.h"
#include "server/pieces.h"
#include "server/problems.h"
#include "server/texts.h"

static struct ask_limits limits_of(const struct service *s, enum api api)
{
    return (struct ask_limits){
        .n_max = api == API_COMPLETIONS ? REPLICAS_AT_ONCE : 8,
        .messages_max = 10000,
        .tools_max = 1024,
        .stops_max = 16,
        .model = s->options->is_strict_model ? s->options->alias : NULL,
    };
}

static int check_bias(const struct service *s, const struct ask *ask, struct carat_error *err)
{
    int32_t n_vocab = carat_model_info(s->options->model)->n_vocab;
    for (size_t i = 0; i < ask->request.n_bias; i++)
        if (ask->request.bias[i].id >= n_vocab)
            return err_set(err, CARAT_EUSAGE, "logit_bias: token id %d, the vocabulary has 0 to %d",
                           ask->request.bias[i].id, n_vocab - 1);
    return CARAT_OK;
}

/* Whose rows are counted together: those of a key; without keys those of an address. */
static uint64_t fairness_of(const struct service *s, const struct call *c)
{
    if (c->pass.fairness != 0) return c->pass.fairness;
    return hash_bytes(s->secret, c->client, strlen(c->client));
}

/* What a request says itself narrows what its key shares, and never replaces it. */
static uint64_t salt_of(const struct service *s, const struct call *c)
{
    const char *own = c->ask.cache_salt;
    const uint64_t pair[2] = {c->pass.salt, hash_bytes(s->salt_secret, own, strlen(own))};
    return own[0] ? hash_bytes(s->salt_secret, pair, sizeof pair) : c->pass.salt;
}

static uint64_t session_of(const struct service *s, const struct call *c)
{
    const char *name = c->ask.session;
    if (c->session || !name[0]) return c->session;
    return hash_bytes(s->secret, name, strlen(name));
}

static void set_job(const struct service *s, struct call *c, struct generation *g)
{
    struct carat_request *r = &g->job.request;
    g->job.user = c;
    r->deadline_seconds = s->options->request_seconds;
    r->fairness_key = fairness_of(s, c);
    r->cache_salt = salt_of(s, c);
    r->priority = -c->ask.priority;
    g->job.session = session_of(s, c);
}

static int open_answers(const struct service *s, struct call *c, struct carat_error *err)
{
    int32_t n = c->ask.n * (int32_t)c->prompts.n;
    c->answers = mem_alloc((size_t)n, sizeof *c->answers);
    if (!c->answers) return err_no_memory(err, "answers", (size_t)n * sizeof *c->answers);
    for (int32_t i = 0; i < n; i++) {
        const struct prompt *prompt = &c->prompts.items[i / c->ask.n];
        TRY(generation_open(&c->answers[i], s->options->model, &c->ask, prompt, c->grammar, i,
                            err));
        set_job(s, c, &c->answers[i]);
        c->n_answers = i + 1;
    }
    return CARAT_OK;
}

/* An echo of ids is the text that they stand for. */
static int fill_echo(const struct service *s, struct ask *ask, struct carat_error *err)
{
    for (size_t i = 0; ask->wants_echo && i < ask->n_prompts; i++) {
        struct ask_prompt *p = &ask->prompts[i];
        char *text;
        if (!p->ids) continue;
        TRY(carat_detokenize(s->options->model, p->ids, p->n_ids, true, &text, &p->length, err));
        p->text = arena_copy_text(&ask->request.json.arena, text, p->length);
        carat_free(text);
        if (!p->text) return err_no_memory(err, "prompt", p->length);
    }
    return CARAT_OK;
}

static int open_reply(const struct service *s, struct call *c, struct carat_error *err)
{
    size_t n_prompt = 0;
    for (size_t i = 0; i < c->prompts.n; i++) n_prompt += c->prompts.items[i].n;
    TRY(fill_echo(s, &c->ask, err));
    const struct reply_facts facts = {
        .id = c->unique,
        .n_prompt = (int32_t)n_prompt,
        .model = c->ask.model[0] ? c->ask.model : s->options->alias,
        .created = time(NULL),
        .fingerprint = s->options->build,
    };
    return reply_open(&c->reply, &c->ask, &facts, err);
}

static int prepare_answer(const struct service *s, struct call *c, struct carat_error *err)
{
    const carat_model *model = s->options->model;
    const enum api api = (enum api)c->route->part;
    const struct ask_limits limits = limits_of(s, api);
    int32_t n_prompt = 0;
    TRY(ask_read(&c->ask, api, buf_text(&c->body), c->body.length, &s->options->sampling, &limits,
                 err));
    buf_deinit(&c->body);
    c->ask.says_reasoning = s->options->says_reasoning;
    TRY(check_bias(s, &c->ask, err));
    if (!c->ask.is_unload && !c->ask.is_load) {
        int status = prompts_make(&c->prompts, model, &c->ask, s->n_ctx, &n_prompt, err);
        c->error.n_prompt = n_prompt;
        if (status == CARAT_OK)
            status = grammars_take(s->grammars, &c->ask.request.root, &c->grammar, err);
        if (status != CARAT_OK) return ask_use_names(&c->ask, err), status;
        TRY(open_answers(s, c, err));
    }
    return open_reply(s, c, err);
}

/* What the call takes now, instead of the body of its request. Refuses what would be too much
 * together with all others. */
static void hold(struct service *s, struct call *c)
{
    size_t before = c->held;
    c->held = c->body.length + c->ask.request.json.arena.bytes;
    for (size_t i = 0; i < c->prompts.n; i++) c->held += c->prompts.items[i].n * sizeof(int32_t);
    size_t all = atomic_fetch_add(&s->held, c->held - before) + c->held - before;
    if (all <= HELD_MAX) return;
    c->has_failed = true;
    c->error = problem_no_room();
}

/* The reply takes the place of the body. */
static int prepare_text(const struct service *s, struct call *c, struct carat_error *err)
{
    enum text_kind kind = (enum text_kind)c->route->part;
    const struct ask_limits limits = limits_of(s, API_CHAT);
    struct buf out = {0};
    int status = texts_answer(kind, s->options->model, &limits, s->n_ctx, &c->body, &out, err);
    buf_deinit(&c->body);
    c->body = out;
    return status;
}

void prepare_call(struct service *s, struct call *c)
{
    struct carat_error err = {0};
    if (atomic_load(&c->is_gone)) return;
    int status =
        c->route->kind == ROUTE_TEXT ? prepare_text(s, c, &err) : prepare_answer(s, c, &err);
    if (status == CARAT_OK) {
        hold(s, c);
        return;
    }
    int32_t n_prompt = c->error.n_prompt;
    c->has_failed = true;
    if (status == CARAT_ECONTEXT) /* words that agents look for */
        err_within(&err, "the prompt exceeds the available context size of %d tokens", s->n_ctx);
    c->error = api_error_from(&err);
    if (status == CARAT_ECONTEXT && n_prompt > 0) c->error = api_error_context(n_prompt, s->n_ctx);
}
