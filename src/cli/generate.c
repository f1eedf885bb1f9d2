/* Reads what to generate from the options, and runs the loop around carat_step. */
#include "cli/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/json_writer.h"
#include "base/samplers.h"
#include "cli/escapes.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "json/sampling_fields.h"

/* ---- Options ---------------------------------------------------------------------------- */

/* "ID=V", or as llama.cpp has it "ID+V", "ID-V"; V may be -inf or false. */
static int read_bias(const char *text, int32_t n_vocab, struct carat_logit_bias *out,
                     struct carat_error *err)
{
    char *end;
    long id = strtol(text, &end, 10);
    const char *value = *end == '=' ? end + 1 : end;
    bool is_pair = end != text && (*end == '=' || *end == '+' || *end == '-');
    float bias = -INFINITY;
    if (is_pair && strcmp(value, "false") != 0) {
        bias = strtof(value, &end);
        is_pair = end != value && *end == '\0' && !isnan(bias) && bias < INFINITY;
    }
    if (!is_pair) {
        err_set(err, CARAT_EUSAGE, "--logit-bias: \"%s\" is not ID=VALUE", text);
        err_hint(err, "examples: 106=-5, 50=-inf");
        return CARAT_EUSAGE;
    }
    if (id < 0 || id >= n_vocab)
        return err_set(err, CARAT_EUSAGE, "--logit-bias: token id %ld, the vocabulary has 0 to %d",
                       id, n_vocab - 1);
    *out = (struct carat_logit_bias){.id = (int32_t)id, .bias = bias};
    return CARAT_OK;
}

/* What options say about sampling; with `by_flag` only those that stand on the command line. */
static void take_sampling(struct carat_sampling *p, const struct options *o, bool by_flag)
{
    const struct {
        enum option_id id;
        float *real;
        int32_t *whole;
    } all[] = {{OPT_TEMPERATURE, &p->temperature, NULL},
               {OPT_TOP_K, NULL, &p->top_k},
               {OPT_TOP_P, &p->top_p, NULL},
               {OPT_MIN_P, &p->min_p, NULL},
               {OPT_REPEAT_PENALTY, &p->repeat_penalty, NULL},
               {OPT_PRESENCE_PENALTY, &p->presence_penalty, NULL},
               {OPT_FREQUENCY_PENALTY, &p->frequency_penalty, NULL},
               {OPT_REPEAT_LAST_N, NULL, &p->repeat_last_n},
               {OPT_TYPICAL_P, &p->typical_p, NULL},
               {OPT_TOP_N_SIGMA, &p->top_n_sigma, NULL},
               {OPT_XTC_PROBABILITY, &p->xtc_probability, NULL},
               {OPT_XTC_THRESHOLD, &p->xtc_threshold, NULL},
               {OPT_DYNATEMP_RANGE, &p->dynatemp_range, NULL},
               {OPT_DYNATEMP_EXP, &p->dynatemp_exponent, NULL},
               {OPT_DRY_MULTIPLIER, &p->dry_multiplier, NULL},
               {OPT_DRY_BASE, &p->dry_base, NULL},
               {OPT_DRY_ALLOWED_LENGTH, NULL, &p->dry_allowed_length},
               {OPT_DRY_LAST_N, NULL, &p->dry_penalty_last_n},
               {OPT_MIROSTAT_TAU, &p->mirostat_tau, NULL},
               {OPT_MIROSTAT_ETA, &p->mirostat_eta, NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct option_value *v = &o->values[all[i].id];
        if (!(by_flag ? v->is_flag : v->is_set)) continue;
        if (all[i].real) *all[i].real = (float)v->real;
        if (all[i].whole) *all[i].whole = (int32_t)v->integer;
    }
    const struct option_value *mirostat = &o->values[OPT_MIROSTAT];
    if (by_flag ? mirostat->is_flag : mirostat->is_set)
        p->mirostat = (int32_t)strtol(mirostat->text, NULL, 10);
}

/* Names or letters. Of both, what takes precedence counts. */
static int read_order(struct carat_sampling *p, const struct options *o, struct carat_error *err)
{
    const struct option_value *names = &o->values[OPT_SAMPLERS];
    const struct option_value *letters = &o->values[OPT_SAMPLER_SEQ];
    if (names->is_set && letters->is_set && names->origin == letters->origin) {
        err_set(err, CARAT_EUSAGE, "--samplers and --sampler-seq: one of them expected");
        err_hint(err, "they say the same by names and by letters");
        return CARAT_EUSAGE;
    }
    if (letters->is_set && letters->origin > names->origin)
        return samplers_read_letters(p->samplers, letters->text, strlen(letters->text),
                                     "--sampler-seq", err);
    if (!names->is_set) return CARAT_OK;
    return samplers_read_names(p->samplers, names->text, strlen(names->text), "--samplers", err);
}

static int read_breaker(const char *given, char *out, struct carat_error *err)
{
    struct buf text = {0};
    int status = CARAT_OK;
    add_unescaped(&text, given);
    if (text.failed) {
        status = err_no_memory(err, "options", strlen(given));
    } else if (text.length == 0 || text.length > CARAT_DRY_BREAKER_BYTES_MAX) {
        status =
            err_set(err, CARAT_EUSAGE, "--dry-sequence-breaker: 1 to %d bytes expected, %zu given",
                    CARAT_DRY_BREAKER_BYTES_MAX, text.length);
        err_hint(err, text.length ? "the first words of the text will do"
                                  : "the word none says that no text ends a repetition");
    } else {
        memcpy(out, buf_text(&text), text.length + 1);
    }
    buf_deinit(&text);
    return status;
}

/* As in llama.cpp the word "none" is no text: alone it leaves none. */
static int read_breakers(struct generation *g, const struct option_value *v,
                         struct carat_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n_list; i++) {
        if (strcmp(v->list[i], "none") == 0) continue;
        if (n == CARAT_DRY_BREAKERS_MAX)
            return err_set(err, CARAT_EUSAGE, "--dry-sequence-breaker: given more than %d times",
                           CARAT_DRY_BREAKERS_MAX);
        TRY(read_breaker(v->list[i], g->breakers[n], err));
        g->breaker_list[n] = g->breakers[n];
        n++;
    }
    g->n_breakers = n;
    return CARAT_OK;
}

static void take_breakers(struct generation *g)
{
    g->sampling.dry_breakers = g->breaker_list;
    g->sampling.n_dry_breakers = g->n_breakers;
}

static uint64_t seed_of(const struct options *o)
{
    if (opt_int(o, OPT_SEED) >= 0) return (uint64_t)opt_int(o, OPT_SEED);
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = 1;
    return seed;
}

int generation_read(struct generation *g, const struct options *o, const carat_model *model,
                    struct carat_error *err)
{
    const struct carat_model_info *info = carat_model_info(model);
    *g = (struct generation){.sampling = info->sampling};
    if (g->sampling.repeat_last_n == 0) g->sampling.repeat_last_n = 64;
    take_sampling(&g->sampling, o, false);
    TRY(read_order(&g->sampling, o, err));
    TRY(read_breakers(g, &o->values[OPT_DRY_BREAKER], err));
    if (o->values[OPT_DRY_BREAKER].is_set) take_breakers(g);
    g->sampling.seed = seed_of(o);
    g->max_tokens = (int32_t)opt_int(o, OPT_MAX_TOKENS);
    g->ignore_stop = opt_is_set(o, OPT_IGNORE_STOP);
    g->is_raw = opt_is_set(o, OPT_RAW);
    g->show_special = opt_is_set(o, OPT_SPECIAL);

    const struct option_value *stops = &o->values[OPT_STOP], *bias = &o->values[OPT_LOGIT_BIAS];
    g->stops = (const char *const *)stops->list;
    g->n_stops = stops->n_list;
    for (size_t i = 0; i < g->n_stops; i++) {
        size_t length = strlen(g->stops[i]);
        if (length == 0 || length > CARAT_STOP_BYTES_MAX)
            return err_set(err, CARAT_EUSAGE, "--stop: 1 to %d bytes expected, %zu given",
                           CARAT_STOP_BYTES_MAX, length);
    }
    for (size_t i = 0; i < bias->n_list; i++)
        TRY(read_bias(bias->list[i], info->n_vocab, &g->bias[g->n_bias++], err));
    return CARAT_OK;
}

int generation_take(struct generation *g, const struct options *o, const carat_model *model,
                    const struct chat_request *request, struct carat_error *err)
{
    const struct option_value *v = o->values;
    const struct carat_sampling own = g->sampling;
    g->sampling = request->sampling;
    if (!request->has_seed || v[OPT_SEED].is_flag) g->sampling.seed = own.seed;
    take_sampling(&g->sampling, o, true);
    if (v[OPT_SAMPLERS].is_flag || v[OPT_SAMPLER_SEQ].is_flag)
        memcpy(g->sampling.samplers, own.samplers, sizeof own.samplers);
    if (v[OPT_DRY_BREAKER].is_flag) take_breakers(g);
    if (request->max_tokens >= 0 && !v[OPT_MAX_TOKENS].is_flag) g->max_tokens = request->max_tokens;
    if (request->n_stops > 0 && !v[OPT_STOP].is_flag) {
        g->stops = request->stops;
        g->n_stops = request->n_stops;
    }
    if (request->n_bias > 0 && !v[OPT_LOGIT_BIAS].is_flag) {
        memcpy(g->bias, request->bias, request->n_bias * sizeof *g->bias);
        g->n_bias = request->n_bias;
    }
    int32_t n_vocab = carat_model_info(model)->n_vocab;
    for (size_t i = 0; i < g->n_bias; i++)
        if (g->bias[i].id >= n_vocab)
            return err_set(err, CARAT_EUSAGE, "logit_bias: token id %d, the vocabulary has 0 to %d",
                           g->bias[i].id, n_vocab - 1);
    if (!v[OPT_IGNORE_STOP].is_flag) g->ignore_stop = request->ignores_stop;
    g->max_thinking = request->thinking_max;
    g->want_logprobs = request->want_logprobs;
    g->n_top_logprobs = request->n_top_logprobs;
    return CARAT_OK;
}

/* ---- Answers ---------------------------------------------------------------------------- */

void answer_deinit(struct answer *a)
{
    buf_deinit(&a->text);
    buf_deinit(&a->thinking);
    buf_deinit(&a->calls);
    buf_deinit(&a->logprobs);
    *a = (struct answer){0};
}

const char *answer_end_name(enum answer_end end)
{
    static const char *const names[] = {
        [ANSWER_STOP] = "stop",
        [ANSWER_LENGTH] = "length",
        [ANSWER_CONTEXT] = "length",
        [ANSWER_STOP_TEXT] = "stop",
        [ANSWER_INTERRUPTED] = "cancelled",
    };
    return names[end];
}

const char *answer_finish_reason(const struct answer *a)
{
    bool has_called = a->end == ANSWER_STOP && a->calls.length > 0;
    return has_called ? "tool_calls" : answer_end_name(a->end);
}

static double rate(int32_t n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

void answer_stats(const struct answer *a, char *out, size_t size)
{
    char cached[48] = "", drafted[64] = "";
    if (a->n_cached > 0)
        snprintf(cached, sizeof cached, ", %d of them from the cache", a->n_cached);
    if (a->n_drafted > 0)
        snprintf(drafted, sizeof drafted, " (%d of %d guesses right)", a->n_accepted, a->n_drafted);
    snprintf(
        out, size,
        "prompt %d tokens%s, first token after %.3f s (%.1f t/s); answer %d tokens%s in %.3f s "
        "(%.1f t/s)",
        a->n_prompt, cached, a->prefill_seconds,
        rate(a->n_prompt - a->n_cached, a->prefill_seconds), a->n_generated, drafted,
        a->decode_seconds, rate(a->n_generated, a->decode_seconds));
}

/* What one request needs while it runs. */
struct run {
    const struct generation *g;
    const carat_model *model;
    struct answer *answer;
    part_fn show;
    void *user;
    carat_answer *parts;
    bool is_reader_gone;
};

static void show_part(struct run *r, enum carat_part_kind kind, const char *text, size_t length)
{
    if (length == 0 || r->is_reader_gone) return;
    if (!r->show(r->user, kind, text, length)) r->is_reader_gone = true;
}

static void take_call(struct run *r, const struct carat_part *part)
{
    struct buf line = {0};
    struct json j = {.out = &line};
    json_begin_object(&j);
    json_key_string(&j, "name", part->name);
    json_key(&j, "arguments");
    buf_add(&line, part->text, part->length); /* already JSON */
    j.need_comma = true;
    if (!part->is_complete) {
        json_key_bool(&j, "complete", false);
    }
    json_end_object(&j);
    buf_add_char(&line, '\n');
    buf_add(&r->answer->calls, buf_text(&line), line.length);
    r->answer->calls.failed |= line.failed;
    show_part(r, CARAT_PART_TOOL_CALL, buf_text(&line), line.length);
    buf_deinit(&line);
}

static void take_parts(struct run *r, const struct carat_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct carat_part *part = &parts[i];
        if (part->kind == CARAT_PART_TOOL_CALL) {
            take_call(r, part);
            continue;
        }
        bool is_text = part->kind == CARAT_PART_TEXT;
        buf_add(is_text ? &r->answer->text : &r->answer->thinking, part->text, part->length);
        show_part(r, part->kind, part->text, part->length);
    }
    if (carat_answer_stop(r->parts)) r->answer->end = ANSWER_STOP_TEXT;
}

/* "token", "logprob" and "bytes", as OpenAI's API has them. */
static int add_logprob(struct run *r, struct json *j, int32_t id, float logprob,
                       struct carat_error *err)
{
    char *text;
    size_t length;
    TRY(carat_detokenize(r->model, &id, 1, true, &text, &length, err));
    json_key_text(j, "token", text, length);
    json_key_double(j, "logprob", (double)logprob);
    json_key_array(j, "bytes");
    for (size_t i = 0; i < length; i++) json_int(j, (unsigned char)text[i]);
    json_end_array(j);
    carat_free(text);
    return CARAT_OK;
}

static int take_logprobs(struct run *r, const struct carat_event *event, struct carat_error *err)
{
    struct json j = {.out = &r->answer->logprobs, .need_comma = r->answer->logprobs.length > 0};
    json_begin_object(&j);
    TRY(add_logprob(r, &j, event->id, event->logprob, err));
    json_key_array(&j, "top_logprobs");
    for (int32_t i = 0; i < event->n_top; i++) {
        json_begin_object(&j);
        TRY(add_logprob(r, &j, event->top[i].id, event->top[i].logprob, err));
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
    return CARAT_OK;
}

static int take_token(struct run *r, const struct carat_event *event, struct carat_error *err)
{
    const struct carat_part *parts;
    size_t n;
    int32_t id = event->id;
    /* Guesses were right beyond the stop string. */
    if (r->answer->end == ANSWER_STOP_TEXT) return CARAT_OK;
    r->answer->n_generated++;
    if (r->g->max_tokens == 0) return CARAT_OK;
    if (r->g->want_logprobs) TRY(take_logprobs(r, event, err));
    TRY(carat_answer_push(r->parts, &id, 1, &parts, &n, err));
    take_parts(r, parts, n);
    return CARAT_OK;
}

/* Takes what was held back until the end. */
static int take_rest(struct run *r, struct carat_error *err)
{
    const struct carat_part *parts;
    size_t n;
    r->answer->is_cut_in_thought =
        r->answer->end != ANSWER_STOP && carat_answer_is_thinking(r->parts);
    TRY(carat_answer_finish(r->parts, &parts, &n, err));
    take_parts(r, parts, n);
    return CARAT_OK;
}

static int take_done(struct run *r, const struct carat_event *event, struct carat_error *err)
{
    struct answer *a = r->answer;
    int32_t limit = r->g->max_tokens;
    a->n_prompt = event->n_prompt;
    a->n_cached = event->n_cached;
    a->n_drafted = event->n_drafted;
    a->n_accepted = event->n_accepted;
    a->prefill_seconds = event->prefill_seconds;
    a->decode_seconds = event->decode_seconds;
    if (event->finish == CARAT_FINISH_ERROR)
        return err_set(err, CARAT_ENUMERIC, "%s",
                       event->message ? event->message : "the request failed");
    if (a->end == ANSWER_STOP_TEXT) return CARAT_OK;
    a->stop_id = event->stop_id;
    a->end = event->finish == CARAT_FINISH_STOP     ? ANSWER_STOP
             : event->finish != CARAT_FINISH_LENGTH ? ANSWER_INTERRUPTED
             : limit > 0 && a->n_generated >= limit ? ANSWER_LENGTH
                                                    : ANSWER_CONTEXT;
    return CARAT_OK;
}

static int take_event(struct run *r, const struct carat_event *event, struct carat_error *err)
{
    if (event->kind == CARAT_EVENT_TOKEN) return take_token(r, event, err);
    if (event->kind == CARAT_EVENT_DONE) return take_done(r, event, err);
    progress("reading the prompt", event->done, event->total);
    return CARAT_OK;
}

static int step_to_end(struct run *r, carat_engine *engine, carat_request_id request,
                       struct carat_error *err)
{
    bool is_cancelled = false, is_done = false;
    int status = CARAT_OK;
    while (!is_done) {
        int work = carat_step(engine, err);
        if (work < 0) return work;
        const struct carat_event *event;
        while ((event = carat_next_event(engine))) {
            if (event->request != request) continue;
            is_done = event->kind == CARAT_EVENT_DONE;
            int taken = take_event(r, event, status == CARAT_OK ? err : NULL);
            if (status == CARAT_OK) status = taken;
        }
        bool is_over =
            r->answer->end == ANSWER_STOP_TEXT || r->is_reader_gone || status != CARAT_OK;
        if ((is_over || interrupt_wanted()) && !is_cancelled && !is_done) {
            is_cancelled = true;
            carat_cancel(engine, request);
        }
        if (work == 0) break; /* idle: DONE was among the events */
    }
    return status == CARAT_OK ? take_rest(r, err) : status;
}

int generate(struct session *s, const struct generation *g, const int32_t *prompt, size_t n_prompt,
             part_fn show, void *user, struct answer *answer, struct carat_error *err)
{
    *answer = (struct answer){0};
    struct run r = {.g = g, .model = s->model, .answer = answer, .show = show, .user = user};
    struct carat_answer_options options = {.stops = g->stops,
                                           .n_stops = g->n_stops,
                                           .is_raw = g->is_raw,
                                           .show_special = g->show_special};
    TRY(carat_answer_open(&r.parts, s->model, prompt, n_prompt, &options, err));
    struct carat_request request = {
        .prompt = prompt,
        .n_prompt = n_prompt,
        .max_tokens = g->max_tokens == 0 ? 1 : g->max_tokens, /* 0: the prompt alone, see below */
        .sampling = sampling_literal(g->sampling),
        .bias = g->bias,
        .n_bias = g->n_bias,
        .ignore_stop = g->ignore_stop,
        .max_thinking = g->max_thinking,
        .grammar = g->grammar,
        .want_logprob = g->want_logprobs,
        .n_top_logprobs = g->n_top_logprobs,
    };
    carat_request_id id = 0;
    interrupt_begin();
    int status = carat_submit(s->engine, &request, &id, err);
    if (status == CARAT_OK) status = step_to_end(&r, s->engine, id, err);
    if (g->max_tokens == 0 && answer->end != ANSWER_INTERRUPTED) {
        answer->end = ANSWER_LENGTH;
        answer->n_generated = 0;
    }
    interrupt_end();
    progress_end();
    bool is_short = answer->text.failed || answer->thinking.failed || answer->calls.failed ||
                    answer->logprobs.failed;
    if (status == CARAT_OK && is_short) status = err_no_memory(err, "answer", answer->text.length);
    carat_answer_close(r.parts);
    return status;
}
