/* Turns of a chat on the demo model: each turn computes only what is new, with thoughts that the
 * next prompt strips and without, and after going back; answers have the bits of a cold engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef CARAT_HAVE_JSON

#include "carat.h"

#define DEMO CARAT_SOURCE_DIR "/models/demo.gguf"

enum { N_CTX = 1024, PAGE = 64, TURNS = 4, TEXT_MAX = 1 << 14 };

static carat_model *model;

static carat_engine *open_with(bool is_cold)
{
    carat_engine *e;
    struct carat_error err = {0};
    struct carat_engine_options options = {.backend = "cpu",
                                           .n_ctx = N_CTX,
                                           .chunk = 128,
                                           .n_threads = 1,
                                           .cache_split = 64,
                                           .no_prefix_cache = is_cold,
                                           .deterministic = true};
    if (carat_engine_open(&e, model, &options, &err)) fail_msg("%s", err.message);
    return e;
}

/* What the model is made to say: a list of ids, each in its turn. */
struct script {
    int32_t *ids;
    size_t n, next;
};

static void say_script(void *user, const int32_t *ids, size_t n_ids, float *logits, int32_t n_vocab)
{
    (void)ids, (void)n_ids, (void)n_vocab;
    struct script *s = user;
    assert_true(s->next < s->n);
    logits[s->ids[s->next++]] = 1e4f;
}

struct reply {
    int32_t n_cached;
    float logprobs[512];
    size_t n;
};

/* The log-probabilities of the scripted ids, which depend on all that was read before. */
static struct reply ask(carat_engine *e, const int32_t *prompt, size_t n_prompt, struct script *s)
{
    struct carat_error err = {0};
    struct reply r = {0};
    carat_request_id id;
    struct carat_request request = {.prompt = prompt,
                                    .n_prompt = n_prompt,
                                    .max_tokens = (int32_t)s->n,
                                    .ignore_stop = true,
                                    .want_logprob = true,
                                    .on_logits = say_script,
                                    .on_logits_user = s};
    s->next = 0;
    if (carat_submit(e, &request, &id, &err)) fail_msg("%s", err.message);
    for (int left = 1; left > 0;) {
        const struct carat_event *event;
        left = carat_step(e, &err);
        assert_true(left >= 0);
        while ((event = carat_next_event(e))) {
            if (event->kind == CARAT_EVENT_TOKEN) {
                assert_int_equal(event->id, s->ids[r.n]);
                r.logprobs[r.n++] = event->logprob;
            }
            if (event->kind == CARAT_EVENT_DONE) r.n_cached = event->n_cached;
        }
    }
    assert_int_equal(r.n, s->n);
    return r;
}

/* ---- A conversation --------------------------------------------------------------------- */

struct chat {
    char messages[TEXT_MAX]; /* JSON, without the closing bracket */
    int32_t known[N_CTX];    /* what the cache has of the last turn: its prompt and answer */
    size_t n_known;
};

static void add_message(struct chat *c, const char *role, const char *text)
{
    size_t n = strlen(c->messages);
    snprintf(c->messages + n, sizeof c->messages - n, "%s{\"role\":\"%s\",\"content\":\"%s\"}",
             n > 1 ? "," : "", role, text);
}

static size_t common(const struct chat *c, const int32_t *ids, size_t n)
{
    size_t i = 0;
    while (i < n && i < c->n_known && ids[i] == c->known[i]) i++;
    return i;
}

/* One turn: the answer of the warm engine has the bits of the cold one, and all but the last page
 * of what was known came from the cache. Returns what was cached. */
static int32_t take_turn(struct chat *c, carat_engine *warm, carat_engine *cold, bool thinks,
                         const char *answer)
{
    static char json[TEXT_MAX + 64];
    struct carat_error err = {0};
    struct script script;
    int32_t *ids;
    size_t n;
    snprintf(json, sizeof json, "{\"messages\":%s],\"enable_thinking\":%s}", c->messages,
             thinks ? "true" : "false");
    if (carat_chat_tokenize_json(model, json, strlen(json), &ids, &n, &err))
        fail_msg("%s", err.message);
    assert_int_equal(carat_tokenize(model, answer, strlen(answer), CARAT_SPECIAL_ALL, false,
                                    &script.ids, &script.n, &err),
                     CARAT_OK);
    struct reply a = ask(warm, ids, n, &script), b = ask(cold, ids, n, &script);
    assert_memory_equal(a.logprobs, b.logprobs, a.n * sizeof *a.logprobs);
    assert_int_equal(b.n_cached, 0);
    assert_true(a.n_cached + PAGE >= (int32_t)common(c, ids, n));
    memcpy(c->known, ids, n * sizeof *ids);
    memcpy(c->known + n, script.ids, (script.n - 1) * sizeof *ids); /* the last one is never read */
    c->n_known = n + script.n - 1;
    carat_free(ids);
    carat_free(script.ids);
    return a.n_cached;
}

static void check_turns(bool thinks)
{
    static const char question[] =
        "Tell me more about the sea, its tides, and the ships that cross "
        "it in winter, please; I have read much of them before.";
    static const char said[] = "The sea is wide and deep, and ships cross it in all seasons, also "
                               "in winter, when the wind is strong and the nights are long.";
    static char answer[1024];
    static struct chat c, marks[TURNS];
    carat_engine *warm = open_with(false), *cold = open_with(true);
    int32_t cached[TURNS], n_computed = 0;
    c = (struct chat){.messages = "["};
    snprintf(answer, sizeof answer, "%s%s",
             thinks
                 ? "<|channel>thought\nThe user asks about the sea. What do I know of it? Tides, "
                   "ships, winter: all of that.\n<channel|>"
                 : "",
             said);
    add_message(&c, "system", "You are a sailor who has seen all the seas of the world.");
    for (int turn = 0; turn < TURNS; turn++) {
        add_message(&c, "user", question);
        marks[turn] = c;
        cached[turn] = take_turn(&c, warm, cold, thinks, answer);
        if (turn > 0) assert_true(cached[turn] > cached[turn - 1]);
        n_computed += (int32_t)c.n_known - cached[turn];
        add_message(&c, "assistant", said);
    }
    printf("%s: 0 to %d of %zu tokens cached; %d computed in %d turns\n",
           thinks ? "with thoughts" : "without thoughts", cached[TURNS - 1], c.n_known, n_computed,
           TURNS);
    for (int turn = TURNS; turn-- > 1;) { /* back: another answer, then another question */
        struct chat again = marks[turn];
        again.n_known = 0;
        assert_true(take_turn(&again, warm, cold, thinks, "Well.") >= cached[turn]);
        again = marks[turn - 1];
        add_message(&again, "assistant", said);
        add_message(&again, "user", "And in summer?");
        again.n_known = 0;
        assert_true(take_turn(&again, warm, cold, thinks, "Calm.") + PAGE >= cached[turn]);
    }
    carat_engine_close(warm);
    carat_engine_close(cold);
}

static void a_turn_computes_what_is_new(void **state)
{
    (void)state;
    check_turns(false);
}

/* The next prompt leaves the thought out: it goes on where the answer began. */
static void stripped_thoughts_cost_the_answer_and_no_more(void **state)
{
    (void)state;
    check_turns(true);
}

static int open_demo(void **state)
{
    (void)state;
    return carat_model_open(&model, DEMO, NULL);
}

static int close_demo(void **state)
{
    (void)state;
    carat_model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_computes_what_is_new),
        cmocka_unit_test(stripped_thoughts_cost_the_answer_and_no_more),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}

#else

int main(void)
{
    puts("skipped: built without jansson");
    return 0;
}

#endif
