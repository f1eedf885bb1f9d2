#include "support/answers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct carat_request greedy_request(const int32_t *prompt, size_t n, int32_t max_tokens)
{
    return (struct carat_request){.prompt = prompt,
                                  .n_prompt = n,
                                  .max_tokens = max_tokens,
                                  .sampling = {.top_p = 1, .repeat_penalty = 1},
                                  .ignore_stop = true,
                                  .want_logprob = true};
}

static const size_t mixed_lengths[N_MIXED] = {3, 37, 60, 9};

struct carat_request mixed_request(int i, int32_t prompt[128])
{
    draw_ids(TINY_SEED + (uint64_t)i, prompt, mixed_lengths[i]);
    struct carat_request request = greedy_request(prompt, mixed_lengths[i], 12 + 5 * i);
    if (i % 2) { /* drawn, not greedy: each request has its own generator */
        request.sampling.temperature = 1.5f;
        request.sampling.seed = 100 + (uint64_t)i;
    }
    return request;
}

carat_request_id submit(carat_engine *e, const struct carat_request *request)
{
    carat_request_id id;
    struct carat_error err = {0};
    if (carat_submit(e, request, &id, &err)) fail_msg("%s", err.message);
    return id;
}

void take_events(carat_engine *e, struct answer *answers, size_t n)
{
    const struct carat_event *event;
    while ((event = carat_next_event(e))) {
        size_t i = 0;
        while (i < n && answers[i].request != event->request) i++;
        assert_true(i < n);
        struct answer *a = &answers[i];
        assert_false(a->is_done);
        switch (event->kind) {
        case CARAT_EVENT_PROGRESS:
            assert_true(event->done > a->progress && event->done <= event->total);
            a->progress = event->done;
            break;
        case CARAT_EVENT_TOKEN:
            assert_true(a->n < ANSWER_MAX);
            a->ids[a->n] = event->id;
            a->logprobs[a->n++] = event->logprob;
            break;
        case CARAT_EVENT_DONE:
            a->is_done = true;
            a->done = *event;
            break;
        }
    }
}

void run_all(carat_engine *e, struct answer *answers, size_t n)
{
    struct carat_error err = {0};
    int left;
    do {
        left = carat_step(e, &err);
        if (left < 0) fail_msg("%s", err.message);
        take_events(e, answers, n);
    } while (left > 0);
    for (size_t i = 0; i < n; i++) {
        if (!answers[i].is_done) fail_msg("request %zu did not end", i);
        assert_int_equal(answers[i].n, answers[i].done.n_generated);
    }
}

struct answer ask(carat_engine *e, const struct carat_request *request)
{
    struct answer a = {.request = submit(e, request)};
    run_all(e, &a, 1);
    return a;
}

void check_same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs);
}
