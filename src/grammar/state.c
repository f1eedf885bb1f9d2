#include "grammar/state.h"

#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "grammar/grammar.h"

enum mode {
    MODE_FREE,    /* until the trigger comes */
    MODE_THOUGHT, /* until its end mark comes */
    MODE_BOUND,   /* the grammar says what may come */
    MODE_DEAD,
};

struct grammar_state {
    struct grammar_user user;
    carat_grammar *g;
    enum mode mode, after_thought;
    bool has_thought; /* one has begun, in the prompt or after it */
    bool has_begun;   /* something of the root rule has come */
    const char *problem;
};

static const char problem_full[] =
    "the grammar needs more memory for one answer than it may take: it is too ambiguous";
static const char problem_refused[] = "the answer has left the grammar";

static bool has_trigger(const struct grammar_state *s)
{
    return s->g->options.trigger >= 0;
}

static void die(struct grammar_state *s, const char *problem)
{
    s->mode = MODE_DEAD;
    if (!s->problem[0]) s->problem = problem;
}

static void enter_thought(struct grammar_state *s)
{
    s->after_thought = s->mode;
    s->mode = MODE_THOUGHT;
    s->has_thought = true;
}

/* ---- Opening ---------------------------------------------------------------------------- */

/* The last mark of a thought in the prompt says whether the answer begins inside of one. */
static bool is_inside_thought(const struct token_index *x, const int32_t *prompt, size_t n)
{
    while (n-- > 0) {
        if (prompt[n] < 0) continue;
        if (prompt[n] == x->channel_begin) return true;
        if (prompt[n] == x->channel_end || (prompt[n] < x->n_vocab && x->is_stop[prompt[n]]))
            return false;
    }
    return false;
}

int grammar_state_open(struct grammar_state **out, const carat_grammar *given,
                       const int32_t *prompt, size_t n_prompt, struct carat_error *err)
{
    *out = NULL;
    /* What a grammar remembers may change, what it accepts does not: see grammar.h. */
    carat_grammar *g = (carat_grammar *)(uintptr_t)given;
    struct grammar_state *s = mem_alloc(1, sizeof *s);
    if (!s) return err_no_memory(err, "grammar state", sizeof *s);
    s->g = g;
    s->problem = "";
    s->mode = has_trigger(s) ? MODE_FREE : MODE_BOUND;
    if (is_inside_thought(g->index, prompt, n_prompt)) enter_thought(s);
    grammar_add_user(g, &s->user);
    *out = s;
    return CARAT_OK;
}

void grammar_state_close(struct grammar_state *s)
{
    if (!s) return;
    grammar_remove_user(s->g, &s->user);
    mem_free(s);
}

/* ---- Steps ------------------------------------------------------------------------------ */

static bool is_stop(const struct grammar_state *s, int32_t id)
{
    return id >= 0 && id < s->g->index->n_vocab && s->g->index->is_stop[id];
}

/* One thought may come before anything of the root rule. More of them would only delay the answer,
 * and a limit of tokens for thoughts would close each as soon as it begins. */
static bool may_think(const struct grammar_state *s)
{
    return s->g->options.takes_thoughts && s->g->index->channel_begin >= 0 && !s->has_thought &&
           !s->has_begun && !has_trigger(s);
}

/* The parser of answers recognises a call inside of a thought too. */
static bool ends_thought(const struct grammar_state *s, int32_t id)
{
    return s->g->options.call > 0 && id == s->g->options.call;
}

bool grammar_state_allows(struct grammar_state *s, int32_t id)
{
    if (id < 0 || id >= s->g->index->n_vocab) return false;
    switch (s->mode) {
    case MODE_FREE: return true;
    case MODE_THOUGHT:
        if (s->after_thought == MODE_FREE) return true;
        if (!ends_thought(s, id)) return !is_stop(s, id);
        break;
    case MODE_DEAD: return false;
    case MODE_BOUND: break;
    }
    if (id == s->g->index->channel_begin && may_think(s)) return true;
    if (is_stop(s, id) && grammar_is_complete(s->g, &s->user)) return true;
    return grammar_step(s->g, &s->user, id, false) == GRAMMAR_YES;
}

/* Goes on in the grammar. With a trigger, text is free again when the root rule is complete. */
static void go_on(struct grammar_state *s, int32_t id)
{
    enum grammar_answer answer = grammar_step(s->g, &s->user, id, true);
    if (answer == GRAMMAR_YES) {
        s->has_begun = true;
        if (!has_trigger(s) || !grammar_is_complete(s->g, &s->user)) return;
        s->mode = MODE_FREE;
        grammar_return(s->g, &s->user);
    } else if (!is_stop(s, id) || !grammar_is_complete(s->g, &s->user)) {
        die(s, answer == GRAMMAR_FULL ? problem_full : problem_refused);
    }
}

void grammar_state_accept(struct grammar_state *s, int32_t id)
{
    const struct token_index *x = s->g->index;
    switch (s->mode) {
    case MODE_FREE:
        if (id == s->g->options.trigger) {
            s->mode = MODE_BOUND;
            go_on(s, id);
        } else if (id == x->channel_begin) {
            enter_thought(s);
        }
        break;
    case MODE_THOUGHT:
        if (id == x->channel_end || ends_thought(s, id)) s->mode = s->after_thought;
        if (ends_thought(s, id)) grammar_state_accept(s, id);
        break;
    case MODE_BOUND:
        if (id == x->channel_begin && may_think(s))
            enter_thought(s);
        else
            go_on(s, id);
        break;
    case MODE_DEAD: break;
    }
}

static void set_all(const struct token_index *x, uint64_t *bits)
{
    memset(bits, 0xFF, index_words(x) * sizeof *bits);
    if (x->n_vocab % 64) bits[index_words(x) - 1] = ((uint64_t)1 << x->n_vocab % 64) - 1;
}

void grammar_state_mask(struct grammar_state *s, uint64_t *bits)
{
    const struct token_index *x = s->g->index;
    memset(bits, 0, index_words(x) * sizeof *bits);
    if (s->mode == MODE_FREE || s->mode == MODE_THOUGHT) set_all(x, bits);
    if (s->mode == MODE_THOUGHT && s->after_thought != MODE_FREE) {
        int32_t call = s->g->options.call;
        for (uint32_t i = 0; i < x->n_stops; i++)
            bits[x->stops[i] / 64] &= ~((uint64_t)1 << x->stops[i] % 64);
        if (call > 0 && !grammar_state_allows(s, call))
            bits[call / 64] &= ~((uint64_t)1 << call % 64);
    }
    if (s->mode != MODE_BOUND) return;
    if (!grammar_mask(s->g, &s->user, bits)) {
        memset(bits, 0, index_words(x) * sizeof *bits);
        die(s, problem_full);
        return;
    }
    int32_t channel = x->channel_begin;
    if (may_think(s)) bits[channel / 64] |= (uint64_t)1 << channel % 64;
}

int32_t grammar_state_expect(struct grammar_state *s, int32_t last, int32_t *ids, int32_t most)
{
    if (s->mode != MODE_BOUND || may_think(s)) return 0;
    return grammar_expect(s->g, &s->user, last, ids, most);
}

bool grammar_state_is_free(const struct grammar_state *s)
{
    return s->mode == MODE_FREE || (s->mode == MODE_THOUGHT && s->after_thought == MODE_FREE);
}

bool grammar_state_is_complete(struct grammar_state *s)
{
    return grammar_state_is_free(s) ||
           (s->mode == MODE_BOUND && grammar_is_complete(s->g, &s->user));
}

const char *grammar_state_problem(const struct grammar_state *s)
{
    return s->problem;
}
