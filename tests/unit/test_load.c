/* The load generator without an engine: what is drawn from a seed, and what is made of results. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/load_stats.h"
#include "cli/load_stream.h"

enum { SEED = 20, VOCABULARY = 1000 };

static struct load_group group(void)
{
    return (struct load_group){
        .burstiness = 1,
        .turns = 1,
        .prefixes = 1,
        .in = 100,
        .in_next = 10,
        .out = 20,
        .requests = 200,
        .after = -1,
        .during = -1,
    };
}

static struct load_plan plan_of(const struct load_group *groups, size_t n, uint64_t seed)
{
    struct load_plan plan;
    struct carat_error err = {0};
    assert_int_equal(load_plan_init(&plan, groups, n, seed, &err), CARAT_OK);
    return plan;
}

static bool is_near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

/* ---- Distributions ---------------------------------------------------------------------- */

/* numpy.percentile and numpy.std of 10, 9, ..., 1 give these. */
static void distributions_are_numpys(void **state)
{
    (void)state;
    double values[] = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
    struct distribution d = distribution_of(values, 10);
    assert_true(is_near(d.mean, 5.5, 1e-12) && is_near(d.p50, 5.5, 1e-12));
    assert_true(is_near(d.p90, 9.1, 1e-12) && is_near(d.p99, 9.91, 1e-12));
    assert_true(is_near(d.deviation, 2.8722813232690143, 1e-12) && d.most == 10 && d.n == 10);
}

static void few_values_have_a_distribution(void **state)
{
    (void)state;
    double one[] = {7};
    struct distribution d = distribution_of(one, 1), none = distribution_of(one, 0);
    assert_true(d.mean == 7 && d.p50 == 7 && d.p99 == 7 && d.most == 7 && d.deviation == 0);
    assert_true(none.n == 0 && none.mean == 0 && none.p99 == 0);
}

/* ---- Requests --------------------------------------------------------------------------- */

static void equal_seeds_give_equal_requests(void **state)
{
    (void)state;
    struct load_group g = group();
    g.in_spread = g.out_spread = 0.5;
    g.cancel = 0.3;
    g.rate = 10;
    struct load_plan a = plan_of(&g, 1, SEED), b = plan_of(&g, 1, SEED),
                     c = plan_of(&g, 1, SEED + 1);
    assert_int_equal(a.n, 200);
    size_t n_equal = 0;
    for (size_t i = 0; i < a.n; i++) {
        const struct load_request *x = &a.requests[i], *y = &b.requests[i];
        assert_true(x->n_new == y->n_new && x->n_out == y->n_out && x->at == y->at &&
                    x->cancel_when == y->cancel_when);
    }
    for (size_t i = 0; i < c.n; i++) n_equal += a.requests[i].n_new == c.requests[i].n_new;
    assert_true(n_equal < c.n / 10); /* 101 lengths are equally likely */
    load_plan_deinit(&a);
    load_plan_deinit(&b);
    load_plan_deinit(&c);
}

static void lengths_fill_their_range(void **state)
{
    (void)state;
    struct load_group g = group();
    g.in_spread = 0.5;
    g.requests = 5000;
    struct load_plan p = plan_of(&g, 1, SEED);
    double sum = 0;
    int32_t least = INT32_MAX, most = 0;
    for (size_t i = 0; i < p.n; i++) {
        int32_t n = p.requests[i].n_new;
        sum += n;
        least = n < least ? n : least;
        most = n > most ? n : most;
        assert_int_equal(p.requests[i].n_out, 20);
    }
    assert_int_equal(least, 50);
    assert_int_equal(most, 150);
    assert_true(is_near(sum / 5000, 100, 0.02));
    load_plan_deinit(&p);
}

/* Mean and spread of the gaps of a Poisson process are equal; other shapes k have 1 / sqrt(k). */
static void arrivals_have_rate_and_burstiness(void **state)
{
    (void)state;
    static const double shapes[] = {1, 4, 0.25};
    for (int k = 0; k < 3; k++) {
        struct load_group g = group();
        g.rate = 50;
        g.burstiness = shapes[k];
        g.requests = 20000;
        struct load_plan p = plan_of(&g, 1, SEED);
        double sum = 0, squares = 0;
        for (size_t i = 0; i < p.n; i++) {
            double gap = p.requests[i].at - (i ? p.requests[i - 1].at : 0);
            assert_true(gap >= 0);
            sum += gap;
            squares += gap * gap;
        }
        double mean = sum / (double)p.n, deviation = sqrt(squares / (double)p.n - mean * mean);
        print_message("shape %g: mean gap %.5f, deviation %.5f\n", shapes[k], mean, deviation);
        assert_true(is_near(mean, 1.0 / 50, 0.05));
        assert_true(is_near(deviation / mean, 1 / sqrt(shapes[k]), 0.05));
        load_plan_deinit(&p);
    }
}

static void users_take_chats_by_turns(void **state)
{
    (void)state;
    struct load_group g = group();
    g.users = 1;
    g.chats = 3;
    g.turns = 2;
    g.requests = 11; /* three chats twice, then two chats of which one has a second turn */
    struct load_plan p = plan_of(&g, 1, SEED);
    static const int32_t chats[] = {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4};
    static const int32_t turns[] = {0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1};
    for (int32_t i = 0; i < 11; i++) {
        const struct load_request *r = &p.requests[i];
        assert_int_equal(r->chat, chats[i]);
        assert_int_equal(r->turn, turns[i]);
        assert_int_equal(r->before, turns[i] ? i - 3 : -1);
        assert_int_equal(r->root, turns[i] ? i - 3 : i);
        assert_int_equal(r->n_new, turns[i] ? 10 : 100);
        if (turns[i]) assert_int_equal(p.requests[r->before].next, i);
    }
    assert_int_equal(p.requests[8].next, -1);
    load_plan_deinit(&p);
}

static void a_share_is_cancelled_everywhere(void **state)
{
    (void)state;
    struct load_group g = group();
    g.cancel = 0.25;
    g.requests = 10000;
    g.warmup = 50;
    struct load_plan p = plan_of(&g, 1, SEED);
    int32_t n[3] = {0};
    for (size_t i = 0; i < p.n; i++) {
        double when = p.requests[i].cancel_when;
        assert_true(when < 3);
        assert_true(when < 0 || !p.requests[i].is_warmup);
        if (when >= 0) n[(int)when]++;
    }
    for (int k = 0; k < 3; k++) assert_true(is_near(n[k], 10000 * 0.25 / 3, 0.1));
    load_plan_deinit(&p);
}

/* ---- Tokens ----------------------------------------------------------------------------- */

static void chats_share_their_prefix_alone(void **state)
{
    (void)state;
    struct load_group g = group();
    g.prefix = 64;
    g.prefixes = 2;
    g.requests = 4;
    struct load_plan p = plan_of(&g, 1, SEED);
    static bool is_banned[VOCABULARY];
    int32_t ids[4][164];
    for (int32_t i = 0; i < VOCABULARY; i += 2) is_banned[i] = true;
    for (int i = 0; i < 4; i++) load_plan_tokens(&p, &p.requests[i], VOCABULARY, is_banned, ids[i]);
    assert_memory_equal(ids[0], ids[2], 64 * sizeof(int32_t));
    assert_memory_equal(ids[1], ids[3], 64 * sizeof(int32_t));
    assert_memory_not_equal(ids[0], ids[1], 64 * sizeof(int32_t));
    assert_memory_not_equal(ids[0] + 64, ids[2] + 64, 100 * sizeof(int32_t));
    for (int k = 0; k < 164; k++) assert_true(ids[0][k] % 2 == 1 && ids[0][k] < VOCABULARY);
    int32_t again[164];
    p.repetition = 1; /* nothing of the first repetition may be found in a cache */
    load_plan_tokens(&p, &p.requests[0], VOCABULARY, is_banned, again);
    assert_memory_not_equal(again, ids[0], 64 * sizeof(int32_t));
    load_plan_deinit(&p);
}

/* ---- Statistics ------------------------------------------------------------------------- */

/* Three requests: one of four tokens from 1.0 s on, one with a single token, one cancelled. */
struct talk {
    struct load_group groups[2];
    struct load_plan plan;
    struct load_run run;
    struct load_result results[3];
    double times[32];
    float steps[2];
};

static void make_talk(struct talk *t)
{
    *t = (struct talk){.groups = {group(), group()}};
    t->groups[0].requests = 2;
    t->groups[1].requests = 1;
    t->plan = plan_of(t->groups, 2, SEED);
    t->results[0] = (struct load_result){.outcome = LOAD_COMPLETED,
                                         .arrival = 0.5,
                                         .end = 2,
                                         .queue_seconds = 0.1,
                                         .n_prompt = 100,
                                         .n_cached = 64,
                                         .n_reusable = 80,
                                         .n_out = 4,
                                         .times = 0};
    t->results[1] = (struct load_result){.outcome = LOAD_CANCELLED,
                                         .arrival = 1,
                                         .end = 1.5,
                                         .n_prompt = 100,
                                         .n_out = 2,
                                         .times = 4};
    t->results[2] = (struct load_result){.outcome = LOAD_COMPLETED,
                                         .arrival = 1.3,
                                         .end = 1.5,
                                         .n_prompt = 100,
                                         .n_out = 1,
                                         .times = 6};
    static const double times[] = {1, 1.2, 1.4, 2, 1.2, 1.4, 1.5};
    memcpy(t->times, times, sizeof times);
    t->steps[0] = 0.2f;
    t->steps[1] = 0.4f;
    t->run = (struct load_run){.results = t->results,
                               .times = t->times,
                               .step_seconds = t->steps,
                               .n_steps = 2,
                               .all_step_seconds = 0.6,
                               .longest_step = 0.4};
}

static struct load_stats stats_of(const struct talk *t, int32_t g)
{
    struct load_stats s;
    struct carat_error err = {0};
    assert_int_equal(load_stats_take(&s, &t->plan, &t->run, g, &err), CARAT_OK);
    return s;
}

static void times_become_statistics(void **state)
{
    (void)state;
    struct talk t;
    make_talk(&t);
    struct load_stats s = stats_of(&t, 0), all = stats_of(&t, -1);
    assert_true(s.requests == 2 && s.completed == 1 && s.cancelled == 1 && s.failed == 0);
    assert_true(is_near(s.duration, 1.5, 1e-9) && is_near(s.ttft.mean, 500, 1e-9));
    assert_true(is_near(s.tpot.mean, 1000.0 / 3, 1e-9) && is_near(s.e2el.mean, 1500, 1e-9));
    assert_true(s.itl.n == 3 && is_near(s.itl.p50, 200, 1e-9) && is_near(s.itl.most, 600, 1e-9));
    assert_true(is_near(s.queue.mean, 100, 1e-9) && s.ttft_next.n == 0);
    assert_true(s.input_tokens == 100 && s.output_tokens == 4 && s.cancelled_tokens == 2);
    assert_true(s.cached_tokens == 64 && s.reusable_tokens == 80);
    assert_int_equal(s.most_at_once, 2);
    assert_true(is_near(s.most_tokens, 3, 1e-9)); /* from 0.5 s to 1.5 s */
    assert_true(all.requests == 3 && all.completed == 2 && all.output_tokens == 5);
    assert_true(all.tpot.n == 1 && all.most_at_once == 3);
    assert_true(all.step.n == 2 && is_near(all.step.mean, 300, 1e-6));
    load_plan_deinit(&t.plan);
}

/* Its place among the times is that of the next request. */
static void a_request_without_tokens_has_its_end_for_the_first(void **state)
{
    (void)state;
    struct talk t;
    make_talk(&t);
    assert_true(is_near(load_first_seconds(&t.run, &t.results[2]), 0.2, 1e-9));
    t.results[0].n_out = 0;
    assert_true(is_near(load_first_seconds(&t.run, &t.results[0]), 1.5, 1e-9));
    assert_true(is_near(stats_of(&t, 0).ttft.mean, 1500, 1e-9));
    load_plan_deinit(&t.plan);
}

static void gaps_count_while_others_are_under_way(void **state)
{
    (void)state;
    struct talk t;
    make_talk(&t);
    t.groups[0].during = 1; /* from 1.3 s to 1.5 s: the gaps that end at 1.4 s and at 2 s */
    struct load_stats s = stats_of(&t, 0);
    assert_true(s.itl.n == 2 && is_near(s.itl.mean, 400, 1e-9));
    t.results[2].arrival = 2.5;
    t.results[2].end = 3;
    assert_int_equal(stats_of(&t, 0).itl.n, 0);
    load_plan_deinit(&t.plan);
}

static void requests_within_all_goals_are_good(void **state)
{
    (void)state;
    struct talk t;
    make_talk(&t);
    t.groups[0].ttft_goal = 500.001;
    assert_int_equal(stats_of(&t, 0).good, 1);
    t.groups[0].tpot_goal = 300;
    assert_int_equal(stats_of(&t, 0).good, 0);
    t.groups[0].tpot_goal = 400;
    t.groups[0].e2el_goal = 1499;
    assert_int_equal(stats_of(&t, 0).good, 0);
    load_plan_deinit(&t.plan);
}

/* ---- Streams of a server ---------------------------------------------------------------- */

static void note_event(void *user, const struct load_event *event)
{
    struct buf *out = user;
    if (event->kind == CARAT_EVENT_TOKEN) buf_printf(out, "%d ", event->id);
    if (event->kind == CARAT_EVENT_PROGRESS) buf_printf(out, "%d/%d ", event->done, event->total);
}

/* Texts that spell members, other forms of white space, ids of none and of several tokens. */
static const char stream[] =
    ": ping\n\n"
    "data: {\"choices\":[{\"text\":\"\"}],\"prompt_progress\":{\"total\":9,\"processed\":4}}\n\n"
    "data: {\"choices\":[{\"text\":\"\\\"token_ids\\\":[1,2]\",\"token_ids\":[7],"
    "\"finish_reason\":null}]}\r\n\r\n"
    "data:{\"choices\": [{\"text\": \"x\", \"token_ids\": [8, 9]}]}\n\n"
    "event: x\ndata: {\"choices\":[{\"text\":\"y\"}]}\n\n"
    "data: {\"choices\":[{\"text\":\"\",\"token_ids\":[],\"finish_reason\":\"length\"}],"
    "\"timings\":{\"queue_ms\":1500}}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\n"
    "data: [DONE]\n\n";

static void a_stream_means_the_same_however_it_is_cut(void **state)
{
    (void)state;
    for (size_t step = 1; step < sizeof stream; step++) {
        struct load_stream s = {.n_cached = 0};
        struct buf out = {0};
        for (size_t i = 0; i < sizeof stream - 1; i += step) {
            size_t left = sizeof stream - 1 - i;
            load_stream_read(&s, stream + i, step < left ? step : left, note_event, &out);
        }
        assert_string_equal(buf_text(&out), "4/9 7 8 9 -1 ");
        assert_true(s.is_done && s.is_finished && s.n_cached == 64 && s.error[0] == '\0');
        assert_true(fabs(s.queue_seconds - 1.5) < 1e-9);
        load_stream_deinit(&s);
        buf_deinit(&out);
    }
}

static void errors_of_a_server_are_told_in_its_words(void **state)
{
    (void)state;
    static const char event[] =
        "data: {\"error\":{\"message\":\"it \\\"broke\\\"\",\"code\":1}}\n\n";
    struct load_stream s = {.n_cached = 0};
    struct buf out = {0};
    char message[LOAD_ERROR_MAX];
    load_stream_read(&s, event, sizeof event - 1, note_event, &out);
    assert_string_equal(s.error, "it \\\"broke\\\"");
    assert_false(s.is_finished || s.is_done);
    load_stream_message("<html>no</html>\n", 16, message);
    assert_string_equal(message, "<html>no</html>");
    load_stream_message("", 0, message);
    assert_string_equal(message, "");
    load_stream_deinit(&s);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions_are_numpys),
        cmocka_unit_test(few_values_have_a_distribution),
        cmocka_unit_test(equal_seeds_give_equal_requests),
        cmocka_unit_test(lengths_fill_their_range),
        cmocka_unit_test(arrivals_have_rate_and_burstiness),
        cmocka_unit_test(users_take_chats_by_turns),
        cmocka_unit_test(a_share_is_cancelled_everywhere),
        cmocka_unit_test(chats_share_their_prefix_alone),
        cmocka_unit_test(times_become_statistics),
        cmocka_unit_test(a_request_without_tokens_has_its_end_for_the_first),
        cmocka_unit_test(gaps_count_while_others_are_under_way),
        cmocka_unit_test(a_stream_means_the_same_however_it_is_cut),
        cmocka_unit_test(errors_of_a_server_are_told_in_its_words),
        cmocka_unit_test(requests_within_all_goals_are_good),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
