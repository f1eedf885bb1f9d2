#include "support/crowd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"

/* ---- Pages ------------------------------------------------------------------------------ */

/* Adds to, or takes from, the users of a slot's pages. */
static void add_users(const struct paging *p, int32_t slot, int32_t sign)
{
    const struct holding *h = &p->holdings[slot];
    for (int kind = 0; kind < KV_KINDS; kind++) {
        struct page_pool *pool = prefix_pool(p->cache, (enum kv_kind)kind);
        int32_t slots = p->runner->layout.caches.slots[kind];
        assert_true(h->first[kind] >= 0 && h->end[kind] - h->first[kind] <= slots);
        for (int32_t block = h->first[kind]; block < h->end[kind]; block++) {
            int32_t page = runner_page(p->runner, (enum kv_kind)kind, slot, block % slots);
            assert_true(page > 0 && page < pool->n_pages);
            pool->holds[page].users += sign;
        }
    }
}

/* Entries of tables that nobody holds are page 0. */
static void check_tables(const struct paging *p, int32_t slot)
{
    const struct holding *h = &p->holdings[slot];
    for (int kind = 0; kind < KV_KINDS; kind++) {
        int32_t slots = p->runner->layout.caches.slots[kind], n = 0;
        for (int32_t i = 0; i < slots; i++)
            n += runner_page(p->runner, (enum kv_kind)kind, slot, i) != 0;
        assert_int_equal(n, h->end[kind] - h->first[kind]);
    }
}

void crowd_check_pages(carat_engine *e)
{
    const struct paging *p = &e->paging;
    const struct prefix_cursor *cursors[CROWD_MAX];
    assert_true(p->n_seq <= CROWD_MAX);
    for (int32_t i = 0; i < p->n_seq; i++) {
        cursors[i] = &p->holdings[i].cursor;
        check_tables(p, i);
    }
    const char *wrong = prefix_check(p->cache, cursors, (size_t)p->n_seq);
    if (wrong) fail_msg("%s", wrong);
    for (int32_t i = 0; i < p->n_seq; i++) add_users(p, i, -1);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        const struct page_pool *pool = prefix_pool(p->cache, (enum kv_kind)kind);
        for (int32_t page = 0; page < pool->n_pages; page++)
            assert_int_equal(pool->holds[page].users, 0);
    }
    for (int32_t i = 0; i < p->n_seq; i++) add_users(p, i, 1);
    const struct carat_stats *s = carat_engine_stats(e);
    const struct carat_page_counts *local = &s->pages_local, *global = &s->pages_global;
    assert_int_equal(local->free + local->referenced + local->cached, local->all);
    assert_int_equal(global->free + global->referenced + global->cached, global->all);
}

/* ---- Requests --------------------------------------------------------------------------- */

void crowd_open(struct crowd *c, const carat_model *model,
                const struct carat_engine_options *options)
{
    struct carat_error err = {0};
    memset(c, 0, sizeof *c);
    if (carat_engine_open(&c->engine, model, options, &err)) fail_msg("%s", err.message);
}

int64_t crowd_least_bytes(const carat_model *model, const struct carat_engine_options *options,
                          int32_t more_local, int32_t more_global)
{
    struct carat_error err = {0};
    carat_engine *e;
    if (carat_engine_open(&e, model, options, &err)) fail_msg("%s", err.message);
    const struct layout *y = &e->runner->layout;
    struct pools_shape shape = {.n_seq = y->n_seq, .chunk = y->chunk, .split = y->cache_split};
    shape.window_pages = y->caches.window_pages;
    for (int kind = 0; kind < KV_KINDS; kind++) {
        shape.slots[kind] = y->caches.slots[kind];
        shape.page_bytes[kind] = y->caches.page_bytes[0][kind];
    }
    struct pools pools = pools_least(&shape);
    pools.n_pages[KV_LOCAL] += more_local;
    pools.n_pages[KV_GLOBAL] += more_global;
    carat_engine_close(e);
    return (int64_t)pools_bytes(&shape, &pools);
}

void crowd_close(struct crowd *c)
{
    for (int32_t i = 0; i < CROWD_MAX; i++) assert_int_equal(c->requests[i].id, 0);
    const struct carat_stats *s = carat_engine_stats(c->engine);
    assert_int_equal(s->pages_local.referenced, 0);
    assert_int_equal(s->pages_global.referenced, 0);
    assert_int_equal(s->queued + s->waiting + s->prefilling + s->decoding, 0);
    prefix_flush(c->engine->paging.cache);
    crowd_check_pages(c->engine);
    s = carat_engine_stats(c->engine);
    assert_int_equal(s->pages_local.free, s->pages_local.all);
    assert_int_equal(s->pages_global.free, s->pages_global.all);
    assert_int_equal(s->anchors, 0);
    carat_engine_close(c->engine);
}

int crowd_submit(struct crowd *c, const struct crowd_ask *ask, const struct crowd_manner *manner,
                 carat_request_id *id)
{
    static const struct crowd_manner plain;
    struct carat_error err = {0};
    struct crowd_request *r = c->requests;
    const struct crowd_manner *m = manner ? manner : &plain;
    struct carat_request request = {.prompt = ask->ids,
                                    .n_prompt = (size_t)ask->n_ids,
                                    .max_tokens = ask->max_tokens,
                                    .sampling = ask->sampling,
                                    .ignore_stop = ask->ignore_stop,
                                    .want_logprob = true,
                                    .priority = m->priority,
                                    .fairness_key = m->fairness_key,
                                    .deadline_seconds = m->deadline_seconds,
                                    .cache_salt = m->salt,
                                    .no_cache = m->no_cache,
                                    .anchors = m->anchors,
                                    .n_anchors = m->n_anchors};
    while (r->id) assert_true(++r < c->requests + CROWD_MAX);
    *r = (struct crowd_request){.ask = ask, .may_end = m->deadline_seconds > 0};
    int status = carat_submit(c->engine, &request, &r->id, &err);
    if (status == CARAT_EBUSY) {
        assert_int_equal(r->id, 0);
        return status;
    }
    if (status) fail_msg("%s", err.message);
    c->n++;
    if (id) *id = r->id;
    return CARAT_OK;
}

static struct crowd_request *find(struct crowd *c, carat_request_id id)
{
    struct crowd_request *r = c->requests;
    while (r->id != id) assert_true(++r < c->requests + CROWD_MAX);
    return r;
}

void crowd_cancel(struct crowd *c, carat_request_id id)
{
    find(c, id)->is_asked = true;
    assert_int_equal(carat_cancel(c->engine, id), CARAT_OK);
}

void crowd_pause(struct crowd *c, carat_request_id id, bool is_paused)
{
    find(c, id)->is_paused = is_paused;
    assert_int_equal(carat_pause(c->engine, id, is_paused), CARAT_OK);
}

/* ---- Events ----------------------------------------------------------------------------- */

static void compare_token(const struct crowd *c, const struct crowd_request *r,
                          const struct carat_event *event)
{
    const struct crowd_answer *expected = &r->ask->expected;
    int32_t at = r->n;
    if (c->is_unchecked) return;
    assert_true(at < expected->n);
    if (event->id != expected->ids[at] ||
        memcmp(&event->logprob, &expected->logprobs[at], sizeof event->logprob) != 0)
        fail_msg("prompt of %d, token %d: %d (%a), alone %d (%a)", r->ask->n_ids, at, event->id,
                 (double)event->logprob, expected->ids[at], (double)expected->logprobs[at]);
}

static void compare_end(struct crowd *c, const struct crowd_request *r,
                        const struct carat_event *event)
{
    c->finished[event->finish]++;
    if (c->is_unchecked) return;
    if (r->is_asked && event->finish == CARAT_FINISH_CANCELLED) return;
    if (r->may_end && event->finish == CARAT_FINISH_DEADLINE) return;
    if (event->finish != r->ask->expected.finish || r->n != r->ask->expected.n)
        fail_msg("prompt of %d: %d tokens, end %d (%s); alone %d, %d", r->ask->n_ids, r->n,
                 event->finish, event->message, r->ask->expected.n, r->ask->expected.finish);
    c->n_compared++;
}

static void take_events(struct crowd *c)
{
    const struct carat_event *event;
    while ((event = carat_next_event(c->engine))) {
        struct crowd_request *r = find(c, event->request);
        assert_true(!r->is_paused || event->kind == CARAT_EVENT_DONE);
        if (event->kind == CARAT_EVENT_TOKEN) {
            compare_token(c, r, event);
            r->n++;
            c->n_tokens++;
        } else if (event->kind == CARAT_EVENT_DONE) {
            compare_end(c, r, event);
            c->last_done = *event;
            *r = (struct crowd_request){.id = 0};
            c->n--;
        }
    }
}

int crowd_step(struct crowd *c)
{
    struct carat_error err = {0};
    int status = carat_step(c->engine, &err);
    if (status < 0) fail_msg("%s", err.message);
    take_events(c);
    bool has_work = false; /* idle is exactly: none, or all are paused */
    for (int32_t i = 0; i < CROWD_MAX; i++)
        has_work = has_work || (c->requests[i].id && !c->requests[i].is_paused);
    assert_int_equal(status, has_work);
    crowd_check_pages(c->engine);
    return status;
}

void crowd_finish(struct crowd *c)
{
    for (int32_t i = 0; i < CROWD_MAX; i++)
        if (c->requests[i].is_paused) crowd_pause(c, c->requests[i].id, false);
    while (crowd_step(c) > 0) continue;
    assert_int_equal(c->n, 0);
}

void crowd_answer_alone(const carat_model *model, const char *backend, int32_t n_ctx,
                        struct crowd_ask *ask)
{
    struct carat_error err = {0};
    struct crowd_answer *out = &ask->expected;
    carat_engine *engine;
    carat_request_id id;
    struct carat_engine_options options = {.backend = backend,
                                           .n_ctx = n_ctx,
                                           .n_seq = 1,
                                           .chunk = 512,
                                           .n_threads = 1,
                                           .no_prefix_cache = true,
                                           .deterministic = true};
    struct carat_request request = {.prompt = ask->ids,
                                    .n_prompt = (size_t)ask->n_ids,
                                    .max_tokens = ask->max_tokens,
                                    .sampling = ask->sampling,
                                    .ignore_stop = ask->ignore_stop,
                                    .want_logprob = true,
                                    .no_cache = true};
    if (carat_engine_open(&engine, model, &options, &err)) fail_msg("%s", err.message);
    if (carat_submit(engine, &request, &id, &err)) fail_msg("%s", err.message);
    out->n = 0;
    for (int status = 1; status > 0;) {
        status = carat_step(engine, &err);
        if (status < 0) fail_msg("%s", err.message);
        for (const struct carat_event *event; (event = carat_next_event(engine));) {
            if (event->kind == CARAT_EVENT_DONE) out->finish = event->finish;
            if (event->kind != CARAT_EVENT_TOKEN) continue;
            out->ids[out->n] = event->id;
            out->logprobs[out->n++] = event->logprob;
        }
    }
    carat_engine_close(engine);
}
